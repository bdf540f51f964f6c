/** What units say of a head (head/parts.cuh): its Config, its buffers, and what products are scaled by. */
import { LOGPROB_BLOCK, type LogProbKernel } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { physicalColumns, storedLogits } from '../../operands.js';
import type { RowPrologue } from './contraction.js';
import { type Functor, functorOf, type Method } from './functor.js';
import { type CudaOperands, CudaRowScope } from './operands.js';
import { LaneBody } from './scalarPrinter.js';
import { buffersText, type ConfigFields, configText } from './unit.js';

/**
 * Columns of a part: a warp's, one per lane, or a thread quad's. Every tile is a multiple of it, so results do not
 * depend on the tile.
 */
export const LOGPROB_PIECE = 32;

/**
 * Bytes of shared memory for the parts of `tm` rows: maximum, sum and column of each, and the row's value at its
 * target; with a draw also its score, column and logit.
 */
export const partsBytes = (tm: number, { draw }: Pick<LogProbKernel, 'draw'>): number =>
  tm * ((LOGPROB_BLOCK / LOGPROB_PIECE) * (draw === undefined ? 12 : 24) + 4);

/** The fields of HeadConfig. */
export interface HeadConfig extends ConfigFields {
  readonly vocab: number;
  readonly columns: number;
  readonly partsStride: number;
  readonly cap: number;
  readonly draws: boolean;
  readonly logitsStride: number;
  /** Present if it is true. */
  readonly hasBias?: true;
}

export function headConfig(kernel: LogProbKernel, operands: CudaOperands): HeadConfig {
  const { vocab, cap = 0, draw } = kernel;
  return {
    vocab,
    columns: physicalColumns(vocab, { kind: 'none' }),
    partsStride: operands.get(kernel.parts).stride,
    cap,
    draws: draw !== undefined,
    logitsStride: storedLogits(kernel, operands)?.stride ?? 0,
    ...(kernel.bias === undefined ? {} : { hasBias: true }),
  };
}

/** The definition of `head_config`, a HeadConfig. */
export const headConfigText = (kernel: LogProbKernel, operands: CudaOperands): string =>
  configText('HeadConfig', headConfig(kernel, operands), 'head_config');

/** A HeadBuffers of the kernel's parameters. */
export const headBuffers = ({ target, parts, draw, logits }: LogProbKernel, operands: CudaOperands): string =>
  buffersText(
    'HeadBuffers',
    operands,
    {
      target,
      parts,
      inverseTemperature: draw?.inverseTemperature,
      keyLow: draw?.low,
      keyHigh: draw?.high,
      ids: draw?.ids,
      logits,
      logitRows: logits === undefined ? undefined : { code: operands.rowsOf(logits).extent },
    },
    '      ',
  );

/** What the products of a row are scaled by, and what is added to those of a column. */
export function scaleFunctor(kernel: LogProbKernel, operands: CudaOperands, prologue: RowPrologue): Functor {
  const row = new CudaRowScope(operands, 'row', 'r', prologue.given('values'));
  const scale = new LaneBody(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
  return functorOf(operands, 'Scale', [
    {
      head: 'TW_DEVICE float operator()(int row, const float *values) const',
      lines: [...row.lines, `return ${scale};`],
    },
    ...(kernel.bias === undefined ? [] : [biasMethod(kernel.bias, operands)]),
  ]);
}

function biasMethod(bias: string, operands: CudaOperands): Method {
  const body = new LaneBody(new CudaRowScope(operands, '0'));
  const load: Scalar = { op: 'load', buffer: bias, access: { kind: 'column' } };
  const [value] = body.floats(load, { id: 'b', column: 'column', lanes: 1 });
  return { head: 'TW_DEVICE float operator()(int column) const', lines: [...body.lines, `return ${value};`] };
}

/**
 * The epilogue of a head whose tiles are whole blocks (head/rows.cuh): `text` defines head_config and Scale.
 * `keepsLogits`: it stores the logits that the kernel keeps as it goes.
 */
export function headEpilogue(
  kernel: LogProbKernel,
  operands: CudaOperands,
  prologue: RowPrologue,
  keepsLogits = kernel.logits !== undefined,
): Functor {
  const scale = scaleFunctor(kernel, operands, prologue);
  const own = keepsLogits === (kernel.logits !== undefined) ? '' : `, ${keepsLogits}`;
  return {
    text: `${headConfigText(kernel, operands)}\n\n${scale.text}`,
    instance: `HeadEpilogue<head_config, Scale${own}>{ ${scale.instance}, ${headBuffers(kernel, operands)} }`,
  };
}
