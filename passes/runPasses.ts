/**
 * Runs the passes of pipeline.ts in their order, from a graph to kernels. Every stage is verified and shown to an
 * observer.
 */
import { isDeepStrictEqual } from 'node:util';
import { CompileError } from '../errors.js';
import type { Graph, GraphModule } from '../ir/graph/graph.js';
import { verifyGraph } from '../ir/graph/verify.js';
import type { SharedData } from '../ir/plan.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import { readSettings } from '../settings.js';
import { defined } from '../system/defined.js';
import { fuseGroups } from './fuseGroups.js';
import { type LoweredModule, lowerKernels } from './lowerKernels.js';
import type { Numerics } from './numerics.js';
import { BRIDGE, GRAPH_PASSES, isNeeded, KERNEL_PASSES, MODEL, type Pass } from './pipeline.js';
import type { Group } from './placedValues.js';

/** What a stage says of itself: the pass that made it, what that does, and the reason for its place. */
export type StageFacts = Pick<Pass<never>, 'name' | 'does' | 'reason'>;

/** The program after one stage. */
export type CompilerStage = StageFacts &
  (
    | { readonly level: 'graph'; readonly graph: Graph }
    | {
        readonly level: 'kernels';
        readonly module: LoweredModule;
        /** Of the first such stage: the groups of ops that became kernels, in order. */
        readonly groups?: readonly Group[];
      }
  );

/** Called with every stage once it is verified, for dumps and `inspect`. */
export type Observer = (stage: CompilerStage) => void;

/** What is done with the program after every stage. */
interface Watch<Program> {
  readonly verify: (program: Program, stage: StageFacts) => void;
  readonly show: (program: Program, stage: StageFacts) => void;
}

/**
 * Graph → optimized graph. Throws if a pass returns a graph that does not verify, naming the pass; see findingFaults.
 */
export function optimize(graph: Graph, numerics: Numerics, observe?: Observer): Graph {
  const watch: Watch<Graph> = {
    verify: (current, { name }) => verifyGraph(current, name),
    show: (current, { name, does, reason }) => observe?.({ level: 'graph', name, does, reason, graph: current }),
  };
  watch.verify(graph, MODEL);
  return findingFaults(observe !== undefined, (verifiesAll) => {
    watch.show(graph, MODEL);
    return runPasses(GRAPH_PASSES, graph, numerics, watch, verifiesAll);
  });
}

/**
 * Optimized graph → kernels. Throws if a pass returns kernels that do not verify, naming the pass. `states`: the names
 * of all states of the graph's module.
 */
export function lower(
  graph: Graph,
  numerics: Numerics,
  observe?: Observer,
  states: readonly string[] = [],
): LoweredModule {
  const watch = (groups?: readonly Group[]): Watch<LoweredModule> => ({
    verify: (current, { name }) => verifyKernels(current, name),
    show: (current, { name, does, reason }) =>
      observe?.({
        level: 'kernels',
        name,
        does,
        reason,
        module: current,
        ...defined({ groups }),
      }),
  });
  return findingFaults(observe !== undefined, (verifiesAll) => {
    const fused = fuseGroups(graph);
    const module = lowerKernels(fused, numerics.weights, states);
    const first = watch(fused.groups);
    if (verifiesAll) first.verify(module, BRIDGE);
    first.show(module, BRIDGE);
    return runPasses(KERNEL_PASSES, module, numerics, watch(), verifiesAll);
  });
}

/**
 * Runs passes. What the last one leaves is always verified. What the others leave is verified in tests
 * (TILEWRIGHT_VERIFY) and where somebody looks at every stage; otherwise only once there is a fault. Passes are pure:
 * running them again makes the fault again, and the verifier then names the pass that made it.
 */
function findingFaults<T>(isObserved: boolean, run: (verifiesAll: boolean) => T): T {
  if (isObserved || readSettings().verifiesPasses) return run(true);
  try {
    return run(false);
  } catch {
    return run(true);
  }
}

/** What a pass leaves as it was is the same object, which needs no second look. */
function runPasses<Program>(
  passes: readonly Pass<Program>[],
  program: Program,
  numerics: Numerics,
  { verify, show }: Watch<Program>,
  verifiesAll: boolean,
): Program {
  const needed = passes.filter((pass) => isNeeded(pass, numerics));
  let current = program;
  for (const pass of needed) {
    const next = pass.run(current, numerics);
    if (verifiesAll && next !== current) verify(next, pass);
    show(next, pass);
    current = next;
  }
  if (!verifiesAll) verify(current, needed.at(-1) ?? BRIDGE);
  return current;
}

// A module of several functions as kernels: each function by itself, and what they share once.

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
