/** A module of several functions as kernels: each function by itself, and what they share once. */
import { isDeepStrictEqual } from 'node:util';
import type { GraphModule } from '../ir/graph/graph.js';
import type { SharedData } from '../ir/plan.js';
import { CompileError } from './compileError.js';
import type { LoweredModule } from './lowerKernels.js';
import { lower, type Observer } from './runPasses.js';
import type { Numerics } from './numerics.js';

export interface LoweredFunctions extends SharedData {
  readonly functions: readonly LoweredModule[];
}

/** Optimized graphs → kernels. Throws where a function cannot be lowered, or two mean different things by one name. */
export function lowerModule(module: GraphModule, numerics: Numerics, observe?: Observer): LoweredFunctions {
  const states = [...new Set(module.functions.flatMap((graph) => graph.states.map(({ name }) => name)))];
  const functions = module.functions.map((graph) => lower(graph, numerics, observe, states));
  return {
    functions,
    weights: shared('weight', functions, ({ weights }) => weights),
    constants: shared('constant', functions, ({ constants }) => constants),
    states: shared('state', functions, (lowered) => lowered.states),
  };
}

/** What the functions have of one kind, each name once. */
function shared<D extends { readonly name: string }>(
  kind: string,
  functions: readonly LoweredModule[],
  of: (lowered: LoweredModule) => readonly D[],
): readonly D[] {
  const known = new Map<string, D>();
  for (const each of functions.flatMap(of)) {
    const first = known.get(each.name) ?? each;
    if (!isDeepStrictEqual(first, each)) throw new CompileError(`two functions have different ${kind}s ${each.name}`);
    known.set(each.name, first);
  }
  return [...known.values()];
}
