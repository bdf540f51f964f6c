/**
 * Kernel IR (level 2): a fused kernel is an anchor, scalar programs around it and symbolic shapes. A schedule (tiles,
 * micro-kernel) is separate data: one kernel has many legal schedules, and all of them compute the same result.
 * Buffers are row-major with a padded row stride (see `BufferDecl`). A kernel reads and writes buffers by name.
 */
import { defined } from '../system/defined.js';
import type { AdapterRows, SegmentAdapter } from './adapterRows.js';
import type { AttentionTail } from './attentionDims.js';
import type { ExpertRows, RoutingRule } from './experts.js';
import type { FunctionInterface, StateDecl } from './function.js';
import type { GroupSize } from './groups.js';
import type { Mask } from './mask.js';
import type { RotaryOrder } from './rotaryOrder.js';
import type { SampleInput } from './sampleInputs.js';
import type { Scalar } from './scalar.js';
import type { LinksParts, ScanParts } from './scan.js';
import type { CodeFormat, Layout, WeightFormat } from './storage.js';
import type { BufferDType, Dim, ExtentName } from './types.js';

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
  readonly isBlocked?: true;
  /** For a `u8` buffer: the bf16 buffer of the same shape whose numbers it extends (joinF24). */
  readonly upper?: string;
}

/**
 * One result that a program writes for each element of its domain.
 * - `store`: buffer[row, column] = value, rounded to the buffer's dtype. With `via`, an i32 vector, it is
 *   buffer[via[row], column], and nothing where via[row] is −1. Only loops and contractions store so, and only into
 *   states. No two rows have the same target.
 * - `rowSum`: buffer[row, floor(column / ROW_SUM_BLOCK)] = Σ of value over the block's columns. The fixed block makes
 *   the order of additions, and so the result, independent of tiles and of the number of threads. With `by` it is the
 *   largest of the values instead, of whole blocks, or of the row where the buffer has one column (`isRowMax`). Only
 *   loops write so: they have whole rows.
 */
export type Output =
  | { readonly kind: 'store'; readonly buffer: string; readonly via?: string; readonly value: Scalar }
  | { readonly kind: 'rowSum'; readonly by?: 'max'; readonly buffer: string; readonly value: Scalar };

/** Columns that are summed into one part of a row sum. Every column tile is a multiple of it. */
export const ROW_SUM_BLOCK = 16;

/** Whether `output`, which writes a buffer of `columns` columns, is the largest value of a whole row. */
export const isRowMax = (output: Output, columns: Dim): boolean =>
  output.kind === 'rowSum' && output.by === 'max' && columns === 1;

export type { ExpertRows } from './experts.js';
/** What every kernel has. */
export interface KernelBase {
  /** Unique identifier, [a-z][a-z0-9_]*. */
  readonly name: string;
  /** Model path, `layers.3.attention.qkv`, for traces and error messages. */
  readonly path: string;
  /** Rows of the iteration domain. */
  readonly rows: ExtentName;
  /** Graph ops that are fused into the kernel, in order, for `inspect`. */
  readonly ops: readonly string[];
  /**
   * For each state that it reads or writes, the version that it finds: how many kernels have written the state before
   * it in this call. Lowering states it, and the verifier checks it against the order of launches.
   */
  readonly versions?: Readonly<Record<string, number>>;
}

/**
 * Elements become codes of 8 bits, −127 … 127, times a scale: the largest magnitude / 127 of `columns` neighbours in a
 * row, or of all of them (ir/rounding.ts).
 */
export interface Rounding {
  readonly columns: number;
}

/** A range of columns of a contraction with its own matrix, epilogue and results (q, k and v of one QKV kernel). */
export interface Segment {
  /** Name of the packed weight in the plan. Before packing it is [columns (×2 if interleaved), k]. */
  readonly weight: string;
  /** Columns of the epilogue's domain. */
  readonly columns: number;
  readonly pairing: Pairing;
  readonly outputs: readonly Output[];
  /** What rows of adapters add to its products. Default: nothing. */
  readonly adapter?: SegmentAdapter;
}

