/** The consumers' loop over k, and the instruction that it issues. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { render } from '../templates.js';
import { descriptorUnits, SLAB, WGMMA_ROWS, wgmmaOperands } from './instruction.js';
import type { WgmmaLayout } from './layout.js';

/** C function that multiplies a step of a tile. */
const MULTIPLY = 'tw_wgmma';
/** The same for narrow tiles of a last wave. */
const MULTIPLY_NARROW = 'tw_wgmma_narrow';

/** Definition of the function that multiplies `columns` columns at once, tn or lastTn of a schedule. */
export const productText = (layout: WgmmaLayout, mmaType: string, columns = layout.wn): string =>
  render('wgmmaProduct', {
    ...wgmmaOperands(columns),
    mmaType,
    wn: columns,
    multiply: columns === layout.wn ? MULTIPLY : MULTIPLY_NARROW,
  });

/** The loop over `kBlocks` stages; `isNarrow`: of a tile of the last wave. */
export function loopText(schedule: CudaGemmSchedule, layout: WgmmaLayout, kBlocks: number, isNarrow = false): string {
  return render('wgmmaLoop', {
    ...blockText(layout),
    ...stepText(schedule),
    isPingPong: layout.isPingPong,
    stages: schedule.stages,
    kBlocks,
    multiply: isNarrow ? MULTIPLY_NARROW : MULTIPLY,
    stageUnits: descriptorUnits(layout.stageBytes),
    bUnits: descriptorUnits(layout.aBytes),
    consumerUnits: descriptorUnits(layout.rowBlocks * WGMMA_ROWS * SLAB * 2),
    release: releaseText(schedule),
  }).trimEnd();
}

/** Waits for the last products of the loop, and tells the compiler that the accumulators have them. */
export const settleText = (layout: WgmmaLayout): string =>
  render('wgmmaSettle', { blocks: layout.rowBlocks * layout.columnBlocks, accumulators: layout.wn / 2 });

/** Tells every producer of the cluster that stage `before` has been read. */
export const releaseText = ({ cluster }: CudaGemmSchedule): string =>
  cluster === 2
    ? 'if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane);'
    : 'if (lane == 0) tw_bar_arrive(empty + 8 * before);';

/** Descriptor offsets of step k of a stage: 16 elements are 32 bytes inside a slab's swizzled row. */
function stepText({
  tm,
  tn,
  tk,
}: CudaGemmSchedule): Readonly<Record<'aStep' | 'bStep', string>> & { readonly kSteps: number } {
  const kSteps = tk / 16;
  if (tk === SLAB) return { kSteps, aStep: '2 * k', bStep: '2 * k' };
  const step = (rows: number): string => `(k >> 2) * ${descriptorUnits(rows * SLAB * 2)} + (k & 3) * 2`;
  return { kSteps, aStep: step(tm), bStep: step(tn) };
}

/**
 * Which operands instruction `m` of a step multiplies: blocks of rows, or of columns where a tile is wider than one
 * takes.
 */
function blockText({
  rowBlocks,
  columnBlocks,
  wn,
}: WgmmaLayout): Readonly<Record<'aBlock' | 'bBlock', string>> & { readonly blocks: number } {
  const aUnits = descriptorUnits(WGMMA_ROWS * SLAB * 2);
  const bUnits = descriptorUnits(wn * SLAB * 2);
  const blocks = rowBlocks * columnBlocks;
  if (columnBlocks === 1) return { blocks, aBlock: blocks === 1 ? '' : ` + m * ${aUnits}`, bBlock: '' };
  return { blocks, aBlock: ` + m / ${columnBlocks} * ${aUnits}`, bBlock: ` + m % ${columnBlocks} * ${bUnits}` };
}
