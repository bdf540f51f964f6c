/**
 * The plan: compiled data that a runtime executes. It holds allocations, weights and launches, but no code.
 * passes/planMemory and autotune write it, and runtime/ reads it. Loading validates it (driver/planJson,
 * driver/checkPlan).
 */
import type { CudaSchedule } from './cuda.js';
import { extentIn, type Extents } from './extents.js';
import { type FunctionInterface, isReserved, SCORE, type StateDecl } from './function.js';
import type { BufferDecl, ConstantVector, Kernel, WeightDecl } from './kernel.js';
import { DTYPE_BYTES, type ExtentName, roundUp } from './types.js';

/** Micro-kernels of the CPU target, weakest first. */
export const CPU_ISAS = ['portable', 'avx2', 'avx512', 'amx'] as const;
export type CpuIsa = (typeof CPU_ISAS)[number];

/** Tiles of a contraction on a CPU. The mr × nr accumulators live in registers; a work item is mb rows × nb columns. */
export interface CpuGemmSchedule {
  readonly kind: 'gemm';
  readonly isa: CpuIsa;
  /** Rows of the register tile. */
  readonly mr: number;
  /** Columns of the register tile: a multiple of 16 (32 if a pairing or row sum needs both halves; see legality). */
  readonly nr: number;
  /** Depth of one pass over k; the accumulators are kept in memory between passes. */
  readonly kc: number;
  /** Rows and columns of a work item: what one thread takes at a time. Sized for the thread's L2. */
  readonly mb: number;
  readonly nb: number;
}

/** Attention on a CPU: queries per tile and keys per block. */
export interface CpuAttentionSchedule {
  readonly kind: 'attention';
  readonly isa: CpuIsa;
  readonly queries: number;
  readonly keys: number;
}

/** Every other kernel: a loop nest, split over rows. */
export interface CpuLoopSchedule {
  readonly kind: 'loop';
  readonly isa: CpuIsa;
  /** Rows that a thread takes at a time. */
  readonly rows: number;
}

export type CpuSchedule = CpuGemmSchedule | CpuAttentionSchedule | CpuLoopSchedule;

/**
 * A class of calls: upper bounds of every extent, and paths of at most `longest` tokens. `run`: most new tokens of one
 * path that stand next to each other, if the class is for calls of few new tokens a path. `withoutAdapters`: no row of
 * a call has an adapter.
 */
export interface Bucket {
  readonly extents: Extents;
  readonly longest: number;
  readonly run?: number;
  readonly withoutAdapters?: true;
}

/** One kernel launch: an exported symbol of the plan's library, with its buffers in the order of parameters. */
export interface Launch {
  /** Kernel (ir/kernel) this launch runs. */
  readonly kernel: string;
  /** Key of the kernel's text. Kernels that differ only in names of buffers and weights have equal keys. */
  readonly signature: string;
  /** Buffer and weight names in the order of the generated function's parameters. */
  readonly parameters: readonly string[];
}

/** Offset of a buffer in the arena, in bytes, and its row stride, in elements. */
export interface Placement {
  readonly buffer: string;
  readonly offset: number;
  readonly sizeBytes: number;
}

/** A function of a plan: its interface, its kernels and their launches. `S` is the type of the target's schedules. */
export interface FunctionPlan<S = CpuSchedule> {
  readonly interface: FunctionInterface;
  readonly buffers: readonly BufferDecl[];
  readonly kernels: readonly Kernel[];
  readonly launches: readonly Launch[];
  /** The largest call that the arena has room for. */
  readonly capacity: Bucket;
  readonly arenaBytes: number;
  readonly placements: readonly Placement[];
  readonly buckets: readonly Bucket[];
  /** schedules[bucket index][signature] */
  readonly schedules: readonly Readonly<Record<string, S>>[];
  /** Measured seconds of a whole call of each bucket's size, once tuned. Packing of micro-batches uses them. */
  readonly bucketSeconds?: readonly BucketSeconds[];
}

/** What the functions of a plan share. */
export interface SharedData {
  readonly weights: readonly WeightDecl[];
  /** Weights that come with the plan, by the tensor name that their WeightDecl gives as source. */
  readonly constants: readonly ConstantVector[];
  /** Memory that outlives a call. */
  readonly states: readonly StateDecl[];
}

/** A compiled module for one target: functions over shared weights, constants and states. */
export interface Plan<S = CpuSchedule> extends SharedData {
  readonly functions: readonly FunctionPlan<S>[];
}

/** A function of a plan together with what it shares with the others: everything that is needed to run it. */
export interface LinkedFunction<S = CpuSchedule> extends FunctionPlan<S>, SharedData {}

/** The function called `name`. Throws if the plan has none. */
export function linkFunction<S>(plan: Plan<S>, name: string): LinkedFunction<S> {
  const found = plan.functions.find((each) => each.interface.name === name);
  if (found === undefined)
    throw new Error(
      `The plan has no function ${name}; it has ${plan.functions.map((each) => each.interface.name).join(', ')}.`,
    );
  const { weights, constants, states } = plan;
  return { ...found, weights, constants, states };
}

