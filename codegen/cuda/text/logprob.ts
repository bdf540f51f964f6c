/**
 * Parts of a vocabulary block. The contraction keeps their maxima and sums in shared memory and then combines them in
 * order.
 */
import { LOGPROB_BLOCK, type LogProbKernel, partWidth } from '../../../ir/kernel.js';
import { drawOperands, physicalColumns, storedLogits } from '../../operands.js';
import type { RowPrologue } from './contraction.js';
import { type CudaOperands, CudaRowScope } from './operands.js';
import { LaneBody } from './scalarPrinter.js';
import { configText, type ConfigFields } from '../unit.js';
import { type Functor, functorOf } from './functor.js';
import { capFunctions, capText, indent, render } from './statements.js';

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

// What a unit says of a head (head/parts.cuh).

/** The fields of HeadConfig. */
export interface HeadConfig extends ConfigFields {
  readonly vocab: number;
  readonly columns: number;
  readonly partsStride: number;
  readonly cap: number;
  readonly draws: boolean;
  readonly logitsStride: number;
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
  };
}

/** The definition of `head_config`, a HeadConfig. */
export const headConfigText = (kernel: LogProbKernel, operands: CudaOperands): string =>
  configText('HeadConfig', headConfig(kernel, operands), 'head_config');

/** A HeadBuffers of the kernel's parameters. */
export function headBuffers(kernel: LogProbKernel, operands: CudaOperands): string {
  const { target, parts, draw, logits } = kernel;
  const name = (buffer: string): string => operands.nameOf(operands.get(buffer));
  const fields = [
    ['target', name(target)],
    ['parts', name(parts)],
    ...(draw === undefined
      ? []
      : [
          ['inverse_temperature', name(draw.inverseTemperature)],
          ['key_low', name(draw.low)],
          ['key_high', name(draw.high)],
        ]),
    ...(logits === undefined
      ? []
      : [
          ['logits', name(logits)],
          ['logit_rows', operands.rowsOf(logits).extent],
        ]),
  ];
  return `HeadBuffers{ ${fields.map(([field, value]) => `.${field!} = ${value!}`).join(', ')} }`;
}

/** What the products of a row are scaled by. */
export function scaleFunctor(kernel: LogProbKernel, operands: CudaOperands, prologue: RowPrologue): Functor {
  const row = new CudaRowScope(operands, 'row', 'r', prologue.given('values'));
  const scale = new LaneBody(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
  return functorOf(operands, 'Scale', [
    {
      head: 'TW_DEVICE float operator()(int row, const float *values) const',
      lines: [...row.lines, `return ${scale};`],
    },
  ]);
}

/**
 * The epilogue of a head whose tiles are whole blocks (head/rows.cuh): `text` defines head_config and Scale. `keepsLogits`:
 * it stores the logits that the kernel keeps as it goes.
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

// How templates of the vocabulary's kernels draw tokens.

/** Functions that draw tokens. */
export const gumbelText = (): string => render('gumbel', {});

/** What a template needs of a kernel's draw, and the width of the parts. */
export const drawValues = (
  kernel: Pick<LogProbKernel, 'draw'>,
  operands: CudaOperands,
): { readonly draw: object | undefined; readonly width: number } => ({
  width: partWidth(kernel),
  draw: kernel.draw === undefined ? undefined : { noise: gumbelText(), ...drawOperands(kernel.draw, operands) },
});

// The vocabulary's epilogue. A tile is one block of the log-sum-exp, so a quad of lanes holds a row's whole part of
// it.

const DEPTH = 8;

/** Functions that the statements of logProbText call. */
export const logProbFunctions = ({ draw, cap }: LogProbKernel): string =>
  render('logprobLargest', {}) + capFunctions(cap) + (draw === undefined ? '' : gumbelText());

/**
 * Statements for one row of the tile, with the variable names of epilogueText: the maximum, the sum, the position of
 * the maximum, and the target's logit; with `keepsLogits` also the logits that the kernel keeps. `values`: C expression
 * of the tile's row values. `acc`: the accumulator at element e of column group g, which the statements change.
 */
export function logProbText(
  kernel: LogProbKernel,
  operands: CudaOperands,
  prologue: RowPrologue,
  values = 'from',
  acc = 'acc[m][4 * g + 2 * h + e]',
  keepsLogits = true,
): string {
  const row = new CudaRowScope(
    operands,
    'row',
    'r',
    prologue.given(`(${values} + local * ${prologue.scalars.length})`),
  );
  const scale = new LaneBody(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
  const parts = operands.get(kernel.parts);
  return render('logprobWgmma', {
    row: indent(row.lines, DEPTH),
    scale,
    ...capText(kernel.cap),
    block: LOGPROB_BLOCK,
    vocab: kernel.vocab,
    isWhole: kernel.vocab % LOGPROB_BLOCK === 0,
    acc,
    target: operands.get(kernel.target).index,
    parts: parts.index,
    partsStride: parts.stride,
    logits: keepsLogits ? storedLogits(kernel, operands) : undefined,
    ...drawValues(kernel, operands),
  });
}
