/**
 * Plans how questions are computed: their trees and micro-batches. Needs the model's limits and costs, but no device
 * yet.
 */
import { once, type Parts } from '../system/text.js';
import { type Capacity, fits, type Pack, packInParts, shuffled } from './packing.js';
import { checkLengths, type PathLimit } from './pathLengths.js';
import { countOrdered, isWorthKeeping, type OrderedPaths, orderInParts, pathsOf } from './pathOrder.js';
import { type Scorer, type Sharing, treeSharing } from './scorer.js';
import { treesOfShard, type WorkOf } from './shard.js';
import { type Shard } from './shardName.js';
import type { TokenizedQuestion } from './tokenize.js';
import { planTreesInParts, type TreePlan } from './treePlan.js';

/** The properties of a scorer that a plan depends on. */
export type ScorerLimits = Pick<Scorer, 'maxTokens' | 'maxRows' | 'maxKeys' | 'maxLength' | 'cost'>;

/** Trees, packed so that the choices of a question stay together even if they are separate trees. */
export interface PackedTree extends TreePlan {
  readonly orderLength: number;
  readonly group: number;
}

export interface QuestionPlan {
  /** Those of the shard if there is one, else all. */
  readonly trees: readonly TreePlan[];
  /** Micro-batches of all of them, except those that fit none. Made when first asked for. */
  readonly packs: () => Parts<readonly Pack<PackedTree>[]>;
  /** Their paths in order. Made when first asked for. */
  readonly order: () => Parts<OrderedPaths>;
  /** Trees that fit no micro-batch: only calls that keep keys and values compute them, a part at a time. */
  readonly oversized: readonly TreePlan[];
  /** Indices of the questions in these trees. */
  readonly questions: readonly number[];
}

export interface PlanQuestions {
  readonly tokenized: readonly TokenizedQuestion[];
  readonly sharing: Sharing;
  readonly scorer: ScorerLimits;
  readonly shard?: (Shard & { readonly workOf: WorkOf }) | undefined;
  /** Limit of a path that may be cut into calls; absent: every path must fit a micro-batch. */
  readonly cutLimit?: PathLimit | undefined;
}

/**
 * Micro-batches in the order in which one device computes them: determined by the questions, the mode and the scorer's
 * costs.
 */
export function* planBatches(trees: readonly TreePlan[], scorer: ScorerLimits): Parts<Pack<PackedTree>[]> {
  const longestOf = new Map<number, number>();
  for (const { paths, longest } of trees) {
    for (const { question } of paths) longestOf.set(question, Math.max(longest, longestOf.get(question) ?? 0));
  }
  const packable = trees.map((tree): PackedTree => {
    const [first] = tree.paths;
    return {
      ...tree,
      orderLength: first === undefined ? tree.longest : (longestOf.get(first.question) ?? tree.longest),
      group: first?.question ?? -1,
    };
  });
  return shuffled(yield* packInParts(packable, scorer));
}

/** Checks that the scorer's largest micro-batch can hold anything at all. */
function capacityOf({ maxTokens, maxRows, maxKeys }: ScorerLimits): Capacity {
  if (!(maxTokens >= 1) || !(maxRows >= 1))
    throw new Error(`a scorer for ${maxTokens} tokens and ${maxRows} rows cannot score anything`);
  return { maxTokens, maxRows, maxKeys };
}

/** Whether prefixes are worth keeping. Shards ask for the questions alone, whatever memory their machines have. */
function* areAlike(trees: readonly TreePlan[], tokenized: readonly TokenizedQuestion[]): Parts<boolean> {
  return isWorthKeeping(
    trees.reduce((sum, { tokens }) => sum + tokens, 0),
    countOrdered(yield* orderInParts(pathsOf(tokenized))).shared,
  );
}

const uncutLimit = ({ maxLength, maxTokens }: ScorerLimits): PathLimit => ({
  kind: maxTokens <= maxLength ? 'call' : 'context',
  tokens: maxLength,
});

/** Throws UserError if a choice does not fit the model. */
export function* planQuestions(asked: PlanQuestions): Parts<QuestionPlan> {
  const { tokenized, sharing, scorer, shard, cutLimit } = asked;
  const capacity = capacityOf(scorer);
  checkLengths(tokenized, cutLimit ?? uncutLimit(scorer));
  // Trees of all questions, including those of other shards and finished ones: results may depend on the tree in their
  // last bits, so every run has the same trees.
  const { trees: planned } = yield* planTreesInParts(tokenized, treeSharing(sharing), capacity, cutLimit !== undefined);
  const trees =
    shard === undefined
      ? planned
      : treesOfShard(planned, shard, shard.workOf, sharing === 'tree' && (yield* areAlike(planned, tokenized)));
  const own = new Set(trees.flatMap(({ paths }) => paths.map(({ question }) => question)));
  const packed = trees.filter((tree) => fits(tree, capacity));
  const oversized = trees.filter((tree) => !fits(tree, capacity));
  return {
    trees,
    packs: once(() => planBatches(packed, scorer)),
    order: once(() => orderInParts(pathsOf(tokenized).filter(({ question }) => own.has(question)))),
    oversized,
    questions: [...own],
  };
}
