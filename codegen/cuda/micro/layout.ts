/** How a block of the skeleton for microscaled weights lays out shared memory, and which schedules it runs. */
import { type CudaGemmSchedule, MULTIPROCESSOR_BYTES, RESERVED_BYTES } from '../../../ir/cuda.js';
import type { GemmKernel, KernelModule, Segment } from '../../../ir/kernel.js';
import { MICRO_BYTES, MICRO_DEPTH, MICRO_ROWS } from '../../../ir/microscaled.js';
import { roundUp } from '../../../ir/types.js';
import { leastCommonMultiple } from '../../operands.js';
import { type SkinnyDevice, skinnyStep, skinnyTileStep } from '../skinny/layout.js';
import { segmentsProblem } from '../text/fragment.js';
import { columnTiles } from '../wgmma/layout.js';

const ALIGNMENT = 1024;
const BARRIER = 8;
/** Boxes without a swizzle pattern begin at multiples of this. */
const BOX_ALIGNMENT = 128;
/** Rows of tiles that warps multiply, and of those that warpgroups do. */
const FEW: readonly number[] = [8, 16, 32];
const MANY: readonly number[] = [64, 128];
/** Columns of a warpgroup, and k of a stage of theirs. */
const WIDE_STEP = 64;
const WIDE_DEPTH = 128;
export const MICRO_STAGES = { least: 2, most: 24 } as const;
const MAX_COLUMNS = 256;
/** A thread of a fourth warpgroup would leave the others too few registers. */
const MAX_WIDE = 192;

type Tile = Pick<CudaGemmSchedule, 'tm' | 'tn' | 'raster'>;

const maxColumns = (tile: Tile): number => (isWide(tile) ? MAX_WIDE : MAX_COLUMNS);
/** Most rows that a team ends at a time. */
const END_ROWS = 32;

/** Blocks of memory side by side of a warpgroup, which multiplies by wgmma: what `raster` says of few rows. */
export const OF_WARPGROUP = 4;

/** Whether warpgroups multiply: many rows, or few if `raster` says so. */
export const isWide = ({ tm, raster }: Omit<Tile, 'tn'>): boolean => !FEW.includes(tm) || raster >= OF_WARPGROUP;

/** Columns of a warp: one block of memory, or of few rows two if `raster` says so and tiles are whole pairs of them. */
export const microWarp = (tile: Tile): number =>
  tile.raster > 1 && !isWide(tile) && tile.tn % (2 * MICRO_ROWS) === 0 ? 2 * MICRO_ROWS : MICRO_ROWS;

/** Bytes of a block's shared memory: MicroConfig::end (gemm/micro.cuh). */
export function microSharedBytes(schedule: CudaGemmSchedule, segments: readonly Segment[]): number {
  const { tm, tn, tk, stages } = schedule;
  const depth = tk / MICRO_DEPTH;
  const warp = microWarp(schedule);
  const team = warp * (isWide(schedule) ? 4 : Math.ceil(skinnyStep(segments) / warp));
  const stage = depth * (tm * MICRO_DEPTH * 2 + roundUp((tn / MICRO_ROWS) * MICRO_BYTES, BOX_ALIGNMENT));
  const products = (tn / team) * Math.min(tm, END_ROWS) * (team + 4) * 4;
  return ALIGNMENT + stages * stage + products + 2 * BARRIER * stages;
}

/** Whether the weights of a kernel are microscaled. */
export const isMicroscaled = ({ segments }: GemmKernel, { weights }: Pick<KernelModule, 'weights'>): boolean =>
  weights.find(({ name }) => name === segments[0]?.weight)?.layout === 'microscaled';

/** The columns of a tile are a multiple of this. */
const columnStep = (segments: readonly Segment[], tile: Tile): number =>
  leastCommonMultiple(skinnyTileStep(segments), isWide(tile) ? WIDE_STEP : MICRO_ROWS);

/** The reason why `schedule` cannot run the kernel, apart from its dtypes; undefined if it can. */
export function microProblem(
  kernel: GemmKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  { arch, sharedBytesPerBlock }: SkinnyDevice,
  rowValues: number,
): string | undefined {
  const { tm, tn, tk, stages, cluster } = schedule;
  const { segments } = kernel;
  if (arch !== 'sm_90a') return `TMA needs sm_90a, the target is ${arch}`;
  if (!isMicroscaled(kernel, module)) return 'its weights are not microscaled';
  if (kernel.experts === undefined || kernel.finish !== undefined) return 'its rows are not those of experts';
  if (rowValues > 0) return 'rows of experts have no values of their own';
  if (cluster !== 1) return 'clusters are for wgmma';
  const problem = segmentsProblem(segments);
  if (problem !== undefined) return problem;
  if (![...FEW, ...MANY].includes(tm)) return `tiles have ${[...FEW, ...MANY].join(', ')} rows`;
  if (tk % MICRO_DEPTH !== 0) return `tk must be a multiple of ${MICRO_DEPTH}`;
  if (isWide(schedule) && tk > WIDE_DEPTH) return `tk is at most ${WIDE_DEPTH} where warpgroups multiply`;
  if (stages < MICRO_STAGES.least || stages > MICRO_STAGES.most)
    return `stages must be ${MICRO_STAGES.least} to ${MICRO_STAGES.most}`;
  const step = columnStep(segments, schedule);
  if (tn % step !== 0 || tn > maxColumns(schedule))
    return `tn must be a multiple of ${step}, whole pairs and warps, and at most ${maxColumns(schedule)}`;
  if (WIDE_STEP % skinnyStep(segments) !== 0) return 'a warpgroup ends whole units of columns';
  const sharedBytes = microSharedBytes(schedule, segments);
  return sharedBytes + RESERVED_BYTES <= sharedBytesPerBlock
    ? undefined
    : `a block needs ${sharedBytes} bytes of shared memory, ${sharedBytesPerBlock} are there`;
}

