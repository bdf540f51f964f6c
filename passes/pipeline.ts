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
import { finishRows, type Finishing } from './finishRows.js';
import { foldConstants } from './foldConstants.js';
import { foldNormWeights } from './foldNormWeights.js';
import { fuseGroups } from './fuseGroups.js';
import { fuseLogProb } from './fuseLogProb.js';
import { fuseWrites } from './fuseWrites.js';
import type { Group } from './groups.js';
import { groupWeights, type GroupsOf } from './groupWeights.js';
import { lowerKernels, type LoweredModule } from './lowerKernels.js';
import type { WeightStorage } from './lowerWeights.js';
import { mergeLoops } from './mergeLoops.js';
import { multiplyBlocks, type StoredFormats } from './multiplyBlocks.js';
import { narrowCache } from './narrowCache.js';
import { narrowContractions, type Narrow } from './narrowContractions.js';
import { narrowTables } from './narrowTables.js';
import { packStates } from './packStates.js';
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
  /** Matrices that are multiplied as they are stored: in blocks, or codes. Default: none. */
  readonly stored?: StoredFormats;
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
  /** Which contractions do so. Default `deep`: not those that multiply for less time than it takes. */
  readonly finishing?: Finishing;
  /** How narrow states lie. Default: by row, padded to whole vectors, which kernels then write. */
  readonly states?: 'byColumn';
  /** Type of the residual stream if activations are bf16. Default f32. */
  readonly stream?: 'f32' | 'f24';
}

/** One step of the compilation. It is pure, and returns the same object if nothing changed. */
export interface Pass<Program> {
  readonly name: string;
  /** What it does, in a sentence. */
  readonly does: string;
  /** The reason for its place in the list. */
  readonly reason: string;
  /** The pass runs only for targets whose numerics have these values. Default: all targets. */
  readonly when?: Partial<Numerics>;
  readonly run: (program: Program, numerics: Numerics) => Program;
}

/** The first stage, which no pass has made. */
const MODEL = {
  name: 'model',
  does: 'The model as its family is written: every norm, rotation and softmax in primitive ops.',
  reason: 'the model in primitive ops, as models/ writes it',
} as const;

/** Passes from graph to graph, in order. */
export const GRAPH_PASSES: readonly Pass<Graph>[] = [
  {
    name: 'eliminateCommonSubexpressions',
    does: 'Values that are computed alike become one.',
    run: eliminateCommonSubexpressions,
    reason: 'patterns compare values by identity, so equal values must be one',
  },
  {
    name: 'foldConstants',
    does: 'Computes what depends on literals alone, and removes movements that cancel.',
    run: foldConstants,
    reason: 'literals and undone movement would hide patterns',
  },
  {
    name: 'recogniseAttention',
    does: 'Replaces softmax(q·kᵀ·scale + bias)·v by one node.',
    run: recogniseAttention,
    reason: 'softmax(q·kᵀ + bias)·v becomes one node, before anything rewrites its parts',
  },
  {
    name: 'canonicaliseMask',
    does: 'Proves which keys a query sees, and puts one integer a key, or lists of keys, in place of the bias.',
    run: (graph, { attention }) => canonicaliseMask(graph, attention),
    reason: 'needs the attention node; a proved mask frees the f32[T, T] bias',
  },
  {
    name: 'foldConstants',
    does: 'Computes what depends on literals alone, and removes movements that cancel.',
    run: foldConstants,
    reason: "transposes that recogniseAttention left cancel with the model's own",
  },
  {
    name: 'splitVariance',
    does: 'Computes variances of LayerNorm from sums of x and of x², which the kernel that makes x leaves.',
    run: splitVariance,
    reason: 'sums of rows of x take the place of sums of what is computed from them, before rows are pruned',
  },
  {
    name: 'pruneDeadRows',
    does: 'Moves the gather of the scored rows up to the last attention, so that the rest computes these rows only.',
    run: pruneDeadRows,
    reason: 'needs attention as a barrier between rows; shrinks everything after the last one',
  },
  {
    name: 'recogniseExperts',
    does: 'Finds a mixture of experts, and sends each row to its own.',
    run: recogniseExperts,
    reason: 'after pruning, so that only scored rows are sent to experts; before norms are folded into matrices',
  },
  {
    name: 'expandExperts',
    does: 'Lets all experts compute every row, where nothing better was recognised.',
    run: expandExperts,
    reason: 'what recogniseExperts left is computed by all experts for all rows',
  },
  {
    name: 'groupWeights',
    does: 'Keeps matrices that are stored in 4 bits in their groups.',
    run: (graph, { groupsOf }) => groupWeights(graph, groupsOf),
    reason: 'before norms are folded: columns of matrices in groups take no factors',
  },
  {
    name: 'foldNormWeights',
    does: 'Multiplies norm weights into the next matrix while it loads, and moves 1/rms behind the product.',
    run: (graph, { weights, stored }) => foldNormWeights(graph, weights.format, stored),
    reason: 'after pruning, so that a norm is folded where it is finally computed',
  },
  {
    name: 'fuseLogProb',
    does: 'Turns log-softmax and gather into one op that never stores a logit.',
    run: fuseLogProb,
    reason: 'needs the row scale that foldNormWeights put behind the head',
  },
  {
    name: 'narrowContractions',
    does: 'Rounds operands of contractions to 8 bits, with scales, where that is asked for.',
    run: (graph, { narrow, activations }) => narrowContractions(graph, narrow, activations),
    reason: 'after norms are folded, so that rows are scaled as contractions read them; the head is no contraction now',
  },
  {
    name: 'multiplyBlocks',
    does: 'Multiplies matrices as the blocks in which they are stored.',
    run: (graph, { stored }) => multiplyBlocks(graph, stored),
    reason: 'after norms stayed with rows, and with the head; before rows of another type are cast',
  },
  {
    name: 'narrowCache',
    does: 'Keeps keys and values as codes of 8 bits with scales, where that is asked for.',
    run: (graph, { cache }) => narrowCache(graph, cache),
    reason: 'needs the attention node, and the values behind the casts to the type that it would read',
  },
  {
    name: 'assignPrecision',
    does: 'Writes down where a target of 16 bits rounds.',
    run: (graph, { activations, attention }) => assignPrecision(graph, activations, attention),
    reason: 'last rewrite of operands; its casts are fused next',
  },
  {
    name: 'eliminateCommonSubexpressions',
    does: 'Values that are computed alike become one.',
    run: eliminateCommonSubexpressions,
    reason: 'rewrites repeat casts and folded weights',
  },
  {
    name: 'eliminateDeadCode',
    does: 'Removes ops whose results nothing reads.',
    run: eliminateDeadCode,
    reason: 'fusion looks at readers, so dead readers must be gone',
  },
];

