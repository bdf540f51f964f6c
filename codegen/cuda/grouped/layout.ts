/** How a block of a skeleton for weights in groups divides its tile among warps and lays out shared memory. */
import { type CudaGemmSchedule, RESERVED_BYTES } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, BLOCK_ROWS, blockWords, type GroupSize } from '../../../ir/groups.js';
import type { GemmKernel, KernelModule, Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { blocksOf, type SkinnyDevice, skinnyTileStep, widths } from '../skinny/layout.js';
import { adapterBytes, adapterProblem, hasAdapters, pieceRoom } from '../text/adapters.js';
import { segmentsProblem } from '../text/fragment.js';
import { columnTiles } from '../wgmma/layout.js';

/** Stages of rows, by their columns: rows come from L2, and fewer would not cover the way from there. */
const ROW_STAGES: Readonly<Record<number, number>> = { 128: 8, 256: 4, 512: 4 };
/** Columns of k in a row of a box: the width of the swizzle pattern. */
export const SLAB = 64;
const ALIGNMENT = 1024;
const BARRIER = 8;
/** Boxes without a swizzle pattern begin at multiples of this. */
const BOX_ALIGNMENT = 128;
/** Weights that a warp multiplies: the rows of one instruction. */
const SLICE = 16;
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
const RANGES = 4;
/** Regions of products: the first warp of two adds its two ranges, the second must leave them apart. */
const REGIONS: Readonly<Record<number, number>> = { 1: 1, 2: 3 };

/** Of a block. */
export interface GroupedLayout {
  readonly warps: number;
  readonly sharedBytes: number;
}

/** As GroupedConfig has it (gemm/grouped.cuh). `rowValues` floats per row are kept for the epilogue. */
export function groupedLayout(
  kernel: GemmKernel,
  schedule: CudaGemmSchedule,
  rowValues: number,
  group: GroupSize,
): GroupedLayout {
  const { tm, tn, tk, stages } = schedule;
  const split = tk / BLOCK_COLUMNS;
  const valueWarps = rowValues === 0 ? 0 : Math.ceil(tm / (tn < 128 ? 16 : 64));
  const rowStages = Math.min(stages, ROW_STAGES[tk] ?? stages);
  const stageBytes = split * roundUp((tn / BLOCK_ROWS) * blockWords(group) * 4, BOX_ALIGNMENT);
  const ringBytes = rowStages * tm * tk * 2 + stages * stageBytes;
  const regionBytes = tm * (tn + 8) * 4;
  // Second factors of adapters lie behind the first region.
  const secondBytes = hasAdapters(kernel) ? roundUp(regionBytes, BOX_ALIGNMENT) + pieceRoom(kernel, tn) : 0;
  const sharedAtOnce = Math.max(ringBytes, (REGIONS[split] ?? RANGES) * regionBytes, secondBytes);
  const valuesOffset = roundUp(sharedAtOnce, BOX_ALIGNMENT) + roundUp(2 * BARRIER * (stages + rowStages), 16);
  const ownBytes = ALIGNMENT + valuesOffset + tm * rowValues * 4;
  return { warps: (tn / SLICE) * split + 2 + valueWarps, sharedBytes: ownBytes + adapterBytes(kernel, ownBytes) };
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

// Which schedules run weights in groups, and the default.

/** Groups of the weights of a kernel; undefined if they have none. */
export const groupOfKernel = (
  { segments }: GemmKernel,
  { weights }: Pick<KernelModule, 'weights'>,
): GroupSize | undefined => weights.find(({ name }) => name === segments[0]?.weight)?.group;

/** The reason why `schedule` cannot run the kernel, apart from its dtypes; undefined if it can. */
export function groupedScheduleProblem(
  kernel: GemmKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  { arch, sharedBytesPerBlock }: SkinnyDevice,
  rowValues: number,
): string | undefined {
  const group = groupOfKernel(kernel, module);
  if (arch !== 'sm_90a') return `TMA needs sm_90a, the target is ${arch}`;
  if (group === undefined) return 'its weights are in no groups';
  if (schedule.cluster !== 1) return 'clusters are for wgmma';
  const problem = adapterProblem(kernel) ?? groupedProblem(kernel.segments, schedule);
  if (problem !== undefined) return problem;
  const { sharedBytes, warps } = groupedLayout(kernel, schedule, rowValues, group);
  if (warps > MAX_WARPS_OF_BLOCK) return `a tile of ${schedule.tm}×${schedule.tn} needs ${warps} warps`;
  return sharedBytes + RESERVED_BYTES <= sharedBytesPerBlock
    ? undefined
    : `a block needs ${sharedBytes} bytes of shared memory, ${sharedBytesPerBlock} are there`;
}

const MAX_WARPS_OF_BLOCK = 24;
/** Warps of a block that multiply, at most: the ranges of k are divided among them. */
const ENOUGH_WARPS = 16;
/** Most rows of one tile. Up to that, one tile for each multiprocessor is best, and warps may divide k. */
const FEW_ROWS = 64;
/** Widest tiles that are tried then. Registers limit the warps of a block, 16 weights each. */
const WIDEST: Readonly<Record<number, number>> = { 8: MAX_COLUMNS, 16: MAX_COLUMNS, 32: 160, 64: 160 };

/** Numbers of stages, the smallest first. */
const STAGE_COUNTS = Array.from(
  { length: GROUPED_STAGES.most - GROUPED_STAGES.least + 1 },
  (_, i) => GROUPED_STAGES.least + i,
);

/**
 * A good untuned schedule at `rows` rows; undefined if there is none. Blocks of few rows leave room for the next
 * kernel's, which read their weights beside them. But two blocks of one kernel on a multiprocessor end last: where the
 * kernel before has fewer blocks than there are multiprocessors, the idle ones would get two. So a block takes half of
 * the shared memory where its registers keep a second one away, else just more than half.
 */
export function defaultGroupedSchedule(
  kernel: GemmKernel,
  module: KernelModule,
  device: SkinnyDevice,
  rowValues: number,
  rows: number,
): CudaGemmSchedule | undefined {
  const { segments } = kernel;
  const group = groupOfKernel(kernel, module);
  if (group === undefined) return undefined;
  const tm = [8, 16, 32].find((each) => rows <= each) ?? 64;
  const isFew = rows <= FEW_ROWS;
  const tilesOf = (width: number): number => columnTiles(segments, width).total;
  const step = skinnyTileStep(segments);
  const all = isFew
    ? widths(step, tilesOf, device.multiprocessors, WIDEST[tm])
    : [128, 64, step].filter((tn) => tn % step === 0);
  for (const tn of all) {
    const slices = tn / SLICE;
    for (const split of isFew ? [4, 2, 1] : [1]) {
      if (slices * split > ENOUGH_WARPS && split > 1) continue;
      const fitting = STAGE_COUNTS.map((stages): CudaGemmSchedule => ({
        kind: 'gemm',
        skeleton: 'grouped',
        tm,
        tn,
        tk: split * BLOCK_COLUMNS,
        stages,
        cluster: 1,
        raster: 1,
        mode: 'cooperative',
      })).filter((each) => groupedScheduleProblem(kernel, module, each, device, rowValues) === undefined);
      const [first] = fitting;
      if (first === undefined) continue;
      // Numbers of stages change nothing about registers.
      const layout = groupedLayout(kernel, first, rowValues, group);
      if (split > 1 && !hasRegisters(first, layout)) continue;
      if (!leavesRegisters(first, layout)) return fitting.at(-1);
      const half = fitting.filter((each) => blocksOf(groupedLayout(kernel, each, rowValues, group)) === 2);
      if (half.length > 0 && isAlone(first, layout)) return half.at(-1);
      return fitting[half.length] ?? half.at(-1);
    }
  }
  return undefined;
}
