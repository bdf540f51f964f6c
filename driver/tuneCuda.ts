/** `tune` of an artifact for a GPU: on the device itself, in this process. */
import { SCORE } from '../ir/function.js';
import { scoreOf, withSchedules } from '../ir/plan.js';
import {
  defaultDatabasePath,
  statusLine,
  TuningDatabase,
  type TuneProgress,
  type TuneResult,
} from '../autotune/index.js';
import { measureBandwidth } from '../autotune/cuda/bandwidth.js';
import { referenceSchedule } from '../autotune/cuda/candidates.js';
import { cudaMachine } from '../autotune/cuda/costModel.js';
import { CudaMeasurer, isDeviceHung, type CompileKernels } from '../autotune/cuda/measure.js';
import { timeRival } from '../autotune/cuda/rival.js';
import { renderCudaTable } from '../autotune/cuda/table.js';
import { CUDA_RECORDS, cudaTarget } from '../autotune/cuda/target.js';
import { tuneCuda, type CudaRival } from '../autotune/cuda/tune.js';
import { defaultCudaSchedule } from '../codegen/cuda/index.js';
import type { CudaSchedule } from '../ir/cuda.js';
import { isCudaError, requireCuda } from '../runtime/cuda/addon.js';
import { compileCubins } from '../runtime/cuda/compiler.js';
import { findCublasLt } from '../runtime/cuda/findCublasLt.js';
import { readSettings } from '../settings.js';
import type { CudaModel } from './compile.js';
import type { Rebuild } from './artifact.js';
import { devicesFor } from './devices/gpu.js';
import type { Ui } from './requests.js';

/** Candidates whose compiling takes so long that people want to see it go on. */
const MANY = 50;

export interface CudaTuneRequest {
  readonly budgetSeconds: number;
  readonly database?: string;
  readonly signal?: AbortSignal;
  /** The command that makes the artifact for another target. */
  readonly rebuild: Rebuild;
}

export interface TunedCudaModel {
  readonly model: CudaModel;
  readonly search: TuneResult<CudaSchedule>;
  readonly table: readonly string[];
  readonly driverVersion: number;
}

/**
 * The model with the best schedules found on this machine's GPU, and the measured cost of its buckets. UserError where
 * there is none.
 */
export async function tuneCudaModel(model: CudaModel, request: CudaTuneRequest, ui: Ui): Promise<TunedCudaModel> {
  const { facts } = model;
  const plan = scoreOf(model.plan);
  const { devices, driverVersion } = devicesFor(facts.arch, request.rebuild);
  const info = devices[0]!;
  const settings = readSettings();
  const addon = requireCuda();
  const database = TuningDatabase.open(request.database ?? defaultDatabasePath(), CUDA_RECORDS);
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
  try {
    const device = own(new addon.Device(info.ordinal));
    let compilerBuild = '';
    let fraction = 0;
    const compile: CompileKernels = async (units) => {
      const compiled = await compileCubins(units, {
        arch: facts.arch,
        driverVersion,
        keepsGoing: true,
        onProgress: ({ done, total }) => {
          if (total >= MANY) ui.step(fraction, `compiled ${done} of ${total} candidates`);
        },
      });
      ({ compilerBuild } = compiled);
      return compiled;
    };
    const measurer = own(
      await CudaMeasurer.create({
        addon,
        device,
        capacity: plan.capacity,
        compile,
        reference: (kernel, module, bucket) =>
          referenceSchedule(kernel, module, facts, defaultCudaSchedule(kernel, module, facts, bucket)),
        onNoFinal: (reason) => {
          ui.warn(`default schedules stay where no final can be held: ${reason}`);
        },
      }),
    );
    const found = await findCublasLt(driverVersion, settings);
    let about: Parameters<typeof renderCudaTable>[1] =
      typeof found === 'string' ? { absence: found } : { name: `${found.library.version} (${found.path})` };
    let rival: CudaRival | undefined;
    if (typeof found !== 'string') {
      const library = own(found.library);
      rival = {
        library: `cuBLASLt ${library.version}`,
        time: (contraction, beside) =>
          timeRival(contraction, { addon, device, library, fill: measurer.randomFill }, (time) =>
            measurer.tellBeside(beside, time),
          ),
      };
    } else {
      ui.note(`cuBLASLt is not compared with: ${found}`);
    }
    const tableOf = (rows: TuneProgress<CudaSchedule>['rows']): readonly string[] =>
      renderCudaTable(
        rows.filter((row) => row.bestSeconds !== undefined),
        about,
      );
    const search = await tuneCuda({
      module: plan,
      buckets: plan.buckets,
      facts,
      machine: cudaMachine(facts.arch, info, measureBandwidth(addon, device)),
      capacity: plan.capacity.extents,
      budgetSeconds: request.budgetSeconds,
      database,
      target: cudaTarget(facts, info, driverVersion, compilerBuild),
      measure: measurer.measure,
      hold: measurer.hold,
      prepare: measurer.prepare,
      ...(rival === undefined ? {} : { rival }),
      onRivalFailure: (reason) => {
        about = { absence: reason };
        ui.warn(`cuBLASLt fails: ${reason}`);
      },
      onProgress: (progress) => {
        fraction = Math.min(1, progress.elapsedSeconds / progress.budgetSeconds);
        ui.step(fraction, statusLine(progress));
        ui.table(tableOf(progress.rows));
      },
      ...(request.signal === undefined ? {} : { signal: request.signal }),
    });
    const bucketSeconds = search.bucketSeconds.length > 0 ? { bucketSeconds: search.bucketSeconds } : {};
    return {
      model: { ...model, plan: withSchedules(model.plan, SCORE, { schedules: search.schedules, ...bucketSeconds }) },
      search,
      table: tableOf(search.rows),
      driverVersion,
    };
  } catch (error) {
    if (isDeviceHung(error)) made.splice(1);
    throw error;
  } finally {
    for (const resource of made.reverse()) release(resource);
  }
}

/** A lost context takes its memory with it: what it says to being released is no news. */
function release(resource: { release(): void }): void {
  try {
    resource.release();
  } catch (error) {
    if (!isCudaError(error)) throw error;
  }
}
