/** What a block of each attention kernel holds: rows, threads, shared memory, and its share of a multiprocessor. */
import { type CudaAttentionSchedule, MULTIPROCESSOR_BYTES, RESERVED_BYTES } from '../../../ir/cuda.js';
import { type AttentionTail, keyDimOf, valueDimOf } from '../../../ir/attentionDims.js';
import { type AttentionKernel } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { SLAB_BYTES, WGMMA_THREADS } from '../wgmma/instruction.js';

/**
 * Longest batch of the mma skeleton with column masks: the ends of all its tiles of keys are in static shared memory,
 * 8 bytes for 32 tokens.
 */
export const MAX_TOKENS = 1 << 16;
/**
 * Keys of a path that make one partial result. Partial results are merged in order of position. The size determines
 * rounding, so it is part of what an answer means.
 */
export const PATH_CHUNK = 128;
/** Static shared memory: those ends, the queries' tokens, ends of keys, roots, and parts that are boxes. */
const STATIC_BYTES = { simt: 1024, mma: MAX_TOKENS / 4 + 2048, path: 1024, shared: 3072, wgmma: 13312 } as const;

/** Rows of a tensor-core instruction, which are the rows of a warp. */
export const MMA_ROWS = 16;
/** Most rows of a block of the mma skeleton. */
export const MAX_ROWS = 128;
/** Most rows of a run of queries whose keys are shared by a cluster: two tiles, which leave registers to the answer. */
export const MAX_RUN_ROWS = 32;
export const SIMT_WARPS = 4;
/** In longer heads, query fragments are read again from shared memory: the registers saved allow more warps. */
export const MAX_HEAD_IN_REGISTERS = 64;
/**
 * Longest head for which the remaining values fit in the registers of MANY_THREADS on a multiprocessor. With longer
 * heads, FEW_THREADS avoid spilling.
 */
const MAX_HEAD_OF_MANY = 128;
const MANY_THREADS = 512;
const FEW_THREADS = 256;
/** Codes are turned into numbers in registers. */
const CODED_THREADS = 384;
/** With few queries, larger tiles of keys do not fit in shared memory. */
const MAX_BLOCKS = 5;
/** Blocks of one query and at most this many threads share a multiprocessor by twos, if shared memory allows. */
const DECODE_THREADS = 256;

/** Keys of a tile of the wgmma skeleton: two steps of the softmax. */
export const WGMMA_KEYS = 64;
/** Tiles in its rings: two chunks. */
const WGMMA_SLOTS = 4;

/** Keys or values of a tile that a lone warp has under way are a part of its ring. More do not make it faster. */
const MAX_LONE_PARTS = 11;
/**
 * The share of each of `blocks` blocks. They take all of it, also what they have no use for: where one more had room,
 * some multiprocessors would have twice as many blocks as others.
 */
const shareOf = (blocks: number): number => (Math.floor(MULTIPROCESSOR_BYTES / blocks) & -128) - RESERVED_BYTES;

/** A block of an attention kernel. */
export interface AttentionTile {
  /** Whether a block has one query or one run of them, and its warps share its keys instead of its rows. */
  readonly isDecode: boolean;
  /** Whether a block is one warp, with one query or with a few whose paths begin alike. */
  readonly isLone: boolean;
  /** Whether a query has a row for each head that shares its keys, instead of one. */
  readonly isGrouped: boolean;
  /** Rows of the tile of scores. */
  readonly rows: number;
  /** Teams of warps of a cluster that take chunks of a path side by side. */
  readonly workers: number;
  readonly threads: number;
  /** Tiles of keys and values in shared memory. */
  readonly slots: number;
  /** Number of blocks that must be able to share a multiprocessor's registers. */
  readonly blocks: number;
  readonly dynamicBytes: number;
  readonly staticBytes: number;
}

/**
 * Tiles of keys and values in shared memory. A third tile keeps more loads in flight; it is used if a Hopper
 * multiprocessor still holds as many blocks as its registers allow.
 */
const slotsOf = (d: number, rows: number): number =>
  d <= MAX_HEAD_IN_REGISTERS || (d <= MAX_HEAD_OF_MANY && rows === 128) ? 3 : 2;

/** Paths: a block of few rows reads keys as fast as memory delivers them, so it always keeps a third tile. */
const pathSlotsOf = (d: number): number => (d <= MAX_HEAD_OF_MANY ? 3 : 2);

/** `most`: the longest head that leaves registers for that many threads. */
const blocksOf = (d: number, threads: number, most: number, many = MANY_THREADS): number =>
  Math.min(MAX_BLOCKS, Math.max(1, Math.floor((d <= most ? many : FEW_THREADS) / threads)));

/** What the block of a kernel depends on. */
export type TiledAttention = Pick<
  AttentionKernel,
  'headDim' | 'heads' | 'kvHeads' | 'mask' | 'scales' | 'valueDim' | 'tail' | 'k' | 'v'
>;

