/** Tuning on a GPU: the search in search.ts over CUDA schedules, compared with the vendor's library. */
import { z } from 'zod';
import { type CudaFacts, cudaTemplatesHash } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import type { CudaDeviceInfo } from '../../runtime/cuda/native.js';
import { defined } from '../../system/defined.js';
import type { TuningDatabase } from '../database.js';
import type { MeasureRequest } from '../measurement.js';
import { type BaselineKey, median, recordDigest, type RecordFormat, recordText, recordVersion } from '../records.js';
import {
  type Candidates,
  type SearchRequest,
  type SearchResult,
  searchSchedules,
  type VendorBaseline,
} from '../search.js';
import type { Rounds } from '../searchJob.js';
import { kernelWork, sizeOf } from '../work.js';
import { CudaSpace, mayReplace, referenceSchedule } from './candidates.js';
import { cudaCost, type CudaMachine, cudaShareOfPeak } from './costModel.js';
import { type BareContraction, type BaselineTime, contractionOf } from './vendorBaseline.js';

/** More candidates per round than on a CPU: they compile in parallel and run in milliseconds. */
const CUDA_ROUNDS: Rounds = { first: 10, step: 8, ideas: 6, finals: 0.3, telling: 0.05 };

export interface VendorLibrary {
  /** Name and version, such as `cuBLASLt 13.0.2`. */
  readonly name: string;
  /** `beside`: the kernel it is compared with. The time may be scaled to that kernel's default. */
  readonly time: (contraction: BareContraction, beside: MeasureRequest<CudaSchedule>) => Promise<BaselineTime>;
}

export interface CudaTuneOptions extends SearchRequest<CudaSchedule> {
  readonly facts: CudaFacts;
  readonly machine: CudaMachine;
  readonly database: TuningDatabase<CudaSchedule, CudaTuningTarget>;
  readonly target: CudaTuningTarget;
  /** Absent if the library is not installed. */
  readonly library?: VendorLibrary;
  /** Called with the reason when the library fails. It is left out from then on. */
  readonly onLibraryFailure?: (reason: string) => void;
}

function candidatesOf(
  options: CudaTuneOptions,
  spaces: Map<Kernel, CudaSpace>,
  baseline: VendorBaseline | undefined,
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
      (skeletonOf(schedule) === skeletonOf(start) && mayReplace(start, schedule) && space.isLegal(schedule)),
    enumerate: () => space.enumerate(start),
    neighbours: (from) => space.neighbours(from),
    shareOfPeak: (seconds) => cudaShareOfPeak(work, machine, seconds),
    ...defined({ baseline }),
  };
}

/** searchSchedules on a GPU. Measurements, the library's too, go into the database under the target's name. */
export function tuneCuda(options: CudaTuneOptions): Promise<SearchResult<CudaSchedule>> {
  const { facts: _facts, machine: _machine, database, target, library, onLibraryFailure, ...request } = options;
  const { module } = request;
  const spaces = new Map<Kernel, CudaSpace>();
  const keyOf = (
    kernel: Kernel,
    bucket: Bucket,
  ): { readonly contraction: BareContraction; readonly key: BaselineKey } | undefined => {
    const contraction = library === undefined ? undefined : contractionOf(kernel, module, bucket);
    return contraction === undefined || library === undefined
      ? undefined
      : { contraction, key: { library: library.name, gpu: target.gpu, driver: target.driver, ...contraction } };
  };
  let isLibraryFit = true;
  const measureBaseline = async (request: MeasureRequest<CudaSchedule>): Promise<VendorBaseline | undefined> => {
    const asked = keyOf(request.kernel, request.bucket);
    if (asked === undefined || library === undefined || !isLibraryFit) return undefined;
    const known = database.knownBaseline(asked.key);
    if (known !== undefined) return known;
    try {
      const { name, seconds } = await library.time(asked.contraction, request);
      database.appendBaseline({ rival: asked.key, name: name.slice(0, 200), seconds: [...seconds] });
      return { name, seconds: median(seconds) };
    } catch (error) {
      isLibraryFit = false;
      onLibraryFailure?.(error instanceof Error ? error.message : String(error));
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
        asked === undefined ? undefined : database.knownBaseline(asked.key),
        kernel,
        bucket,
      );
    },
    records: database.recordsFor(target),
    product: (kernel, bucket) => contractionOf(kernel, module, bucket),
    ...defined({ baseline: library && measureBaseline }),
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