/** What `of` makes of each function of a plan, by the function's name. */
export const byFunction = <S, R>(plan: Plan<S>, of: (fn: LinkedFunction<S>) => R): Readonly<Record<string, R>> =>
  Object.fromEntries(plan.functions.map(({ interface: { name } }) => [name, of(linkFunction(plan, name))]));

/** The first extent of a function, which measures its micro-batches: its largest size, and what it counts. */
export function leadingExtent(plan: Pick<FunctionPlan<unknown>, 'interface' | 'capacity'>): {
  readonly name: ExtentName;
  readonly most: number;
  readonly counts: string;
} {
  const [first] = plan.interface.extents;
  if (first === undefined) throw new Error(`Function ${plan.interface.name} has no extent.`);
  return { name: first.name, most: extentIn(first.name, plan.capacity.extents), counts: first.counts ?? first.name };
}

/** The function that scores tokens. */
export const scoreOf = <S>(plan: Plan<S>): LinkedFunction<S> => linkFunction(plan, SCORE);

/** The plan with other schedules for the function called `name`, and the cost of calls under them. */
export const withSchedules = <S>(
  plan: Plan<S>,
  name: string,
  found: Pick<FunctionPlan<S>, 'schedules' | 'bucketSeconds'>,
): Plan<S> => ({
  ...plan,
  functions: plan.functions.map((each) => (each.interface.name === name ? { ...each, ...found } : each)),
});

export type CudaPlan = Plan<CudaSchedule>;
/** A plan for any target. */
export type Schedule = CpuSchedule | CudaSchedule;

/** Seconds of a call of a bucket's size, and the parts of them that do not grow with the first extent alone. */
export interface BucketSeconds extends Bucket {
  readonly seconds: number;
  /** Kernels over other extents (the head and the end of the last layer run over scored rows), without attention. */
  readonly rowSeconds?: number;
  readonly attentionSeconds?: number;
}

/** Columns of a row are padded to a multiple of this, a whole K step of every micro-kernel. */
export const ROW_COLUMNS = 32;

/**
 * Row stride, in elements, of a buffer in a function of this capacity. Columns are rounded up to whole vectors; kernels
 * write zeros to the padding. One cache line is added if the stride would otherwise be a multiple of 4 KiB, because
 * rows would then share L1 sets. One-column buffers (vectors) have no padding, and neither have rows in blocks, whose
 * mean stride it is.
 */
export function rowStride(buffer: BufferDecl, capacity: Extents, elementBytes: number): number {
  const columns = extentIn(buffer.columns, capacity);
  if (columns === 1 || buffer.isBlocked === true || buffer.space === 'weight') return columns;
  const padded = roundUp(columns, ROW_COLUMNS);
  return (padded * elementBytes) % 4096 === 0 ? padded + 64 / elementBytes : padded;
}

/** Rows are allocated up to a multiple of this, so that a register tile may read (but never use) rows past the end. */
export const ROW_PAD = 32;

/**
 * Elements from one column of a row to the next: 1, or ROW_PAD where rows lie in blocks. A block has ROW_PAD rows; in
 * it columns lie one behind another, with the rows of a column beside each other.
 */
export const columnStride = ({ isBlocked }: Pick<BufferDecl, 'isBlocked'>): number =>
  isBlocked === true ? ROW_PAD : 1;

/** Where an element lies among those of a buffer whose rows have this stride. */
export const elementAt = ({ isBlocked }: Pick<BufferDecl, 'isBlocked'>, stride: number, row: number, column: number) =>
  isBlocked === true ? (row - (row % ROW_PAD)) * stride + column * ROW_PAD + (row % ROW_PAD) : row * stride + column;

/** Bytes of a row of a state. */
export function stateRowBytes(state: StateDecl): number {
  const elementBytes = DTYPE_BYTES[state.dtype];
  return rowStride({ ...state, space: 'state' }, {}, elementBytes) * elementBytes;
}

/**
 * Bytes of a state: its rows are padded like those of any buffer. Of one that is reserved, those of the first `tokens`
 * rows.
 */
export const stateBytes = (state: StateDecl, tokens: number): number =>
  roundUp(isReserved(state) ? Math.min(state.rows, tokens) : state.rows, ROW_PAD) * stateRowBytes(state);

// Assigns parts of a plan to devices: replicas of the whole model, each a pipeline of stages. passes/placeStages makes
// placements; runtime/ and driver/ execute them.

/** Launches `first` to `end` − 1 of a plan, executed for every micro-batch by one device. */
export interface Stage {
  readonly first: number;
  readonly end: number;
}

/** `replicas × stages.length` devices. Together the stages cover all launches, in order and without a gap. */
export interface DevicePlacement {
  readonly replicas: number;
  readonly stages: readonly Stage[];
}

/** The number of replicas and of stages, as `--parallel` gives them. */
export interface Parallelism {
  readonly replicas: number;
  readonly stages: number;
}

/** The device, counted from 0, that runs a stage of a replica. The stages of a replica are on neighbouring devices. */
export const deviceOf = (replica: number, stage: number, stages: number): number => replica * stages + stage;