/** Whether values are the first columns of keys, so that one read of them is enough. */
export const areValuesKeys = (kernel: TiledAttention): boolean =>
  kernel.k === kernel.v && kernel.kvHeads === 1 && valueDimOf(kernel) <= kernel.headDim;

/** Whether all heads share one head of keys with a tail, of which the other columns are the values. */
export const isLatent = <K extends TiledAttention>(kernel: K): kernel is K & { readonly tail: AttentionTail } =>
  kernel.tail !== undefined && areValuesKeys(kernel) && valueDimOf(kernel) === kernel.headDim;

/** Heads of a query that a group of four warps has. */
export const LATENT_HEADS = MMA_ROWS;
/** Groups of such heads of a query. */
export const latentParts = ({ heads }: TiledAttention): number => Math.ceil(heads / LATENT_HEADS);
/** Bytes of a block on Hopper, and most tiles of keys under way. */
const LATENT_BYTES = 232_448;
const LATENT_SLOTS = 5;

/** Maxima and sums of a result that a block keeps. */
const LATENT_ENDS = 128 * 4;
/** Of two tiles in attention/latentTeams.cuh: weights, maxima of warps, and what becomes of rows. */
const LATENT_TEAM_BYTES = 2 * (1024 + 256 + 384);

/**
 * The block of attention/latent.cuh: slots of keys, parts of scores, and results: of a block alone those that it keeps,
 * of a cluster those of one round, or of two if there are several. Of two teams (attention/latentTeams.cuh): slots,
 * results or the queries, what teams exchange, and barriers.
 */
function latentTile(
  kernel: TiledAttention,
  keys: number,
  { queries, teams = 1, cluster = 1 }: Pick<CudaAttentionSchedule, 'queries' | 'teams' | 'cluster'>,
): AttentionTile {
  const { headDim: d } = kernel;
  const row = keyDimOf(kernel) * 2 + 16;
  const tile = keys * row;
  const results = MMA_ROWS * d * 4 + (cluster > 1 ? cluster * MMA_ROWS * 8 : LATENT_ENDS);
  const rest =
    teams > 1
      ? Math.max(results, MMA_ROWS * row) + LATENT_TEAM_BYTES + (LATENT_SLOTS + 6) * 8
      : queries * 4 * keys * MMA_ROWS * 4 + (cluster > 1 ? (cluster > 2 ? 2 : 1) * results + 16 : queries * results);
  const slots = Math.min(LATENT_SLOTS, Math.floor((LATENT_BYTES - rest) / tile));
  return {
    isDecode: false,
    isLone: false,
    isGrouped: true,
    rows: queries * MMA_ROWS,
    workers: cluster,
    threads: 128 * queries * teams,
    slots,
    blocks: 1,
    dynamicBytes: slots * tile + rest,
    staticBytes: 0,
  };
}

/** Columns of values that are no columns of keys. */
const ownValues = (kernel: TiledAttention): number => (areValuesKeys(kernel) ? 0 : valueDimOf(kernel));

/** Pieces of 16 bytes of a head of a key. */
export const rowPieces = ({ headDim, scales }: TiledAttention): number => headDim / (scales === undefined ? 8 : 16);

/** Bytes of a head of a key in shared memory: an odd number of pieces, so that eight rows lie in different banks. */
const keyRowBytes = (kernel: TiledAttention): number =>
  kernel.scales === undefined ? (kernel.headDim + 8) * 2 : (rowPieces(kernel) | 1) * 16;

/** Keys and values of a chunk in shared memory. */
const chunkBytes = (kernel: TiledAttention): number => 2 * PATH_CHUNK * keyRowBytes(kernel);

/**
 * Shared memory of a block of a decode kernel. Of each team: a chunk of keys and values; weights as operands of a
 * product and four of their sums, for each thread and eight rows; a maximum for each row and warp; three numbers for
 * the scales of a key. Of a team that is alone its answer with maxima and sums. Where several share a path, the chunks
 * of two rounds, of each worker what the block adds up, and two barriers; and queries of two tiles. `queries`: those
 * of a cluster.
 */
export function decodeBytes(kernel: TiledAttention, keys: number, teams = 1, cluster = 1, queries = 1): number {
  const { headDim: d, heads, kvHeads } = kernel;
  const group = heads / kvHeads;
  const rows = queries * group;
  const warps = PATH_CHUNK / keys;
  const halves = Math.ceil(rows / (MMA_ROWS / 2));
  const weights = PATH_CHUNK * MMA_ROWS * halves + warps * halves * 512 + roundUp(rows, MMA_ROWS) * warps * 4;
  const scales = kernel.scales === undefined ? 0 : 3 * PATH_CHUNK * 4;
  const team = chunkBytes(kernel) + weights + scales;
  if (teams * cluster === 1) return team + roundUp(group * (d + 8) * 4 + group * 8, 16);
  const chunk = (Math.ceil((rows * d) / 2 / cluster) + rows) * 8;
  return teams * team + 2 * teams * cluster * chunk + 16 + (rows > MMA_ROWS ? roundUp(rows, MMA_ROWS) * d * 2 : 0);
}

