/**
 * What a CUDA plan adds to a plan: architectures, schedules and launch shapes. codegen/cuda writes the launch shapes
 * and runtime/cuda obeys them; neither imports the other.
 */
import type { Origins } from './scalar.js';
import type { Dim, ExtentName } from './types.js';
import type { Header } from './unit.js';

/** Architectures that code is generated for, weakest first. sm_90a is Hopper with its own instructions (wgmma, TMA). */
export const CUDA_ARCHS = ['sm_80', 'sm_90a'] as const;
export type CudaArch = (typeof CUDA_ARCHS)[number];

/**
 * Skeletons of a contraction. `simt` runs on CUDA cores, takes any shape and is the reference. `mma` uses cp.async and
 * mma.sync (sm_80 and later). `wgmma` uses TMA, mbarriers and warp-specialized wgmma (sm_90a). `skinny` is for up to 64
 * rows: mma.sync behind a deep ring of weights that is filled while the preceding kernel ends (sm_80 and later; the
 * vocabulary on sm_90a only, because its sums are those of wgmma). `skinnyWgmma` does the same with TMA and wgmma
 * (sm_90a). These four give the same bits on one GPU. `grouped` is for weights of 4 bits in groups, `micro` for
 * microscaled ones of experts (sm_90a); `micro` has the bits of the same weights in bf16.
 */
export const CUDA_GEMM_SKELETONS = ['simt', 'mma', 'wgmma', 'skinny', 'skinnyWgmma', 'grouped', 'micro'] as const;
export type CudaGemmSkeleton = (typeof CUDA_GEMM_SKELETONS)[number];

/**
 * Which warps run the epilogue of a wgmma tile, and when. `cooperative`: both consumer warpgroups share a tile and run
 * its epilogue after its product. `pingpong`: each consumer warpgroup has its own tile and runs its epilogue while the
 * other computes a product. `deferred`: both share a tile, and the producer's idle warps run its epilogue during the
 * next product.
 */
export const CUDA_GEMM_MODES = ['cooperative', 'pingpong', 'deferred'] as const;

/** Blocks of a thread-block cluster. Every device with clusters runs eight; whether 16 is up to the device. */
export const CLUSTER_SIZES = [1, 2, 4, 8, 16] as const;
export type ClusterSize = (typeof CLUSTER_SIZES)[number];

/** Bytes of shared memory that the blocks of a Hopper multiprocessor divide among them. */
export const MULTIPROCESSOR_BYTES = 228 << 10;
/** What the system takes of them for every block. */
export const RESERVED_BYTES = 1024;

/** Blocks of a lone warp on a multiprocessor: eight leave a thread all the registers that it can have. */
export const LONE_BLOCKS = [5, 6, 7, 8] as const;
export type LoneBlocks = (typeof LONE_BLOCKS)[number];
/** Blocks of one team on a multiprocessor, where it has room for more. */
export const RESIDENT_BLOCKS = [2, 3] as const;
export type ResidentBlocks = (typeof RESIDENT_BLOCKS)[number];

