/** How a block of the skinnyWgmma skeleton divides its tile among warps and lays out shared memory. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { LOGPROB_BLOCK } from '../../../ir/kernel.js';
import { segmentsProblem } from '../text/fragment.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { SLAB_BYTES, WARPS_OF_GROUP, WGMMA_ROWS, slabOf, type WgmmaType } from '../wgmma/instruction.js';
import { columnTiles, MAX_COLUMNS } from '../wgmma/layout.js';
import { skinnyTileStep } from './layout.js';

const ALIGNMENT = 1024;
const BARRIER = 8;
const TILE_ROWS: readonly number[] = [8, 16, 32, 64];
/** Slabs of a stage. */
const DEPTHS: readonly number[] = [1, 2, 4];
export const STAGES = { least: 2, most: 24 } as const;
/** Columns of a tile from which on two warpgroups share it: each has half of the accumulators. */
const SHARED_COLUMNS = 160;
/**
 * Rows whose values one warp computes while the ring is consumed. Wide tiles take longer, and have registers for few
 * warps where two blocks share a multiprocessor.
 */
const rowsOfWarp = (tn: number): number => (tn < 128 ? 16 : 64);

export interface SkinnyWgmmaLayout {
  /** Warpgroups that multiply, side by side, and the columns of each. */
  readonly groups: number;
  readonly wn: number;
  readonly consumerWarps: number;
  /** Warps that compute row values. */
  readonly valueWarps: number;
  readonly warps: number;
  readonly slabs: number;
  readonly aBytes: number;
  readonly stageBytes: number;
  /** Floats from one row of the tile's products to the next: neighbouring rows lie in different banks. */
  readonly pitch: number;
  /** Offsets in bytes from the aligned base. */
  readonly barrierOffset: number;
  readonly valuesOffset: number;
  readonly sharedBytes: number;
}

/** For operands of `dtype`. `rowValues` floats per row are kept for the epilogue. */
export function skinnyWgmmaLayout(
  { tm, tn, tk, stages }: CudaGemmSchedule,
  dtype: WgmmaType,
  rowValues: number,
): SkinnyWgmmaLayout {
  const groups = tn < SHARED_COLUMNS ? 1 : 2;
  const consumerWarps = groups * WARPS_OF_GROUP;
  const valueWarps = rowValues === 0 ? 0 : Math.ceil(tm / rowsOfWarp(tn));
  const slabs = tk / slabOf(dtype);
  const aBytes = tm * tk * DTYPE_BYTES[dtype];
  const stageBytes = aBytes + tn * tk * DTYPE_BYTES[dtype];
  const pitch = tn + 8;
  // An instruction reads 64 rows from where a slab of tm rows begins, so memory must not end before.
  const readPast = Math.max(0, (tm * (slabs - 1) + WGMMA_ROWS) * SLAB_BYTES - stageBytes);
  const barrierOffset = Math.max(stages * stageBytes + readPast, tm * pitch * 4);
  const valuesOffset = barrierOffset + 2 * BARRIER * stages;
  return {
    groups,
    wn: tn / groups,
    consumerWarps,
    valueWarps,
    warps: consumerWarps + 1 + valueWarps,
    slabs,
    aBytes,
    stageBytes,
    pitch,
    barrierOffset,
    valuesOffset,
    sharedBytes: ALIGNMENT + valuesOffset + tm * rowValues * 4,
  };
}

/** The reason why the skeleton cannot run the kernel with this schedule, apart from operands and shared memory. */
export function skinnyWgmmaProblem(
  segments: readonly Segment[],
  { tm, tn, tk, stages, cluster }: CudaGemmSchedule,
  isLogProb: boolean,
  dtype: WgmmaType,
): string | undefined {
  const problem = isLogProb ? undefined : segmentsProblem(segments);
  if (problem !== undefined) return problem;
  if (!TILE_ROWS.includes(tm)) return `tiles of few rows have ${TILE_ROWS.join(', ')} rows`;
  const depths = DEPTHS.map((slabs) => slabs * slabOf(dtype));
  if (!depths.includes(tk)) return `tk must be ${depths.join(', ')}`;
  if (stages < STAGES.least || stages > STAGES.most) return `stages must be ${STAGES.least} to ${STAGES.most}`;
  const step = skinnyTileStep(segments);
  if (tn % step !== 0 || tn > MAX_COLUMNS)
    return `tn must be a multiple of ${step}, whole pairs, heads and blocks of row sums, and at most ${MAX_COLUMNS}`;
  if (columnTiles(segments, tn).total % cluster !== 0) return 'a cluster is a whole number of column tiles';
  if (tm % (8 * cluster) !== 0) return 'each block of a cluster loads at least eight rows';
  if (isLogProb && tn !== LOGPROB_BLOCK) return `tn must be ${LOGPROB_BLOCK}: a block of the vocabulary`;
  return undefined;
}
