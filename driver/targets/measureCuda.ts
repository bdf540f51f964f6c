/** `tune` of an artifact for a GPU: on the device itself, in this process. */
import { defined } from '../../system/defined.js';
import { defaultDatabasePath, TuningDatabase, type TuneResult, type TuneRow } from '../../autotune/index.js';
import { measureBandwidth } from '../../autotune/cuda/bandwidth.js';
import { referenceSchedule } from '../../autotune/cuda/candidates.js';
import { cudaMachine } from '../../autotune/cuda/costModel.js';
import { CudaMeasurer } from '../../autotune/cuda/measure.js';
import { isDeviceHung } from '../../autotune/cuda/patience.js';
import type { CompileKernels } from '../../autotune/cuda/tools.js';
import { timeRival } from '../../autotune/cuda/rival.js';
import { renderCudaTable } from '../../autotune/cuda/table.js';
import { CUDA_RECORDS, cudaTarget, type CudaTuningTarget } from '../../autotune/cuda/target.js';
import { tuneCuda, type CudaRival } from '../../autotune/cuda/tune.js';
import { defaultCudaSchedule } from '../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { LinkedFunction } from '../../ir/plan.js';
import { isCudaError, requireCuda } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import { findCublasLt } from '../../runtime/cuda/findCublasLt.js';
import { readSettings } from '../../settings.js';
import { devicesFor } from './gpu.js';
import type { CudaModel } from './cudaModel.js';
import { isIdleSoon } from './measured.js';
import type { MeasureOptions, Tuned } from './target.js';
import { tuneFunctions, type FunctionSearch } from './tuneFunctions.js';

/** Finds the best schedules on this machine's GPU. Throws UserError if there is none. */
export async function measureCuda(
  { plan, device: facts }: CudaModel,
  options: Omit<MeasureOptions, 'threads'>,
): Promise<Tuned<CudaSchedule>> {
  const begin = performance.now();
  const { budgetSeconds: wholeBudget, onActivity, onProgress, onNote, onWarning, signal } = options;
  const { devices, driverVersion } = devicesFor(facts.arch, options.rebuild);
  const info = devices[0]!;
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
    let about: Parameters<typeof renderCudaTable>[1] =
      typeof found === 'string' ? { absence: found } : { name: `${found.library.version} (${found.path})` };
    const library = typeof found === 'string' ? undefined : own(found.library);
    if (typeof found === 'string') onNote(`no comparison with cuBLASLt: ${found}`);
    const rivalOf = (measuring: CudaMeasurer): CudaRival | undefined =>
      library === undefined || !('name' in about)
        ? undefined
        : {
            library: `cuBLASLt ${library.version}`,
            time: (contraction, beside) =>
              timeRival(contraction, { addon, device, library, fill: measuring.randomFill }, (time) =>
                measuring.tellBeside(beside, time),
              ),
          };
    let target: CudaTuningTarget | undefined;
    const machine = cudaMachine(facts.arch, info, measureBandwidth(addon, device));
    const search = async (
      fn: LinkedFunction<CudaSchedule>,
      { budgetSeconds, ...part }: FunctionSearch<CudaSchedule>,
    ): Promise<TuneResult<CudaSchedule>> => {
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
      const rival = rivalOf(measurer);
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
          ...defined({ rival }),
          onRivalFailure: (reason) => {
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
    const render = (rows: readonly TuneRow<CudaSchedule>[]): readonly string[] => renderCudaTable(rows, about);
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
