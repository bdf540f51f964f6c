/** Schedules of the wgmma skeleton worth trying, and the one to take untried. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { GemmKernel, KernelModule } from '../../../ir/kernel.js';
import { columnTiles } from './layout.js';
import type { WgmmaFacts } from './legality.js';
import { isLegalWgmma } from './legality.js';

export interface WgmmaDevice extends WgmmaFacts {
  readonly multiprocessors: number;
}

/** Ping-pong hides epilogues behind the other warpgroup's product; cooperative tiles are wider. */
const PINGPONG_COLUMNS = [208, 192, 176, 160, 128, 96, 64, 32, 16];
const COOPERATIVE_COLUMNS = [256, 224, 208, 192, 128];
const RASTERS = [16, 8];
const MOST_STAGES = 8;

const base = { kind: 'gemm', skeleton: 'wgmma', tk: 64 } as const;

/** The deepest legal pipeline of a tile, or undefined where none is legal. */
function deepest(kernel: GemmKernel, module: KernelModule, device: WgmmaDevice, tile: Omit<CudaGemmSchedule, 'stages'>): CudaGemmSchedule | undefined {
  for (let stages = MOST_STAGES; stages >= 2; stages--) {
    const schedule = { ...tile, stages };
    if (isLegalWgmma(kernel, module, schedule, device) === true) return schedule;
  }
  return undefined;
}

/** Legal schedules to measure at `rows` rows, likely best first. Empty where wgmma cannot run the kernel. */
export function wgmmaCandidates(kernel: GemmKernel, module: KernelModule, device: WgmmaDevice, rows: number): CudaGemmSchedule[] {
  const list: CudaGemmSchedule[] = [];
  const clusters = rows > 128 ? ([2, 1] as const) : ([1] as const);
  const add = (mode: CudaGemmSchedule['mode'], columns: readonly number[]): void => {
    for (const tn of columns) {
      for (const cluster of clusters) {
        for (const raster of RASTERS) {
          const schedule = deepest(kernel, module, device, { ...base, mode, tm: 128, tn, cluster, raster });
          if (schedule !== undefined) list.push(schedule);
        }
      }
    }
  };
  add('pingpong', PINGPONG_COLUMNS);
  add('cooperative', COOPERATIVE_COLUMNS);
  const rates = new Map(list.map((schedule) => [schedule, expectedRate(kernel, schedule, device, rows)]));
  return list.sort((x, y) => rates.get(y)! - rates.get(x)!);
}

/**
 * Share of the tensor cores' time in useful products: whole waves of tiles on all multiprocessors, rows and columns
 * past the end counted as waste. Between 0 and 1.
 */
export function waveEfficiency(kernel: GemmKernel, { tm, tn, cluster }: CudaGemmSchedule, multiprocessors: number, rows: number): number {
  const { total } = columnTiles(kernel.segments, tn);
  const useful = columnTiles(kernel.segments, 1).total;
  const blocks = Math.max(cluster, multiprocessors - (multiprocessors % cluster));
  const tiles = Math.ceil(rows / (tm * cluster)) * cluster * total;
  return (rows * useful) / (Math.ceil(tiles / blocks) * blocks * tm * tn);
}

/** waveEfficiency, times what measurements on an H100 say of the tile itself. */
function expectedRate(kernel: GemmKernel, schedule: CudaGemmSchedule, device: WgmmaDevice, rows: number): number {
  const { tn, cluster, raster, mode } = schedule;
  // Narrow tiles wait for shared memory and L2; an exposed epilogue costs a few hundredths; multicast saves L2 reads.
  const width = Math.min(1, 0.55 + 0.45 * Math.sqrt(Math.min(tn, 192) / 192));
  const exposed = mode === 'pingpong' ? 1 : 0.95;
  const shared = cluster === 2 ? 1 : 0.95;
  const order = raster === RASTERS[0] ? 1 : 0.998;
  return waveEfficiency(kernel, schedule, device.multiprocessors, rows) * width * exposed * shared * order;
}

/** A good untuned schedule at `rows` rows, or undefined where wgmma cannot run the kernel. */
export function defaultWgmmaSchedule(kernel: GemmKernel, module: KernelModule, device: WgmmaDevice, rows: number): CudaGemmSchedule | undefined {
  return wgmmaCandidates(kernel, module, device, rows)[0];
}