/** What a tile costs beside its columns, in columns: the way of its first bytes, and its epilogue. */
const TILE_COLUMNS = 24;
/** Blocks of few rows on a multiprocessor: one ends a tile while the other multiplies. */
const FEW_BLOCKS = 2;
/**
 * Bytes of a block where a multiprocessor has at most one tile. Two such blocks must not share one while others are
 * idle, as they would where the kernel before leaves some early: so they take more than half of it, and those of a
 * product that reads its weights beside them what is left.
 */
const FIRST_BYTES = 138 << 10;
const SECOND_BYTES = MULTIPROCESSOR_BYTES - FIRST_BYTES - 2 * RESERVED_BYTES;
/** Stages of a block alone on a multiprocessor: tiles of 16 × 240 took 46.3 µs by 5, and 55.7 by two blocks of 3. */
const LONE_STAGES = 5;
/** Columns of a tile from which its warps keep a multiprocessor busy. */
const BUSY_COLUMNS = 160;
/** Rows that an expert has at most for most of the time, over their mean. */
const UNEVEN = 2;
/**
 * Rows of an expert, on average, from which warpgroups multiply. On an H200, 32 experts of 5,760 columns take 142 µs by
 * tiles of 64 rows, 108 by warps and tiles of 32, and 87 by tiles of 16 (docs/log/families.md).
 */
const ENOUGH_ROWS = 20;
/** Rows of a tile from which a warp has two blocks of memory, which then share what is read of rows. */
const SHARING_ROWS = 32;

/** Blocks of a schedule on a multiprocessor. */
export const microBlocks = (schedule: CudaGemmSchedule, segments: readonly Segment[]): number =>
  FEW.includes(schedule.tm) &&
  FEW_BLOCKS * (microSharedBytes(schedule, segments) + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES
    ? FEW_BLOCKS
    : 1;

/**
 * A good untuned schedule at `rows` pairs of a row and an expert; undefined if there is none. Experts are taken to be
 * chosen evenly.
 */
export function defaultMicroSchedule(
  kernel: GemmKernel,
  module: KernelModule,
  device: SkinnyDevice,
  rowValues: number,
  rows: number,
): CudaGemmSchedule | undefined {
  const { segments, experts } = kernel;
  if (experts === undefined || !isMicroscaled(kernel, module)) return undefined;
  const used = Math.min(experts.count, rows);
  const mean = rows / used;
  const isHeight = (each: number): boolean => (mean <= 1 ? 1 : UNEVEN * mean) <= each;
  const tm = (mean < ENOUGH_ROWS ? FEW : MANY).find(isHeight) ?? MANY.at(-1)!;
  const tiles = used * Math.ceil(mean / tm);
  const isMany = MANY.includes(tm);
  const blocks = isMany ? 1 : FEW_BLOCKS;
  const raster = isMany || tm < SHARING_ROWS ? 1 : 2;
  const sort = { tm, tn: MICRO_ROWS, raster };
  const step = leastCommonMultiple(columnStep(segments, sort), raster * MICRO_ROWS);
  const tilesOf = (tn: number): number => tiles * columnTiles(segments, tn).total;
  const costOf = (tn: number): number => {
    const all = tilesOf(tn);
    const turns = Math.ceil(all / (device.multiprocessors * blocks)) * blocks;
    // Where tiles are few, some multiprocessors have one block less.
    return (
      Math.min(turns, Math.max(blocks - 1, Math.ceil(all / device.multiprocessors))) * (tn + TILE_COLUMNS / blocks)
    );
  };
  const widths = Array.from({ length: Math.floor(maxColumns(sort) / step) }, (_, i) => (i + 1) * step);
  const isBusy = (tn: number): boolean => isMany || tn >= BUSY_COLUMNS || tilesOf(tn) < blocks * device.multiprocessors;
  // The last of an odd number of wide tiles would have a multiprocessor to itself, with half of the memory.
  const isLone = (tn: number): boolean => {
    const each = Math.ceil(tilesOf(tn) / device.multiprocessors);
    return !isMany && tn >= BUSY_COLUMNS && each > 1 && each % FEW_BLOCKS === 1;
  };
  const half = Math.floor(MULTIPROCESSOR_BYTES / FEW_BLOCKS);
  const isOneEach = (tn: number): boolean => !isMany && tilesOf(tn) <= device.multiprocessors;
  const roomOf = (tn: number): number => {
    if (isOneEach(tn)) return experts.areKnown === true ? SECOND_BYTES : FIRST_BYTES;
    return isMany || isLone(tn) ? device.sharedBytesPerBlock : half;
  };
  const mostStages = (tn: number): number => (isLone(tn) ? LONE_STAGES : MICRO_STAGES.most);
  const rank = (tn: number): number => (isBusy(tn) ? 0 : 1);
  for (const tn of widths.sort((a, b) => rank(a) - rank(b) || costOf(a) - costOf(b) || b - a))
    for (const depth of isMany ? [2] : [3, 2, 1])
      for (let stages: number = mostStages(tn); stages > MICRO_STAGES.least; stages--) {
        const schedule: CudaGemmSchedule = {
          kind: 'gemm',
          skeleton: 'micro',
          tm,
          tn,
          tk: depth * MICRO_DEPTH,
          stages,
          cluster: 1,
          raster,
          mode: 'cooperative',
        };
        if (microSharedBytes(schedule, segments) + RESERVED_BYTES > roomOf(tn)) continue;
        if (microProblem(kernel, module, schedule, device, rowValues) === undefined) return schedule;
      }
  return undefined;
}
