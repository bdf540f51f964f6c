/** How a block of the skinny skeleton divides its tile among warps and lays out shared memory. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { groupWidth } from '../../../ir/groupSums.js';
import type { Segment } from '../../../ir/kernel.js';
import { LOGPROB_BLOCK } from '../../../ir/kernel.js';
import { leastCommonMultiple } from '../text/operands.js';
import { segmentsProblem, fragmentStep, tileStep } from '../text/fragment.js';

/** Rows of a tile. Tiles of 8 rows use half of each tensor-core instruction. */
const TILE_ROWS: readonly number[] = [8, 16, 32, 64];
/** Depths of a stage: 128 to 512 bytes of each weight row are copied at a time. */
const DEPTHS: readonly number[] = [64, 128, 256];
export const SKINNY_STAGES = { least: 3, most: 16 } as const;
const MAX_WARPS = 16;
/** Columns of two tensor-core instructions, which one ldmatrix loads. */
const WARP_COLUMNS = 16;
/** Floats from one row of a vocabulary tile's products to the next: neighbouring rows lie in different banks. */
export const PRODUCTS_PITCH = LOGPROB_BLOCK + 8;

/** The part of a tile that a warp multiplies, for the whole of k. */
export interface SkinnyWarps {
  readonly wm: number;
  readonly wn: number;
  readonly warpsDown: number;
  readonly warps: number;
}

/** The number of columns of a warp: whole pairs and whole blocks of row sums. */
export const skinnyStep = (segments: readonly Segment[]): number =>
  segments.map(fragmentStep).reduce(leastCommonMultiple, WARP_COLUMNS);

/** The number of columns of a tile: whole parts of warps, and whole groups that epilogues sum. */
export const skinnyTileStep = (segments: readonly Segment[]): number =>
  segments.map(tileStep).reduce(leastCommonMultiple, skinnyStep(segments));

/** Whether epilogues need whole groups, which are wider than a warp's part: products then go through shared memory. */
export const needsGroups = (segments: readonly Segment[]): boolean =>
  segments.some(({ outputs }) => groupWidth(outputs) !== undefined);

/** Floats from one row of a tile's products in shared memory to the next, for whole groups. */
export const groupPitch = (tn: number): number => tn + 8;

/** Narrow parts, because few warps share a multiprocessor: as many warps as a block may have. */
export function skinnyWarps({ tm, tn }: Pick<CudaGemmSchedule, 'tm' | 'tn'>, step: number): SkinnyWarps {
  const across = tn / step;
  const wm = TILE_ROWS.find((rows) => rows >= Math.min(16, tm) && (tm / rows) * across <= MAX_WARPS) ?? tm;
  return { wm: Math.min(wm, tm), wn: step, warpsDown: Math.max(1, tm / wm), warps: Math.max(1, tm / wm) * across };
}

/** Warps from which on a block has enough of them to copy and multiply by turns. */
const ENOUGH_WARPS = 8;
/** Copies of 16 bytes that a thread starts for each stage. */
const COPIES_OF_THREAD = 3;

/**
 * Warps that only copy. With few warps in a block, one that copied and multiplied would be limited by its own
 * instructions: with two warps a stage of 8 KB takes 1.05 µs on an H100, three times what memory needs for it.
 */
export function skinnyCopiers(schedule: CudaGemmSchedule, warps: number, isLogProb: boolean): number {
  if (isLogProb || warps >= ENOUGH_WARPS) return 0;
  return Math.min(MAX_WARPS - warps, Math.max(1, Math.ceil(skinnyStageBytes(schedule) / 16 / 32 / COPIES_OF_THREAD)));
}

export const skinnyStageBytes = ({ tm, tn, tk }: CudaGemmSchedule): number => (tm + tn) * tk * 2;

/** Byte offset of the row values: behind the ring, and behind the products that replace it in a vocabulary tile. */
export const skinnyValuesOffset = (schedule: CudaGemmSchedule, isLogProb: boolean): number =>
  Math.max(schedule.stages * skinnyStageBytes(schedule), isLogProb ? schedule.tm * PRODUCTS_PITCH * 4 : 0);

/** Bytes of a block's shared memory. `rowValues` floats per row are kept for the epilogue. */
export const skinnySharedBytes = (schedule: CudaGemmSchedule, rowValues: number, isLogProb: boolean): number =>
  skinnyValuesOffset(schedule, isLogProb) + schedule.tm * rowValues * 4;

/** The reason why the skeleton cannot run the kernel with this schedule, apart from dtypes and shared memory. */
export function skinnyProblem(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule,
  isLogProb: boolean,
): string | undefined {
  const { tm, tn, tk, stages } = schedule;
  const problem = isLogProb ? undefined : segmentsProblem(segments);
  if (problem !== undefined) return problem;
  if (!TILE_ROWS.includes(tm)) return `skinny tiles have ${TILE_ROWS.join(', ')} rows`;
  if (!DEPTHS.includes(tk)) return `skinny takes ${DEPTHS.join(', ')} of k at a time`;
  if (stages < SKINNY_STAGES.least || stages > SKINNY_STAGES.most)
    return `skinny has ${SKINNY_STAGES.least} to ${SKINNY_STAGES.most} stages`;
  const step = skinnyStep(segments);
  const whole = skinnyTileStep(segments);
  if (tn % whole !== 0) return `tn must be a multiple of ${whole}: whole pairs, heads and blocks of row sums`;
  const { wm, wn, warps } = skinnyWarps(schedule, step);
  if (warps > MAX_WARPS) return `a tile of ${tm}×${tn} needs ${warps} warps, ${MAX_WARPS} at most`;
  if (wm * wn > 2048) return `a warp's part of ${wm}×${wn} does not fit its registers`;
  if (isLogProb && tn !== LOGPROB_BLOCK) return `tn must be ${LOGPROB_BLOCK}: a block of the vocabulary`;
  return undefined;
}
