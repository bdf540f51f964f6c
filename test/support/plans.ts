/** Plans of several functions, compiled from graphs by the product's own passes. */
import { defaultSchedule } from '../../codegen/cpu/index.js';
import type { Scheduling } from '../../codegen/scheduling.js';
import { deriveLaunches, planFunction } from '../../driver/plan.js';
import { numericsOf } from '../../driver/targets/cpuDevice.js';
import type { Extents } from '../../ir/extents.js';
import type { Graph } from '../../ir/graph/graph.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import type { Bucket, FunctionPlan, Plan } from '../../ir/plan.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import type { Numerics } from '../../passes/numerics.js';
import { planMemory } from '../../passes/planMemory.js';
import { lower, lowerModule, optimize } from '../../passes/runPasses.js';

export const NUMERICS: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

/** The plan of several functions. `buckets`: those of each, the largest last. */
export function planOf<S, F>(
  graphs: readonly Graph[],
  buckets: Readonly<Record<string, readonly Bucket[]>>,
  scheduling: Pick<Scheduling<S, F>, 'default'>,
  facts: F,
  numerics: Numerics = NUMERICS,
): Plan<S> {
  const optimized = graphs.map((graph) => optimize(graph, numerics));
  const { functions, ...shared } = lowerModule({ name: 'functions', functions: optimized }, numerics);
  return {
    ...shared,
    functions: functions.map((module) => {
      const own = buckets[module.interface.name]!;
      return planFunction({ ...module, ...shared }, own.at(-1)!, own, scheduling, facts);
    }),
  };
}

// Compiles functions given as text, through the whole pipeline, to one plan for a CPU. Their weights and states must
// agree.

export interface FunctionSource {
  readonly text: string;
  /** The largest call, which is the only bucket. */
  readonly most: Extents;
}

const FACTS = { isas: ['portable' as const], l1: 32 << 10, l2: 1 << 20 };

/** A plan of portable kernels under default schedules. */
export function compileFunctions(sources: readonly FunctionSource[]): Plan {
  const numerics = numericsOf('portable');
  const modules = sources.map(({ text }) => {
    const graph = parseGraph(text);
    verifyGraph(graph);
    const module = lower(optimize(graph, numerics), numerics);
    verifyIndices(module);
    return module;
  });
  const functions = modules.map((module, i): FunctionPlan => {
    const { most } = sources[i]!;
    const bucket = { extents: most, longest: 0 };
    const launches = deriveLaunches(module, most);
    const schedules = module.kernels.map(
      (kernel, k) => [launches[k]!.signature, defaultSchedule(kernel, module, FACTS, bucket)] as const,
    );
    return {
      interface: module.interface,
      buffers: module.buffers,
      kernels: module.kernels,
      launches,
      capacity: bucket,
      buckets: [bucket],
      schedules: [Object.fromEntries(schedules)],
      ...planMemory(module, most),
    };
  });
  const [{ weights, constants, states = [] }] = modules as [(typeof modules)[0]];
  return { weights, constants, states, functions };
}