/**
 * acc[row, j] = Σ_k a[row, k]·W[j, k], then each segment's epilogue. fp32 accumulation in order of k. With experts, W
 * has a matrix for each of them, and a row is multiplied by that of its own.
 *
 * With `heads`, a is [rows, heads·k], and the columns of the only segment are those of as many heads, one behind
 * another: acc[row, j] = Σ_i a[row, h·k + i]·W[j, i] for the columns j of head h. Each head has a matrix of its own,
 * which lies as that of an expert does.
 *
 * With `adapter`, a row whose slot is s ≥ 0 goes on in the same accumulators, where the segment has an adapter:
 * acc[row, j] += Σ_i shrunk[row, part·rank + i]·B[s][j, i], in order of i. Other rows have the bits that they have
 * without.
 *
 * `finish`: programs over whole rows of the only segment's columns, once all of the segment's results for a row are
 * stored. They may read these results, at their own row only, and see no accumulator.
 *
 * `routing`: kernels behind it that it runs itself where its schedule says so; they are then not launched.
 */
export interface GemmKernel extends KernelBase {
  readonly anchor: 'gemm';
  readonly experts?: ExpertRows;
  /** Default: all columns are of all of `a`. */
  readonly heads?: number;
  readonly k: number;
  /** Left operand buffer [rows, k]; bf16 for the AMX micro-kernel and f32 for the others. */
  readonly a: string;
  /** The left operand is rounded as it is read. */
  readonly rounding?: Rounding;
  readonly segments: readonly Segment[];
  readonly adapter?: AdapterRows;
  readonly finish?: readonly Output[];
  readonly routing?: Routing;
}

/**
 * The kernels that follow a product with the logits of experts, as the module has them: `route` reads what the product
 * stores and arranges pairs, and `gather` makes the rows of pairs.
 */
export interface Routing {
  readonly route: RouteKernel;
  readonly gather?: LoopKernel;
}

/**
 * The first factor of adapters: out[row, i] = scale[s][part]·Σ_k a[row, k]·A[s][i, k], where s is the row's slot and
 * part = ⌊i / rank⌋. It is added in fp32 in an order that depends on k alone, scaled in fp32, and rounded once to the
 * type of `out`. Rows without adapter write nothing.
 */
