/** Tuning on a GPU: the search in search.ts over CUDA schedules, compared with the vendor's library. */
import { defined } from '../../system/defined.js';
import type { CudaFacts } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import type { TuningDatabase } from '../database.js';
import type { RivalKey } from '../recordSchemas.js';
import type { MeasureRequest } from '../measurement.js';
import { median } from '../median.js';
import { searchSchedules, type Candidates, type Rival, type SearchRequest, type TuneResult } from '../search.js';
import type { Rounds } from '../searchJob.js';
import { kernelWork, sizeOf } from '../work.js';
import { CudaSpace, referenceSchedule } from './candidates.js';
import { cudaCost, cudaShareOfPeak, type CudaMachine } from './costModel.js';
import { contractionOf, type BareContraction, type RivalTime } from './rival.js';
import type { CudaTuningTarget } from './target.js';

/** More candidates per round than on a CPU: they compile in parallel and run in milliseconds. */
const CUDA_ROUNDS: Rounds = { first: 10, step: 8, ideas: 6, finals: 0.3, telling: 0.05 };

export interface CudaRival {
  /** Name and version, such as `cuBLASLt 13.0.2`. */
  readonly library: string;
  /** `beside`: the kernel it is compared with. The time may be scaled to that kernel's default. */
  readonly time: (contraction: BareContraction, beside: MeasureRequest<CudaSchedule>) => Promise<RivalTime>;
}

export interface CudaTuneOptions extends SearchRequest<CudaSchedule> {
  readonly facts: CudaFacts;
  readonly machine: CudaMachine;
  readonly database: TuningDatabase<CudaSchedule, CudaTuningTarget>;
  readonly target: CudaTuningTarget;
  /** Absent if the library is not installed. */
  readonly rival?: CudaRival;
  /** Called with the reason when the rival fails. It is left out from then on. */
  readonly onRivalFailure?: (reason: string) => void;
}

function candidatesOf(
  options: CudaTuneOptions,
  spaces: Map<Kernel, CudaSpace>,
  rival: Rival | undefined,
  kernel: Kernel,
  bucket: Bucket,
): Candidates<CudaSchedule> {
  const { module, facts, machine } = options;
  const start = cudaScheduling.default(kernel, module, facts, bucket);
  const space = spaces.get(kernel) ?? new CudaSpace(kernel, module, facts);
  spaces.set(kernel, space);
  const work = kernelWork(kernel, module, sizeOf(bucket));
  const skeletonOf = (schedule: CudaSchedule): string =>
    schedule.kind === 'loop' ? 'loop' : `${schedule.kind} ${schedule.skeleton}`;
  return {
    start,
    work,
    cost: cudaCost(kernel, module, sizeOf(bucket), machine),
    fallback: referenceSchedule(kernel, module, facts, start),
    mayUse: (schedule) =>
      cudaScheduling.key(schedule) === cudaScheduling.key(start) ||
      (skeletonOf(schedule) === skeletonOf(start) && space.isLegal(schedule)),
    enumerate: () => space.enumerate(start),
    neighbours: (from) => space.neighbours(from),
    shareOfPeak: (seconds) => cudaShareOfPeak(work, machine, seconds),
    ...defined({ rival }),
  };
}

/** searchSchedules on a GPU. Measurements, the rival's included, are stored in the database under the target's name. */
export function tuneCuda(options: CudaTuneOptions): Promise<TuneResult<CudaSchedule>> {
  const { facts: _facts, machine: _machine, database, target, rival, onRivalFailure, ...request } = options;
  const { module } = request;
  const spaces = new Map<Kernel, CudaSpace>();
  const keyOf = (
    kernel: Kernel,
    bucket: Bucket,
  ): { readonly contraction: BareContraction; readonly key: RivalKey } | undefined => {
    const contraction = rival === undefined ? undefined : contractionOf(kernel, module, bucket);
    return contraction === undefined || rival === undefined
      ? undefined
      : { contraction, key: { library: rival.library, gpu: target.gpu, driver: target.driver, ...contraction } };
  };
  let isRivalFit = true;
  const askRival = async (request: MeasureRequest<CudaSchedule>): Promise<Rival | undefined> => {
    const asked = keyOf(request.kernel, request.bucket);
    if (asked === undefined || rival === undefined || !isRivalFit) return undefined;
    const known = database.knownRival(asked.key);
    if (known !== undefined) return known;
    try {
      const { name, seconds } = await rival.time(asked.contraction, request);
      database.appendRival({ rival: asked.key, name: name.slice(0, 200), seconds: [...seconds] });
      return { name, seconds: median(seconds) };
    } catch (error) {
      isRivalFit = false;
      onRivalFailure?.(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  };
  return searchSchedules<CudaSchedule>({
    ...request,
    keyOf: cudaScheduling.key,
    rounds: CUDA_ROUNDS,
    candidates: (kernel, bucket) => {
      const asked = keyOf(kernel, bucket);
      return candidatesOf(
        options,
        spaces,
        asked === undefined ? undefined : database.knownRival(asked.key),
        kernel,
        bucket,
      );
    },
    records: database.recordsFor(target),
    product: (kernel, bucket) => contractionOf(kernel, module, bucket),
    ...(rival === undefined ? {} : { rival: askRival }),
  });
}
