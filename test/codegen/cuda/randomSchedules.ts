/** Schedules drawn at random from all that are legal, so that every skeleton, mode and cluster size is among them. */
import { scoringBucket } from '../../../ir/scoring.js';
import { defaultCudaSchedule, isLegalCuda, type CudaFacts } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule, CudaGemmSkeleton, CudaSchedule } from '../../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../../ir/kernel.js';
import { below } from './randomModel.js';

const steps = (from: number, to: number, step: number): number[] =>
  Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, i) => from + i * step);

interface Axes {
  readonly tm: readonly number[];
  readonly tn: readonly number[];
  readonly tk: readonly number[];
  readonly stages: readonly number[];
}

const AXES: Readonly<Record<CudaGemmSkeleton, Axes>> = {
  // Up to two instructions side by side.
  wgmma: {
    tm: [64, 128, 192, 256],
    tn: [...steps(16, 256, 16), ...steps(288, 416, 32)],
    tk: [64, 128],
    stages: steps(2, 8, 1),
  },
  mma: { tm: [16, 32, 64, 128, 256], tn: steps(32, 256, 32), tk: [32, 64], stages: steps(2, 5, 1) },
  skinny: { tm: [8, 16, 32, 64], tn: steps(16, 256, 16), tk: [64, 128, 256], stages: steps(3, 8, 1) },
  skinnyWgmma: { tm: [8, 16, 32, 64], tn: steps(16, 256, 16), tk: [64, 128, 256], stages: steps(2, 8, 1) },
  grouped: { tm: [8, 16, 32, 64], tn: steps(16, 256, 16), tk: [128, 256, 512], stages: steps(2, 8, 1) },
  micro: { tm: [8, 16, 32, 64], tn: steps(16, 256, 16), tk: [64, 128, 192], stages: steps(2, 8, 1) },
  simt: { tm: [16, 32, 64], tn: [...steps(32, 256, 32), 800], tk: [16, 32], stages: [1] },
};
const RASTERS = [1, 2, 3, 8, 64];
const TRIES = 400;

/** A legal schedule of a kind, or undefined if `TRIES` draws found none. */
function draw(
  kernel: Kernel,
  module: KernelModule,
  facts: CudaFacts,
  random: () => number,
  kind: Pick<CudaGemmSchedule, 'skeleton' | 'mode' | 'cluster'>,
): CudaGemmSchedule | undefined {
  const pick = <T>(list: readonly T[]): T => list[below(random, list.length)]!;
  const { tm, tn, tk, stages } = AXES[kind.skeleton];
  for (let i = 0; i < TRIES; i++) {
    const tile: CudaGemmSchedule = {
      kind: 'gemm',
      ...kind,
      tm: pick(tm),
      tn: pick(tn),
      tk: pick(tk),
      stages: pick(stages),
      raster: pick(RASTERS),
    };
    const narrower = tn.filter((columns) => columns < tile.tn);
    const schedule =
      kind.mode === 'deferred' && narrower.length > 0 && below(random, 3) > 0
        ? { ...tile, remainderTn: pick(narrower) }
        : tile;
    if (isLegalCuda(kernel, module, schedule, facts) === true) return schedule;
  }
  return undefined;
}

/** The number of schedules of each skeleton; for wgmma, of each mode and cluster size. */
export type Counts = Readonly<Record<CudaGemmSkeleton, number>>;

/**
 * Different schedules of a kernel. A contraction has one on CUDA cores first, then as many of each of its skeletons as
 * `counts` asks for. Any other kernel has its default and, if it is a loop, blocks of other sizes.
 */
export function randomSchedules(
  kernel: Kernel,
  module: KernelModule,
  facts: CudaFacts,
  random: () => number,
  counts: Counts,
): CudaSchedule[] {
  if (kernel.anchor === 'loop' || kernel.anchor === 'logprobReduce')
    return [128, 32, 256].map((threads) => ({ kind: 'loop', threads }));
  if (kernel.anchor === 'attention')
    return [defaultCudaSchedule(kernel, module, facts, scoringBucket({ tokens: 512, rows: 512, longest: 512 }))];
  const common = { mode: 'cooperative', cluster: 1 } as const;
  const kinds: readonly Pick<CudaGemmSchedule, 'skeleton' | 'mode' | 'cluster'>[] = [
    ...Array.from({ length: counts.simt }, () => ({ skeleton: 'simt', ...common }) as const),
    ...Array.from({ length: counts.mma }, () => ({ skeleton: 'mma', ...common }) as const),
    ...Array.from({ length: counts.skinny }, () => ({ skeleton: 'skinny', ...common }) as const),
    ...Array.from({ length: counts.skinnyWgmma }, () => {
      const cluster = below(random, 2) === 0 ? 1 : 2;
      return { skeleton: 'skinnyWgmma', ...common, cluster } as const;
    }),
    ...Array.from({ length: counts.wgmma }, () =>
      (['pingpong', 'cooperative', 'deferred'] as const).flatMap((mode) =>
        ([1, 2] as const).map((cluster) => ({ skeleton: 'wgmma', mode, cluster }) as const),
      ),
    ).flat(),
  ];
  const found = new Map<string, CudaSchedule>();
  for (const kind of kinds) {
    // Few rows in pairs of tiles, unless the tiles are odd in number.
    const schedule =
      draw(kernel, module, facts, random, kind) ??
      (kind.skeleton === 'skinnyWgmma' ? draw(kernel, module, facts, random, { ...kind, cluster: 1 }) : undefined);
    if (schedule !== undefined) found.set(JSON.stringify(schedule), schedule);
  }
  return [...found.values()];
}
