/**
 * Kernel IR (level 2): a fused kernel is an anchor, scalar programs around it and symbolic shapes. A schedule (tiles,
 * micro-kernel) is separate data: one kernel has many legal schedules, and all of them compute the same result.
 *
 * Buffers are row-major with a padded row stride (see `BufferDecl`). A kernel reads and writes buffers by name.
 *
 * Kernels of attention, of the head and of experts, and declarations of weights, have files of their own. Importers
 * have all of them from here.
 */
import { defined } from '../system/defined.js';
import type { FunctionInterface, StateDecl } from './function.js';
import type { BufferDType, Dim } from './types.js';
import type { AttentionKernel } from './attentionKernel.js';
import type { SortByExpertKernel, ExpertRows, RouteKernel } from './expertKernels.js';
import type { LogProbKernel, LogProbReduceKernel, SampleKernel } from './headKernels.js';
import type { KernelBase, Output, Rounding } from './kernelBase.js';
import type { Pairing, WeightDecl } from './weightDecl.js';

export { renameMask, windowOfMask, type AttentionKernel, type Mask } from './attentionKernel.js';
export type { SortByExpertKernel, ExpertRows, RouteKernel } from './expertKernels.js';
export {
  drawBuffers,
  LOGPROB_BLOCK,
  partWidth,
  type Draw,
  type LogProbKernel,
  type LogProbReduceKernel,
  type SampleKernel,
  type Totals,
} from './headKernels.js';
export { isRowMax, ROW_SUM_BLOCK, type Output, type Rounding } from './kernelBase.js';
export type { Pairing, WeightDecl, WeightSource } from './weightDecl.js';

/** A two-dimensional buffer `dtype[rows, columns]`. A vector has one column. Inputs and outputs are buffers too. */
export interface BufferDecl {
  readonly name: string;
  readonly dtype: BufferDType;
  /** Extent of the rows. */
  readonly rows: Dim;
  /** Extent of the columns. Only a materialized attention bias has a named one. */
  readonly columns: Dim;
  /**
   * Where the buffer lives. `weight`: mapped or packed at load; `arena`: placed by planMemory; `state`:
   * outlives calls, with the name and shape of a StateDecl.
   */
  readonly space: 'input' | 'output' | 'arena' | 'weight' | 'state';
  /** Of a state: as its StateDecl says. */
  readonly isByColumn?: true;
  /** For a `u8` buffer: the bf16 buffer of the same shape whose numbers it extends (joinF24). */
  readonly upper?: string;
}

/** A range of columns of a contraction with its own matrix, epilogue and results (q, k and v of one QKV kernel). */
export interface Segment {
  /** Name of the packed weight in the plan. Before packing it is [columns (×2 if interleaved), k]. */
  readonly weight: string;
  /** Columns of the epilogue's domain. */
  readonly columns: number;
  readonly pairing: Pairing;
  readonly outputs: readonly Output[];
}

/**
 * acc[row, j] = Σ_k a[row, k]·W[j, k], then each segment's epilogue. fp32 accumulation in order of k. With experts, W
 * has a matrix for each of them, and a row is multiplied by that of its own.
 *
 * `finish`: programs over whole rows of the only segment's columns, once all of the segment's results for a row are
 * stored. They may read these results, at their own row only, and see no accumulator.
 */
export interface GemmKernel extends KernelBase {
  readonly anchor: 'gemm';
  readonly experts?: ExpertRows;
  readonly k: number;
  /** Left operand buffer [rows, k]; bf16 for the AMX micro-kernel and f32 for the others. */
  readonly a: string;
  /** The left operand is rounded as it is read. */
  readonly rounding?: Rounding;
  readonly segments: readonly Segment[];
  readonly finish?: readonly Output[];
}

/** Columns of a loop, and what it computes for each of them in each row. */
export interface LoopDomain {
  readonly columns: Dim;
  /** Columns of a head, if programs rotate. An even number that divides the columns. */
  readonly headDim?: number;
  readonly outputs: readonly Output[];
}

/**
 * A generated loop nest without a template. It computes the outputs for each row and column. `beside`: what it computes
 * over other columns of the same rows. No program reads what another stores.
 *
 * `finish`: programs over the same rows and columns, once all outputs of a row are stored. They may read these, at
 * their own row only. Loops with others beside them, and of heads, have none.
 */
export interface LoopKernel extends KernelBase, LoopDomain {
  readonly anchor: 'loop';
  readonly beside?: readonly LoopDomain[];
  readonly finish?: readonly Output[];
}

/** All domains of a loop, its own first. */
export const loopDomains = ({ columns, headDim, outputs, beside = [] }: LoopKernel): readonly LoopDomain[] => [
  { columns, outputs, ...defined({ headDim }) },
  ...beside,
];

/** A kernel: its anchor says which. */
export type Kernel =
  | GemmKernel
  | AttentionKernel
  | LogProbKernel
  | LogProbReduceKernel
  | SampleKernel
  | RouteKernel
  | SortByExpertKernel
  | LoopKernel;

/** A literal f32 vector of the graph (rotary frequencies). It comes with the program, not with the checkpoint. */
export interface ConstantVector {
  readonly name: string;
  readonly values: readonly number[];
}

/** A function as kernels over buffers. The passes hand it to code generation, the tuner and planMemory. */
export interface KernelModule {
  readonly interface: FunctionInterface;
  readonly buffers: readonly BufferDecl[];
  readonly weights: readonly WeightDecl[];
  readonly kernels: readonly Kernel[];
  readonly constants?: readonly ConstantVector[];
  readonly states?: readonly StateDecl[];
}
