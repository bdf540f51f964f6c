/** How a block of a skeleton for weights in groups divides its tile among warps and lays out shared memory. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, BLOCK_ROWS, blockWords, type GroupSize } from '../../../ir/groups.js';
import type { Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { segmentsProblem } from '../text/fragment.js';
import { skinnyTileStep } from '../skinny/layout.js';

/** Stages of rows, by their columns: rows come from L2, and fewer would not cover the way from there. */
const ROW_STAGES: Readonly<Record<number, number>> = { 128: 8, 256: 4, 512: 4 };
/** Columns of k in a row of a box: the width of the swizzle pattern. */
export const SLAB = 64;
const ALIGNMENT = 1024;
const BARRIER = 8;
/** Boxes without a swizzle pattern begin at multiples of this. */
const BOX_ALIGNMENT = 128;
/** Weights that a warp multiplies: the rows of one instruction. */
export const SLICE = 16;
const TILE_ROWS: readonly number[] = [8, 16, 32, 64];
/** A chunk of k for each warp that shares 16 weights. */
const DEPTHS: readonly number[] = [128, 256, 512];
export const GROUPED_STAGES = { least: 2, most: 24 } as const;
/** Most columns of a tile: gate and up of 35,840 columns are one tile for each multiprocessor of an H100. */
export const MAX_COLUMNS = 288;

/**
 * Ranges of k: chunks of 128 in order, a quarter of them each, rounded up. Sums of groups are added within a range, and
 * ranges in their order.
 */
export const RANGES = 4;
/** Regions of products: the first warp of two adds its two ranges, the second must leave them apart. */
const REGIONS: Readonly<Record<number, number>> = { 1: 1, 2: 3 };

export interface GroupedLayout {
  /** Groups of columns in a chunk of 128 of k. */
  readonly groups: number;
  /** Warps that share 16 weights, each with its own ranges of k, and chunks of a stage. */
  readonly split: number;
  /** Sums of ranges of k in shared memory at the end. */
  readonly regions: number;
  readonly consumerWarps: number;
  readonly valueWarps: number;
  readonly warps: number;
  /** Rows that lie in shared memory: stages, and bytes of each. */
  readonly rowStages: number;
  readonly aBytes: number;
  /** Where weights begin. */
  readonly weightsAt: number;
  /** Of a block of 8 weights × 128 of k, and of all of a chunk. */
  readonly blockBytes: number;
  readonly chunkBytes: number;
  /** From one stage of weights to the next, and what copies bring of it. */
  readonly stageBytes: number;
  readonly boxBytes: number;
  readonly pitch: number;
  readonly barrierOffset: number;
  readonly valuesOffset: number;
  readonly sharedBytes: number;
}

/** `rowValues` floats per row are kept for the epilogue. */
export function groupedLayout(schedule: CudaGemmSchedule, rowValues: number, group: GroupSize): GroupedLayout {
  const { tm, tn, tk, stages } = schedule;
  const [groups, split] = [BLOCK_COLUMNS / group, tk / BLOCK_COLUMNS];
  const regions = REGIONS[split] ?? RANGES;
  const consumerWarps = (tn / SLICE) * split;
  const valueWarps = rowValues === 0 ? 0 : Math.ceil(tm / (tn < 128 ? 16 : 64));
  const aBytes = tm * tk * 2;
  const blockBytes = blockWords(group) * 4;
  const rowStages = Math.min(stages, ROW_STAGES[tk] ?? stages);
  const weightsAt = rowStages * aBytes;
  const chunkBytes = roundUp((tn / BLOCK_ROWS) * blockBytes, BOX_ALIGNMENT);
  const stageBytes = split * chunkBytes;
  const pitch = tn + 8;
  const barrierOffset = roundUp(Math.max(weightsAt + stages * stageBytes, regions * tm * pitch * 4), BOX_ALIGNMENT);
  const valuesOffset = barrierOffset + roundUp(2 * BARRIER * (stages + rowStages), 16);
  return {
    groups,
    split,
    regions,
    consumerWarps,
    valueWarps,
    warps: consumerWarps + 2 + valueWarps,
    rowStages,
    aBytes,
    weightsAt,
    blockBytes,
    chunkBytes,
    stageBytes,
    pitch,
    boxBytes: ((split * tn) / BLOCK_ROWS) * blockBytes,
    barrierOffset,
    valuesOffset,
    sharedBytes: ALIGNMENT + valuesOffset + tm * rowValues * 4,
  };
}

/** Registers of each of the four schedulers of a multiprocessor, which take a block's warps in turn. */
const REGISTERS = 16_384;
const SCHEDULERS = 4;
/** Registers of a thread by the rows that its sums are for, as NVIDIA's compiler counts them. */
const REGISTERS_OF: Readonly<Record<number, number>> = { 8: 64, 16: 72, 32: 112, 64: 168 };

/** Registers that warps take of a scheduler, `each` of a thread. */
const registersOf = (tm: number, warps: number, each = REGISTERS_OF[tm]!): number =>
  Math.ceil(warps / SCHEDULERS) * 32 * each;

/** Blocks whose registers a multiprocessor holds: what the compiler is told, so that it takes no more of them. */
export function groupedBlocks({ tm }: CudaGemmSchedule, { warps }: GroupedLayout): number {
  let blocks = 1;
  while (registersOf(tm, (blocks + 1) * warps) <= REGISTERS) blocks++;
  return blocks;
}

/** Whether the compiler has the registers that it would take. */
export const hasRegisters = ({ tm }: CudaGemmSchedule, { warps }: GroupedLayout): boolean =>
  registersOf(tm, warps) <= REGISTERS;

/** Warps of a block of few rows whose tile is narrow, with which wider ones share a multiprocessor. */
const NEIGHBOUR_WARPS = 8;

/** Registers of a thread that the compiler takes at least. */
const MIN_REGISTERS = 56;

/** Whether a multiprocessor has too few registers for a second block. */
export const isAlone = ({ tm }: CudaGemmSchedule, { warps }: GroupedLayout): boolean =>
  registersOf(tm, 2 * warps, MIN_REGISTERS) > REGISTERS;

/** Whether a block leaves registers for one of another kernel. Shared memory is the schedule's to leave. */
export const leavesRegisters = ({ tm }: CudaGemmSchedule, { warps }: GroupedLayout): boolean =>
  registersOf(tm, warps) + registersOf(tm, NEIGHBOUR_WARPS) <= REGISTERS;

/** The reason why the skeleton cannot run the kernel with this schedule, apart from operands and shared memory. */
export function groupedProblem(segments: readonly Segment[], schedule: CudaGemmSchedule): string | undefined {
  const { tm, tn, tk, stages } = schedule;
  const problem = segmentsProblem(segments);
  if (problem !== undefined) return problem;
  if (!TILE_ROWS.includes(tm)) return `tiles have ${TILE_ROWS.join(', ')} rows`;
  if (!DEPTHS.includes(tk)) return `tk must be ${DEPTHS.join(', ')}`;
  if (stages < GROUPED_STAGES.least || stages > GROUPED_STAGES.most)
    return `stages must be ${GROUPED_STAGES.least} to ${GROUPED_STAGES.most}`;
  const step = skinnyTileStep(segments);
  if (tn % step !== 0 || tn > MAX_COLUMNS)
    return `tn must be a multiple of ${step}, whole pairs, heads and blocks of row sums, and at most ${MAX_COLUMNS}`;
  return undefined;
}

export const SLABS_OF_CHUNK = BLOCK_COLUMNS / SLAB;
