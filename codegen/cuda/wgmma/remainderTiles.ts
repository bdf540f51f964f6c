/**
 * Remainder tiles. Persistent blocks take whole tiles in waves; where the last wave has tiles for a part of the blocks
 * only, the others wait for them: 4.7 tiles a block take as long as 5. So a schedule may divide the columns of the last
 * wave into tiles so narrow that every cluster has one at most. How many column tiles stay whole depends on the rows of
 * a micro-batch: kernels compute it as `remainderColumns` does here (templates/wgmmaRemainderColumns).
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { physicalColumns } from '../../operands.js';
import { columnTiles } from './layout.js';

/** Column tiles of a launch: `whole` of tn columns, and behind them `narrow` of remainderTn. */
export interface ColumnTileCounts {
  readonly whole: number;
  readonly narrow: number;
}

/**
 * What `clusters` at work make of `rowTiles` row tiles (of a whole cluster's rows). Narrow tiles lie in the last
 * segment. All tiles are whole where those of the last wave would be more than one a cluster.
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
 * Column tiles of a launch at most: where even the first wave would leave clusters idle, all of an only segment's are
 * narrow.
 */
export function mostColumnTiles(segments: readonly Segment[], { tn, remainderTn }: CudaGemmSchedule): number {
  const { first, total } = columnTiles(segments, tn);
  return remainderTn === undefined || segments.length > 1
    ? total
    : Math.ceil(lastSegment(segments, first).columns / remainderTn);
}

/**
 * Time of a tile of `share` of the columns of a whole one, in such. Measured on an H100 at its power limit, where
 * blocks that wait in a last wave leave their power to the others: filling it gains less than its columns say.
 */
const narrowTime = (share: number): number => share + 0.6 * (1 - share);

/** Tiles of the cluster that has most, in times of a whole one. */
export function waveCount(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule,
  clusters: number,
  rowTiles: number,
): number {
  const { whole, narrow } = remainderColumns(segments, schedule, clusters, rowTiles);
  const most = Math.ceil((rowTiles * whole) / clusters);
  // Narrow tiles go on where whole ones end: first to clusters that have one whole tile less.
  return rowTiles * (whole + narrow) <= most * clusters
    ? most
    : most + narrowTime((schedule.remainderTn ?? 0) / schedule.tn);
}

/** First column tile and physical columns of the last segment, the only one that has remainder tiles. */
export function lastSegment(
  segments: readonly Segment[],
  first: readonly number[],
): { readonly firstTile: number; readonly columns: number } {
  const { columns, pairing } = segments.at(-1)!;
  return { firstTile: first.at(-1)!, columns: physicalColumns(columns, pairing) };
}
