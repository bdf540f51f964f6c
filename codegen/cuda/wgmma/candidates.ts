/** Candidate schedules of the wgmma skeleton, and the default schedule. */
import { isDeepStrictEqual } from 'node:util';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { KernelModule, Segment } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf } from '../../../ir/scalar.js';
import type { Contraction } from '../text/contraction.js';
import { expertsOf, finishesRows, segmentsOf } from '../text/contraction.js';
import { remainderColumns, waveCount } from './remainderTiles.js';
import { columnTiles, MOST_COLUMNS } from './layout.js';
import { rasterOf } from './raster.js';
import type { WgmmaFacts } from './legality.js';
import { isLegalWgmma, typeOf } from './legality.js';
import { slabOf } from './instruction.js';

export interface WgmmaDevice extends WgmmaFacts {
  readonly multiprocessors: number;
}

interface Tile {
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
   * Both for products of E4M3, which take half the time: what hides an epilogue hides half of it, and three warps are
   * late where the epilogue of the residual stream is followed by rows to finish: `residual`. Measured on an H200
   * (docs/log/contractions.md; 3,840 and 8,448 rows, hidden size 6,656; deferred tiles of 224 columns lie between).
   * Tiles without figures count a tenth less than in 16 bits.
   */
  readonly narrow?: Readonly<Record<'rate' | 'residual', number>>;
  /** Warpgroups for epilogues (CudaGemmSchedule). Only products of E4M3 have them. */
  readonly epilogueGroups?: 1;
}

/** What a kernel's rates depend on: the column of TILES, and whether it finishes rows or only adds to the stream. */
interface Nature {
  readonly which: 'rate' | 'residual';
  readonly finishes: boolean;
  readonly addsToStream: boolean;
  readonly hasExperts: boolean;
  /** Products of 8 bits. */
  readonly isNarrow: boolean;
}

/**
 * Deferred epilogues run during the next product. Their tiles are as wide as cooperative ones but have fewer stages;
 * narrower tiles would need more stages. Ping-pong runs epilogues during the other warpgroup's product. Cooperative
 * tiles hide nothing; wide ones spend less energy on shared memory. Rates of tiles of 128 and more columns are measured
 * (docs/performance.md); those of narrower tiles follow from shared memory's share of a step. Deferred tiles of 224 and
 * 192 columns were measured little and are rated low.
 */
