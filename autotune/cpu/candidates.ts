/** The schedules worth considering for one kernel and one bucket, as a grid that the search enumerates and climbs. */
import { at } from '../../system/at.js';
import { type CpuFacts, isLegal } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { columnStep, leastCommonMultiple } from '../../codegen/operands.js';
import { extentIn } from '../../ir/extents.js';
import { keyDimOf, valueDimOf } from '../../ir/attentionDims.js';
import { type GemmKernel, type Kernel, type KernelModule, LOGPROB_BLOCK, type LogProbKernel } from '../../ir/kernel.js';
import type { Bucket, CpuGemmSchedule, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { FORMATS } from '../../ir/storage.js';
import { roundUp } from '../../ir/types.js';
import { pathShape } from '../work.js';

/**
 * Register tiles by instruction set, mr × nr. Tall tiles read weights less often; wide tiles read activations less
 * often. AMX has 8 tile registers: 2×2 accumulators, or 1×2 where there are few rows.
 */
const REGISTER_TILES: Readonly<Record<CpuIsa, readonly (readonly [mr: number, nr: number])[]>> = {
  portable: [
    [1, 16],
    [2, 16],
    [4, 16],
    [2, 32],
  ],
  avx2: [
    [1, 32],
    [4, 16],
    [6, 16],
    [3, 32],
    [2, 32],
  ],
  avx512: [
    [1, 64],
    [4, 64],
    [6, 64],
    [8, 32],
    [8, 48],
    [9, 48],
    [12, 32],
    [14, 32],
    [24, 16],
    [28, 16],
  ],
  amx: [
    [16, 32],
    [32, 32],
  ],
};

const DEPTHS = [128, 192, 256, 384, 512, 768, 1024, 1536, 2048] as const;
const ROWS = [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024] as const;
const COLUMNS = [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024] as const;
const QUERIES = [16, 32, 48, 64, 96, 128] as const;
const KEYS = [64, 128, 256, 512, 1024] as const;
const LOOP_ROWS = [1, 2, 4, 8, 16, 32, 64, 128] as const;

/** One axis of the grid: its values in ascending order of size. */
type Axis = readonly number[];
/** A point: an index on each axis. */
type GridPoint = readonly number[];

/** The grid of one (kernel, bucket). Each kernel has one fixed `isa`: its results must not depend on the bucket. */
export interface Space {
  readonly axes: readonly Axis[];
  /** The schedule at a point. */
  readonly at: (values: readonly number[]) => CpuSchedule;
  /** Values of a schedule on each axis. */
  readonly valuesOf: (schedule: CpuSchedule) => readonly number[];
  /** Whether the schedule may be used. */
  readonly isLegal: (schedule: CpuSchedule) => boolean;
}

const ascending = (values: Iterable<number>): number[] => [...new Set(values)].sort((a, b) => a - b);

/** Values up to the first that covers `extent`, which is replaced by `extent`. Larger values would be equivalent. */
function upTo(values: readonly number[], extent: number): number[] {
  return ascending([...values.filter((v) => v < extent), extent]);
}

function gemmSpace(
  kernel: GemmKernel | LogProbKernel,
  module: KernelModule,
  start: CpuGemmSchedule,
  rows: number,
  facts: CpuFacts,
): Space {
  const tiles = REGISTER_TILES[start.isa];
  const steps = kernel.anchor === 'gemm' ? kernel.segments.map(columnStep) : [LOGPROB_BLOCK];
  const step = steps.reduce(leastCommonMultiple, 32);
  const tileIndex = (s: CpuGemmSchedule): number => tiles.findIndex(([mr, nr]) => mr === s.mr && nr === s.nr);
  return {
    axes: [
      tiles.map((_, i) => i),
      upTo(DEPTHS, roundUp(kernel.k, 32)),
      upTo(ROWS, roundUp(Math.max(rows, 1), 16)),
      ascending(COLUMNS.map((columns) => roundUp(columns, step))),
    ],
    at: ([tile, kc, mb, nb]) => {
      const [mr, nr] = at(tiles, tile!);
      return { kind: 'gemm', isa: start.isa, mr, nr, kc: kc!, mb: roundUp(mb!, mr), nb: nb! };
    },
    valuesOf: (s) => (s.kind === 'gemm' ? [tileIndex(s), s.kc, s.mb, s.nb] : []),
    isLegal: (s) => isCandidate(kernel, module, s, facts) === true,
  };
}

/** Most keys of a query. */
const keysOf = (kernel: Kernel, bucket: Bucket): number =>
  kernel.anchor === 'attention' && kernel.mask.kind === 'path' ? pathShape(bucket).length : tokensIn(bucket);

/**
 * The grid around `start`, code generation's default schedule for the bucket, which also fixes the instruction set.
 * Deterministic: the same arguments give the same grid in the same order.
 */
export function scheduleSpace(
  kernel: Kernel,
  module: KernelModule,
  start: CpuSchedule,
  facts: CpuFacts,
  bucket: Bucket,
): Space {
  const rows = extentIn(kernel.rows, bucket.extents);
  const isLegal = (s: CpuSchedule): boolean => isCandidate(kernel, module, s, facts) === true;
  switch (start.kind) {
    case 'gemm':
      if (kernel.anchor !== 'gemm' && kernel.anchor !== 'logprob')
        throw new Error(`Kernel ${kernel.name} is of kind ${kernel.anchor}, but its schedule is for gemm.`);
      return gemmSpace(kernel, module, start, rows, facts);
    case 'attention':
      return {
        axes: [upTo(QUERIES, roundUp(rows, 16)), upTo(KEYS, roundUp(keysOf(kernel, bucket), 64))],
        at: ([queries, keys]) => ({ kind: 'attention', isa: start.isa, queries: queries!, keys: keys! }),
        valuesOf: (s) => (s.kind === 'attention' ? [s.queries, s.keys] : []),
        isLegal,
      };
    case 'loop':
      return {
        axes: [upTo(LOOP_ROWS, rows)],
        at: ([count]) => ({ kind: 'loop', isa: start.isa, rows: count! }),
        valuesOf: (s) => (s.kind === 'loop' ? [s.rows] : []),
        isLegal,
      };
    default:
      return start satisfies never;
  }
}

/** The distinct legal schedules among `points`, in order. */
function schedulesAt(space: Space, points: Iterable<GridPoint>): CpuSchedule[] {
  const found = new Map<string, CpuSchedule>();
  for (const point of points) {
    const schedule = space.at(point.map((index, axis) => at(at(space.axes, axis), index)));
    const key = cpuScheduling.key(schedule);
    if (!found.has(key) && space.isLegal(schedule)) found.set(key, schedule);
  }
  return [...found.values()];
}

function* everyPoint(axes: readonly Axis[]): Generator<GridPoint> {
  if (axes.length === 0) {
    yield [];
    return;
  }
  const [first, ...rest] = axes;
  for (let i = 0; i < first!.length; i++) for (const inner of everyPoint(rest)) yield [i, ...inner];
}

/** Every legal schedule of the grid, each once, in a fixed order. */
export const enumerateSpace = (space: Space): readonly CpuSchedule[] => schedulesAt(space, everyPoint(space.axes));

/** Index of the value nearest to `value`: schedules from other sources may lie off the grid. */
function nearest(axis: Axis, value: number): number {
  const distances = axis.map((each) => Math.abs(each - value));
  return distances.indexOf(Math.min(...distances));
}

/**
 * Legal schedules one step away from `from` on one axis, in both directions. A contraction's first axis (register
 * tiles) has no order, so any of its values counts as one step. Never contains `from`.
 */
export function neighbours(space: Space, from: CpuSchedule): readonly CpuSchedule[] {
  const values = space.valuesOf(from);
  const centre = space.axes.map((axis, i) => nearest(axis, values[i] ?? 0));
  const points: GridPoint[] = [];
  space.axes.forEach((axis, i) => {
    const own = at(centre, i);
    const indices = from.kind === 'gemm' && i === 0 ? axis.keys() : [own - 1, own + 1];
    for (const index of indices)
      if (index >= 0 && index < axis.length) points.push(centre.map((c, j) => (j === i ? index : c)));
  });
  const own = cpuScheduling.key(from);
  return schedulesAt(space, points).filter((schedule) => cpuScheduling.key(schedule) !== own);
}

export type { CpuFacts } from '../../codegen/cpu/index.js';

/** Bytes of one element of the packed weights that a contraction reads. */
export function weightBytes(kernel: GemmKernel | LogProbKernel, module: KernelModule): number {
  const name = kernel.anchor === 'gemm' ? kernel.segments[0]?.weight : kernel.weight;
  const weight = module.weights.find((w) => w.name === name);
  return FORMATS[weight?.format ?? 'f32'].elementBits / 8;
}

/** Bytes of weights that one pass over k reads again for each register tile of rows. */
const weightBlockBytes = (kernel: GemmKernel | LogProbKernel, module: KernelModule, s: CpuGemmSchedule): number =>
  s.nb * Math.min(s.kc, kernel.k) * weightBytes(kernel, module);

/** Bytes of a work item's accumulator tile. */
const tileBytes = (s: CpuGemmSchedule): number => s.mb * s.nb * 4;

/**
 * `true`, or why the tuner leaves `schedule` out. Code generation decides what is correct (codegen/cpu/schedules.ts).
 * Here, only sizes that cannot be fast are refused: weight blocks larger than twice the L2 cache would be read from
 * memory for every register tile, and so would accumulator tiles larger than four times the L2 cache. Pure: depends on
 * its arguments only.
 */
export function isCandidate(
  kernel: Kernel,
  module: KernelModule,
  schedule: CpuSchedule,
  facts: CpuFacts,
): true | string {
  const legal = isLegal(kernel, module, schedule, facts);
  if (legal !== true) return legal;
  if (schedule.kind === 'gemm' && (kernel.anchor === 'gemm' || kernel.anchor === 'logprob')) {
    const block = weightBlockBytes(kernel, module, schedule);
    if (block > 2 * facts.l2) return `a block of weights has ${block} bytes; the L2 cache has ${facts.l2}`;
    const tile = tileBytes(schedule);
    if (tile > 4 * facts.l2) return `the tile of a work item has ${tile} bytes; the L2 cache has ${facts.l2}`;
  }
  if (schedule.kind === 'attention' && kernel.anchor === 'attention') {
    const block = schedule.keys * (keyDimOf(kernel) + valueDimOf(kernel)) * 4;
    if (block > 2 * facts.l2) return `a block of keys and values has ${block} bytes; the L2 cache has ${facts.l2}`;
  }
  return true;
}
