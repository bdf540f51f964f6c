/** Which schedules run weights in groups, and the default. */
import { RESERVED_BYTES, type CudaGemmSchedule } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, type GroupSize } from '../../../ir/groups.js';
import type { GemmKernel, KernelModule } from '../../../ir/kernel.js';
import type { SkinnyDevice } from '../skinny/candidates.js';
import { widths } from '../skinny/candidates.js';
import { skinnyTileStep } from '../skinny/layout.js';
import { blocksOf } from '../skinny/ring.js';
import { columnTiles } from '../wgmma/layout.js';
import {
  GROUPED_STAGES,
  groupedLayout,
  groupedProblem,
  hasRegisters,
  isAlone,
  leavesRegisters,
  MAX_COLUMNS,
  SLICE,
} from './layout.js';

/** Groups of the weights of a kernel; undefined if they have none. */
export const groupOfKernel = (
  { segments }: GemmKernel,
  { weights }: Pick<KernelModule, 'weights'>,
): GroupSize | undefined => weights.find(({ name }) => name === segments[0]?.weight)?.group;

/** The reason why `schedule` cannot run the kernel, apart from its dtypes; undefined if it can. */
export function groupedScheduleProblem(
  kernel: GemmKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  { arch, sharedBytesPerBlock }: SkinnyDevice,
  rowValues: number,
): string | undefined {
  const group = groupOfKernel(kernel, module);
  if (arch !== 'sm_90a') return `TMA needs sm_90a, the target is ${arch}`;
  if (group === undefined) return 'its weights are in no groups';
  if (schedule.cluster !== 1) return 'clusters are for wgmma';
  const problem = groupedProblem(kernel.segments, schedule);
  if (problem !== undefined) return problem;
  const { sharedBytes, warps } = groupedLayout(schedule, rowValues, group);
  if (warps > MAX_WARPS_OF_BLOCK) return `a tile of ${schedule.tm}×${schedule.tn} needs ${warps} warps`;
  return sharedBytes + RESERVED_BYTES <= sharedBytesPerBlock
    ? undefined
    : `a block needs ${sharedBytes} bytes of shared memory, ${sharedBytesPerBlock} are there`;
}

const MAX_WARPS_OF_BLOCK = 24;
/** Warps of a block that multiply, at most: the ranges of k are divided among them. */
const ENOUGH_WARPS = 16;
/** Most rows of one tile. Up to that, one tile for each multiprocessor is best, and warps may divide k. */
const FEW_ROWS = 64;
/** Widest tiles that are tried then. Registers limit the warps of a block, 16 weights each. */
const WIDEST: Readonly<Record<number, number>> = { 8: MAX_COLUMNS, 16: MAX_COLUMNS, 32: 160, 64: 160 };

/** Numbers of stages, the smallest first. */
const DEPTHS = Array.from(
  { length: GROUPED_STAGES.most - GROUPED_STAGES.least + 1 },
  (_, i) => GROUPED_STAGES.least + i,
);

/**
 * A good untuned schedule at `rows` rows; undefined if there is none. Blocks of few rows leave room for the next
 * kernel's, which read their weights beside them. But two blocks of one kernel on a multiprocessor end last: where the
 * kernel before has fewer blocks than there are multiprocessors, the idle ones would get two. So a block takes half of
 * the shared memory where its registers keep a second one away, else just more than half.
 */
export function defaultGroupedSchedule(
  kernel: GemmKernel,
  module: KernelModule,
  device: SkinnyDevice,
  rowValues: number,
  rows: number,
): CudaGemmSchedule | undefined {
  const { segments } = kernel;
  const group = groupOfKernel(kernel, module);
  if (group === undefined) return undefined;
  const tm = [8, 16, 32].find((each) => rows <= each) ?? 64;
  const isFew = rows <= FEW_ROWS;
  const tilesOf = (width: number): number => columnTiles(segments, width).total;
  const step = skinnyTileStep(segments);
  const all = isFew
    ? widths(step, tilesOf, device.multiprocessors, WIDEST[tm])
    : [128, 64, step].filter((tn) => tn % step === 0);
  for (const tn of all) {
    const slices = tn / SLICE;
    for (const split of isFew ? [4, 2, 1] : [1]) {
      if (slices * split > ENOUGH_WARPS && split > 1) continue;
      const fitting = DEPTHS.map((stages): CudaGemmSchedule => ({
        kind: 'gemm',
        skeleton: 'grouped',
        tm,
        tn,
        tk: split * BLOCK_COLUMNS,
        stages,
        cluster: 1,
        raster: 1,
        mode: 'cooperative',
      })).filter((each) => groupedScheduleProblem(kernel, module, each, device, rowValues) === undefined);
      const [first] = fitting;
      if (first === undefined) continue;
      // Numbers of stages change nothing about registers.
      const layout = groupedLayout(first, rowValues, group);
      if (split > 1 && !hasRegisters(first, layout)) continue;
      if (!leavesRegisters(first, layout)) return fitting.at(-1);
      const half = fitting.filter((each) => blocksOf(groupedLayout(each, rowValues, group)) === 2);
      if (half.length > 0 && isAlone(first, layout)) return half.at(-1);
      return fitting[half.length] ?? half.at(-1);
    }
  }
  return undefined;
}
