/** Measured rates of wgmma tiles, by what a kernel's epilogue does. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { ContractionKernel, KernelModule, Segment } from '../../../ir/kernel.js';
import { oncePer } from '../../../ir/oncePer.js';
import { operands as childrenOf, type Scalar } from '../../../ir/scalar.js';
import { expertsOf, finishesRows, segmentsOf } from '../text/contraction.js';
import { hasRowValues, typeOf } from './legality.js';

/** Which rate counts of products of E4M3. */
type NarrowColumn = 'rate' | 'residual' | 'stream' | 'deep';

/** A tile, and how fast it is. */
export interface Tile {
  readonly mode: CudaGemmSchedule['mode'];
  readonly tm: number;
  readonly tn: number;
  /**
   * Rate on an H100 at its power limit with clusters of 2, relative to cooperative tiles of 256 columns, without the
   * effects of waves and padding.
   */
  readonly rate: number;
  /**
   * The same for epilogues that read and write the residual stream: 6 bytes per element (10 in f32), where others write
   * 1 or 2. Not used for deep products, whose main loop dominates.
   */
  readonly residual: number;
  /**
   * The same for experts, if measured: 128 experts with 528 rows each on average, K = 768, reached 0.80 of the dense
   * rate on an H200, padding included.
   */
  readonly experts?: number;
  /**
   * The same for products of E4M3, which take half the time: what hides an epilogue hides half of it, and three warps
   * are late where the epilogue of the residual stream is followed by rows to finish: `residual`. They are not in deep
   * products, `deep`, and where no rows are finished, `stream`; both are as `rate` unless they were measured. Measured
   * on H100 and H200 (docs/log/contractions.md; 3,840 to 8,448 rows, hidden size 6,656). Tiles without figures count a
   * tenth less than in 16 bits.
   */
  readonly narrow?: Readonly<Record<'rate' | 'residual', number> & Partial<Record<NarrowColumn, number>>>;
  /** Warpgroups for epilogues (CudaGemmSchedule). Only products of E4M3 have them. */
  readonly epilogueGroups?: 1;
}

/** What a kernel's rates depend on: the column of TILES, and whether it finishes rows or only adds to the stream. */
export interface Nature {
  readonly which: 'rate' | 'residual';
  readonly finishes: boolean;
  readonly addsToStream: boolean;
  readonly hasExperts: boolean;
  /** Whether epilogues read values of rows, such as 1/rms. */
  readonly hasValues: boolean;
  /** The column of E4M3, for products of it. */
  readonly narrow?: NarrowColumn;
}

/**
 * Deferred epilogues run during the next product. Their tiles are as wide as cooperative ones but have fewer stages;
 * narrower tiles would need more stages. Ping-pong runs epilogues during the other warpgroup's product. Cooperative
 * tiles hide nothing; wide ones spend less energy on shared memory. Rates of tiles of 128 and more columns are measured
 * (docs/performance.md); those of narrower tiles follow from shared memory's share of a step. Deferred tiles of 224 and
 * 192 columns were measured little in 16 bits and are rated low; those of rate 0 were not at all.
 */
