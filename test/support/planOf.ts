/** Plans of several functions, compiled from graphs by the product's own passes. */
import type { Scheduling } from '../../codegen/scheduling.js';
import { planFunction } from '../../driver/plan.js';
import type { Graph } from '../../ir/graph/graph.js';
import type { Bucket, Plan } from '../../ir/plan.js';
import type { Numerics } from '../../passes/numerics.js';
import { lowerModule, optimize } from '../../passes/runPasses.js';

export const NUMERICS: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

/** The plan of several functions. `buckets`: those of each, the largest last. */
export function planOf<S, F>(
  graphs: readonly Graph[],
  buckets: Readonly<Record<string, readonly Bucket[]>>,
  scheduling: Pick<Scheduling<S, F>, 'default'>,
  facts: F,
): Plan<S> {
  const optimized = graphs.map((graph) => optimize(graph, NUMERICS));
  const { functions, ...shared } = lowerModule({ name: 'functions', functions: optimized }, NUMERICS);
  return {
    ...shared,
    functions: functions.map((module) => {
      const own = buckets[module.interface.name]!;
      return planFunction({ ...module, ...shared }, own.at(-1)!, own, scheduling, facts);
    }),
  };
}