/** The step between the lists: fuseGroups decides which ops share a kernel, and lowerKernels builds the kernels. */
export const BRIDGE = {
  name: 'lowerKernels',
  does: 'Groups ops that share a kernel, and writes the kernels down.',
  reason: 'the graph is final: every op is assigned to a group, every group becomes kernels',
} as const;

/** Passes from kernels to kernels, in order. */
export const KERNEL_PASSES: readonly Pass<LoweredModule>[] = [
  {
    name: 'narrowTables',
    does: 'Keeps once what repeats in a table, such as the rotary cosines of both halves of a head.',
    run: narrowTables,
    reason: 'needs to see every reader of a table; a table whose columns repeat is kept once',
  },
  {
    name: 'fuseWrites',
    does: 'Stores rows of states, as keys and values of new tokens, where they are computed.',
    when: { writes: 'epilogues' },
    run: fuseWrites,
    reason:
      'needs every reader of the copied rows; before the passes that rewrite epilogues, which then see all stores',
  },
  {
    name: 'splitStream',
    does: 'Keeps the residual stream in 24 bits: as bf16 numbers with a byte each.',
    when: { stream: 'f24' },
    run: splitStream,
    reason: 'matches stores and their roundings, which roundProducts would make look different',
  },
  {
    name: 'roundProducts',
    does: 'Writes down that epilogues read products of 20 bits.',
    when: { products: 'f20' },
    run: roundProducts,
    reason: 'rounds every product that an epilogue reads, once the passes that match epilogues have run',
  },
  {
    name: 'finishRows',
    does: 'Lets a deep contraction or a loop go on with its own rows once they are whole.',
    when: { rows: 'contractions' },
    run: (module, { finishing }) => finishRows(module, finishing),
    reason: 'late: the passes before it see stores of loops, and change nothing that a contraction finishes',
  },
  {
    name: 'mergeLoops',
    does: 'Puts loops that go on with one contraction into one kernel.',
    run: mergeLoops,
    reason: 'after the passes that give loops to contractions, or rewrite what they store',
  },
  {
    name: 'packStates',
    does: 'Lays narrow states, as scales of keys, column by column.',
    when: { states: 'byColumn' },
    run: packStates,
    reason: 'last: it changes where states lie, and no kernel',
  },
];

/** Whether a target with these numerics runs the pass. */
export const isNeeded = ({ when = {} }: Pick<Pass<never>, 'when'>, numerics: Numerics): boolean =>
  Object.entries(when).every(([setting, value]) => numerics[setting as keyof Numerics] === value);

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
  const show = (current: Graph, { name, does, reason }: StageFacts): void => {
    verifyGraph(current, name);
    observe({ level: 'graph', name, does, reason, graph: current });
  };
  show(graph, MODEL);
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
  const show = (current: LoweredModule, { name, does, reason }: StageFacts, groups?: readonly Group[]): void => {
    verifyKernels(current, name);
    observe({ level: 'kernels', name, does, reason, module: current, ...(groups === undefined ? {} : { groups }) });
  };
  const fused = fuseGroups(graph);
  const module = lowerKernels(fused, numerics.weights, states);
  show(module, BRIDGE, fused.groups);
  return runPasses(KERNEL_PASSES, module, numerics, show);
}

const runPasses = <Program>(
  passes: readonly Pass<Program>[],
  program: Program,
  numerics: Numerics,
  show: (program: Program, pass: StageFacts) => void,
): Program =>
  passes
    .filter((pass) => isNeeded(pass, numerics))
    .reduce((current, pass) => {
      const next = pass.run(current, numerics);
      show(next, pass);
      return next;
    }, program);
