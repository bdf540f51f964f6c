/** Shared memory, registers and tiles of a wgmma schedule. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { oncePer } from '../../../ir/oncePer.js';
import { physicalColumns } from '../../operands.js';
import { CONSUMER_WARPS, CONSUMERS, SLAB_BYTES, WGMMA_ROWS } from './instruction.js';

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

/** Columns of one instruction, and rows of a tensor map's box. */
export const MAX_COLUMNS = 256;
export const MAX_BOX_ROWS = 256;
/**
 * Columns of one instruction in a block of 512 threads, which start with 128 registers each: compilers refuse an
 * instruction whose accumulators do not fit beside 26 more.
 */
const MAX_SHARED_COLUMNS = 128;

export interface WgmmaLayout {
  readonly isPingPong: boolean;
  /** The producer's idle warps run the epilogue on products that consumers hand over (deferredEpilogue.ts). */
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
  /** The copies that load a block's share of a weight slab, and their rows. */
  readonly boxes: number;
  readonly boxRows: number;
  /** Slabs of k in a stage. */
  readonly slabs: number;
  readonly aBytes: number;
  readonly bBytes: number;
  readonly stageBytes: number;
  /** Offsets in bytes from the aligned base. */
  readonly handoffOffset: number;
  readonly barrierOffset: number;
  readonly rowValuesOffset: number;
  /** Tiles whose row values are kept. */
  readonly rowSlots: number;
  /** Where column values begin (columnValues.ts), and tiles whose values are kept. */
  readonly columnValuesOffset: number;
  readonly columnSlots: number;
  /** Tables of the row tiles of experts; they take the place of row values. */
  readonly tablesOffset: number;
  readonly sharedBytes: number;
  /**
   * Registers of a thread after setmaxnreg, those of the producer's group and of groups for epilogues, and those of
   * consumers. All of a block's warpgroups have 504 in total, or 512 if there are four.
   */
  readonly producerRegisters: number;
  readonly consumerRegisters: number;
}

/** Bytes of the tables of row tiles and first rows of so many experts, and of their ends. */
const expertTables = (experts: number): number => 2 * 4 * (experts + 1);

/** What a block keeps in shared memory for epilogues. */
export interface KeptValues {
  /** Floats for each row of a tile. */
  readonly rowValues: number;
  /** Floats for each tile's columns. */
  readonly columnValues?: number;
  /** Experts that have tables. */
  readonly experts?: number | undefined;
}

/** Shared memory and registers of a block, for operands of `elementBytes`. */
export function wgmmaLayout(
  { tm, tn, tk, stages, cluster, mode, epilogueGroups: groups }: CudaGemmSchedule,
  elementBytes: number,
  { rowValues, columnValues = 0, experts }: KeptValues,
): WgmmaLayout {
  const epilogueGroups: number = groups ?? 0;
  const isPingPong = mode === 'pingpong';
  const isDeferred = mode === 'deferred';
  const aBytes = tm * tk * elementBytes;
  const bBytes = tn * tk * elementBytes;
  const handoffOffset = stages * (aBytes + bBytes);
  const barrierOffset = handoffOffset + (isDeferred ? CONSUMER_WARPS * handoffWarpBytes(tn) : 0);
  // Two barriers per stage, and two pairs for the row values.
  const rowValuesOffset = barrierOffset + 2 * BARRIER * stages + 4 * BARRIER;
  const rowSlots = isDeferred && rowValues === 1 ? (columnValues === 0 ? DEFERRED_ROW_SLOTS : FEW_ROW_SLOTS) : 2;
  const columnValuesOffset =
    rowValuesOffset + rowSlots * tm * rowValues * 4 + (isDeferred && rowValues > 0 ? SLOT_NUMBER : 0);
  const columnSlots = isDeferred ? 1 : 2;
  const rowBlocks = tm / WGMMA_ROWS / (isPingPong ? 1 : CONSUMERS);
  const columnBlocks = Math.ceil(tn / (epilogueGroups === 0 ? MAX_COLUMNS : MAX_SHARED_COLUMNS));
  const boxes = Math.ceil(tn / cluster / MAX_BOX_ROWS);
  const isTight = rowBlocks * (tn / 2) > (rowValues > 0 ? MAX_RELAXED : MAX_RELAXED_IDLE);
  return {
    isPingPong,
    isDeferred,
    epilogueGroups,
    handoffOffset,
    rowBlocks,
    columnBlocks,
    wn: tn / columnBlocks,
    boxes,
    boxRows: tn / cluster / boxes,
    slabs: (tk * elementBytes) / SLAB_BYTES,
    aBytes,
    bBytes,
    stageBytes: aBytes + bBytes,
    barrierOffset,
    rowValuesOffset,
    rowSlots,
    columnValuesOffset,
    columnSlots,
    tablesOffset: rowValuesOffset,
    sharedBytes:
      (isDeferred ? 0 : ALIGNMENT) +
      columnValuesOffset +
      columnSlots * columnValues * 4 +
      (experts === undefined ? 0 : expertTables(experts)),
    ...(isDeferred
      ? epilogueGroups === 0
        ? { producerRegisters: 120, consumerRegisters: 192 }
        : { producerRegisters: 88, consumerRegisters: 168 }
      : isTight
        ? { producerRegisters: 24, consumerRegisters: 240 }
        : { producerRegisters: 40, consumerRegisters: 232 }),
  };
}

/**
 * Most accumulators per thread for which 232 registers suffice: if the producer's warps need registers for row values,
 * and if they are idle; then the most that fit in 240 beside the main loop's own registers.
 */
const MAX_RELAXED = 192;
const MAX_RELAXED_IDLE = 160;
export const MAX_ACCUMULATORS = 208;
/** The same where an epilogue adds up whole heads before it reads them: 192 spilled 960 bytes. */
export const MAX_ACCUMULATORS_OF_HEADS = 160;

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
