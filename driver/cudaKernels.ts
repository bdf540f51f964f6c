/** A CUDA plan's kernels as text, one translation unit each, and as cubins. */
import { emitCudaKernel } from '../codegen/cuda/index.js';
import type { CudaArch, CudaKernelText, CudaSchedule } from '../ir/cuda.js';
import type { LinkedFunction } from '../ir/plan.js';
import type { WorkOptions } from './targets/target.js';
import { compileCubins } from '../runtime/cuda/compiler.js';
import type { SourceText } from '../runtime/cpu/compiler.js';

export interface EmittedCudaPlan {
  /** kernels[bucket][launch] */
  readonly kernels: readonly (readonly CudaKernelText[])[];
  /** Every kernel with every schedule the plan gives it, once, by symbol. */
  readonly distinct: ReadonlyMap<string, CudaKernelText>;
}

/** Prints every kernel with every schedule the plan gives it. */
export function emitCudaPlan(plan: LinkedFunction<CudaSchedule>): EmittedCudaPlan {
  const byKey = new Map<string, CudaKernelText>();
  const kernelOf = new Map(plan.kernels.map((kernel) => [kernel.name, kernel]));
  const kernels = plan.buckets.map((_, bucket) =>
    plan.launches.map(({ kernel: name, signature, parameters }) => {
      const schedule = plan.schedules[bucket]![signature]!;
      const key = `${signature} ${JSON.stringify(schedule)}`;
      const known = byKey.get(key) ?? emitCudaKernel(kernelOf.get(name)!, plan, schedule, plan.capacity.extents);
      byKey.set(key, known);
      // Equal kernels of different layers differ in the names of what they read and write.
      return { ...known, parameters };
    }),
  );
  const symbols = [...byKey.values()].map((text) => [text.symbol, text] as const).sort(([a], [b]) => (a < b ? -1 : 1));
  return { kernels, distinct: new Map(symbols) };
}

/** Files of an artifact's kernels/ folder. */
export const cudaSources = (emitted: EmittedCudaPlan): readonly SourceText[] =>
  [...emitted.distinct.values()].map(({ symbol, source }) => ({ name: `${symbol}.cu`, text: source }));

export interface CompiledCubins {
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  readonly isCached: boolean;
  readonly seconds: number;
  /** `NVRTC 13.0`, `nvcc 13.0`. */
  readonly compiler: string;
}

/** Machine code of every kernel, from the cache where it is there. */
export async function compileCudaKernels(
  emitted: Pick<EmittedCudaPlan, 'distinct'>,
  arch: CudaArch,
  options: WorkOptions & {
    readonly driverVersion?: number;
    readonly extra?: readonly { symbol: string; source: string }[];
  } = {},
): Promise<CompiledCubins> {
  const units = [...emitted.distinct.values(), ...(options.extra ?? [])].map(({ symbol, source }) => ({
    symbol,
    source,
  }));
  return compileCubins(units, {
    arch,
    ...(options.driverVersion === undefined ? {} : { driverVersion: options.driverVersion }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    ...(options.onProgress === undefined ? {} : { onProgress: options.onProgress }),
  });
}
