/** How many row tiles a contraction visits before the next column tile. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { FEW_ROWS, type Nature } from './tileRates.js';

/** Most rows in a group of row tiles, so that what all blocks read at a time fits in L2. */
const RASTER_ROWS = [2816, 1536];
/** The same where rows are finished: fewer, because all rows of a group are complete at about the same time. */
const FINISHED_ROWS = [1408];
/** The same of E4M3 that adds to the stream: o and down take 1 to 2 % less than in groups of 22 row tiles. */
const NARROW_STREAM_ROWS = [1408, 2816];

/** A last group is small if it has at most this part of the row tiles of the others. */
const SMALL_GROUP = 0.25;

/** What decides about groups. */
export interface Rasters {
  /** Rows of a call, and of the highest group. */
  readonly rows: number;
  readonly most: number;
  readonly finishes: boolean;
  /** Whether a block may come to other row tiles with each tile, at little cost. */
  readonly mayWander: boolean;
}

/**
 * Row tiles per group: as many as fit in `most` rows, and if possible a number that divides the blocks at work. A block
 * then stays on its row tile through the group and keeps the values computed for those rows. Kernels that finish rows
 * read none of their own, and are faster in high groups. A small last group reads all weights for itself: where blocks
 * may wander, groups are equal instead. At 5,760 rows, down of E4M3 takes 3 % less in groups of 15 than in those of 22,
 * 22 and 1.
 */
export function rasterOf(
  multiprocessors: number,
  { cluster, tm }: Pick<CudaGemmSchedule, 'cluster' | 'tm'>,
  { rows, most, finishes, mayWander }: Rasters,
): number {
  const clusters = Math.max(1, Math.floor(multiprocessors / cluster));
  const tallest = Math.max(1, Math.floor(most / (tm * cluster)));
  const height = finishes ? tallest : heightFor(clusters, tallest);
  const tiles = Math.ceil(rows / (tm * cluster));
  const left = tiles % height;
  const isSmall = mayWander && tiles > height && left > 0 && left <= SMALL_GROUP * height;
  return (isSmall ? Math.ceil(tiles / Math.ceil(tiles / height)) : height) * cluster;
}

/** The highest number above half of `most` that divides the clusters, or `most`. */
function heightFor(clusters: number, most: number): number {
  let height = most;
  while (clusters % height !== 0 && height > most / 2) height--;
  return clusters % height === 0 ? height : most;
}

/** The most rows of a group, the most promising first. */
export function rasterRowsOf({ narrow, finishes }: Nature, rows: number): readonly number[] {
  // Rows of bytes take half of L2: where o of E4M3 finished rows, it reached 563 TFLOP/s in groups of 10 row tiles, 746
  // in groups of 22.
  const addsToStream = narrow === 'stream' || narrow === 'deep';
  if (addsToStream && (rows > FEW_ROWS || !finishes)) return NARROW_STREAM_ROWS;
  return finishes && narrow === undefined ? FINISHED_ROWS : RASTER_ROWS;
}
