/** A plan's kernels as C source and as a loaded library: one function for each (signature, schedule). */
import type { CpuIsa, CpuSchedule, LinkedFunction } from '../ir/plan.js';
import { emitKernel, unitOf, type EmittedKernel } from '../codegen/cpu/index.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { compileShared, type SourceText } from '../runtime/cpu/compiler.js';
import type { WorkOptions } from './targets/target.js';
import type { LaunchSymbol } from '../runtime/cpu/bindPlan.js';

export interface EmittedPlan {
  /** A translation unit a function, written to the artifact's kernels/ folder. */
  readonly sources: readonly SourceText[];
  /** kernels[bucket][launch] */
  readonly kernels: readonly (readonly EmittedKernel[])[];
}

/** Prints every kernel with every schedule the plan gives it. */
export function emitPlan(plan: LinkedFunction): EmittedPlan {
  const byKey = new Map<string, EmittedKernel>();
  const kernelOf = new Map<string, Kernel>(plan.kernels.map((kernel) => [kernel.name, kernel]));
  const emit = (kernel: Kernel, module: KernelModule, signature: string, schedule: CpuSchedule): EmittedKernel => {
    const key = `${signature} ${JSON.stringify(schedule)}`;
    const known = byKey.get(key) ?? emitKernel(kernel, module, schedule, plan.capacity.extents);
    byKey.set(key, known);
    return known;
  };
  const kernels = plan.buckets.map((_, bucket) =>
    plan.launches.map((launch) => {
      const kernel = kernelOf.get(launch.kernel)!;
      return emit(kernel, plan, launch.signature, plan.schedules[bucket]![launch.signature]!);
    }),
  );
  const distinct = [...new Map([...byKey.values()].map((each) => [each.symbol, each])).values()].sort((a, b) =>
    a.symbol < b.symbol ? -1 : 1,
  );
  const sources = distinct.map(unitOf);
  return { sources, kernels };
}

export interface CompiledKernels {
  /** symbols[bucket][launch] */
  readonly symbols: readonly (readonly LaunchSymbol[])[];
  readonly isCached: boolean;
  readonly seconds: number;
}

/** Compiles what emitPlan printed, or finds it in the cache. */
export async function compileKernels(
  emitted: EmittedPlan,
  isa: CpuIsa,
  { signal, onProgress }: WorkOptions = {},
): Promise<CompiledKernels> {
  let done = 0;
  const library = await compileShared(emitted.sources, {
    isa,
    onUnit: () => onProgress?.({ done: ++done, total: emitted.sources.length }),
    ...(signal === undefined ? {} : { signal }),
  });
  const symbols = emitted.kernels.map((bucket) =>
    bucket.map((kernel): LaunchSymbol => ({
      library: library.path,
      symbol: kernel.symbol,
      scratchBytes: kernel.scratchBytes,
    })),
  );
  return { symbols, isCached: library.cached, seconds: library.seconds };
}
