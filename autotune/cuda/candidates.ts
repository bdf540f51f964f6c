/**
 * The CUDA schedules worth considering for one kernel: the full set for the cost model to rank, and steps for the
 * climb.
 */
import { ATTENTION_KEYS, attentionSchedules, sharesRuns } from '../../codegen/cuda/attention/schedules.js';
import { type CudaFacts, isLegalCuda } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { type CudaGemmSchedule, type CudaGemmSkeleton, type CudaSchedule, PART_COUNTS } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';

interface Axes {
  readonly modes: readonly CudaGemmSchedule['mode'][];
  readonly tm: readonly number[];
  readonly tn: readonly number[];
  /** Likeliest first. */
  readonly tk: readonly [number, ...number[]];
  /** Deepest first: a pipeline that fits is usually worth its shared memory. */
  readonly stages: readonly number[];
  readonly clusters: readonly (1 | 2)[];
}

const steps = (from: number, to: number, step: number): number[] =>
  Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, i) => from + i * step);

/** Few rows, whose weights flow through a deep ring of stages. */
const RING: Omit<Axes, 'tk'> = {
  modes: ['cooperative'],
  tm: [8, 16, 32, 64],
  tn: steps(16, 256, 16),
  stages: [24, 20, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2],
  clusters: [1],
};

const AXES: Readonly<Record<CudaGemmSkeleton, Axes>> = {
  // Column tiles in steps of 16: the width decides how full the last wave of multiprocessors is.
  wgmma: {
    modes: ['deferred', 'pingpong', 'cooperative'],
    tm: [64, 128, 256],
    tn: steps(32, 256, 16),
    tk: [64, 128],
    stages: [8, 7, 6, 5, 4, 3, 2],
    clusters: [2, 1],
  },
  mma: {
    modes: ['cooperative'],
    tm: [16, 32, 64, 128, 256],
    tn: [32, 64, 96, 128, 192, 256],
    tk: [32, 64],
    stages: [5, 4, 3, 2],
    clusters: [1],
  },
  skinny: {
    modes: ['cooperative'],
    tm: [8, 16, 32, 64],
    tn: steps(16, 256, 16),
    tk: [64, 128, 256],
    stages: [16, 12, 10, 8, 7, 6, 5, 4, 3],
    clusters: [1],
  },
  skinnyWgmma: { ...RING, tk: [128, 64, 256], clusters: [1, 2] },
  grouped: { ...RING, tk: [256, 128, 512] },
  micro: { ...RING, tk: [192, 128, 64, 256] },
  simt: {
    modes: ['cooperative'],
    tm: [16, 32, 64, 128],
    tn: [32, 64, 96, 128, 192, 256],
    tk: [32, 16],
    stages: [1],
    clusters: [1],
  },
};

/** Candidates are ranked with this raster and the first depth. Both matter little; the climb tries the others. */
const RASTER = 16;
/** Tile columns for the remainder in the last wave. */
const REMAINDER_COLUMNS = steps(64, 224, 32);
const MAX_RASTER = 64;
const THREADS = [64, 128, 256, 512, 1024] as const;

/**
 * The schedules of one kernel. All of them compute the same numbers: they share the default's skeleton, which fixes the
 * order of additions.
 */
export class CudaSpace {
  readonly isLegal: (schedule: CudaSchedule) => boolean;
  private readonly kernel: Kernel;
  private readonly module: KernelModule;
  private readonly facts: CudaFacts;
  /** Tiles by skeleton. */
  private readonly tiles = new Map<CudaGemmSkeleton, readonly CudaGemmSchedule[]>();

  constructor(kernel: Kernel, module: KernelModule, facts: CudaFacts) {
    this.kernel = kernel;
    this.module = module;
    this.facts = facts;
    this.isLegal = candidateTest(kernel, module, facts);
  }

  /** Every schedule worth ranking, each once, in a fixed order. */
  enumerate(start: CudaSchedule): readonly CudaSchedule[] {
    switch (start.kind) {
      case 'gemm':
        return this.gemmTiles(start);
      case 'attention': {
        if (this.kernel.anchor !== 'attention') return [];
        // Products of warps and of warpgroups have the same bits (decision 14).
        const isSimt = start.skeleton === 'simt';
        return attentionSchedules(this.kernel, this.module, this.facts).filter(
          (schedule) => (schedule.skeleton === 'simt') === isSimt && mayReplace(start, schedule),
        );
      }
      case 'loop':
        // How long paths are says how a scan is shared out, and the calls that are measured do not say it of all.
        if (this.kernel.anchor === 'scan') return [start];
        return THREADS.map((threads): CudaSchedule => ({ kind: 'loop', threads })).filter(this.isLegal);
      default:
        return start satisfies never;
    }
  }

