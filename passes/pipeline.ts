/**
 * The ordered lists of passes. A graph of primitive ops becomes an optimised graph, and the kernels made from it become
 * better kernels. Every stage is verified and shown to an observer.
 */
import type { Graph } from '../ir/graph/graph.js';
import { verifyGraph } from '../ir/graph/verify.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import type { CacheFormat } from '../ir/cacheFormat.js';
import type { FloatType } from '../ir/types.js';
import { assignPrecision } from './assignPrecision.js';
import { canonicaliseMask } from './canonicaliseMask.js';
import { eliminateCommonSubexpressions } from './eliminateCommonSubexpressions.js';
import { eliminateDeadCode } from './eliminateDeadCode.js';
import { expandExperts } from './expandExperts.js';
import { finishRows } from './finishRows.js';
import { foldConstants } from './foldConstants.js';
import { foldNormWeights } from './foldNormWeights.js';
import { fuseGroups } from './fuseGroups.js';
import { fuseLogProb } from './fuseLogProb.js';
import { fuseWrites } from './fuseWrites.js';
import { groupWeights, type GroupsOf } from './groupWeights.js';
import { lowerKernels, type LoweredModule } from './lowerKernels.js';
import type { WeightStorage } from './lowerWeights.js';
import { mergeLoops } from './mergeLoops.js';
import { multiplyBlocks, type StoredBlocks } from './multiplyBlocks.js';
import { narrowCache } from './narrowCache.js';
import { narrowContractions, type Narrow } from './narrowContractions.js';
import { narrowTables } from './narrowTables.js';
import { pruneDeadRows } from './pruneDeadRows.js';
import { recogniseAttention } from './recogniseAttention.js';
import { recogniseExperts } from './recogniseExperts.js';
import { roundProducts } from './roundProducts.js';
import { splitStream } from './splitStream.js';
import { splitVariance } from './splitVariance.js';

/** Type that the target's contractions read. */
export interface Numerics {
  readonly activations: FloatType;
  /** Type of queries, keys and values that attention reads. Default f32. */
  readonly attention?: FloatType;
  /** Type of keys and values that attention reads, as codes with scales. Default: that of `attention`. */
  readonly cache?: CacheFormat;
  readonly weights: WeightStorage;
  /** Contractions whose operands have 8 bits. Default: none. */
  readonly narrow?: Narrow;
  /** Matrices that are multiplied as the blocks in which they are stored. Default: none. */
  readonly blocks?: StoredBlocks;
  /** Whether matrices that are stored in 4 bits stay so. Default: they are decoded while they load. */
  readonly groups?: 'kept';
  /** Which they are; what a model's checkpoint says. Default: none. */
  readonly groupsOf?: GroupsOf;
  /** Type in which an epilogue reads its product. Default f32. */
  readonly products?: 'f32' | 'f20';
  /** Which kernels store rows of states: loops of their own, or those that compute the rows. Default `loops`. */
  readonly writes?: 'loops' | 'epilogues';
  /**
   * Which kernels compute what needs whole rows of a product: loops of their own, or the contraction. Default `loops`.
   */
  readonly rows?: 'loops' | 'contractions';
  /** Type of the residual stream if activations are bf16. Default f32. */
  readonly stream?: 'f32' | 'f24';
}

/** One step of the compilation. It is pure, and returns the same object if nothing changed. */
export interface Pass<Program> {
  readonly name: string;
  /** The reason for its place in the list. */
  readonly reason: string;
  /** The pass runs only for targets whose numerics have these values. Default: all targets. */
  readonly when?: Partial<Numerics>;
  readonly run: (program: Program, numerics: Numerics) => Program;
}