export const TILES: readonly Tile[] = [
  { mode: 'cooperative', tm: 128, tn: 256, rate: 1, residual: 0.985, narrow: { rate: 1, residual: 1 } },
  { mode: 'cooperative', tm: 128, tn: 224, rate: 0.935, residual: 0.92 },
  { mode: 'cooperative', tm: 128, tn: 192, rate: 0.93, residual: 0.9 },
  { mode: 'deferred', tm: 128, tn: 256, rate: 1.02, residual: 1.045, narrow: { rate: 1.105, residual: 0.985 } },
  {
    mode: 'deferred',
    tm: 128,
    tn: 256,
    epilogueGroups: 1,
    rate: 0,
    residual: 0,
    narrow: { rate: 1.03, residual: 1.07 },
  },
  {
    mode: 'deferred',
    tm: 128,
    tn: 224,
    rate: 0.95,
    residual: 0.97,
    narrow: { rate: 1.05, residual: 0.9, stream: 1.068, deep: 1.08 },
  },
  {
    mode: 'deferred',
    tm: 128,
    tn: 240,
    rate: 0,
    residual: 0,
    narrow: { rate: 0, residual: 0, stream: 1.065, deep: 1.102 },
  },
  {
    mode: 'deferred',
    tm: 128,
    tn: 208,
    rate: 0,
    residual: 0,
    narrow: { rate: 0, residual: 0, stream: 1.061, deep: 1.077 },
  },
  {
    mode: 'deferred',
    tm: 128,
    tn: 128,
    rate: 0,
    residual: 0,
    narrow: { rate: 0, residual: 0, stream: 1.067, deep: 1.075 },
  },
  { mode: 'deferred', tm: 128, tn: 192, rate: 0.95, residual: 0.96, narrow: { rate: 1, residual: 0.835, stream: 0.9 } },
  { mode: 'pingpong', tm: 128, tn: 208, rate: 0.965, residual: 0.985 },
  { mode: 'pingpong', tm: 128, tn: 192, rate: 0.965, residual: 1, narrow: { rate: 1.02, residual: 0.89 } },
  { mode: 'pingpong', tm: 128, tn: 176, rate: 0.93, residual: 0.96 },
  { mode: 'pingpong', tm: 128, tn: 160, rate: 0.9, residual: 0.93 },
  { mode: 'pingpong', tm: 128, tn: 128, rate: 0.85, residual: 0.88, narrow: { rate: 0.985, residual: 0.965 } },
  { mode: 'pingpong', tm: 128, tn: 96, rate: 0.75, residual: 0.75 },
  { mode: 'pingpong', tm: 128, tn: 64, rate: 0.6, residual: 0.6 },
  { mode: 'pingpong', tm: 192, tn: 128, rate: 0.86, residual: 0.89 },
  { mode: 'pingpong', tm: 64, tn: 256, rate: 0.75, residual: 0.75, experts: 0.85 },
  { mode: 'pingpong', tm: 64, tn: 128, rate: 0.6, residual: 0.6 },
  { mode: 'pingpong', tm: 64, tn: 64, rate: 0.4, residual: 0.4 },
  { mode: 'pingpong', tm: 64, tn: 32, rate: 0.25, residual: 0.25 },
];
/**
 * The same as `alone` where rows are finished, from many rows on. Measured on an H200 at 8,448 rows of 3,584 columns in
 * tiles of 256, as a share of the bare product: o (4,096 deep) 0.777 alone and 0.800 in clusters of 2, both in groups
 * of 11 row tiles; down (14,336 deep) 0.962 alone in groups of 11, in clusters 0.944 in groups of 22 and 0.931 in
 * groups of 6.
 */
const FINISHED_ALONE = { rate: 1.02, residual: 0.97 } as const;
/** The same for E4M3 from many rows on: 0.965 to 1.01 of clusters of 2. */
const NARROW_ALONE = 0.98;
/**
 * The same where they add to the stream, on an H100. From many rows on, o of 6,656 columns reached 0.875 of the bare
 * product alone and 0.863 in clusters of 2 at 8,448 rows, 0.822 and 0.805 at 3,840; down 0.874 and 0.854 at 4,096,
 * 0.891 and 0.860 at 6,144. With few rows, o reached 0.819 and 0.832 at 1,024, 0.807 and 0.825 at 2,048; down 0.866 and
 * 0.913, 0.824 and 0.880.
 */
const NARROW_STREAM_ALONE = 1.015;
const FEW_NARROW_STREAM_ALONE = 0.96;
/** Rate of E4M3 in tiles that were measured in 16 bits only, as a share of theirs. */
const UNMEASURED_NARROW = 0.9;
/**
 * Rate of a block without a neighbour to share weight tiles with. It never waits for a neighbour, but L2 is read more,
 * least with tiles of 256 columns. At the power limit of a run that costs more than waiting, unless there are few rows
 * or the epilogue waits for memory anyway.
 */