/** Tiles of a contraction. A block computes tm rows × tn physical columns in steps of tk. */
export interface CudaGemmSchedule {
  readonly kind: 'gemm';
  readonly skeleton: CudaGemmSkeleton;
  readonly tm: number;
  /** Physical columns of the packed weight; a multiple of 16. */
  readonly tn: number;
  readonly tk: number;
  /** Shared-memory stages in flight. */
  readonly stages: number;
  /**
   * Blocks of a cluster, which share tiles by multicast: of weights, side by side along rows, or with few rows those of
   * the rows, side by side along columns.
   */
  readonly cluster: 1 | 2;
  /**
   * Blocks of a cluster that end groups of columns together, as heads that are normed: their tiles are parts of groups,
   * and each block reads the others' products. Of skinnyWgmma, without another cluster. Absent: tiles are whole groups.
   */
  readonly parts?: (typeof PART_COUNTS)[number];
  /**
   * Row tiles that are computed before the next column tile, so that L2 keeps the weight tile. Of micro: 1: a warp
   * multiplies 16 columns, more: 32.
   */
  readonly raster: number;
  readonly mode: (typeof CUDA_GEMM_MODES)[number];
  /**
   * Width of the remainder tiles, less than tn; only with deferred epilogues. If the last wave of tiles of tn columns
   * would leave blocks idle, its columns are divided into tiles of remainderTn columns instead, provided that each
   * cluster gets at most one. Absent: all tiles have tn columns.
   */
  readonly remainderTn?: number;
  /**
   * Warpgroups that do nothing but run deferred epilogues, beside the idle warps of the producer's group; only with
   * deferred epilogues. Absent: none.
   */
  readonly epilogueGroups?: 1;
  /**
   * How a product treats the adapters of its rows. `none`: it leaves them out, for calls in which no row has one.
   * `shrinks`: it computes A·x itself. Absent: it reads A·x as a shrink kernel has left it.
   */
  readonly adapters?: (typeof ADAPTER_USES)[number];
  /**
   * What a product runs of its `routing`. `pairs`: it chooses experts and arranges pairs. `rows`: it makes the rows of
   * pairs too. Absent: it leaves that to the kernels behind it.
   */
  readonly routes?: RoutingUse;
}

export const PART_COUNTS = [2, 4, 8] as const;
export const ADAPTER_USES = ['none', 'shrinks'] as const;
export const ROUTING_USES = ['pairs', 'rows'] as const;
export type RoutingUse = (typeof ROUTING_USES)[number];

/**
 * Attention. A block computes `queries` queries, `keys` keys at a time: of one head, or in the mma skeleton under a
 * path mask, of all heads that share a head of keys.
 */
export interface CudaAttentionSchedule {
  readonly kind: 'attention';
  /**
   * `simt`: CUDA cores, any head size, also a materialized bias. `mma`: tensor cores, 16-bit operands. `wgmma`: those
   * of Hopper, over long paths.
   */
  readonly skeleton: 'simt' | 'mma' | 'wgmma';
  readonly queries: number;
  readonly keys: number;
  /**
   * Blocks of a cluster that share one query and take the chunks of its path in turn; or several queries, of which each
   * brings as many blocks: those of one path share it. Absent: one block.
   */
  readonly cluster?: ClusterSize;
  /**
   * Teams of warps in a block that take chunks of a path side by side. Absent: one team. Teams are for blocks of one
   * query, or of a cluster, in the mma skeleton under a path mask, and so are clusters.
   */
  readonly teams?: number;
  /**
   * A block is one warp, which takes a query's whole path by itself, or those of several: what their lists begin with
   * is then read once. So many of them share a multiprocessor, each with an equal part of its memory. Absent: teams
   * take a path's chunks.
   */
  readonly lone?: LoneBlocks;
  /**
   * So many blocks of one team share a multiprocessor, each with an equal part of its memory, although more might fit:
   * turns are then equally long. Absent: as many as fit.
   */
  readonly resident?: ResidentBlocks;
  /**
   * Whether paths in a block that begin alike read the tiles of keys that they share once. Absent: paths are read one
   * after another. For blocks of several queries in the mma skeleton under a path mask.
   */
  readonly sharesTiles?: true;
}

/** Every other kernel: a generated loop nest. */
export interface CudaLoopSchedule {
  readonly kind: 'loop';
  /** Threads per block. */
  readonly threads: number;
  /** Of a shrink kernel: rows of a tile. Absent: the fewest. Of a loop: rows of a block; absent: by its columns. */
  readonly rows?: ShrinkRows;
  /** Of a scan: lanes that share columns of a state. Absent: eight. */
  readonly lanes?: ScanLanes;
  /** The kernel is not launched: nobody reads its result, or a product computes it (ADAPTER_USES, ROUTING_USES). */
  readonly isIdle?: true;
}

