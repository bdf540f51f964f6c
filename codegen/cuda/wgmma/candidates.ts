/** Candidate schedules of the wgmma skeleton, and the default schedule. */
import { isDeepStrictEqual } from 'node:util';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { ContractionKernel, KernelModule } from '../../../ir/kernel.js';
import { oncePer } from '../../../ir/oncePer.js';
import { expertsOf, segmentsOf } from '../text/contraction.js';
import { slabOf } from './instruction.js';
import { columnTiles, MAX_COLUMNS, remainderColumns, waveCount } from './layout.js';
import { deepestStages, isLegalWgmma, typeOf, type WgmmaFacts } from './legality.js';
import { natureOf, rasterOf, rasterRowsOf, rateOf, TILES } from './tileRates.js';

export interface WgmmaDevice extends WgmmaFacts {
  readonly multiprocessors: number;
}

const MAX_STAGES = 8;
/** Fewest columns of a remainder tile: narrower ones would wait for their rows. */
const NARROWEST = 64;

/** Rows up to which tiles of 64 rows are best; more for the head, whose weights are many times as large. */
const MAX_LOW_ROWS = 384;
const MAX_LOW_HEAD_ROWS = 1024;
const LOW_RASTER = 16;
/** Columns from which on a tile of 64 rows reads few enough bytes from L2 to go through several waves. */
const WIDE = 160;
/** Useful share of waves that makes up for the bytes. */
const FULL_WAVES = 0.93;
/** Share of the multiprocessors that one wave may take: 120 blocks took 80 µs where 132 narrower ones took 97 µs. */
const ONE_WAVE = 0.97;

const base = { kind: 'gemm', skeleton: 'wgmma' } as const;

/** The schedule of a tile with the deepest legal pipeline, or undefined where none is legal. */
function deepest(
  kernel: ContractionKernel,
  module: KernelModule,
  device: WgmmaDevice,
  tile: Omit<CudaGemmSchedule, 'stages' | 'tk'>,
  most = MAX_STAGES,
): CudaGemmSchedule | undefined {
  const schedule = { ...tile, tk: slabOf(typeOf(kernel, module)) };
  const stages = deepestStages(kernel, module, schedule, device, most);
  return stages === undefined ? undefined : { ...schedule, stages };
}

/** Tiles and clusters that are legal, whatever the number of rows. Found once for a kernel. */
const wholeTiles = oncePer((kernel: ContractionKernel, module: KernelModule, device: WgmmaDevice) =>
  TILES.flatMap((tile) =>
    ([2, 1] as const).flatMap((cluster) => {
      const { mode, tm, tn, epilogueGroups } = tile;
      const groups = epilogueGroups === undefined ? {} : { epilogueGroups };
      const schedule = deepest(kernel, module, device, { ...base, mode, tm, tn, cluster, raster: 1, ...groups });
      return schedule === undefined ? [] : [{ tile, cluster, schedule }];
    }),
  ),
);

/** The tiles of 64 rows that lowTiles chooses from, the narrowest first. */
const LOW = { ...base, mode: 'pingpong', tm: 64, cluster: 1, raster: LOW_RASTER } as const;
const lowWidths = oncePer((kernel: ContractionKernel, module: KernelModule, device: WgmmaDevice) =>
  Array.from({ length: (MAX_COLUMNS - NARROWEST) / 16 + 1 }, (_, i) => NARROWEST + 16 * i).flatMap(
    (tn) => deepest(kernel, module, device, { ...LOW, tn }) ?? [],
  ),
);

/**
 * Tiles of rows of experts that have one such tile or less each, 128 columns wide: they wait for memory, and blocks
 * take them one by one. 64 texts of DeepSeek V2 Lite's gates and ups take 174 µs on an H200, by tiles of 256 columns
 * 177; downs 90 and 92.5.
 */
const EXPERTS = { ...base, mode: 'pingpong', tm: 64, tn: 128, cluster: 1, raster: 1 } as const;
const EXPERT_STAGES = 9;

/**
 * Tiles of 64 rows for calls that wait for memory and L2 rather than for arithmetic: no cluster waits for a neighbour,
 * and the ring is deep. Measured on an H100 at 128, 256 and 384 rows: the narrowest tiles that fill one wave are within
 * 4 % of the best, and 1.1 to 1.4 times as fast as tiles of 128 rows. Undefined where there are too many rows, or where
 * the last wave would be short.
 */
