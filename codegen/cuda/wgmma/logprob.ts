/**
 * The vocabulary's epilogue. A tile is one block of the log-sum-exp, so a quad of lanes holds a row's whole part of it.
 */
import type { LogProbKernel } from '../../../ir/kernel.js';
import { LOGPROB_BLOCK } from '../../../ir/kernel.js';
import { storedLogits } from '../../operands.js';
import { drawValues, gumbelText } from '../text/draw.js';
import { capFunctions, capText } from '../text/softCap.js';
import type { CudaOperands } from '../text/operands.js';
import type { RowPrologue } from '../text/rowPrologue.js';
import { indent } from '../text/statements.js';
import { RowScope } from '../text/rowScope.js';
import { Body } from '../text/scalarPrinter.js';
import { render } from '../text/templates.js';

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
  const row = new RowScope(operands, 'row', 'r', prologue.given(`(${values} + local * ${prologue.scalars.length})`));
  const scale = new Body(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
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

/** Where a tile's products lie in shared memory, and the names of its first row and column. */
export interface ProductTile {
  readonly tm: number;
  readonly pitch: number;
  readonly warps: number;
  readonly row0: string;
  readonly column0: string;
}

/** Statements of all warps that store the logits of the rows that are kept, before logProbText changes products. */
export function keepLogitsText(
  kernel: LogProbKernel,
  operands: CudaOperands,
  prologue: RowPrologue,
  tile: ProductTile,
): string {
  const logits = storedLogits(kernel, operands);
  if (logits === undefined) return '';
  const row = new RowScope(operands, 'row', 'r', prologue.given(`(values + local * ${prologue.scalars.length})`));
  const scale = new Body(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
  return render('logprobKeep', {
    ...tile,
    ...capText(kernel.cap),
    logits,
    scale,
    row: indent(row.lines, 3),
    block: LOGPROB_BLOCK,
    vocab: kernel.vocab,
  });
}
