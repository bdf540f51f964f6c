/**
 * The plan: compiled data that a runtime walks. Allocations, weights and launches; no code.
 * Written by passes/planMemory and autotune, read by runtime/. Loading validates it (driver/planJson,
 * driver/checkPlan).
 */
import type { CudaSchedule } from './cuda.js';
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

/** A micro-batch shape class: at most `tokens` packed tokens, `rows` scored rows, trees of at most `longest` tokens. */
export interface Bucket {
  readonly tokens: number;
  readonly rows: number;
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

/** A plan for one target: `S` are that target's schedules. */
export interface Plan<S = CpuSchedule> {
  readonly buffers: readonly BufferDecl[];
  readonly weights: readonly WeightDecl[];
  /** Weights that come with the plan, by the tensor name their WeightDecl gives as source. */
  readonly constants: readonly ConstantVector[];
  readonly kernels: readonly Kernel[];
  readonly launches: readonly Launch[];
  /** Largest micro-batch the arena is sized for. */
  readonly capacity: Bucket;
  readonly arenaBytes: number;
  readonly placements: readonly Placement[];
  readonly buckets: readonly Bucket[];
  /** schedules[bucket index][signature] */
  readonly schedules: readonly Readonly<Record<string, S>>[];
  /** Measured seconds of a whole micro-batch of each bucket's size, once tuned: what packing goes by. */
  readonly bucketSeconds?: readonly BucketSeconds[];
}

export type CudaPlan = Plan<CudaSchedule>;
/** Of any target. */
export type Schedule = CpuSchedule | CudaSchedule;

/** Seconds of a micro-batch of a bucket's size, and the two parts of them that do not grow with tokens alone. */
export interface BucketSeconds extends Bucket {
  readonly seconds: number;
  /** Kernels over scored rows (the head, the last layer's end), attention apart. */
  readonly rowSeconds?: number;
  readonly attentionSeconds?: number;
}

/**
 * Row stride in elements of a buffer: columns rounded up to 32 (a whole K step of every micro-kernel; kernels write
 * the pad, as zeros), plus one cache line where the stride would otherwise be a multiple of 4 KiB and rows would
 * share L1 sets. One-column buffers (vectors) have stride 1.
 */
export function rowStride(buffer: BufferDecl, tokens: number, elementBytes: number): number {
  const columns = buffer.columns === 'T' ? tokens : buffer.columns;
  if (columns === 1 || buffer.space === 'weight') return columns;
  const padded = Math.ceil(columns / 32) * 32;
  return (padded * elementBytes) % 4096 === 0 ? padded + 64 / elementBytes : padded;
}

/** Rows are allocated up to a multiple of this, so that a register tile may read (never use) rows past the end. */
export const ROW_PAD = 32;
