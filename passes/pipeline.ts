/**
 * The ordered lists of passes. A graph of primitive ops becomes an optimized graph, and the kernels made from it become
 * better kernels. runPasses.ts runs them, and verifies every stage.
 */
import type { Graph } from '../ir/graph/graph.js';
import { assignPrecision } from './assignPrecision.js';
import { attachAdapters } from './attachAdapters.js';
import { attachRouting } from './attachRouting.js';
import { canonicalizeMask } from './canonicalizeMask.js';
import { deduplicateTables } from './deduplicateTables.js';
import { eliminateCommonSubexpressions } from './eliminateCommonSubexpressions.js';
import { eliminateDeadCode } from './eliminateDeadCode.js';
import { expandExperts } from './expandExperts.js';
import { foldConstants } from './foldConstants.js';
import { foldNormWeights } from './foldNormWeights.js';
import { fuseLogProb } from './fuseLogProb.js';
import { fuseLoops } from './fuseLoops.js';
import { fuseRouting } from './fuseRouting.js';
import { fuseRowNorms } from './fuseRowNorms.js';
import { fuseStateWrites } from './fuseStateWrites.js';
import { keepBlockWeights } from './keepBlockWeights.js';
import { keepGroupedWeights } from './keepGroupedWeights.js';
import { keepMicroscaledWeights } from './keepMicroscaledWeights.js';
import type { LoweredModule } from './lowerKernels.js';
import type { Numerics } from './numerics.js';
import { packStates } from './packStates.js';
import { pruneDeadRows } from './pruneDeadRows.js';
import { quantizeContractions } from './quantizeContractions.js';
import { quantizeKvCache } from './quantizeKvCache.js';
import { recognizeAttention } from './recognizeAttention.js';
import { recognizeExperts } from './recognizeExperts.js';
import { recognizeHeadProducts } from './recognizeHeadProducts.js';
import { roundAccumulators } from './roundAccumulators.js';
import { splitResidualStream } from './splitResidualStream.js';
import { splitVariance } from './splitVariance.js';

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
export const MODEL = {
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
    name: 'recognizeHeadProducts',
    does: 'Replaces products of heads with matrices of their own by one node each.',
    run: recognizeHeadProducts,
    reason: 'what is left of products of heads are those of attention',
  },
  {
    name: 'recognizeAttention',
    does: 'Replaces softmax(q·kᵀ·scale + bias)·v by one node.',
    run: recognizeAttention,
    reason: 'softmax(q·kᵀ + bias)·v becomes one node, before anything rewrites its parts',
  },
  {
    name: 'canonicalizeMask',
    does: 'Proves which keys a query sees, and puts one integer a key, or lists of keys, in place of the bias.',
    run: (graph, { attention }) => canonicalizeMask(graph, attention),
    reason: 'needs the attention node; a proved mask frees the f32[T, T] bias',
  },
  {
    name: 'foldConstants',
    does: 'Computes what depends on literals alone, and removes movements that cancel.',
    run: foldConstants,
    reason: "transposes that recognizeAttention left cancel with the model's own",
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
    name: 'recognizeExperts',
    does: 'Finds a mixture of experts, and sends each row to its own.',
    run: recognizeExperts,
    reason: 'after pruning, so that only scored rows are sent to experts; before norms are folded into matrices',
  },
  {
    name: 'expandExperts',
    does: 'Lets all experts compute every row, where nothing better was recognized.',
    run: expandExperts,
    reason: 'what recognizeExperts left is computed by all experts for all rows',
  },
  {
    name: 'keepGroupedWeights',
    does: 'Keeps matrices that are stored in 4 bits in their groups.',
    run: (graph, { groupsOf }) => keepGroupedWeights(graph, groupsOf),
    reason: 'before norms are folded: columns of matrices in groups take no factors',
  },
  {
    name: 'keepMicroscaledWeights',
    does: 'Keeps matrices of experts that are stored in MXFP4 as they are.',
    run: (graph, { microscaled }) => keepMicroscaledWeights(graph, microscaled),
    reason: 'needs the products of experts',
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
    name: 'quantizeContractions',
    does: 'Rounds operands of contractions to 8 bits, with scales, where that is asked for.',
    run: (graph, { narrow, activations }) => quantizeContractions(graph, narrow, activations),
    reason: 'after norms are folded, so that rows are scaled as contractions read them; the head is no contraction now',
  },
  {
    name: 'keepBlockWeights',
    does: 'Multiplies matrices as the blocks in which they are stored.',
    run: (graph, { stored }) => keepBlockWeights(graph, stored),
    reason: 'after norms stayed with rows, and with the head; before rows of another type are cast',
  },
  {
    name: 'quantizeKvCache',
    does: 'Keeps keys and values as codes of 8 bits with scales, where that is asked for.',
    run: (graph, { cache }) => quantizeKvCache(graph, cache),
    reason: 'needs the attention node, and the values behind the casts to the type that it would read',
  },
  {
    name: 'assignPrecision',
    does: 'Writes down where a target of 16 bits rounds.',
    // Tiles of AMX take no heads one by one: vectors multiply these.
    run: (graph, { activations, attention, weights }) =>
      assignPrecision(graph, activations, attention, weights.layout === 'vnni' ? 'f32' : activations),
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
    name: 'deduplicateTables',
    does: 'Keeps once what repeats in a table, such as the rotary cosines of both halves of a head.',
    run: deduplicateTables,
    reason: 'needs to see every reader of a table; a table whose columns repeat is kept once',
  },
  {
    name: 'fuseStateWrites',
    does: 'Stores rows of states, as keys and values of new tokens, where they are computed.',
    when: { writes: 'epilogues' },
    run: fuseStateWrites,
    reason:
      'needs every reader of the copied rows; before the passes that rewrite epilogues, which then see all stores',
  },
  {
    name: 'splitResidualStream',
    does: 'Keeps the residual stream in 24 bits: as bf16 numbers with a byte each.',
    when: { stream: 'f24' },
    run: splitResidualStream,
    reason: 'matches stores and their roundings, which roundAccumulators would make look different',
  },
  {
    name: 'roundAccumulators',
    does: 'Writes down that epilogues read products of 20 bits.',
    when: { products: 'f20' },
    run: roundAccumulators,
    reason: 'rounds every product that an epilogue reads, once the passes that match epilogues have run',
  },
  {
    name: 'fuseRowNorms',
    does: 'Lets a deep contraction or a loop go on with its own rows once they are whole.',
    when: { rows: 'contractions' },
    run: (module, { finishing }) => fuseRowNorms(module, finishing),
    reason: 'late: the passes before it see stores of loops, and change nothing that a contraction finishes',
  },
  {
    name: 'fuseRouting',
    does: 'Lets the kernel that chooses experts arrange the pairs of rows and experts.',
    when: { rows: 'contractions' },
    run: fuseRouting,
    reason: 'late, as no other pass looks at these kernels',
  },
  {
    name: 'fuseLoops',
    does: 'Puts loops that go on with one contraction into one kernel.',
    run: fuseLoops,
    reason: 'after the passes that give loops to contractions, or rewrite what they store',
  },
  {
    name: 'attachAdapters',
    does: 'Gives the matrices of layers slots for adapters, where that is asked for.',
    run: (module, { adapters, weights }) => attachAdapters(module, adapters, weights),
    reason: 'late: what kernels compute from products is settled, and adapters are a part of the products',
  },
  {
    name: 'packStates',
    does: 'Lays rows of narrow states, as scales of keys, in blocks.',
    when: { states: 'blocks' },
    run: packStates,
    reason: 'last but one: it changes where states lie, and no kernel',
  },
  {
    name: 'attachRouting',
    does: 'Lets a product with the logits of experts choose them, and make the rows of their pairs, for few rows.',
    when: { rows: 'contractions' },
    run: attachRouting,
    reason: 'last: a product has copies of the kernels behind it, which no pass may change any more',
  },
];

/** Whether a target with these numerics runs the pass. */
export const isNeeded = ({ when = {} }: Pick<Pass<never>, 'when'>, numerics: Numerics): boolean =>
  Object.entries(when).every(([setting, value]) => numerics[setting as keyof Numerics] === value);
