/** A plan's kernels as C source and as a loaded library: one function for each (signature, schedule). */
import { emitKernel, emitTranslationUnit, type EmittedKernel } from '../codegen/cpu/index.js';
import type { CpuIsa, CpuSchedule, LinkedFunction } from '../ir/plan.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { compileShared, type SourceText } from '../runtime/cpu/compiler.js';
import type { LaunchSymbol } from '../runtime/cpu/bindPlan.js';

export interface EmittedPlan {
  /** Translation units: `{name}.c`, written to the artifact's kernels/ folder. */
  readonly sources: readonly SourceText[];
  /** kernels[bucket][launch] */
  readonly kernels: readonly (readonly EmittedKernel[])[];
}

/** Functions in one translation unit: few enough that units compile side by side. */
const FUNCTIONS_PER_UNIT = 3;

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
  const sources: SourceText[] = [];
  for (let i = 0; i < distinct.length; i += FUNCTIONS_PER_UNIT) {
    sources.push({
      name: `kernels${sources.length}.c`,
      text: emitTranslationUnit(distinct.slice(i, i + FUNCTIONS_PER_UNIT)),
    });
  }
  return { sources, kernels };
}

export interface CompiledKernels {
  /** symbols[bucket][launch] */
  readonly symbols: readonly (readonly LaunchSymbol[])[];
  readonly isCached: boolean;
  readonly seconds: number;
}

/** Compiles what emitPlan printed, or finds it in the cache. */
export async function compileKernels(emitted: EmittedPlan, isa: CpuIsa): Promise<CompiledKernels> {
  const library = await compileShared(emitted.sources, { isa });
  const symbols = emitted.kernels.map((bucket) =>
    bucket.map((kernel): LaunchSymbol => ({
      library: library.path,
      symbol: kernel.symbol,
      scratchBytes: kernel.scratchBytes,
    })),
  );
  return { symbols, isCached: library.cached, seconds: library.seconds };
}