const TILES: readonly Tile[] = [
  { mode: 'cooperative', tm: 128, tn: 256, rate: 1, residual: 0.985, narrow: { rate: 1, residual: 1 } },
  { mode: 'cooperative', tm: 128, tn: 224, rate: 0.935, residual: 0.92 },
  { mode: 'cooperative', tm: 128, tn: 192, rate: 0.93, residual: 0.9 },
  { mode: 'deferred', tm: 128, tn: 256, rate: 1.02, residual: 1.045, narrow: { rate: 1.105, residual: 0.985 } },
  {
    ...{ mode: 'deferred', tm: 128, tn: 256, epilogueGroups: 1 },
    ...{ rate: 0, residual: 0, narrow: { rate: 1.03, residual: 1.07 } },
  },
  { mode: 'deferred', tm: 128, tn: 224, rate: 0.95, residual: 0.97, narrow: { rate: 1.05, residual: 0.9 } },
  { mode: 'deferred', tm: 128, tn: 192, rate: 0.95, residual: 0.96, narrow: { rate: 1, residual: 0.835 } },
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
/** Most rows in a group of row tiles, so that what all blocks read at a time fits in L2. */
const RASTER_ROWS = [2816, 1536];
/** The same where rows are finished: fewer, because all rows of a group are complete at about the same time. */
const FINISHED_ROWS = [1408];
/** The same of E4M3 where products are added to the stream and no rows finished: o takes 1 % less than in high groups. */
const NARROW_STREAM_ROWS = [1408, 2816];
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
 * The same where they add to the stream and finish no rows: o of 6,656 columns reached 0.875 of the bare product alone
 * and 0.863 in clusters of 2 at 8,448 rows, 0.822 and 0.805 at 3,840, on an H100.
 */
const NARROW_STREAM_ALONE = 1.015;
/** Rate of E4M3 in tiles that were measured in 16 bits only, as a share of theirs. */
const UNMEASURED_NARROW = 0.9;
/**
 * Rate of a block without a neighbour to share weight tiles with. It never waits for a neighbour, but L2 is read more,
 * least with tiles of 256 columns. At the power limit of a run that costs more than waiting, unless there are few rows
 * or the epilogue waits for memory anyway.
 */
function alone({ tn }: Tile, { which, finishes, addsToStream, isNarrow }: Nature, rows: number): number {
  if (isNarrow && tn > 192 && rows > FEW_ROWS) return addsToStream && !finishes ? NARROW_STREAM_ALONE : NARROW_ALONE;
  if (tn > 192 && finishes && rows > FEW_ROWS) return FINISHED_ALONE[which];
  if (tn > 192 && (rows <= FEW_ROWS || which === 'residual')) return 1.01;
  return tn < 256 ? 0.89 : 0.98;
}

/** Rows of a small micro-batch. */
const FEW_ROWS = 2112;
const MOST_STAGES = 8;
/** Fewest columns of a remainder tile: narrower ones would wait for their rows. */
const NARROWEST = 64;
/** A product with at least this many columns of its left operand counts as deep. */
const DEEP = 12_288;

/** Rows up to which tiles of 64 rows are best; more for the head, whose weights are many times as large. */
const MOST_LOW_ROWS = 384;
const MOST_LOW_HEAD_ROWS = 1024;
const LOW_RASTER = 16;
/** Columns from which on a tile of 64 rows reads few enough bytes from L2 to go through several waves. */
const WIDE = 160;
/** Useful share of waves that makes up for the bytes. */
const FULL_WAVES = 0.93;
/** Share of the multiprocessors that one wave may take: 120 blocks took 80 µs where 132 narrower ones took 97 µs. */
const ONE_WAVE = 0.97;

const base = { kind: 'gemm', skeleton: 'wgmma' } as const;

/**
 * Rate of a tile if a block has `tilesOfBlock` of them. The epilogue of a block's final tile is not deferred and takes
 * as long as that of a cooperative tile.
 */
function rateOf(tile: Tile, nature: Nature, cluster: 1 | 2, rows: number, tilesOfBlock: number): number {
  const own = (each: Tile): number => {
    if (nature.hasExperts) return each.experts ?? each[nature.which];
    return nature.isNarrow
      ? (each.narrow?.[nature.which] ?? UNMEASURED_NARROW * each[nature.which])
      : each[nature.which];
  };
  const rate = (each: Tile): number => own(each) * (cluster === 2 ? 1 : alone(each, nature, rows));
  const last =
    tile.mode === 'deferred'
      ? TILES.find(({ mode, tm, tn }) => mode === 'cooperative' && tm === tile.tm && tn === tile.tn)
      : undefined;
  return last === undefined ? rate(tile) : rate(tile) + (rate(last) - rate(tile)) / tilesOfBlock;
}

/** The deepest legal pipeline of a tile, or undefined where none is legal. */
function deepest(
  kernel: Contraction,
  module: KernelModule,
  device: WgmmaDevice,
  tile: Omit<CudaGemmSchedule, 'stages' | 'tk'>,
): CudaGemmSchedule | undefined {
  for (let stages = MOST_STAGES; stages >= 2; stages--) {
    const schedule = { ...tile, tk: slabOf(typeOf(kernel, module)), stages };
    if (isLegalWgmma(kernel, module, schedule, device) === true) return schedule;
  }
  return undefined;
}

/**
 * Tiles of 64 rows for calls that wait for memory and L2 rather than for arithmetic: no cluster waits for a neighbour,
 * and the ring is deep. Measured on an H100 at 128, 256 and 384 rows: the narrowest tiles that fill one wave are within
 * 4 % of the best, and 1.1 to 1.4 times as fast as tiles of 128 rows. Undefined where there are too many rows, or where
 * the last wave would be short.
 */
function lowTiles(
  kernel: Contraction,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule | undefined {
  const isHead = kernel.anchor === 'logprob';
  if (rows > (isHead ? MOST_LOW_HEAD_ROWS : MOST_LOW_ROWS)) return undefined;
  const tile = { ...base, mode: 'pingpong', tm: 64, cluster: 1, raster: LOW_RASTER } as const;
  const inOneWave = (tn: number): boolean =>
    columnTiles(segmentsOf(kernel), tn).total * rowTiles(kernel, tile, rows) <= ONE_WAVE * device.multiprocessors;
  const widths = Array.from({ length: (MOST_COLUMNS - NARROWEST) / 16 + 1 }, (_, i) => NARROWEST + 16 * i);
  const schedules = widths.flatMap((tn) => deepest(kernel, module, device, { ...tile, tn }) ?? []);
  const isFull = (each: CudaGemmSchedule): boolean =>
    each.tn >= WIDE && (isHead || waveEfficiency(kernel, each, device.multiprocessors, rows) >= FULL_WAVES);
  return schedules.find(({ tn }) => inOneWave(tn)) ?? schedules.findLast(isFull);
}

/** The most rows of a group, the most promising first. */
function rasterRowsOf({ isNarrow, finishes, addsToStream }: Nature): readonly number[] {
  // Rows of bytes take half of L2: o of E4M3 that finishes rows reached 563 TFLOP/s in groups of 10 row tiles and 746 in
  // groups of 22.
  if (finishes) return isNarrow ? RASTER_ROWS : FINISHED_ROWS;
  return isNarrow && addsToStream ? NARROW_STREAM_ROWS : RASTER_ROWS;
}

/** Whether the epilogue reads what it adds to. */
const readsElements = ({ outputs }: Segment): boolean => outputs.some(({ value }) => isOfElement(value));
const isOfElement = (s: Scalar): boolean =>
  (s.op === 'load' && s.access.kind === 'element' && s.access.via === undefined) || childrenOf(s).some(isOfElement);

/** Legal schedules to measure at `rows` rows, the most promising first. Empty if wgmma cannot run the kernel. */
export function wgmmaCandidates(
  kernel: Contraction,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule[] {
  const list: { schedule: CudaGemmSchedule; rate: number }[] = [];
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
  const nature: Nature = { which, finishes, addsToStream, hasExperts, isNarrow };
  const groups = rasterRowsOf(nature);
  // Others of E4M3 lose a sixth where blocks come to other rows with each tile: QKV and gate and up at 5,760 rows, in
  // groups of 15 row tiles. Where rows of experts end is known on the device only.
  const height = { rows, finishes, mayWander: isNarrow && addsToStream && !hasExperts };
  for (const tile of TILES) {
    const { mode, tm, tn, epilogueGroups } = tile;
    for (const cluster of [2, 1] as const) {
      for (const rasterRows of groups) {
        const whole = deepest(kernel, module, device, {
          ...base,
          mode,
          tm,
          tn,
          cluster,
          raster: rasterOf(device.multiprocessors, { cluster, tm }, { ...height, most: rasterRows }),
          ...(epilogueGroups === undefined ? {} : { epilogueGroups }),
        });
        if (whole === undefined) continue;
        // Deferred epilogues of the residual stream become slower: only a narrow tile would hide the longest epilogue.
        const narrow =
          mode === 'deferred' && !addsToStream ? withRemainder(kernel, module, device, whole, rows) : undefined;
        for (const schedule of narrow === undefined ? [whole] : [whole, narrow]) {
          const expected =
            rateOf(tile, nature, cluster, rows, waves(kernel, schedule, device.multiprocessors, rows)) *
            (rasterRows === groups[0] ? 1 : 0.998);
          list.push({ schedule, rate: expected * waveEfficiency(kernel, schedule, device.multiprocessors, rows) });
        }
      }
    }
  }
  const low = lowTiles(kernel, module, device, rows);
  const ranked = list.sort((x, y) => y.rate - x.rate).map(({ schedule }) => schedule);
  return low === undefined ? ranked : [low, ...ranked.filter((each) => !isDeepStrictEqual(each, low))];
}

/**
 * Useful share of the tensor cores' time, between 0 and 1: whole waves of tiles on all multiprocessors, with rows and
 * columns past the end counted as waste.
 */
export function waveEfficiency(
  kernel: Contraction,
  schedule: CudaGemmSchedule,
  multiprocessors: number,
  rows: number,
): number {
  const useful = columnTiles(segmentsOf(kernel), 1).total;
  const { tm, tn, cluster } = schedule;
  return (
    (rows * useful) /
    (waves(kernel, schedule, multiprocessors, rows) * blocksAtOnce(multiprocessors, cluster) * tm * tn)
  );
}

/** Number of blocks that run at once: whole clusters. */
const blocksAtOnce = (multiprocessors: number, cluster: number): number =>
  Math.max(cluster, multiprocessors - (multiprocessors % cluster));

/** Tiles of the block that has the most. A remainder tile counts by its time. */
function waves(kernel: Contraction, schedule: CudaGemmSchedule, multiprocessors: number, rows: number): number {
  return waveCount(
    segmentsOf(kernel),
    schedule,
    blocksAtOnce(multiprocessors, schedule.cluster) / schedule.cluster,
    rowTiles(kernel, schedule, rows),
  );
}

/**
 * Row tiles of whole clusters. Experts are expected to have equal parts of the rows, and half a tile past the end.
 */
function rowTiles(
  kernel: Contraction,
  { tm, cluster }: Pick<CudaGemmSchedule, 'tm' | 'cluster'>,
  rows: number,
): number {
  const experts = expertsOf(kernel);
  if (experts === undefined) return Math.ceil(rows / (tm * cluster));
  const used = Math.min(experts.count, rows);
  return Math.ceil(used * Math.max(1, rows / used / tm + 0.5));
}

/**
 * The schedule with the narrowest legal tiles that divide the remainder at `rows` rows into one wave; undefined if none
 * does.
 */
function withRemainder(
  kernel: Contraction,
  module: KernelModule,
  device: WgmmaDevice,
  schedule: CudaGemmSchedule,
  rows: number,
): CudaGemmSchedule | undefined {
  const clusters = blocksAtOnce(device.multiprocessors, schedule.cluster) / schedule.cluster;
  const rowTiles = Math.ceil(rows / (schedule.tm * schedule.cluster));
  for (let remainderTn = NARROWEST; remainderTn < schedule.tn; remainderTn += 16) {
    const narrow = { ...schedule, remainderTn };
    if (
      remainderColumns(segmentsOf(kernel), narrow, clusters, rowTiles).narrow > 0 &&
      isLegalWgmma(kernel, module, narrow, device) === true
    )
      return narrow;
  }
  return undefined;
}

/** A good untuned schedule at `rows` rows; undefined if wgmma cannot run the kernel. */
export function defaultWgmmaSchedule(
  kernel: Contraction,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule | undefined {
  return wgmmaCandidates(kernel, module, device, rows)[0];
}