  /** Legal schedules one step from `from`, each once, never `from` itself. */
  neighbours(from: CudaSchedule): readonly CudaSchedule[] {
    const near = from.kind === 'gemm' ? this.gemmNeighbours(from) : this.enumerate(from);
    const seen = new Set([cudaScheduling.key(from)]);
    return near.filter((schedule) => {
      const key = cudaScheduling.key(schedule);
      if (seen.has(key) || !this.isLegal(schedule)) return false;
      seen.add(key);
      return true;
    });
  }

  private gemmTiles(start: CudaGemmSchedule): readonly CudaGemmSchedule[] {
    const { skeleton } = start;
    const known = this.tiles.get(skeleton);
    if (known !== undefined) return known;
    const { modes, tm, tn, tk: depths, clusters } = AXES[skeleton];
    // Stages of 64 are half a slab of operands of 8 bits.
    const stages = Math.min(2, start.stages);
    const tk = depths.find((each) => this.isLegal({ ...start, tk: each, stages })) ?? depths[0];
    const tiles = modes.flatMap((mode) =>
      tm.flatMap((rows) =>
        tn.flatMap((columns) =>
          clusters.flatMap(
            (cluster) =>
              this.deepest({
                kind: 'gemm',
                skeleton,
                tm: rows,
                tn: columns,
                tk,
                stages: 1,
                cluster,
                raster: RASTER,
                mode,
              }) ?? [],
          ),
        ),
      ),
    );
    this.tiles.set(skeleton, tiles);
    return tiles;
  }

  /** The tile with the deepest pipeline that fits in shared memory. */
  private deepest(tile: CudaGemmSchedule): CudaGemmSchedule | undefined {
    for (const stages of AXES[tile.skeleton].stages) {
      const schedule = { ...tile, stages };
      if (this.isLegal(schedule)) return schedule;
    }
    return undefined;
  }

  private gemmNeighbours(from: CudaGemmSchedule): readonly CudaSchedule[] {
    const { modes, tm, tn, tk, clusters } = AXES[from.skeleton];
    const beside = (unsorted: readonly number[], value: number): number[] => {
      const values = [...unsorted].sort((a, b) => a - b);
      const lower = values.filter((v) => v < value),
        upper = values.filter((v) => v > value);
      return [...lower.slice(-1), ...upper.slice(0, 1)];
    };
    const { remainderTn, ...plain } = from;
    const { epilogueGroups, ...three } = plain;
    const four = { ...three, epilogueGroups: 1 } as const;
    const changed: CudaGemmSchedule[] = [
      // The next legal widths on either side: some widths do not divide into whole pairs.
      ...this.nextColumns(plain, tn.filter((v) => v < from.tn).reverse()),
      ...this.nextColumns(
        plain,
        tn.filter((v) => v > from.tn),
      ),
      ...(remainderTn === undefined ? [] : [plain]),
      ...beside(REMAINDER_COLUMNS, remainderTn ?? from.tn).map((value) => ({ ...from, remainderTn: value })),
      ...beside(tm, from.tm).map((value) => ({ ...from, tm: value })),
      ...beside(tk, from.tk).map((value) => ({ ...from, tk: value })),
      ...modes.filter((mode) => mode !== from.mode).map((mode) => ({ ...three, mode })),
      ...(from.mode !== 'deferred' ? [] : [epilogueGroups === undefined ? four : three]),
      ...clusters.filter((cluster) => cluster !== from.cluster).map((cluster) => ({ ...from, cluster })),
      ...otherParts(from),
    ];
    return [
      ...changed.flatMap((schedule) => this.deepest(schedule) ?? []),
      ...[from.stages - 1, from.stages + 1].map((stages) => ({ ...from, stages })),
      ...[from.raster / 2, from.raster * 2]
        .filter((raster) => Number.isInteger(raster) && raster <= MAX_RASTER)
        .map((raster) => ({ ...from, raster })),
    ];
  }

  private nextColumns(from: CudaGemmSchedule, widths: readonly number[]): CudaGemmSchedule[] {
    for (const tn of widths) {
      const found = this.deepest({ ...from, tn });
      if (found !== undefined) return [found];
    }
    return [];
  }
}