export interface ShrinkKernel extends KernelBase {
  readonly anchor: 'shrink';
  readonly k: number;
  /** [rows, k] */
  readonly a: string;
  /** As AdapterRows has them. */
  readonly slot: string;
  readonly slots: number;
  readonly rank: number;
  readonly parts: number;
  /** A weight with slots, in each [parts·rank, k]. */
  readonly weight: string;
  /** A weight with slots, in each f32[parts] in layout `rows`. */
  readonly scale: string;
  /** [rows, parts·rank] of the type of `a`. */
  readonly out: string;
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
  | ShrinkKernel
  | LinksKernel
  | ScanKernel
  | LoopKernel;

/** A kernel that multiplies rows by packed weights. */
export type ContractionKernel = GemmKernel | LogProbKernel;

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

// The kernel of attention.

/**
 * out[row, h·d + i] = Σ_k softmax_k(s + mask)·v[k, h', i] with s = scale·q[row, h]·k[k, h'] and h' = ⌊h·kvHeads/heads⌋.
 * With a cap, s is cap·tanh(s / cap). With slopes, slopes[h] times the position of the key minus that of the query is
 * added to s behind that (ALiBi). Queries are rows of `q`, read through `queryRow` if there is one. The row is also
 * the query's position in token order. With scales, keys and values are codes: row k of head h' is to be multiplied by
 * scales.k[k, h'] and scales.v[k, h']. With a sink, the softmax has one more score, sink[h], and no value for it: a
 * query that sees no key has zeros. With a tail, scale·tail.q[row, h]·tail.k[k] is added to s before the cap: heads
 * of queries and keys go on with elements that all heads of keys share.
 */
export interface AttentionKernel extends KernelBase {
  readonly anchor: 'attention';
  readonly q: string;
  readonly k: string;
  readonly v: string;
  /** f32[rows of keys, kvHeads] each. */
  readonly scales?: { readonly k: string; readonly v: string };
  readonly out: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Elements of a head of values, and of the result. Default: headDim. */
  readonly valueDim?: number;
  /** Queries [rows, heads · headDim] and keys [rows of keys, headDim]. */
  readonly tail?: AttentionTail;
  readonly scale: number;
  readonly cap?: number;
  /** f32[heads]; masks are paths or trees with positions. */
  readonly slopes?: string;
  /** What is added is r(slopes[h]·r(position of the key)) times this, where r rounds to bf16 (ir/slopes.ts). */
  readonly slopeFactor?: number;
  readonly mask: Mask;
  /** Floats [heads], a weight. */
  readonly sink?: string;
  /** i32[rows]: the row of each query among the keys. Absent if every key's row is a query. */
  readonly queryRow?: string;
}

// Kernels that send rows to experts.

/** What it takes to multiply pairs of a row and a chosen expert in order of experts, and to find them again. */
export interface ArrangedPairs {
  /** i32[rows × chosen]: the row of each pair. */
  readonly order: string;
  /** i32[rows] for each chosen expert of a row: where the pair is. */
  readonly places: readonly string[];
  /** i32[count + 1]: where the pairs of each expert begin, and their number. */
  readonly starts: string;
  /** i32[rows × chosen]: the expert of each pair. Default: nobody reads it. */
  readonly owners?: string;
}

/**
 * Chooses experts for each row, by the rule of ir/experts.ts: the `chosen` largest of its logits, or of scores plus
 * bias, in descending order, of equal ones the first, and their weights. Whatever the logits are, a row's experts are
 * different numbers below `count`.
 */
export interface RouteKernel extends KernelBase, RoutingRule {
  readonly anchor: 'route';
  readonly count: number;
  readonly chosen: number;
  /** f32[rows, count] */
  readonly logits: string;
  /** Numbers [count] that are added to scores before experts are chosen. Default: none. */
  readonly bias?: string;
  /** i32[rows, chosen] */
  readonly experts: string;
  /** f32[rows] for each chosen expert of a row. */
  readonly weights: readonly string[];
  /** Default: a kernel of its own arranges the pairs. */
  readonly pairs?: ArrangedPairs;
}

/**
 * Puts pairs of a row and a chosen expert in order of experts, those of one expert in order of rows (ir/experts.ts).
 */
export interface SortByExpertKernel extends KernelBase, ArrangedPairs {
  readonly anchor: 'sortByExpert';
  readonly count: number;
  readonly chosen: number;
  /** i32[rows, chosen], as a route kernel leaves them. */
  readonly experts: string;
}

/** Names of what arranged pairs are written to. */
export const pairBuffers = ({ order, places, starts, owners }: ArrangedPairs): readonly string[] => [
  order,
  ...places,
  starts,
  ...(owners === undefined ? [] : [owners]),
];

export type LinksKernel = KernelBase & LinksParts & { readonly anchor: 'links' };
export type ScanKernel = KernelBase & ScanParts & { readonly anchor: 'scan' };

// Kernels behind the last layer: log-probabilities of targets, and the choice of tokens.

/**
 * Vocabulary columns covered by one part of the online log-sum-exp. This is the width of one tensor-core instruction.
 */
export const LOGPROB_BLOCK = 256;

/**
 * What a token of each row is drawn with (ir/gumbel): f32[rows], and the two halves of keys, i32[rows] each. `ids`,
 * f32[vocab]: the token that a column stands for, whose noise it has; default: that of its number.
 */
export interface DrawBuffers {
  readonly inverseTemperature: string;
  readonly low: string;
  readonly high: string;
  readonly ids?: string;
}

/** The names of a draw's buffers. */
export const drawBuffers = (draw: DrawBuffers | undefined): readonly string[] =>
  draw === undefined
    ? []
    : [draw.inverseTemperature, draw.low, draw.high, ...(draw.ids === undefined ? [] : [draw.ids])];

/** What a reduction of a head writes beside log-probabilities of targets. */
export const reducedBuffers = ({ draw, totals }: Pick<LogProbReduceKernel, 'draw' | 'totals'>): readonly string[] => [
  ...(draw === undefined ? [] : [draw.token, draw.logProb]),
  ...Object.values<string>({ ...totals }),
];

/**
 * Let z = rowScale·(a·Wᵀ), plus bias[column] if there is one, or with a cap, cap·tanh(z / cap) of that. For each block
 * of LOGPROB_BLOCK vocabulary columns, the kernel writes max z, Σ exp(z − max), the first column of the max, and z at
 * the target column (−inf outside the block) to parts[row, 4·block …]. The logits themselves are never stored. With a
 * draw, 8 numbers are written for a block: those, the largest score of the draw (drawScore), its first column, z there,
 * and 0. With `logits`, the z of the first rows are stored as well.
 */
export interface LogProbKernel extends KernelBase {
  readonly anchor: 'logprob';
  readonly k: number;
  readonly a: string;
  readonly rounding?: Rounding;
  readonly weight: string;
  readonly vocab: number;
  /**
   * Scale of a row before the softmax (the final norm's 1/rms). The expression is the same for all columns of a row.
   */
  readonly rowScale: Scalar;
  /** Floats [vocab], a weight. */
  readonly bias?: string;
  readonly cap?: number;
  /** i32[rows] */
  readonly target: string;
  readonly draw?: DrawBuffers;
  /** f32[F, vocab], where F is within the rows. */
  readonly logits?: string;
  /** f32[rows, partWidth·⌈vocab/LOGPROB_BLOCK⌉] */
  readonly parts: string;
}

/** Numbers that a block's part has. */
export const partWidth = ({ draw }: { readonly draw?: unknown }): 4 | 8 => (draw === undefined ? 4 : 8);

/** Combines the parts in block order: logProb[row] = zTarget − logSumExp, isArgmax[row] = (argmax == target). */
export interface LogProbReduceKernel extends KernelBase {
  readonly anchor: 'logprobReduce';
  readonly vocab: number;
  readonly parts: string;
  readonly target: string;
  /** f32[rows] */
  readonly logProb: string;
  /** i32[rows], 0 or 1 */
  readonly isArgmax: string;
  /**
   * Where parts have a draw: i32[rows], the token, and f32[rows], its log-probability at temperature 1. `ids`: that of
   * the head, which says the token of a column.
   */
  readonly draw?: { readonly token: string; readonly logProb: string; readonly ids?: string };
  /** f32[rows] each: the largest z and Σ exp(z − largest), for kernels that compute more of a row. */
  readonly totals?: Totals;
}

/** The sums of rows' softmax, for other kernels. */
export interface Totals {
  readonly top: string;
  readonly sum: string;
}

/**
 * Chooses a token for each row of logits (ir/filters), and finds the most likely ones. Log-probabilities are those of
 * the logits as they are: z − (top + ln sum), by the totals of their rows. The kernel overwrites the logits, which
 * nobody reads afterwards.
 */
export interface SampleKernel extends KernelBase {
  readonly anchor: 'sample';
  readonly vocab: number;
  /** f32[rows, vocab] */
  readonly logits: string;
  readonly totals: Totals;
  /** i32[M, ⌈vocab / 32⌉] for `mask`; vectors for all others. */
  readonly inputs: Readonly<Record<SampleInput, string>>;
  /** f32[E]: where the kernel keeps the logits that its entries change. */
  readonly saved: string;
  /** i32[rows], f32[rows] */
  readonly token: string;
  readonly logProb: string;
  /** The `count` most likely tokens, at most `most`: i32[rows]; i32[rows, most] and f32[rows, most], 0 past them. */
  readonly best: { readonly most: number; readonly count: string; readonly tokens: string; readonly logProbs: string };
}

// Weights as kernels read them: from which tensors they are packed, and in what layout.

/**
 * How the logical columns of the result are arranged in the packed weight, so that an epilogue finds both elements that
 * it combines in one tile. `width` lanes of the first element are followed by `width` lanes of the second.
 * - `none`: the physical column is the logical column.
 * - `rotate`: columns i and i + headDim/2 of each head (rotary embedding). `width` divides headDim/2.
 * - `interleave`: column i of two matrices (gate and up). `width` may be any number; columns are padded to a multiple
 *   of it.
 */
export type Pairing =
  | { readonly kind: 'none' }
  | { readonly kind: 'rotate'; readonly headDim: number; readonly width: number }
  | { readonly kind: 'interleave'; readonly width: number };

/** The stored matrix that a weight is packed from. Names are those of checkpoint tensors, [out, in] as in Linear. */
export interface WeightSource {
  readonly tensor: string;
  /** Rows (outputs) of the tensor. */
  readonly rows: number;
  /** Default: the rows as they are stored. A source in another order is the only one of its weight. */
  readonly order?: RotaryOrder;
}

/**
 * A weight as kernels read it. `sources` are stacked by rows in order; pairing `interleave` has exactly two. With
 * `experts`, there are that many lists of sources of equal shape, one per expert or head, and a matrix for each.
 * Column c of every row is multiplied by columnScale[c] (a folded norm weight), to which columnOffset is added first,
 * before it is rounded to the format.
 * - `panels`: [⌈n/p⌉][k][p], panels of p adjacent output columns: 16 of f32, 32 of a 16-bit format (panelColumns).
 * - `vnni`: [⌈n/16⌉][⌈k/32⌉·16][16][2], pairs of adjacent k, as AMX requires.
 * - `quads`: panels of 32 columns of codes, with or without their scales (ir/quads.ts).
 * - `kmajor`: [n, roundUp(k, 8)], row-major with rows in physical order, as tensor cores read it from shared memory.
 * - `groups`: codes of 4 bits with their scales and zero points, in blocks of 8 rows × 128 columns (ir/groups.ts).
 * - `microscaled`: codes of 4 bits with powers of two, in blocks of 16 rows × 64 columns (ir/microscaled.ts).
 * - `rows`: the checkpoint's own [n, k] in its own format, mapped and never copied (embedding tables); no scale.
 * ir/storage.ts says which formats each layout supports.
 */
export interface WeightDecl {
  readonly name: string;
  readonly layout: Layout;
  readonly format: WeightFormat;
  readonly sources: readonly WeightSource[];
  /** Default: one matrix. */
  readonly experts?: number;
  /**
   * Matrices that adapters are written to while a model runs, one behind another: that many, each as if it were alone.
   * They are zero at first. Sources say the checkpoint's matrices that they stand beside, and columnScale is to be
   * applied by whoever writes them. `holds`: what of an adapter.
   */
  readonly slots?: { readonly count: number; readonly holds: 'a' | 'b' | 'scale' };
  readonly k: number;
  readonly pairing: Pairing;
  readonly columnScale?: string;
  /** Default 0. */
  readonly columnOffset?: number;
  /**
   * The weight holds the scales of rows of a matrix of codes [rows, scalesOf.k]: f32[rows] in layout `rows`, k is 1.
   * Sources and columns' factors are those of the codes.
   */
  readonly scalesOf?: { readonly format: CodeFormat; readonly k: number };
  /**
   * Codes: `values` (the default) if the sources' values are rounded while they are packed; `codes` if the sources are
   * encoded with these codes and scales for whole rows, which are kept.
   */
  readonly from?: 'values' | 'codes';
  /** Of format `u4`: adjacent columns that share a scale and a zero point. */
  readonly group?: GroupSize;
}
