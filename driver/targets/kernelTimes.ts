/** What is known of the times of kernels on this machine, without measuring any: estimates, and the tuner's records. */
import type { Rates } from '../../autotune/bucketCost.js';
import { machineModel, scheduleCost } from '../../autotune/cpu/costModel.js';
import { CPU_RECORDS, thisCpu } from '../../autotune/cpu/target.js';
import { cudaCost, typicalMachine } from '../../autotune/cuda/costModel.js';
import { CUDA_RECORDS, isThisGpu } from '../../autotune/cuda/target.js';
import { TuningDatabase } from '../../autotune/database.js';
import { defaultDatabasePath } from '../../autotune/databaseFile.js';
import { measuredPlace } from '../../autotune/measuredPlace.js';
import { peaksOf, ratesOf, type Peaks } from '../../autotune/peaks.js';
import type { Facts, RecordFormat } from '../../autotune/recordSchemas.js';
import { computationHash } from '../../codegen/signature.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { CpuSchedule } from '../../ir/plan.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { UserError } from '../../errors.js';
import { counted } from '../../system/format.js';
import type { Machine } from '../machine.js';
import type { CpuModel } from './cpuModel.js';
import type { CudaModel } from './cudaModel.js';
import { runsOn } from './gpu.js';
import type { KernelTimes, TimesOptions } from './target.js';

/** The records of this machine: of several, as with other numbers of threads, the latest that `isHere` allows. */
function recordsOf<S, T extends Facts>(
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

function openRecords<S, T extends Facts>(
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
  const model = machineModel({ ...device, l3: l3Bytes }, rates);
  return {
    peaks,
    predict: (fn, kernel, schedule, size) => scheduleCost(kernel, fn, size, model)(schedule),
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
