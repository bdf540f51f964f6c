/** Tuning on a GPU: the search of searchLoop.ts over CUDA schedules, with the vendor's library as a rival. */
import { cudaTemplatesHash, defaultCudaSchedule, type CudaFacts } from '../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import type { CudaDeviceInfo } from '../../runtime/cuda/addon.js';
import { cudaScheduleKey, median, type CudaTuningTarget, type RivalKey, type TuningDatabase } from '../database.js';
import type { HoldFinal } from '../finals.js';
import type { Measure, MeasureRequest } from '../measure.js';
import type { Candidates, Rival, Rounds } from '../searchJob.js';
import { searchSchedules, type TuneProgress, type TuneResult } from '../searchLoop.js';
import { kernelWork, sizeOf } from '../work.js';
import { CudaSpace, referenceSchedule } from './candidates.js';
import { cudaCost, cudaShareOfPeak, type CudaMachine } from './costModel.js';
import { contractionOf, type BareContraction, type RivalTime } from './rival.js';

/** More at a time than on a CPU: they compile side by side, and run in milliseconds. */
const CUDA_ROUNDS: Rounds = { first: 10, step: 8, ideas: 6, finals: 0.3, telling: 0.05 };

export interface CudaRival {
  /** Such as `cuBLASLt 13.0.2`. */
  readonly library: string;
  /** `beside`: the kernel that it is a rival of, in whose default's terms it may be told. */
  readonly time: (contraction: BareContraction, beside: MeasureRequest<CudaSchedule>) => Promise<RivalTime>;
}

export interface CudaTuneOptions {
  readonly module: KernelModule;
  readonly buckets: readonly Bucket[];
  readonly facts: CudaFacts;
  readonly machine: CudaMachine;
  /** Largest T of the plan: part of signatures. */
  readonly tokensCapacity: number;
  /** 0: only what the database knows. */
  readonly budgetSeconds: number;
  readonly database: TuningDatabase;
  readonly target: CudaTuningTarget;
  readonly measure: Measure<CudaSchedule>;
  readonly hold: HoldFinal<CudaSchedule>;
  readonly prepare?: (requests: readonly MeasureRequest<CudaSchedule>[]) => Promise<void>;
  /** Absent where the library is not installed. */
  readonly rival?: CudaRival;
  /** A rival that fails is left out from then on; this hears why. */
  readonly onRivalFailure?: (reason: string) => void;
  readonly onProgress?: (progress: TuneProgress<CudaSchedule>) => void;
  readonly signal?: AbortSignal;
  readonly now?: () => number;
}

/** Names what a measurement depends on besides the kernel. `compilerBuild`: of compileCubins. */
export const cudaTarget = (
  facts: CudaFacts,
  device: CudaDeviceInfo,
  driverVersion: number,
  compilerBuild: string,
): CudaTuningTarget => ({
  gpu: `${device.name}/${device.multiprocessors}`.slice(0, 200),
  arch: facts.arch,
  driver: driverVersion,
  compiler: compilerBuild.slice(0, 200) || 'unknown',
  codegen: cudaTemplatesHash(),
});

function candidatesOf(
  options: CudaTuneOptions,
  spaces: Map<Kernel, CudaSpace>,
  rivalOf: (kernel: Kernel, bucket: Bucket) => Rival | undefined,
  kernel: Kernel,
  bucket: Bucket,
): Candidates<CudaSchedule> {
  const { module, facts, machine } = options;
  const start = defaultCudaSchedule(kernel, module, facts, bucket);
  const space = spaces.get(kernel) ?? new CudaSpace(kernel, module, facts);
  spaces.set(kernel, space);
  const work = kernelWork(kernel, module, sizeOf(bucket));
  const rival = rivalOf(kernel, bucket);
  const skeletonOf = (schedule: CudaSchedule): string =>
    schedule.kind === 'loop' ? 'loop' : `${schedule.kind} ${schedule.skeleton}`;
  return {
    start,
    work,
    cost: cudaCost(kernel, module, sizeOf(bucket), machine),
    fallback: referenceSchedule(kernel, module, facts, start),
    mayUse: (schedule) =>
      cudaScheduleKey(schedule) === cudaScheduleKey(start) ||
      (skeletonOf(schedule) === skeletonOf(start) && space.isLegal(schedule)),
    enumerate: () => space.enumerate(start),
    neighbours: (from) => space.neighbours(from),
    shareOfPeak: (seconds) => cudaShareOfPeak(work, machine, seconds),
    ...(rival === undefined ? {} : { rival }),
  };
}

/**
 * searchSchedules on a GPU; what it measures is kept in the database under the target's name, the rival's times too.
 */
export function tuneCuda(options: CudaTuneOptions): Promise<TuneResult<CudaSchedule>> {
  const {
    module,
    buckets,
    tokensCapacity,
    budgetSeconds,
    database,
    target,
    measure,
    hold,
    rival,
    prepare,
    onProgress,
    signal,
    now,
  } = options;
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
      options.onRivalFailure?.(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  };
  return searchSchedules<CudaSchedule>({
    module,
    buckets,
    tokensCapacity,
    budgetSeconds,
    measure,
    hold,
    keyOf: cudaScheduleKey,
    rounds: CUDA_ROUNDS,
    candidates: (kernel, bucket) =>
      candidatesOf(
        options,
        spaces,
        (k, b) => {
          const asked = keyOf(k, b);
          return asked === undefined ? undefined : database.knownRival(asked.key);
        },
        kernel,
        bucket,
      ),
    records: {
      known: (signature, bucket) => database.knownCuda(signature, bucket, target).values(),
      append: (key, bucket, schedule, seconds, failure) => {
        database.appendCuda({
          key,
          bucket,
          cuda: target,
          schedule,
          seconds: [...seconds],
          ...(failure === undefined ? {} : { failure }),
        });
      },
      finals: {
        known: (signature, bucket) => database.finalCuda(signature, bucket, target),
        append: (key, bucket, { entries, marginSeconds }) => {
          database.appendCudaFinal({
            key,
            bucket,
            cuda: target,
            final: entries.map(({ schedule, seconds }) => ({ schedule, seconds })),
            marginSeconds,
          });
        },
      },
    },
    ...(rival === undefined ? {} : { rival: askRival }),
    ...(prepare === undefined ? {} : { prepare }),
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(signal === undefined ? {} : { signal }),
    ...(now === undefined ? {} : { now }),
  });
}
