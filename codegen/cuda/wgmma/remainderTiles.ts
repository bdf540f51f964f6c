/**
 * Remainder tiles. Persistent blocks take whole tiles in waves. If the last wave has tiles for only some of the blocks,
 * the others wait: 4.7 tiles per block take as long as 5. A schedule may therefore divide the columns of the last wave
 * into narrower tiles, so that every cluster has at most one. How many column tiles stay whole depends on the rows of a
 * micro-batch: kernels compute it as `remainderColumns` does here (templates/wgmmaRemainderColumns).
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { physicalColumns } from '../../operands.js';
import { columnTiles } from './layout.js';

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
