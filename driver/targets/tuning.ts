/** Tuning: searches for each function of a plan in turn, within one budget, on this host or its GPU. */
import { at } from '../../system/at.js';
import { cpuMachine } from '../../autotune/cpu/costModel.js';
import { CpuMeasurer } from '../../autotune/cpu/measure.js';
import { CPU_RECORDS, cpuTarget, tuneCpu } from '../../autotune/cpu/tune.js';
import { referenceSchedule } from '../../autotune/cuda/candidates.js';
import { cudaMachine, measureBandwidth } from '../../autotune/cuda/costModel.js';
import type { CompileKernels } from '../../autotune/cuda/fill.js';
import { CudaMeasurer } from '../../autotune/cuda/measure.js';
import { isDeviceHung } from '../../autotune/cuda/timing.js';
import {
  CUDA_RECORDS,
  cudaTarget,
  type CudaTuningTarget,
  tuneCuda,
  type VendorLibrary,
} from '../../autotune/cuda/tune.js';
import { timeBaseline } from '../../autotune/cuda/vendorBaseline.js';
import { defaultDatabasePath, TuningDatabase } from '../../autotune/database.js';
import { deadline, unlessStopped } from '../../autotune/measurement.js';
import { peaksOf } from '../../autotune/peaks.js';
import type { SearchResult, TuneProgress } from '../../autotune/search.js';
import type { TuneRow } from '../../autotune/searchJob.js';
import { renderBaselineTable, renderTable, statusLine } from '../../autotune/table.js';
import { defaultCudaSchedule } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import { COPY, SCORE } from '../../ir/function.js';
import { type CpuSchedule, type LinkedFunction, linkFunction, type Plan } from '../../ir/plan.js';
import { isCudaError, requireCuda } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import { findCublasLt } from '../../runtime/cuda/cublasLt.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import type { Machine } from './cpuDevice.js';
import type { CpuModel } from './cpuKernels.js';
import { devicesFor } from './cudaDevice.js';
import type { CudaModel } from './cudaKernels.js';
import type { FunctionSearchResult, Tuned, TunerOptions } from './target.js';

/** The part of what is left that `score` gets where another function follows. What it leaves is the other's. */
const SHARE_OF_SCORE = 0.5;

/** Options of the search for one function. */
export interface FunctionSearch<S> {
  readonly budgetSeconds: number;
  /** See SearchRequest. Calls of `step` are of every size: a few tokens in most of them, prompts in others. */
  readonly isEven: boolean;
  readonly onProgress: (progress: TuneProgress<S>) => void;
}

/**
 * Searches for schedules of each function, `score` first. Functions find each other's measurements in the database.
 * `begin`: when the budget began, in milliseconds of performance.now(). The table names the functions if there are
 * several.
 */
export async function tuneFunctions<S>(
  plan: Plan<S>,
  { budgetSeconds, begin, onProgress }: Pick<TunerOptions, 'budgetSeconds' | 'onProgress'> & { readonly begin: number },
  render: (rows: readonly TuneRow<S>[]) => readonly string[],
  search: (fn: LinkedFunction<S>, part: FunctionSearch<S>) => Promise<SearchResult<S>>,
): Promise<Tuned<S>> {
  const elapsedSeconds = (): number => (performance.now() - begin) / 1000;
  // Copies are bound by memory, whatever their schedule.
  const names = plan.functions.map((fn) => fn.interface.name).filter((name) => name !== COPY);
  names.sort((a, b) => Number(b === SCORE) - Number(a === SCORE));
  const isNamed = names.length > 1;
  const label = (name: string, rows: readonly TuneRow<S>[]): readonly TuneRow<S>[] =>
    isNamed ? measuredRows(rows).map((row) => ({ ...row, kernel: `${name}: ${row.kernel}` })) : measuredRows(rows);
  const done: FunctionSearchResult<S>[] = [];
  const before = (): readonly TuneRow<S>[] => done.flatMap((each) => label(each.name, each.search.rows));
  for (const [i, name] of names.entries()) {
    const left = Math.max(0, budgetSeconds - elapsedSeconds());
    const found = await search(linkFunction(plan, name), {
      budgetSeconds: i === names.length - 1 ? left : SHARE_OF_SCORE * left,
      isEven: name !== SCORE,
      onProgress: (progress) => {
        const status = statusLine({ ...progress, elapsedSeconds: elapsedSeconds(), budgetSeconds });
        onProgress(render([...before(), ...label(name, progress.rows)]), isNamed ? `${name}: ${status}` : status);
      },
    });
    done.push({ name, search: found });
  }
  return { functions: done, table: render(before()) };
}