/**
 * Whether a schedule may be chosen in place of `start` because it is faster. Calls that are measured have a query for
 * each path. So where the default reads keys once for a text and its drafts, nothing replaces it that does not.
 */
export const mayReplace = (start: CudaSchedule, schedule: CudaSchedule): boolean =>
  start.kind !== 'attention' || !sharesRuns(start) || (schedule.kind === 'attention' && sharesRuns(schedule));

/** The schedule on CUDA cores that candidates are checked against. Throws if there is none. */
export function referenceSchedule(
  kernel: Kernel,
  module: KernelModule,
  facts: CudaFacts,
  start: CudaSchedule,
): CudaSchedule {
  const isLegal = candidateTest(kernel, module, facts);
  if (start.kind === 'gemm') {
    const { tm, tn, tk } = AXES.simt;
    // The largest tile is the fastest: references are computed for the largest micro-batches too.
    for (const rows of [...tm].reverse()) {
      for (const columns of [...tn].reverse()) {
        for (const depth of tk) {
          const schedule: CudaSchedule = {
            kind: 'gemm',
            skeleton: 'simt',
            tm: rows,
            tn: columns,
            tk: depth,
            stages: 1,
            cluster: 1,
            raster: 8,
            mode: 'cooperative',
          };
          if (isLegal(schedule)) return schedule;
        }
      }
    }
  }
  if (start.kind === 'attention') {
    const found = [16, 8, 4, 32]
      .map((queries): CudaSchedule => ({ kind: 'attention', skeleton: 'simt', queries, keys: ATTENTION_KEYS.simt }))
      .find(isLegal);
    if (found !== undefined) return found;
  }
  if (start.kind === 'loop') return start;
  throw new Error(`Kernel ${kernel.name} (${kernel.path}) cannot run on CUDA cores, so no candidate can be checked.`);
}

/** Tiles that half or twice as many blocks share groups of columns with; whole ones where one block has them. */
function otherParts({ parts, ...from }: CudaGemmSchedule): CudaGemmSchedule[] {
  const own = parts ?? 1;
  const tile = { ...from, cluster: 1 } as const;
  const shared = PART_COUNTS.filter((each) => each === 2 * own || 2 * each === own).map((each) => ({
    ...tile,
    ...{ parts: each, tn: (from.tn * own) / each },
  }));
  return own === 2 ? [{ ...tile, tn: 2 * from.tn }, ...shared] : shared;
}

/** Smaller tiles make too few products per loaded element and wait for L2 at any micro-batch size. */
const MIN_TILE = 16 * 32;
/** Where this does not count: they wait for memory anyway. */
const OF_FEW_ROWS: readonly CudaGemmSkeleton[] = ['skinny', 'skinnyWgmma', 'grouped', 'micro'];
/** Loops with fewer threads per block leave multiprocessors idle. */
const MIN_THREADS = 64;

/** `true`, or why the tuner leaves `schedule` out. Pure: depends on its arguments only. */
function isCudaCandidate(
  kernel: Kernel,
  module: KernelModule,
  schedule: CudaSchedule,
  facts: CudaFacts,
): true | string {
  if (schedule.kind === 'gemm' && !OF_FEW_ROWS.includes(schedule.skeleton) && schedule.tm * schedule.tn < MIN_TILE)
    return `a tile of ${schedule.tm}×${schedule.tn} makes too few products per element it loads`;
  if (schedule.kind === 'loop' && schedule.threads < MIN_THREADS)
    return `blocks of ${schedule.threads} threads do not fill a multiprocessor`;
  return isLegalCuda(kernel, module, schedule, facts);
}

/** isCudaCandidate for one kernel. Results are cached: legality prints programs to count what they keep. */
export function candidateTest(
  kernel: Kernel,
  module: KernelModule,
  facts: CudaFacts,
): (schedule: CudaSchedule) => boolean {
  const known = new Map<string, boolean>();
  return (schedule) => {
    // The raster does not affect legality.
    const key = cudaScheduling.key(schedule.kind === 'gemm' ? { ...schedule, raster: 8 } : schedule);
    let isLegal = known.get(key);
    if (isLegal === undefined) {
      isLegal = isCudaCandidate(kernel, module, schedule, facts) === true;
      known.set(key, isLegal);
    }
    return isLegal;
  };
}