function lowTiles(
  kernel: ContractionKernel,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule | undefined {
  const isHead = kernel.anchor === 'logprob';
  const experts = expertsOf(kernel);
  const ofExperts = (): CudaGemmSchedule | undefined => deepest(kernel, module, device, EXPERTS, EXPERT_STAGES);
  if (experts !== undefined && rows > MAX_LOW_ROWS && rows <= experts.count * EXPERTS.tm) return ofExperts();
  if (rows > (isHead ? MAX_LOW_HEAD_ROWS : MAX_LOW_ROWS)) return undefined;
  const inOneWave = (tn: number): boolean =>
    columnTiles(segmentsOf(kernel), tn).total * rowTiles(kernel, LOW, rows) <= ONE_WAVE * device.multiprocessors;
  const schedules = lowWidths(kernel, module, device);
  const isFull = (each: CudaGemmSchedule): boolean =>
    each.tn >= WIDE && (isHead || waveEfficiency(kernel, each, device.multiprocessors, rows) >= FULL_WAVES);
  const one = schedules.find(({ tn }) => inOneWave(tn));
  return one ?? (experts === undefined ? schedules.findLast(isFull) : ofExperts());
}

/** Legal schedules to measure at `rows` rows, the most promising first. Empty if wgmma cannot run the kernel. */
export function wgmmaCandidates(
  kernel: ContractionKernel,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule[] {
  const low = lowTiles(kernel, module, device, rows);
  const ranked = rankedTiles(kernel, module, device, rows);
  return low === undefined ? ranked : [low, ...ranked.filter((each) => !isDeepStrictEqual(each, low))];
}

function rankedTiles(
  kernel: ContractionKernel,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule[] {
  const list: { schedule: CudaGemmSchedule; rate: number }[] = [];
  const nature = natureOf(kernel, module);
  const { narrow: ofE4m3, addsToStream, hasExperts, finishes } = nature;
  const groups = rasterRowsOf(nature, rows);
  // Others of E4M3 lose a sixth where blocks come to other rows with each tile: QKV and gate and up at 5,760 rows, in
  // groups of 15 row tiles. Where rows of experts end is known on the device only.
  const height = { rows, finishes, mayWander: ofE4m3 !== undefined && addsToStream && !hasExperts };
  for (const { tile, cluster, schedule: legal } of wholeTiles(kernel, module, device)) {
    for (const rasterRows of groups) {
      const raster = rasterOf(device.multiprocessors, legal, { ...height, most: rasterRows });
      const whole = { ...legal, raster };
      // Deferred epilogues of the residual stream become slower: only a narrow tile would hide the longest epilogue.
      const narrow =
        tile.mode === 'deferred' && !addsToStream ? withRemainder(kernel, module, device, whole, rows) : undefined;
      for (const schedule of narrow === undefined ? [whole] : [whole, narrow]) {
        const count = waves(kernel, schedule, device.multiprocessors, rows);
        const expected = rateOf(tile, nature, cluster, rows, count) * (rasterRows === groups[0] ? 1 : 0.998);
        list.push({ schedule, rate: expected * waveEfficiency(kernel, schedule, device.multiprocessors, rows) });
      }
    }
  }
  return list.sort((x, y) => y.rate - x.rate).map(({ schedule }) => schedule);
}

/**
 * Useful share of the tensor cores' time, between 0 and 1: whole waves of tiles on all multiprocessors, with rows and
 * columns past the end counted as waste.
 */
export function waveEfficiency(
  kernel: ContractionKernel,
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
function waves(kernel: ContractionKernel, schedule: CudaGemmSchedule, multiprocessors: number, rows: number): number {
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
  kernel: ContractionKernel,
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
  kernel: ContractionKernel,
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
  kernel: ContractionKernel,
  module: KernelModule,
  device: WgmmaDevice,
  rows: number,
): CudaGemmSchedule | undefined {
  return lowTiles(kernel, module, device, rows) ?? rankedTiles(kernel, module, device, rows)[0];
}