function alone({ mode, tn }: Tile, { which, finishes, narrow }: Nature, rows: number): number {
  const isMany = rows > FEW_ROWS;
  if ((tn > 192 || mode === 'deferred') && (narrow === 'stream' || narrow === 'deep'))
    return isMany ? NARROW_STREAM_ALONE : FEW_NARROW_STREAM_ALONE;
  if (tn > 192 && narrow !== undefined && isMany) return NARROW_ALONE;
  if (tn > 192 && finishes && isMany) return FINISHED_ALONE[which];
  if (tn > 192 && (!isMany || which === 'residual')) return 1.01;
  return tn < 256 ? 0.89 : 0.98;
}

/** Rows of a small micro-batch. */
export const FEW_ROWS = 2112;

/**
 * What is left of a ping-pong tile's rate where a block has a single one, whose epilogue waits for values of rows: no
 * product hides them, and wide tiles leave few registers for their loads. Q, k and v of 8B at 512 rows took 65 µs, by
 * cooperative tiles 51 (H200); o and down of 33B, which have no such values, are 7 % faster in ping-pong.
 */
const LONE_PING_PONG = 0.75;

/**
 * Rate of a tile if a block has `tilesOfBlock` of them. The epilogue of a block's final tile is not deferred and takes
 * as long as that of a cooperative tile.
 */
export function rateOf(tile: Tile, nature: Nature, cluster: 1 | 2, rows: number, tilesOfBlock: number): number {
  const own = (each: Tile): number => {
    const { which, narrow, hasExperts } = nature;
    if (hasExperts) return each.experts ?? each[which];
    if (narrow === undefined) return each[which];
    return each.narrow === undefined ? UNMEASURED_NARROW * each[which] : (each.narrow[narrow] ?? each.narrow.rate);
  };
  const rate = (each: Tile): number => own(each) * (cluster === 2 ? 1 : alone(each, nature, rows));
  if (tile.mode === 'pingpong' && nature.hasValues && tilesOfBlock <= 1) return LONE_PING_PONG * rate(tile);
  if (tile.mode !== 'deferred') return rate(tile);
  const alike = TILES.filter(({ mode, tm }) => mode === 'cooperative' && tm === tile.tm);
  const same = alike.find(({ tn }) => tn === tile.tn);
  // Where a cooperative tile is not in the list, the widest stands for it, unless it is faster than the tile itself.
  const last = same === undefined ? Math.min(rate(tile), rate(alike[0] ?? tile)) : rate(same);
  return rate(tile) + (last - rate(tile)) / tilesOfBlock;
}

/** A product with at least this many columns of its left operand counts as deep. */
const DEEP = 12_288;

/** What a kernel's rates depend on. */
export const natureOf = oncePer((kernel: ContractionKernel, module: KernelModule): Nature => {
  const isNarrow = typeOf(kernel, module) === 'e4m3';
  // Gates and ups of E4M3 leave sums, too: the scales of the rows that the next product reads.
  const addsToStream = segmentsOf(kernel).some(
    (segment) => segment.outputs.some(({ kind }) => kind === 'rowSum') && (!isNarrow || readsElements(segment)),
  );
  const finishes = finishesRows(kernel);
  const hasExperts = expertsOf(kernel) !== undefined;
  // Epilogues that add to the stream and finish no rows are expected to be hidden in E4M3 as those of deep ones are.
  const isLong = addsToStream && (!isNarrow || finishes);
  const which = kernel.k < DEEP && isLong ? 'residual' : 'rate';
  const narrowColumn = (): NarrowColumn => {
    if (!addsToStream) return 'rate';
    if (kernel.k >= DEEP) return 'deep';
    return finishes ? 'residual' : 'stream';
  };
  const hasValues = hasRowValues(kernel, module);
  return { which, finishes, addsToStream, hasExperts, hasValues, ...(isNarrow ? { narrow: narrowColumn() } : {}) };
});

/** Whether the epilogue reads what it adds to. */
const readsElements = ({ outputs }: Segment): boolean => outputs.some(({ value }) => isOfElement(value));
const isOfElement = (s: Scalar): boolean =>
  (s.op === 'load' && s.access.kind === 'element' && s.access.via === undefined) || childrenOf(s).some(isOfElement);

// How many row tiles a contraction visits before the next column tile.

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