/**
 * Rows of a tile of a shrink kernel: few for many small blocks, many where factors are read for many rows. The most of
 * them are a cluster's.
 */
export const SHRINK_ROWS = [8, 16, 32, 64, 128] as const;
export type ShrinkRows = (typeof SHRINK_ROWS)[number];
/** Few lanes, for steps in which each text has a row or two: a warp reads and writes whole lines of states. */
export const SCAN_LANES = [4] as const;
export type ScanLanes = (typeof SCAN_LANES)[number];

export type CudaSchedule = CudaGemmSchedule | CudaAttentionSchedule | CudaLoopSchedule;

/**
 * A tensor map (TMA descriptor) that a kernel takes after its buffers. It is a 2-D row-major view of a buffer or
 * weight, loaded or stored in boxes of boxRows × boxColumns elements. Rows past the end of the buffer read as zero and
 * are not stored.
 */
export interface TensorMapDecl {
  /** Index into the kernel's parameters. */
  readonly parameter: number;
  readonly dtype: 'f16' | 'bf16' | 'f32' | 'u8';
  /** Rows of the view: an extent at its capacity, or a weight's physical rows. */
  readonly rows: Dim;
  readonly columns: number;
  /** Elements from one row to the next. */
  readonly stride: number;
  readonly boxRows: number;
  readonly boxColumns: number;
  /** Bytes of the swizzle pattern; 0 for none. */
  readonly swizzle: 0 | 32 | 64 | 128;
}

/**
 * Blocks along one axis of the grid for a call of given size.
 * - `constant`: count; 0: the kernel is not launched.
 * - `tiles`: ⌈extent / per⌉ · times.
 * - `persistent`: min(multiprocessors · blocksPerMultiprocessor, ⌈extent / per⌉ · times), rounded down to whole
 *   clusters, at least one cluster.
 */
export type GridExtent =
  | { readonly kind: 'constant'; readonly count: number }
  | { readonly kind: 'tiles'; readonly extent: ExtentName; readonly per: number; readonly times: number }
  | {
      readonly kind: 'persistent';
      readonly extent: ExtentName;
      readonly per: number;
      readonly times: number;
      readonly blocksPerMultiprocessor: number;
    };

/** How a generated kernel is launched. */
export interface LaunchShape {
  readonly threads: number;
  readonly sharedBytes: number;
  /** Blocks per cluster along x. */
  readonly cluster: ClusterSize;
  readonly gridX: GridExtent;
  readonly gridY: GridExtent;
}

/**
 * A kernel as CUDA source. Its signature is `extern "C" __global__ void SYMBOL(int T, …, void *p0 … void *pN-1, const
 * __grid_constant__ tw_map m0 …)`: the function's extents in order, one pointer for each parameter (buffer or weight,
 * in order), then one 128-byte tensor map for each TensorMapDecl.
 */
export interface CudaKernelText {
  /** `k_<anchor>_<signature>_<schedule hash>` */
  readonly symbol: string;
  /** A translation unit, which includes headers of codegen/cuda. It may be printed when it is read. */
  readonly source: string;
  /** All headers that it includes, itself or through another. They may be read when this is read. */
  readonly headers: readonly Header[];
  /** unitDigest of both, where that is known. */
  readonly digest?: string;
  /** Buffer and weight names. */
  readonly parameters: readonly string[];
  /** originsIn of the kernel, which gave its text names. */
  readonly origins?: Origins | undefined;
  readonly tensorMaps: readonly TensorMapDecl[];
  readonly launch: LaunchShape;
  /**
   * True if the kernel executes griddepcontrol.wait before it reads or writes a buffer that another kernel of its
   * stream uses. Only such a kernel may be launched before its predecessor has ended (programmatic dependent launch).
   */
  readonly waitsForPredecessor: boolean;
}
