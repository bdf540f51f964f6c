/** The consumers' loop over k, and the instruction that it issues. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { render } from '../text/templates.js';
import { descriptorUnits, SLAB, WGMMA_ROWS, wgmmaOperands } from './instruction.js';
import type { WgmmaLayout } from './layout.js';
import type { WgmmaOptions } from './options.js';

/** Name of the C function that multiplies one step of a tile. */
export const MULTIPLY = 'tw_wgmma';
/** The same for remainder tiles. */
const MULTIPLY_REMAINDER = 'tw_wgmma_narrow';

/** The function that multiplies `columns` columns at once: those of an instruction, or of remainder tiles. */
export const productText = ({ wn, mmaType }: Pick<WgmmaOptions, 'wn' | 'mmaType'>, columns: number): string =>
  render('wgmmaProduct', {
    ...wgmmaOperands(columns),
    mmaType,
    columns,
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
    consumerUnits: descriptorUnits(options.consumerRows * SLAB * 2),
    release: releaseText(options),
  }).trimEnd();

/**
 * Waits for the loop's last products, and tells the compiler that the accumulators of `blocks` instructions of
 * `columns` columns hold them.
 */
export const waitText = (blocks: number, columns: number): string =>
  render('wgmmaWait', { blocks, accumulators: columns / 2 });

/** Tells every producer of the cluster that stage `before` has been read. */
export const releaseText = ({ isCluster }: WgmmaOptions): string =>
  isCluster
    ? 'if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane);'
    : 'if (lane == 0) tw_bar_arrive(empty + 8 * before);';

/** Descriptor offsets of step k of a stage: 16 elements are 32 bytes inside a slab's swizzled row. */
export function stepOffsets({ tm, tn, tk }: Pick<CudaGemmSchedule, 'tm' | 'tn' | 'tk'>): Readonly<
  Record<'aStep' | 'bStep', string>
> & {
  readonly kSteps: number;
} {
  const kSteps = tk / 16;
  if (tk === SLAB) return { kSteps, aStep: '2 * k', bStep: '2 * k' };
  const step = (rows: number): string => `(k >> 2) * ${descriptorUnits(rows * SLAB * 2)} + (k & 3) * 2`;
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
  const aUnits = descriptorUnits(WGMMA_ROWS * SLAB * 2);
  const bUnits = descriptorUnits(wn * SLAB * 2);
  if (columnBlocks === 1) return { aBlock: rowBlocks === 1 ? '' : ` + m * ${aUnits}`, bBlock: '' };
  return { aBlock: ` + m / ${columnBlocks} * ${aUnits}`, bBlock: ` + m % ${columnBlocks} * ${bUnits}` };
}
