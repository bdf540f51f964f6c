/** Which schedules run weights in groups, and the default. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, type GroupSize } from '../../../ir/groups.js';
import type { GemmKernel, KernelModule } from '../../../ir/kernel.js';
import type { SkinnyDevice } from '../skinny/candidates.js';
import { widths } from '../skinny/candidates.js';
import { skinnyTileStep } from '../skinny/layout.js';
import { columnTiles } from '../wgmma/layout.js';
import { GROUPED_STAGES, groupedLayout, groupedProblem, SLICE } from './layout.js';

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
  if (warps > MOST_WARPS_OF_BLOCK) return `a tile of ${schedule.tm}×${schedule.tn} needs ${warps} warps`;
  return sharedBytes + RESERVED_BYTES <= sharedBytesPerBlock
    ? undefined
    : `a block needs ${sharedBytes} bytes of shared memory, ${sharedBytesPerBlock} are there`;
}

const MOST_WARPS_OF_BLOCK = 24;
const RESERVED_BYTES = 1024;
/** Warps of a block from which on a multiprocessor is busy. */
const ENOUGH_WARPS = 8;
/** Elements of a tile from which on its epilogue leaves memory idle. */
const LONG_EPILOGUE = 8192;

/** A good untuned schedule at `rows` rows; undefined if there is none. */
export function defaultGroupedSchedule(
  kernel: GemmKernel,
  module: KernelModule,
  device: SkinnyDevice,
  rowValues: number,
  rows: number,
): CudaGemmSchedule | undefined {
  const { sharedBytesPerBlock, multiprocessors } = device;
  const { segments } = kernel;
  const tm = [8, 16, 32].find((each) => rows <= each) ?? 64;
  const tilesOf = (width: number): number => columnTiles(segments, width).total;
  const step = skinnyTileStep(segments);
  const all = tm <= 16 ? widths(step, tilesOf, multiprocessors) : [128, 64, step].filter((tn) => tn % step === 0);
  for (const tn of all) {
    const slices = tn / SLICE;
    const deep = tm > 16 || slices >= ENOUGH_WARPS ? 1 : slices * 2 >= ENOUGH_WARPS ? 2 : 4;
    const isWhole = tilesOf(tn) <= multiprocessors && tm * tn <= LONG_EPILOGUE;
    for (const blocks of isWhole ? [1] : [2, 1]) {
      const room = Math.floor(sharedBytesPerBlock / blocks) - 2 * RESERVED_BYTES;
      for (let stages: number = GROUPED_STAGES.most; stages >= GROUPED_STAGES.least; stages--) {
        const schedule: CudaGemmSchedule = {
          ...{ kind: 'gemm', skeleton: 'grouped', tm, tn, tk: deep * BLOCK_COLUMNS, stages },
          ...{ cluster: 1, raster: 1, mode: 'cooperative' },
        };
        const fits = { ...device, sharedBytesPerBlock: room + RESERVED_BYTES };
        if (groupedScheduleProblem(kernel, module, schedule, fits, rowValues) === undefined) return schedule;
      }
    }
  }
  return undefined;
}