/** Passes from graph to graph, in order. */
export const GRAPH_PASSES: readonly Pass<Graph>[] = [
  {
    name: 'eliminateCommonSubexpressions',
    run: eliminateCommonSubexpressions,
    reason: 'patterns compare values by identity, so equal values must be one',
  },
  { name: 'foldConstants', run: foldConstants, reason: 'literals and undone movement would hide patterns' },
  {
    name: 'recogniseAttention',
    run: recogniseAttention,
    reason: 'softmax(q·kᵀ + bias)·v becomes one node, before anything rewrites its parts',
  },
  {
    name: 'canonicaliseMask',
    run: (graph, { attention }) => canonicaliseMask(graph, attention),
    reason: 'needs the attention node; a proved mask frees the f32[T, T] bias',
  },
  {
    name: 'foldConstants',
    run: foldConstants,
    reason: "transposes that recogniseAttention left cancel with the model's own",
  },
  {
    name: 'splitVariance',
    run: splitVariance,
    reason: 'sums of rows of x take the place of sums of what is computed from them, before rows are pruned',
  },
  {
    name: 'pruneDeadRows',
    run: pruneDeadRows,
    reason: 'needs attention as a barrier between rows; shrinks everything after the last one',
  },
  {
    name: 'recogniseExperts',
    run: recogniseExperts,
    reason: 'after pruning, so that only scored rows are sent to experts; before norms are folded into matrices',
  },
  {
    name: 'expandExperts',
    run: expandExperts,
    reason: 'what recogniseExperts left is computed by all experts for all rows',
  },
  {
    name: 'groupWeights',
    run: (graph, { groupsOf }) => groupWeights(graph, groupsOf),
    reason: 'before norms are folded: columns of matrices in groups take no factors',
  },
  {
    name: 'foldNormWeights',
    run: (graph, { weights }) => foldNormWeights(graph, weights.format),
    reason: 'after pruning, so that a norm is folded where it is finally computed',
  },
  { name: 'fuseLogProb', run: fuseLogProb, reason: 'needs the row scale that foldNormWeights put behind the head' },
  {
    name: 'narrowContractions',
    run: (graph, { narrow, activations }) => narrowContractions(graph, narrow, activations),
    reason: 'after norms are folded, so that rows are scaled as contractions read them; the head is no contraction now',
  },
  {
    name: 'multiplyBlocks',
    run: (graph, { blocks }) => multiplyBlocks(graph, blocks),
    reason: 'after norms stayed with rows, and with the head; before rows of another type are cast',
  },
  {
    name: 'narrowCache',
    run: (graph, { cache }) => narrowCache(graph, cache),
    reason: 'needs the attention node, and the values behind the casts to the type that it would read',
  },
  {
    name: 'assignPrecision',
    run: (graph, { activations, attention }) => assignPrecision(graph, activations, attention),
    reason: 'last rewrite of operands; its casts are fused next',
  },
  {
    name: 'eliminateCommonSubexpressions',
    run: eliminateCommonSubexpressions,
    reason: 'rewrites repeat casts and folded weights',
  },
  {
    name: 'eliminateDeadCode',
    run: eliminateDeadCode,
    reason: 'fusion looks at readers, so dead readers must be gone',
  },
];

/** The step between the lists: fuseGroups decides which ops share a kernel, and lowerKernels builds the kernels. */
export const BRIDGE = {
  name: 'lowerKernels',
  reason: 'the graph is final: every op is assigned to a group, every group becomes kernels',
} as const;

/** Passes from kernels to kernels, in order. */
export const KERNEL_PASSES: readonly Pass<LoweredModule>[] = [
  {
    name: 'narrowTables',
    run: narrowTables,
    reason: 'needs to see every reader of a table; a table whose columns repeat is kept once',
  },
  {
    name: 'fuseWrites',
    when: { writes: 'epilogues' },
    run: fuseWrites,
    reason:
      'needs every reader of the copied rows; before the passes that rewrite epilogues, which then see all stores',
  },
  {
    name: 'splitStream',
    when: { stream: 'f24' },
    run: splitStream,
    reason: 'matches stores and their roundings, which roundProducts would make look different',
  },
  {
    name: 'roundProducts',
    when: { products: 'f20' },
    run: roundProducts,
    reason: 'rounds every product that an epilogue reads, once the passes that match epilogues have run',
  },
  {
    name: 'finishRows',
    when: { rows: 'contractions' },
    run: finishRows,
    reason: 'last: the passes before it see stores of loops, and change nothing that a contraction finishes',
  },
  {
    name: 'mergeLoops',
    run: mergeLoops,
    reason: 'after the passes that give loops to contractions, or rewrite what they store',
  },
];

/** Whether a target with these numerics runs the pass. */
export const isNeeded = ({ when = {} }: Pick<Pass<never>, 'when'>, numerics: Numerics): boolean =>
  Object.entries(when).every(([setting, value]) => numerics[setting as keyof Numerics] === value);

/** The program after one stage, and the reason for the stage's place. */
export type Stage = { readonly name: string; readonly reason: string } & (
  { readonly level: 'graph'; readonly graph: Graph } | { readonly level: 'kernels'; readonly module: LoweredModule }
);

/** Called with every stage once it is verified, for dumps and `inspect`. */
export type Observer = (stage: Stage) => void;

const ignore: Observer = () => undefined;

/** Graph → optimised graph. Throws, naming the pass, if a pass returns a graph that does not verify. */
export function optimise(graph: Graph, numerics: Numerics, observe: Observer = ignore): Graph {
  const show = (current: Graph, name: string, reason: string): void => {
    verifyGraph(current, name);
    observe({ level: 'graph', name, reason, graph: current });
  };
  show(graph, 'model', 'the model in primitive ops, as models/ writes it');
  return runPasses(GRAPH_PASSES, graph, numerics, show);
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
  const show = (current: LoweredModule, name: string, reason: string): void => {
    verifyKernels(current, name);
    observe({ level: 'kernels', name, reason, module: current });
  };
  const module = lowerKernels(fuseGroups(graph), numerics.weights, states);
  show(module, BRIDGE.name, BRIDGE.reason);
  return runPasses(KERNEL_PASSES, module, numerics, show);
}

const runPasses = <Program>(
  passes: readonly Pass<Program>[],
  program: Program,
  numerics: Numerics,
  show: (program: Program, name: string, reason: string) => void,
): Program =>
  passes
    .filter((pass) => isNeeded(pass, numerics))
    .reduce((current, pass) => {
      const next = pass.run(current, numerics);
      show(next, pass.name, pass.reason);
      return next;
    }, program);
