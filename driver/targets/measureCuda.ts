/** `tune` of an artifact for a GPU: on the device itself, in this process. */
import { defaultDatabasePath, statusLine, TuningDatabase, type TuneProgress } from '../../autotune/index.js';
import { measureBandwidth } from '../../autotune/cuda/bandwidth.js';
import { referenceSchedule } from '../../autotune/cuda/candidates.js';
import { cudaMachine } from '../../autotune/cuda/costModel.js';
import { CudaMeasurer, isDeviceHung, type CompileKernels } from '../../autotune/cuda/measure.js';
import { timeRival } from '../../autotune/cuda/rival.js';
import { renderCudaTable } from '../../autotune/cuda/table.js';
import { CUDA_RECORDS, cudaTarget } from '../../autotune/cuda/target.js';
import { tuneCuda, type CudaRival } from '../../autotune/cuda/tune.js';
import { defaultCudaSchedule } from '../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import { scoreOf } from '../../ir/plan.js';
import { isCudaError, requireCuda } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import { findCublasLt } from '../../runtime/cuda/findCublasLt.js';
import { readSettings } from '../../settings.js';
import { devicesFor } from './gpu.js';
import type { CudaModel } from './cudaModel.js';
import { measuredRows, isIdleSoon } from './measured.js';
import type { MeasureOptions, Tuned } from './target.js';

/** Finds the best schedules on this machine's GPU. Throws UserError if there is none. */
export async function measureCuda(
  { plan: whole, device: facts }: CudaModel,
  options: Omit<MeasureOptions, 'threads'>,
): Promise<Tuned<CudaSchedule>> {
  const begin = performance.now();
  const plan = scoreOf(whole);
  const { onActivity, onProgress, onNote, onWarning, signal } = options;
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
  let measurer: CudaMeasurer | undefined;
  let isHung = false;
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
        ...(stop === undefined ? {} : { signal: stop }),
      });
      ({ compilerBuild } = compiled);
      return compiled;
    };
    measurer = await CudaMeasurer.create({
      addon,
      device,
      capacity: plan.capacity,
      compile,
      reference: (kernel, module, bucket) =>
        referenceSchedule(kernel, module, facts, defaultCudaSchedule(kernel, module, facts, bucket)),
      onNoFinal: (reason) => {
        onWarning(`default schedules stay where no final can be held: ${reason}`);
      },
    });
    const measuring = own(measurer);
    const found = await findCublasLt(driverVersion, settings);
    let about: Parameters<typeof renderCudaTable>[1] =
      typeof found === 'string' ? { absence: found } : { name: `${found.library.version} (${found.path})` };
    let rival: CudaRival | undefined;
    if (typeof found !== 'string') {
      const library = own(found.library);
      rival = {
        library: `cuBLASLt ${library.version}`,
        time: (contraction, beside) =>
          timeRival(contraction, { addon, device, library, fill: measuring.randomFill }, (time) =>
            measuring.tellBeside(beside, time),
          ),
      };
    } else {
      onNote(`no comparison with cuBLASLt: ${found}`);
    }
    const tableOf = (rows: TuneProgress<CudaSchedule>['rows']): readonly string[] =>
      renderCudaTable(measuredRows(rows), about);
    const search = await tuneCuda({
      module: plan,
      buckets: plan.buckets,
      facts,
      machine: cudaMachine(facts.arch, info, measureBandwidth(addon, device)),
      capacity: plan.capacity.extents,
      budgetSeconds: Math.max(0, options.budgetSeconds - (performance.now() - begin) / 1000),
      database,
      target: cudaTarget(facts, info, driverVersion, compilerBuild),
      measure: measuring.measure,
      hold: measuring.hold,
      prepare: measuring.prepare,
      ...(rival === undefined ? {} : { rival }),
      onRivalFailure: (reason) => {
        about = { absence: reason };
        onWarning(`cuBLASLt fails: ${reason}`);
      },
      onProgress: (progress) => onProgress(tableOf(progress.rows), statusLine(progress)),
      ...(signal === undefined ? {} : { signal }),
    });
    return { search, table: tableOf(search.rows) };
  } catch (error) {
    isHung = isDeviceHung(error);
    throw error;
  } finally {
    // Memory that the device still uses cannot be released, but the database can be closed.
    if (isHung || !(measurer === undefined || (await isIdleSoon(measurer)))) made.splice(1);
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