/** Blocks of one team that a multiprocessor has room for: memory, and registers for four. */
export const maxResident = (kernel: TiledAttention, keys: number): number =>
  Math.min(4, Math.floor(MULTIPROCESSOR_BYTES / (decodeBytes(kernel, keys) + RESERVED_BYTES)));

/** The block of `kernel` under `schedule`. */
export function tileOf(
  kernel: TiledAttention,
  { skeleton, queries, keys, teams = 1, cluster = 1, lone, resident, sharesTiles }: CudaAttentionSchedule,
): AttentionTile {
  const { headDim: d, heads, kvHeads, mask, scales } = kernel;
  if (skeleton === 'simt') {
    return {
      isDecode: false,
      isLone: false,
      isGrouped: false,
      rows: queries,
      workers: 1,
      threads: 32 * SIMT_WARPS,
      slots: 1,
      blocks: 1,
      dynamicBytes: (queries * keyDimOf(kernel) + keys * (keyDimOf(kernel) + ownValues(kernel) + 1)) * 4,
      staticBytes: STATIC_BYTES.simt,
    };
  }
  if (skeleton === 'mma' && isLatent(kernel)) return latentTile(kernel, keys, { queries, teams, cluster });
  if (skeleton === 'wgmma') {
    const slotBytes = 2 * WGMMA_KEYS * d * 2;
    return {
      isDecode: false,
      isLone: false,
      isGrouped: true,
      rows: MAX_ROWS,
      workers: 1,
      threads: WGMMA_THREADS,
      slots: WGMMA_SLOTS,
      blocks: 1,
      // Slabs begin at multiples of 1,024 bytes. Queries of two tiles come first, then the rings, then five barriers
      // for each tile of a ring and three for each tile of queries.
      dynamicBytes: 1024 + 2 * MAX_ROWS * roundUp(2 * d, SLAB_BYTES) + WGMMA_SLOTS * (slotBytes + 40) + 2 * 24,
      staticBytes: STATIC_BYTES.wgmma,
    };
  }
  const isPath = mask.kind === 'path';
  const rows = isPath ? roundUp((queries * heads) / kvHeads, MMA_ROWS) : queries;
  const isSingle = isPath && queries === 1 && rows === MMA_ROWS;
  // Blocks of a cluster share several queries, and what of them is one run.
  const isRun = isPath && queries > 1 && cluster > 1 && rows <= MAX_RUN_ROWS;
  if (isPath && rows === MMA_ROWS && lone !== undefined) {
    const bytes = shareOf(lone);
    // Keys and values of tiles in turn: an odd number, so that values follow where keys were.
    // Two numbers more than a row for its maximum and sum, in each of the four lanes that share it.
    const totals = queries > 1 && d > MAX_HEAD_IN_REGISTERS ? MMA_ROWS * (d + 8) * 4 : 0;
    const most = Math.min(MAX_LONE_PARTS, Math.floor((bytes - totals) / (keys * keyRowBytes(kernel))));
    const parts = most % 2 === 1 ? most : most - 1;
    return {
      isDecode: false,
      isLone: true,
      isGrouped: true,
      rows,
      workers: 1,
      threads: 32,
      slots: parts,
      blocks: lone,
      dynamicBytes: bytes,
      staticBytes: 0,
    };
  }
  if (isSingle || isRun) {
    const threads = (PATH_CHUNK / keys) * 32 * teams;
    return {
      isDecode: true,
      isLone: false,
      isGrouped: true,
      rows,
      workers: teams * cluster,
      threads,
      slots: 1,
      blocks:
        d <= MAX_HEAD_OF_MANY
          ? Math.max(1, Math.floor(((scales === undefined ? 1 : 2) * DECODE_THREADS) / threads))
          : 1,
      dynamicBytes: Math.max(
        decodeBytes(kernel, keys, teams, cluster, queries),
        resident === undefined ? 0 : shareOf(resident),
      ),
      staticBytes: 0,
    };
  }
  const threads = (rows / MMA_ROWS) * 32;
  // Blocks that share tiles keep the totals of chunks in local memory, and more of them fit on a multiprocessor.
  const keepsTotals = isPath && sharesTiles !== true;
  const slots = keepsTotals ? pathSlotsOf(d) : slotsOf(d, rows);
  const totals = keepsTotals ? rows * (d + 8) * 4 : 0;
  return {
    isDecode: false,
    isLone: false,
    isGrouped: isPath,
    rows,
    workers: 1,
    threads,
    slots,
    // Shared memory holds no more blocks of long heads over paths, so they may use more registers.
    blocks: blocksOf(
      d,
      threads,
      keepsTotals ? MAX_HEAD_IN_REGISTERS : MAX_HEAD_OF_MANY,
      scales === undefined ? MANY_THREADS : CODED_THREADS,
    ),
    dynamicBytes: rows * (d + 8) * 2 + 2 * slots * keys * keyRowBytes(kernel) + totals,
    staticBytes: STATIC_BYTES[!isPath ? 'mma' : sharesTiles === true ? 'shared' : 'path'],
  };
}
