/** Tuning on a GPU: the search in search.ts over CUDA schedules, compared with the vendor's library. */
import { z } from 'zod';
import { type CudaFacts, cudaTemplatesHash } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import type { CudaDeviceInfo } from '../../runtime/cuda/nativeDevice.js';
import { defined } from '../../system/defined.js';
import type { TuningDatabase } from '../database.js';
import type { MeasureRequest } from '../measurement.js';
import { median, recordDigest, type RecordFormat, recordText, recordVersion, type RivalKey } from '../records.js';
import { type Candidates, type Rival, type SearchRequest, searchSchedules, type SearchResult } from '../search.js';
import type { Rounds } from '../searchJob.js';
import { kernelWork, sizeOf } from '../work.js';
import { CudaSpace, referenceSchedule } from './candidates.js';
import { cudaCost, type CudaMachine, cudaShareOfPeak } from './costModel.js';
import { type BareContraction, contractionOf, type RivalTime } from './vendorBaseline.js';

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
export function tuneCuda(options: CudaTuneOptions): Promise<SearchResult<CudaSchedule>> {
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

/** The device and the software that affects a schedule's time. */
const schema = z.strictObject({
  /** Name and number of multiprocessors: `NVIDIA H100 80GB HBM3/132`. */
  gpu: recordText,
  arch: z.string().regex(/^sm_\d+a?$/),
  /** The number from cuDriverGetVersion. */
  driver: recordVersion,
  /** Kind, version and build of the compiler. */
  compiler: recordText,
  codegen: recordDigest,
});
export type CudaTuningTarget = z.infer<typeof schema>;

export const CUDA_RECORDS: RecordFormat<CudaSchedule, CudaTuningTarget> = {
  field: 'cuda',
  target: schema,
  scheduling: cudaScheduling,
};

const gpuName = ({ name, multiprocessors }: CudaDeviceInfo): string => `${name}/${multiprocessors}`.slice(0, 200);

/** Whether records are of this device, its driver and this code generator, whatever compiled them. */
export const isThisGpu = (
  { gpu, arch, driver, codegen }: CudaTuningTarget,
  facts: CudaFacts,
  device: CudaDeviceInfo,
  driverVersion: number,
): boolean =>
  gpu === gpuName(device) && arch === facts.arch && driver === driverVersion && codegen === cudaTemplatesHash();

/** `compilerBuild`: as compileCubins reports it. */
export const cudaTarget = (
  facts: CudaFacts,
  device: CudaDeviceInfo,
  driverVersion: number,
  compilerBuild: string,
): CudaTuningTarget => ({
  gpu: gpuName(device),
  arch: facts.arch,
  driver: driverVersion,
  compiler: compilerBuild.slice(0, 200) || 'unknown',
  codegen: cudaTemplatesHash(),
});
