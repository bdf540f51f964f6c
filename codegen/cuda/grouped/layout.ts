/** How a block of a skeleton for weights in groups divides its tile among warps and lays out shared memory. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, BLOCK_ROWS, blockWords, type GroupSize } from '../../../ir/groups.js';
import type { Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { fragmentProblem } from '../text/programs.js';
import { MOST_COLUMNS } from '../wgmma/layout.js';
import { skinnyTileStep } from '../skinny/layout.js';

/** Columns of k in a row of a box: the width of the swizzle pattern. */
export const SLAB = 64;
const ALIGNMENT = 1024;
const BARRIER = 8;
/** Boxes without a swizzle pattern begin at multiples of this. */
const BOX_ALIGNMENT = 128;
/** Weights that a warp multiplies: the rows of one instruction. */
export const SLICE = 16;
const MOST_WARPS = 16;
const TILE_ROWS: readonly number[] = [8, 16, 32, 64];
const DEPTHS: readonly number[] = [128, 256, 512];
export const GROUPED_STAGES = { least: 2, most: 24 } as const;
/** Most rows of a tile for which warps take the chunks of k in turn: all of them exchange the sums of a chunk. */
const SPLIT_ROWS = 16;

export interface GroupedLayout {
  /** Chunks of 128 of k in a stage. */
  readonly chunks: number;
  /** Groups of columns in a chunk. */
  readonly groups: number;
  /** Warps that share 16 weights, and take chunks in turn. */
  readonly split: number;
  readonly consumerWarps: number;
  readonly valueWarps: number;
  readonly warps: number;
  readonly aBytes: number;
  /** Of a block of 8 weights × 128 of k, and of all of a chunk. */
  readonly blockBytes: number;
  readonly chunkBytes: number;
  /** From one stage to the next, and what copies bring of it. */
  readonly stageBytes: number;
  readonly copiedBytes: number;
  readonly pitch: number;
  readonly barrierOffset: number;
  readonly valuesOffset: number;
  /** Where warps exchange sums of groups; two places by turns. */
  readonly exchangeOffset: number;
  readonly exchangeFloats: number;
  readonly sharedBytes: number;
}

/** Warps that share the 16 weights of a slice. */
function splitOf({ tm, tn, tk }: CudaGemmSchedule): number {
  if (tm > SPLIT_ROWS) return 1;
  const slices = Math.ceil(tn / SLICE);
  return [4, 2].find((split) => split <= tk / BLOCK_COLUMNS && split * slices <= MOST_WARPS) ?? 1;
}

/** `rowValues` floats per row are kept for the epilogue. */
export function groupedLayout(schedule: CudaGemmSchedule, rowValues: number, group: GroupSize): GroupedLayout {
  const { tm, tn, tk, stages } = schedule;
  const [chunks, groups, split] = [tk / BLOCK_COLUMNS, BLOCK_COLUMNS / group, splitOf(schedule)];
  const consumerWarps = (tn / SLICE) * split;
  const valueWarps = rowValues === 0 ? 0 : Math.ceil(tm / (tn < 128 ? 16 : 64));
  const aBytes = tm * tk * 2;
  const blockBytes = blockWords(group) * 4;
  const boxBytes = (tn / BLOCK_ROWS) * blockBytes;
  const chunkBytes = roundUp(boxBytes, BOX_ALIGNMENT);
  const stageBytes = roundUp(aBytes + chunks * chunkBytes, ALIGNMENT);
  const pitch = tn + 8;
  const barrierOffset = Math.max(stages * stageBytes, tm * pitch * 4);
  const exchangeOffset = barrierOffset + roundUp(2 * BARRIER * stages, 16);
  const exchangeFloats = split === 1 ? 0 : (tn / SLICE) * split * groups * tm * SLICE;
  const valuesOffset = exchangeOffset + 2 * exchangeFloats * 4;
  return {
    ...{ chunks, groups, split, consumerWarps, valueWarps, warps: consumerWarps + 1 + valueWarps },
    ...{ aBytes, blockBytes, chunkBytes, stageBytes, copiedBytes: aBytes + chunks * boxBytes, pitch },
    ...{ barrierOffset, valuesOffset, exchangeOffset, exchangeFloats },
    sharedBytes: ALIGNMENT + valuesOffset + tm * rowValues * 4,
  };
}

/** The reason why the skeleton cannot run the kernel with this schedule, apart from operands and shared memory. */
export function groupedProblem(segments: readonly Segment[], schedule: CudaGemmSchedule): string | undefined {
  const { tm, tn, tk, stages } = schedule;
  for (const segment of segments) {
    const problem = fragmentProblem(segment);
    if (problem !== undefined) return `tensor cores cannot end weight ${segment.weight}: ${problem}`;
  }
  if (!TILE_ROWS.includes(tm)) return `tiles have ${TILE_ROWS.join(', ')} rows`;
  if (!DEPTHS.includes(tk)) return `tk must be ${DEPTHS.join(', ')}`;
  if (stages < GROUPED_STAGES.least || stages > GROUPED_STAGES.most)
    return `stages must be ${GROUPED_STAGES.least} to ${GROUPED_STAGES.most}`;
  const step = skinnyTileStep(segments);
  if (tn % step !== 0 || tn > MOST_COLUMNS)
    return `tn must be a multiple of ${step}, whole pairs, heads and blocks of row sums, and at most ${MOST_COLUMNS}`;
  return undefined;
}

export const SLABS_OF_CHUNK = BLOCK_COLUMNS / SLAB;