/** The rows of measured (kernel, bucket) pairs. A short budget reaches only some of them. */
const measuredRows = <S>(rows: readonly TuneRow<S>[]): readonly TuneRow<S>[] =>
  rows.filter((row) => row.bestSeconds !== undefined);

/** Seconds to wait for outstanding device work after tuning has stopped. */
const LEAVE_SECONDS = 1;

/** Whether all work of the measurer has ended, or ends soon. Only then can the measurer be released. */
async function isIdleSoon(measurer: { idle(): Promise<void> }): Promise<boolean> {
  const patience = deadline(LEAVE_SECONDS, undefined);
  const isIdle = await unlessStopped(
    measurer.idle().then(() => true),
    patience.signal,
  );
  patience.end();
  return isIdle === true;
}

type Options = Omit<TunerOptions, 'rebuild'>;

/** The most of a function's time that compiling what the database knows may take. */
const SHARE_OF_KNOWN = 0.6;

/**
 * Compiles the kernels that the database has chosen. Those whose times another function has measured are new machine
 * code here, which the end of the budget has no time for.
 */
async function prepareKnown(
  measurer: CpuMeasurer,
  fn: LinkedFunction,
  { rows }: SearchResult<CpuSchedule>,
  seconds: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const limit = deadline(seconds, signal);
  try {
    const known = rows.filter(({ bestSeconds }) => bestSeconds !== undefined);
    await unlessStopped(measurer.prepare(fn, known, limit.signal), limit.signal);
  } finally {
    limit.end();
  }
}

export async function tuneOnCpu(
  { plan, device }: CpuModel,
  machine: Machine,
  { budgetSeconds, onProgress, ...options }: Options,
): Promise<Tuned<CpuSchedule>> {
  const begin = performance.now();
  const { isa } = device;
  const { l3Bytes } = machine.cpu;
  const { threads, onActivity, signal } = options;
  const target = await cpuTarget(isa, threads);
  const database = TuningDatabase.open(options.database ?? defaultDatabasePath(), CPU_RECORDS);
  let peaks: Awaited<ReturnType<CpuMeasurer['peaks']>> | undefined;
  const search = async (
    fn: LinkedFunction,
    { budgetSeconds: share, ...part }: FunctionSearch<CpuSchedule>,
  ): Promise<SearchResult<CpuSchedule>> => {
    const from = performance.now();
    const measurer = new CpuMeasurer({
      isa,
      threads,
      capacity: fn.capacity,
      l3Bytes,
      onCompiled: (done, total) => onActivity(done === total ? 'measuring' : `compiled ${done} of ${total} kernels`),
    });
    try {
      if (peaks === undefined) {
        onActivity('measuring the peak');
        peaks = await measurer.peaks();
        database.appendPeaks(target, peaksOf(peaks, 'measured'));
      }
      const request = {
        module: fn,
        buckets: fn.buckets,
        facts: device,
        machine: cpuMachine({ ...device, l3: l3Bytes }, { isa, threads, ...peaks }),
        capacity: fn.capacity.extents,
        database,
        target,
        measure: measurer.measure,
        ...defined({ signal }),
      };
      const secondsLeft = (): number => Math.max(0, share - (performance.now() - from) / 1000);
      const known = await tuneCpu({ ...request, budgetSeconds: 0 });
      await prepareKnown(measurer, fn, known, SHARE_OF_KNOWN * secondsLeft(), signal);
      return await tuneCpu({ ...request, ...part, budgetSeconds: secondsLeft() });
    } finally {
      if (await isIdleSoon(measurer)) measurer.release();
    }
  };
  try {
    return await tuneFunctions(plan, { budgetSeconds, begin, onProgress }, (rows) => renderTable(rows), search);
  } finally {
    database.close();
  }
}

