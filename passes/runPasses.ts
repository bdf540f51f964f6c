/**
 * Runs the passes of pipeline.ts in their order, from a graph to kernels. Every stage is verified and shown to an
 * observer.
 */
import type { Graph } from '../ir/graph/graph.js';
import { verifyGraph } from '../ir/graph/verify.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import { fuseGroups } from './fuseGroups.js';
import type { Group } from './groups.js';
import { lowerKernels, type LoweredModule } from './lowerKernels.js';
import type { Numerics } from './numerics.js';
import { BRIDGE, GRAPH_PASSES, isNeeded, KERNEL_PASSES, MODEL, type Pass } from './pipeline.js';

/** What a stage says of itself: the pass that made it, what that does, and the reason for its place. */
export type StageFacts = Pick<Pass<never>, 'name' | 'does' | 'reason'>;

/** The program after one stage. */
export type Stage = StageFacts &
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
export type Observer = (stage: Stage) => void;

const ignore: Observer = () => undefined;

/** Graph → optimised graph. Throws, naming the pass, if a pass returns a graph that does not verify. */
export function optimise(graph: Graph, numerics: Numerics, observe: Observer = ignore): Graph {
  const verify = (current: Graph, { name }: StageFacts): void => verifyGraph(current, name);
  const show = (current: Graph, { name, does, reason }: StageFacts): void =>
    observe({ level: 'graph', name, does, reason, graph: current });
  verify(graph, MODEL);
  show(graph, MODEL);
  return runPasses(GRAPH_PASSES, graph, numerics, { verify, show });
}

/**
 * Optimised graph → kernels. Throws, naming the pass, if a pass returns kernels that do not verify. `states`: the names
 * of all states of the graph's module.
 */
export function lower(
  graph: Graph,
  numerics: Numerics,
  observe: Observer = ignore,
  states: readonly string[] = [],
): LoweredModule {
  const verify = (current: LoweredModule, { name }: StageFacts): void => verifyKernels(current, name);
  const show = (current: LoweredModule, { name, does, reason }: StageFacts, groups?: readonly Group[]): void => {
    observe({ level: 'kernels', name, does, reason, module: current, ...(groups === undefined ? {} : { groups }) });
  };
  const fused = fuseGroups(graph);
  const module = lowerKernels(fused, numerics.weights, states);
  verify(module, BRIDGE);
  show(module, BRIDGE, fused.groups);
  return runPasses(KERNEL_PASSES, module, numerics, { verify, show });
}

/** What is done with the program after every pass. */
interface Watch<Program> {
  readonly verify: (program: Program, pass: StageFacts) => void;
  readonly show: (program: Program, pass: StageFacts) => void;
}

/** What a pass leaves as it was is the same object, which is verified already. */
const runPasses = <Program>(
  passes: readonly Pass<Program>[],
  program: Program,
  numerics: Numerics,
  { verify, show }: Watch<Program>,
): Program =>
  passes
    .filter((pass) => isNeeded(pass, numerics))
    .reduce((current, pass) => {
      const next = pass.run(current, numerics);
      if (next !== current) verify(next, pass);
      show(next, pass);
      return next;
    }, program);
