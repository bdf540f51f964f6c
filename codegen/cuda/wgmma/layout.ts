/** Shared memory and tiles of a wgmma schedule. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { oncePer } from '../../../ir/oncePer.js';
import { physicalColumns } from '../../operands.js';
import { takenBytes } from './takenTiles.js';
import { CONSUMER_WARPS, CONSUMERS, WGMMA_ROWS } from './instruction.js';

const ALIGNMENT = 1024;
const BARRIER = 8;
/**
 * Row tiles whose row values are kept if epilogues are deferred: as many as a block of an H100 works on in turn at
 * 1,024 to 3,840 tokens (132 blocks over 16 row tiles: 4; 66 clusters over 15 pairs: 5). Other modes keep the last two.
 */
const DEFERRED_ROW_SLOTS = 5;
/** The same where column values are kept beside them: what shared memory has room for. */
const FEW_ROW_SLOTS = 3;
/** Bytes that tell consumers which slot holds the row values of a block's final tile. */
const SLOT_NUMBER = 16;

/** Sums of a product that shrinks its rows first, as in adapter/shrinkFirst.cuh. */
const SHRINK_SUMS_BYTES = 2048;

/** Columns of one instruction, and rows of a tensor map's box. */
export const MAX_COLUMNS = 256;
export const MAX_BOX_ROWS = 256;
/**
 * Columns of one instruction in a block of 512 threads, which start with 128 registers each: compilers refuse an
 * instruction whose accumulators do not fit beside 26 more.
 */
const MAX_SHARED_COLUMNS = 128;

/** What legality, the launch and epilogues know of a block; the header computes it too (HopperConfig). */
export interface WgmmaLayout {
  /** The producer's idle warps run the epilogue on products that consumers hand over. */
  readonly isDeferred: boolean;
  /** Warpgroups that run deferred epilogues beside those idle warps. */
  readonly epilogueGroups: number;
  /**
   * Instructions of 64 rows that a consumer warpgroup issues, one below the other, for each step. Accumulators take
   * rowBlocks · tn/2 registers.
   */
  readonly rowBlocks: number;
  /** Instructions side by side: 2 if tn exceeds the columns of one. */
  readonly columnBlocks: number;
  /** Columns of one instruction. */
  readonly wn: number;
  /** Rows of a copy of a block's share of a weight slab. */
  readonly boxRows: number;
  /** Bytes of the ring of stages, and of all shared memory. */
  readonly ringBytes: number;
  readonly sharedBytes: number;
}

/**
 * Bytes of the tables of row tiles and first rows of so many experts, and of their ends; and of the tiles that a block
 * takes (experts/takenTiles.cuh).
 */
const expertTables = (experts: number, stages: number): number => 2 * 4 * (experts + 1) + takenBytes(stages);

/** What a block keeps in shared memory for epilogues. */
export interface KeptValues {
  /** Floats for each row of a tile. */
  readonly rowValues: number;
  /** Floats for each tile's columns. */
  readonly columnValues?: number;
  /** Experts that have tables. */
  readonly experts?: number | undefined;
  /** Whether rows have adapters: a word for each stage, and one for the next tile. */
  readonly hasAdapters?: boolean;
  /** Whether consumers shrink rows first: sums of eight warps. */
  readonly shrinks?: boolean;
}

/** A block under a schedule, for operands of `elementBytes`. */
export function wgmmaLayout(
  { tm, tn, tk, stages, cluster, mode, epilogueGroups: groups }: CudaGemmSchedule,
  elementBytes: number,
  { rowValues, columnValues = 0, experts, hasAdapters = false, shrinks = false }: KeptValues,
): WgmmaLayout {
  const epilogueGroups: number = groups ?? 0;
  const isDeferred = mode === 'deferred';
  const ringBytes = stages * (tm + tn) * tk * elementBytes;
  const handoffBytes = isDeferred ? CONSUMER_WARPS * handoffWarpBytes(tn) : 0;
  // Two barriers per stage, and two pairs for the row values.
  const barrierBytes = BARRIER * (2 * stages + 4);
  const rowSlots = isDeferred && rowValues === 1 ? (columnValues === 0 ? DEFERRED_ROW_SLOTS : FEW_ROW_SLOTS) : 2;
  const rowBytes = rowSlots * tm * rowValues * 4 + (isDeferred && rowValues > 0 ? SLOT_NUMBER : 0);
  const columnBytes = (isDeferred ? 1 : 2) * columnValues * 4;
  const tableBytes = experts === undefined ? 0 : expertTables(experts, stages);
  const adapterBytes = hasAdapters ? 4 * (stages + 1) : 0;
  const bytes =
    (isDeferred ? 0 : ALIGNMENT) +
    ringBytes +
    handoffBytes +
    barrierBytes +
    rowBytes +
    columnBytes +
    tableBytes +
    adapterBytes;
  const columnBlocks = Math.ceil(tn / (epilogueGroups === 0 ? MAX_COLUMNS : MAX_SHARED_COLUMNS));
  return {
    isDeferred,
    epilogueGroups,
    rowBlocks: tm / WGMMA_ROWS / (mode === 'pingpong' ? 1 : CONSUMERS),
    columnBlocks,
    wn: tn / columnBlocks,
    boxRows: tn / cluster / Math.ceil(tn / cluster / MAX_BOX_ROWS),
    ringBytes,
    sharedBytes: shrinks ? roundUp(bytes, 16) + SHRINK_SUMS_BYTES : bytes,
  };
}

