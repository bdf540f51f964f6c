/** The consumers' loop over k, and the instruction that it issues. */
import { render } from '../text/templates.js';
import {
  descriptorUnits,
  SLAB_BYTES,
  STEPS_OF_SLAB,
  stepOf,
  WGMMA_ROWS,
  wgmmaOperands,
  type WgmmaType,
} from './instruction.js';
import type { WgmmaLayout } from './layout.js';
import type { WgmmaOptions } from './options.js';

/** Name of the C function that multiplies one step of a tile. */
export const MULTIPLY = 'tw_wgmma';
/** The same for remainder tiles. */
const MULTIPLY_REMAINDER = 'tw_wgmma_narrow';

/** The function that multiplies `columns` columns at once: those of an instruction, or of remainder tiles. */
export const productText = (
  { wn, mmaType }: { readonly wn: number; readonly mmaType: WgmmaType },
  columns: number,
): string =>
  render('wgmmaProduct', {
    ...wgmmaOperands(columns),
    ...stepOf(mmaType),
    mmaType,
    n: columns,
    multiply: columns === wn ? MULTIPLY : MULTIPLY_REMAINDER,
  });

/** The loop over the stages of a tile. */
export const loopText = (options: WgmmaOptions, isRemainder = false): string =>
  render('wgmmaLoop', {
    ...options,
    ...instructionOffsets(options),
    ...stepOffsets(options),
    multiply: isRemainder ? MULTIPLY_REMAINDER : MULTIPLY,
    stageUnits: descriptorUnits(options.stageBytes),
    bUnits: descriptorUnits(options.aBytes),
    consumerUnits: descriptorUnits(options.consumerRows * SLAB_BYTES),
    release: releaseText(options),
  }).trimEnd();

/**
 * Waits for the loop's last products, and tells the compiler that the accumulators of `blocks` instructions of
 * `columns` columns hold them.
 */
export const waitText = (blocks: number, columns: number): string =>
  render('wgmmaWait', { blocks, accumulators: columns / 2 });

/** Tells every producer of the cluster that stage `before` has been read. */
export const releaseText = ({ cluster }: Pick<WgmmaOptions, 'cluster'>): string =>
  cluster === 1
    ? 'if (lane == 0) tw_bar_arrive(empty + 8 * before);'
    : `if (lane < ${cluster}) tw_bar_arrive_at(empty + 8 * before, lane);`;

/** Descriptor offsets of step k of a stage: a step is 32 bytes inside a slab's swizzled row. */
export function stepOffsets({ tm, tn, slabs }: Pick<WgmmaOptions, 'tm' | 'tn' | 'slabs'>): Readonly<
  Record<'aStep' | 'bStep', string>
> & {
  readonly kSteps: number;
} {
  const kSteps = slabs * STEPS_OF_SLAB;
  if (slabs === 1) return { kSteps, aStep: '2 * k', bStep: '2 * k' };
  const step = (rows: number): string => `(k >> 2) * ${descriptorUnits(rows * SLAB_BYTES)} + (k & 3) * 2`;
  return { kSteps, aStep: step(tm), bStep: step(tn) };
}

/**
 * Descriptor offsets of instruction `m` of a step: blocks of rows, or blocks of columns if a tile is wider than one
 * instruction.
 */
function instructionOffsets({
  rowBlocks,
  columnBlocks,
  wn,
}: WgmmaLayout): Readonly<Record<'aBlock' | 'bBlock', string>> {
  const aUnits = descriptorUnits(WGMMA_ROWS * SLAB_BYTES);
  const bUnits = descriptorUnits(wn * SLAB_BYTES);
  if (columnBlocks === 1) return { aBlock: rowBlocks === 1 ? '' : ` + m * ${aUnits}`, bBlock: '' };
  return { aBlock: ` + m / ${columnBlocks} * ${aUnits}`, bBlock: ` + m % ${columnBlocks} * ${bUnits}` };
}
