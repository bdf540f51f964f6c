/** Functions with state, compiled: from graphs to plans, kernels and executors by the product's own passes. */
import type { Scheduling } from '../../codegen/scheduling.js';
import { compileKernels, emitPlan } from '../../driver/targets/cpuKernels.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { planFunction } from '../../driver/planFunction.js';
import type { CudaKernelText } from '../../ir/cuda.js';
import type { Graph } from '../../ir/graph/graph.js';
import { linkFunction, type Bucket, type CudaPlan, type Plan } from '../../ir/plan.js';
import { lowerModule } from '../../passes/lowerModule.js';
import { optimise, type Numerics } from '../../passes/pipeline.js';
import type { CpuExecutorOptions } from '../../runtime/cpu/openExecutor.js';

export const NUMERICS: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

/** The plan of several functions. `buckets`: those of each, the largest last. */
export function planOf<S, F>(
  graphs: readonly Graph[],
  buckets: Readonly<Record<string, readonly Bucket[]>>,
  scheduling: Pick<Scheduling<S, F>, 'default'>,
  facts: F,
): Plan<S> {
  const optimised = graphs.map((graph) => optimise(graph, NUMERICS));
  const { functions, ...shared } = lowerModule({ name: 'functions', functions: optimised }, NUMERICS);
  return {
    ...shared,
    functions: functions.map((module) => {
      const own = buckets[module.interface.name]!;
      return planFunction({ ...module, ...shared }, own.at(-1)!, own, scheduling, facts);
    }),
  };
}

const namesOf = (plan: Plan<unknown>): readonly string[] => plan.functions.map((fn) => fn.interface.name);

/** Compiles the kernels of every function for a CPU. */
export const cpuSymbols = async (plan: Plan): Promise<CpuExecutorOptions['symbols']> =>
  Object.fromEntries(
    await Promise.all(
      namesOf(plan).map(async (name) => {
        const { symbols } = await compileKernels(emitPlan(linkFunction(plan, name)), 'portable');
        return [name, symbols] as const;
      }),
    ),
  );

/** The texts of every function's kernels for a GPU: by function, bucket and launch, and each once by its symbol. */
export function cudaTexts(plan: CudaPlan): {
  readonly kernels: Readonly<Record<string, readonly (readonly CudaKernelText[])[]>>;
  readonly distinct: ReadonlyMap<string, CudaKernelText>;
} {
  const emitted = namesOf(plan).map((name) => [name, emitCudaPlan(linkFunction(plan, name))] as const);
  return {
    kernels: Object.fromEntries(emitted.map(([name, { kernels }]) => [name, kernels])),
    distinct: new Map(emitted.flatMap(([, { distinct }]) => [...distinct])),
  };
}