/** Finds the best schedules on this machine's GPU. Throws UserError if there is none. */
export async function tuneOnCuda(
  { plan, device: facts }: CudaModel,
  options: Omit<TunerOptions, 'threads'>,
): Promise<Tuned<CudaSchedule>> {
  const begin = performance.now();
  const { budgetSeconds: wholeBudget, onActivity, onProgress, onNote, onWarning, signal } = options;
  const { devices, driverVersion } = devicesFor(facts.arch, options.rebuild);
  const info = at(devices, 0);
  const settings = readSettings();
  const addon = requireCuda();
  const database = TuningDatabase.open(options.database ?? defaultDatabasePath(), CUDA_RECORDS);
  const made: { release(): void }[] = [
    {
      release: () => {
        database.close();
      },
    },
  ];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  let isBusy = false;
  try {
    const device = own(new addon.Device(info.ordinal));
    let compilerBuild = '';
    const compile: CompileKernels = async (units, stop) => {
      const compiled = await compileCubins(units, {
        arch: facts.arch,
        driverVersion,
        keepsGoing: true,
        onProgress: ({ done, total }) =>
          onActivity(done === total ? 'measuring' : `compiled ${done} of ${total} candidates`),
        ...defined({ signal: stop }),
      });
      ({ compilerBuild } = compiled);
      return compiled;
    };
    const found = await findCublasLt(driverVersion, settings);
    let about: Parameters<typeof renderBaselineTable>[1] =
      typeof found === 'string' ? { absence: found } : { name: `${found.library.version} (${found.path})` };
    const library = typeof found === 'string' ? undefined : own(found.library);
    if (typeof found === 'string') onNote(`no comparison with cuBLASLt: ${found}`);
    const libraryFor = (measuring: CudaMeasurer): VendorLibrary | undefined =>
      library === undefined || !('name' in about)
        ? undefined
        : {
            name: `cuBLASLt ${library.version}`,
            time: (contraction, beside) =>
              timeBaseline(contraction, { addon, device, library, fill: measuring.randomFill }, (time) =>
                measuring.tellBeside(beside, time),
              ),
          };
    let target: CudaTuningTarget | undefined;
    const machine = cudaMachine(facts.arch, info, measureBandwidth(addon, device));
    const search = async (
      fn: LinkedFunction<CudaSchedule>,
      { budgetSeconds, ...part }: FunctionSearch<CudaSchedule>,
    ): Promise<SearchResult<CudaSchedule>> => {
      const from = performance.now();
      const measurer = await CudaMeasurer.create({
        addon,
        device,
        capacity: fn.capacity,
        compile,
        reference: (kernel, module, bucket) =>
          referenceSchedule(kernel, module, facts, defaultCudaSchedule(kernel, module, facts, bucket)),
        onNoFinal: (reason) => {
          onWarning(`default schedules stay where no final can be held: ${reason}`);
        },
      });
      if (target === undefined) {
        target = cudaTarget(facts, info, driverVersion, compilerBuild);
        database.appendPeaks(target, {
          arithmetic: { perSecond: machine.flopsPerSecond, source: 'nominal' },
          memory: { perSecond: machine.bytesPerSecond, source: 'measured' },
        });
      }
      try {
        return await tuneCuda({
          module: fn,
          buckets: fn.buckets,
          facts,
          machine,
          capacity: fn.capacity.extents,
          budgetSeconds: Math.max(0, budgetSeconds - (performance.now() - from) / 1000),
          database,
          target,
          measure: measurer.measure,
          hold: measurer.hold,
          prepare: measurer.prepare,
          ...defined({ library: libraryFor(measurer) }),
          onLibraryFailure: (reason) => {
            about = { absence: reason };
            onWarning(`cuBLASLt fails: ${reason}`);
          },
          ...part,
          ...defined({ signal }),
        });
      } catch (error) {
        isBusy ||= isDeviceHung(error);
        throw error;
      } finally {
        if (isBusy || !(await isIdleSoon(measurer))) isBusy = true;
        else release(measurer);
      }
    };
    const render = (rows: readonly TuneRow<CudaSchedule>[]): readonly string[] =>
      renderBaselineTable(rows, about, cudaScheduling.key);
    return await tuneFunctions(plan, { budgetSeconds: wholeBudget, begin, onProgress }, render, search);
  } finally {
    // Memory that the device still uses cannot be released, but the database can be closed.
    if (isBusy) made.splice(1);
    for (const resource of made.reverse()) release(resource);
  }
}

/** A lost context has already lost its memory, so errors from releasing it are ignored. */
function release(resource: { release(): void }): void {
  try {
    resource.release();
  } catch (error) {
    if (!isCudaError(error)) throw error;
  }
}