/** Most accumulators of a thread that fit in 240 registers beside the main loop's own. */
export const MAX_ACCUMULATORS = 208;
/** The same where an epilogue adds up whole heads before it reads them: 192 spilled 960 bytes. */
export const MAX_ACCUMULATORS_OF_HEADS = 160;
/** The same where rows have adapters: 208 spilled 420 bytes. */
export const MAX_ACCUMULATORS_OF_ADAPTERS = 192;

/** Column tiles of each segment, in order: the first of each, and the total number. */
export interface ColumnTiles {
  readonly first: readonly number[];
  readonly total: number;
}

/** Counted once for each width, because every candidate schedule of every bucket asks. */
const counted = oncePer((_segments: readonly Segment[]) => new Map<number, ColumnTiles>());

export function columnTiles(segments: readonly Segment[], tn: number): ColumnTiles {
  const known = counted(segments);
  const tiles = known.get(tn) ?? countColumnTiles(segments, tn);
  known.set(tn, tiles);
  return tiles;
}

function countColumnTiles(segments: readonly Segment[], tn: number): ColumnTiles {
  const first: number[] = [];
  let total = 0;
  for (const { columns, pairing } of segments) {
    first.push(total);
    total += Math.ceil(physicalColumns(columns, pairing) / tn);
  }
  return { first, total };
}

// The handoff of rounded products from consumers to the warps that run deferred epilogues (gemm/hopperEpilogue.cuh).

/** Column groups of a chunk. */
export const CHUNK_GROUPS = 4;
const CHUNK_BYTES = 1024;
/** Chunks whose lower bits lie together. */
export const CHUNKS_OF_PART = 4;

/** Bytes of a consumer warp's 16 rows of a tile. */
function handoffWarpBytes(tn: number): number {
  const chunks = Math.ceil(tn / 8 / CHUNK_GROUPS);
  return (chunks + Math.ceil(chunks / CHUNKS_OF_PART)) * CHUNK_BYTES;
}

// Remainder tiles. Persistent blocks take whole tiles in waves. If the last wave has tiles for only some of the
// blocks, the others wait: 4.7 tiles per block take as long as 5. A schedule may therefore divide the columns of the
// last wave into narrower tiles, so that every cluster has at most one. How many column tiles stay whole depends on
// the rows of a micro-batch: kernels compute it as `remainderColumns` does here (tile_columns of gemm/hopperTiles.cuh).

/** Column tiles of a launch: `whole` tiles of tn columns, followed by `narrow` tiles of remainderTn columns. */
export interface ColumnTileCounts {
  readonly whole: number;
  readonly narrow: number;
}

/**
 * How `clusters` at work divide the columns, given `rowTiles` row tiles (of a whole cluster's rows). Narrow tiles lie
 * in the last segment. All tiles stay whole if the last wave would have more than one per cluster.
 */
export function remainderColumns(
  segments: readonly Segment[],
  { tn, remainderTn }: CudaGemmSchedule,
  clusters: number,
  rowTiles: number,
): ColumnTileCounts {
  const { first, total } = columnTiles(segments, tn);
  if (remainderTn === undefined || rowTiles < 1) return { whole: total, narrow: 0 };
  const whole = Math.floor((Math.floor((rowTiles * total) / clusters) * clusters) / rowTiles);
  const { firstTile, columns } = lastSegment(segments, first);
  const narrow = Math.ceil((columns - (whole - firstTile) * tn) / remainderTn);
  return whole >= firstTile && narrow > 0 && narrow * rowTiles <= clusters
    ? { whole, narrow }
    : { whole: total, narrow: 0 };
}

/**
 * Most column tiles of a launch. If even the first wave would leave clusters idle, all tiles of a single segment are
 * narrow.
 */
export function maxColumnTiles(segments: readonly Segment[], { tn, remainderTn }: CudaGemmSchedule): number {
  const { first, total } = columnTiles(segments, tn);
  return remainderTn === undefined || segments.length > 1
    ? total
    : Math.ceil(lastSegment(segments, first).columns / remainderTn);
}

/**
 * Time of a tile with `share` of a whole tile's columns, in units of a whole tile's time. Measured on an H100 at its
 * power limit. Blocks that wait in a last wave leave their power to the others, so filling that wave gains less than
 * the number of columns suggests.
 */
const narrowTime = (share: number): number => share + 0.6 * (1 - share);

/** Tiles of the cluster that has the most, in units of a whole tile's time. */
export function waveCount(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule,
  clusters: number,
  rowTiles: number,
): number {
  const { whole, narrow } = remainderColumns(segments, schedule, clusters, rowTiles);
  const most = Math.ceil((rowTiles * whole) / clusters);
  // Narrow tiles continue where whole ones end: the clusters with one whole tile less get them first.
  return rowTiles * (whole + narrow) <= most * clusters
    ? most
    : most + narrowTime((schedule.remainderTn ?? 0) / schedule.tn);
}

/** First column tile and physical columns of the last segment, the only one with remainder tiles. */
export function lastSegment(
  segments: readonly Segment[],
  first: readonly number[],
): { readonly firstTile: number; readonly columns: number } {
  const { columns, pairing } = segments.at(-1)!;
  return { firstTile: first.at(-1)!, columns: physicalColumns(columns, pairing) };
}
