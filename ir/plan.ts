/**
 * The plan: compiled data that a runtime walks. Allocations, weights and launches; no code.
 * Written by passes/planMemory and autotune, read by runtime/. Loading validates it (driver/planJson,
 * driver/checkPlan).
 */
import type { CudaSchedule } from './cuda.js';
import { extentIn, type Extents } from './extents.js';
import { SCORE, type FunctionInterface, type StateDecl } from './function.js';
import type { ExtentName } from './types.js';
import type { BufferDecl, ConstantVector, Kernel, WeightDecl } from './kernel.js';

/** Micro-kernels of the CPU target, weakest first. */
export const CPU_ISAS = ['portable', 'avx2', 'avx512', 'amx'] as const;
export type CpuIsa = (typeof CPU_ISAS)[number];

/** Tiles of a contraction on a CPU. mr×nr accumulators live in registers; a work item is mb rows × nb columns. */
export interface CpuGemmSchedule {
  readonly kind: 'gemm';
  readonly isa: CpuIsa;
  /** Rows of the register tile. */
  readonly mr: number;
  /** Columns of the register tile: a multiple of 16 (32 where a pairing or row sum needs both halves: see legality). */
  readonly nr: number;
  /** Depth of one pass over k; the accumulators are kept in memory between passes. */
  readonly kc: number;
  /** Rows and columns of a work item: what one thread takes at a time, sized for its L2. */
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

/** Anything else: a loop nest, split over rows. */
export interface CpuLoopSchedule {
  readonly kind: 'loop';
  readonly isa: CpuIsa;
  /** Rows a thread takes at a time. */
  readonly rows: number;
}

export type CpuSchedule = CpuGemmSchedule | CpuAttentionSchedule | CpuLoopSchedule;

/** A class of calls: at most so large in every extent, with paths of at most `longest` tokens. */
export interface Bucket {
  readonly extents: Extents;
  readonly longest: number;
}

/** One kernel launch: an exported symbol of the plan's library with its buffers, in parameter order. */
export interface Launch {
  /** Kernel (ir/kernel) this launch runs. */
  readonly kernel: string;
  /** Key of the kernel's text: equal for kernels that differ only in names of buffers and weights. */
  readonly signature: string;
  /** Buffer and weight names in the order of the generated function's parameters. */
  readonly parameters: readonly string[];
}

/** Bytes from the arena's base where a buffer starts, and its row stride in elements. */
export interface Placement {
  readonly buffer: string;
  readonly offset: number;
  readonly sizeBytes: number;
}

/** A function of a plan: its interface, its kernels, and how they are launched. `S` are the target's schedules. */
export interface FunctionPlan<S = CpuSchedule> {
  readonly interface: FunctionInterface;
  readonly buffers: readonly BufferDecl[];
  readonly kernels: readonly Kernel[];
  readonly launches: readonly Launch[];
  /** Largest call the arena is sized for. */
  readonly capacity: Bucket;
  readonly arenaBytes: number;
  readonly placements: readonly Placement[];
  readonly buckets: readonly Bucket[];
  /** schedules[bucket index][signature] */
  readonly schedules: readonly Readonly<Record<string, S>>[];
  /** Measured seconds of a whole call of each bucket's size, once tuned: what packing goes by. */
  readonly bucketSeconds?: readonly BucketSeconds[];
}

/** What the functions of a plan share. */
export interface SharedData {
  readonly weights: readonly WeightDecl[];
  /** Weights that come with the plan, by the tensor name their WeightDecl gives as source. */
  readonly constants: readonly ConstantVector[];
  /** Memory that outlives a call. */
  readonly states: readonly StateDecl[];
}

/** A compiled module for one target: functions over shared weights, constants and states. */
export interface Plan<S = CpuSchedule> extends SharedData {
  readonly functions: readonly FunctionPlan<S>[];
}

/** A function of a plan together with what it shares with the others: all that running it takes. */
export interface LinkedFunction<S = CpuSchedule> extends FunctionPlan<S>, SharedData {}

/** The function called `name`. Throws where the plan has none. */
export function linkFunction<S>(plan: Plan<S>, name: string): LinkedFunction<S> {
  const found = plan.functions.find((each) => each.interface.name === name);
  if (found === undefined)
    throw new Error(
      `The plan has no function ${name}; it has ${plan.functions.map((each) => each.interface.name).join(', ')}.`,
    );
  const { weights, constants, states } = plan;
  return { ...found, weights, constants, states };
}

/** The first extent of a function, by which its micro-batches are measured: its largest size, and what it counts. */
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

/** The plan with other schedules, and the cost of calls under them, of the function called `name`. */
export const withSchedules = <S>(
  plan: Plan<S>,
  name: string,
  found: Pick<FunctionPlan<S>, 'schedules' | 'bucketSeconds'>,
): Plan<S> => ({
  ...plan,
  functions: plan.functions.map((each) => (each.interface.name === name ? { ...each, ...found } : each)),
});

export type CudaPlan = Plan<CudaSchedule>;
/** Of any target. */
export type Schedule = CpuSchedule | CudaSchedule;

/** Seconds of a call of a bucket's size, and the two parts of them that do not grow with its first extent alone. */
export interface BucketSeconds extends Bucket {
  readonly seconds: number;
  /** Kernels over other extents (the head and the end of the last layer run over scored rows), attention apart. */
  readonly rowSeconds?: number;
  readonly attentionSeconds?: number;
}

/**
 * Row stride in elements of a buffer in a function of this capacity: columns rounded up to 32 (a whole K step of every micro-kernel; kernels write
 * the pad, as zeros), plus one cache line where the stride would otherwise be a multiple of 4 KiB and rows would
 * share L1 sets. One-column buffers (vectors) have stride 1.
 */
export function rowStride(buffer: BufferDecl, capacity: Extents, elementBytes: number): number {
  const columns = extentIn(buffer.columns, capacity);
  if (columns === 1 || buffer.space === 'weight') return columns;
  const padded = Math.ceil(columns / 32) * 32;
  return (padded * elementBytes) % 4096 === 0 ? padded + 64 / elementBytes : padded;
}

/** Rows are allocated up to a multiple of this, so that a register tile may read (never use) rows past the end. */
export const ROW_PAD = 32;
