/** What is known of the times of kernels on this machine, without measuring any: estimates, and the tuner's records. */
import { at } from '../../system/at.js';
import type { Rates } from '../../autotune/peaks.js';
import { cpuMachine, measurePeaks, cpuCost } from '../../autotune/cpu/costModel.js';
import { CPU_RECORDS, thisCpu } from '../../autotune/cpu/tune.js';
import { cudaCost, cudaMachine, measureBandwidth, typicalMachine } from '../../autotune/cuda/costModel.js';
import { CUDA_RECORDS, isThisGpu } from '../../autotune/cuda/tune.js';
import { defaultDatabasePath, TuningDatabase } from '../../autotune/database.js';
import { measuredPlace } from '../../autotune/measurement.js';
import { type Peaks, peaksOf, ratesOf } from '../../autotune/peaks.js';
import type { TuningFacts, RecordFormat } from '../../autotune/records.js';
import { computationHash } from '../../codegen/signature.js';
import { UserError } from '../../errors.js';
import type { CudaArch, CudaSchedule } from '../../ir/cuda.js';
import type { CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { loadAddon } from '../../runtime/addon.js';
import { cudaAvailable, requireCuda } from '../../runtime/cuda/addon.js';
import { counted } from '../../system/text.js';
import type { Machine } from './cpuDevice.js';
import type { CpuModel } from './cpuKernels.js';
import { devicesFor, runsOn } from './cudaDevice.js';
import type { CudaModel } from './cudaKernels.js';
import type { KernelTimes, Rebuild, TimesOptions } from './target.js';

/** The records of this machine: of several, as with other numbers of threads, the latest that `isHere` allows. */
function recordsOf<S, T extends TuningFacts>(
  { database: path }: TimesOptions,
  format: RecordFormat<S, T>,
  isHere: (target: T) => boolean,
): { readonly peaks: Peaks | undefined; readonly target: T | undefined } & Pick<KernelTimes<S>, 'measured'> {
  const database = openRecords(path, format);
  const target = database?.targets.find(isHere);
  const peaks = target === undefined ? undefined : database?.peaks(target);
  database?.close();
  if (database === undefined || target === undefined) return { peaks, target, measured: () => undefined };
  return {
    peaks,
    target,
    measured: (fn, kernel, schedule, bucket) => {
      const key = computationHash(kernel, fn, fn.capacity.extents);
      const wanted = format.scheduling.key(schedule);
      for (const place of [bucket, measuredPlace(kernel, fn, bucket)]) {
        const seconds = database.known(key, place, target).get(wanted)?.seconds;
        if (seconds !== undefined && Number.isFinite(seconds)) return seconds;
      }
      return undefined;
    },
  };
}

function openRecords<S, T extends TuningFacts>(
  path: string | undefined,
  format: RecordFormat<S, T>,
): TuningDatabase<S, T> | undefined {
  if (path !== undefined) {
    const named = TuningDatabase.openExisting(path, format);
    if (named !== undefined) {
      if (named.targets.length > 0 || named.skipped === 0) return named;
      named.close();
      throw new UserError(
        `${path}: no tuning record of such a target among ${counted(named.skipped, 'line')}`,
        'tilewright tune writes them: --database FILE',
      );
    }
    throw new UserError(
      `${path}: is no file of tuning records that can be read`,
      'tilewright tune writes one: --database FILE',
    );
  }
  try {
    return TuningDatabase.openExisting(defaultDatabasePath(), format);
  } catch {
    // There is no cache folder.
    return undefined;
  }
}

export function cpuTimes(
  { device }: CpuModel,
  { cpu: { cores, l3Bytes } }: Machine,
  options: TimesOptions,
  known: Rates,
): KernelTimes<CpuSchedule> {
  const { isa } = device;
  const here = thisCpu(isa);
  const {
    peaks = peaksOf(known, 'nominal'),
    target,
    measured,
  } = recordsOf(options, CPU_RECORDS, (each) =>
    Object.entries(here).every(([name, value]) => each[name as keyof typeof here] === value),
  );
  const rates = { isa, threads: target?.threads ?? cores, ...ratesOf(peaks) };
  const model = cpuMachine({ ...device, l3: l3Bytes }, rates);
  return {
    peaks,
    predict: (fn, kernel, schedule, size) => cpuCost(kernel, fn, size, model)(schedule),
    measured,
  };
}

export function cudaTimes(
  { device: facts }: CudaModel,
  options: TimesOptions,
  known: Rates,
): KernelTimes<CudaSchedule> {
  const available = cudaAvailable();
  const info = available.ok ? available.devices.find((each) => runsOn(facts.arch, each)) : undefined;
  const { peaks = peaksOf(known, 'nominal'), measured } = recordsOf(
    options,
    CUDA_RECORDS,
    (each) => info !== undefined && available.ok && isThisGpu(each, facts, info, available.driverVersion),
  );
  const model = typicalMachine(facts, ratesOf(peaks));
  return {
    peaks,
    predict: (fn, kernel, schedule, size) => cudaCost(kernel, fn, size, model)(schedule),
    measured,
  };
}

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
    const info = at(devicesFor(arch, rebuild).devices, 0);
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
