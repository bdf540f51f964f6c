/** The peaks of one device of this machine. */
import type { Rates } from '../../autotune/bucketCost.js';
import { measurePeaks } from '../../autotune/cpu/peaks.js';
import { measureBandwidth } from '../../autotune/cuda/bandwidth.js';
import { cudaMachine } from '../../autotune/cuda/costModel.js';
import { peaksOf, type Peaks } from '../../autotune/peaks.js';
import type { CudaArch } from '../../ir/cuda.js';
import type { CpuIsa } from '../../ir/plan.js';
import { loadAddon } from '../../runtime/addon.js';
import { requireCuda } from '../../runtime/cuda/addon.js';
import { devicesFor } from './gpu.js';
import type { Rebuild } from './target.js';

/** A quarter of a second in all. */
const CPU_TRIES = { seconds: 0.04, tries: 3 };

/** Measured on `threads`: those of one device. */
export async function cpuPeaks(isa: CpuIsa, threads: number): Promise<Peaks> {
  const addon = loadAddon();
  return peaksOf(await measurePeaks(addon, new addon.Pool(threads), isa, CPU_TRIES), 'measured');
}

/**
 * Memory as the first GPU copies it. Arithmetic is nominal, dense products of 16-bit numbers at the highest clock: no
 * loop is written for it. Both are those of the architecture where the device has no memory to spare or no context.
 */
export function cudaPeaks(arch: CudaArch, rebuild: Rebuild, known: Rates): Promise<Peaks> {
  try {
    const info = devicesFor(arch, rebuild).devices[0]!;
    const addon = requireCuda();
    const device = new addon.Device(info.ordinal);
    try {
      const rates = cudaMachine(arch, info, measureBandwidth(addon, device));
      const { arithmetic } = peaksOf(rates, 'nominal');
      return Promise.resolve({ arithmetic, memory: { perSecond: rates.bytesPerSecond, source: 'measured' } });
    } finally {
      device.release();
    }
  } catch {
    return Promise.resolve(peaksOf(known, 'nominal'));
  }
}
