/**
 * How questions are computed: as which trees, in which micro-batches. Needs the model's limits and costs, and no device
 * yet.
 */
import { packTrees, shuffled } from './pack.js';
import type { Pack } from './packing.js';
import type { Scorer } from './scorer.js';
import { treesOfShard, type Shard, type WorkOf } from './shard.js';
import { checkLengths, type TokenisedQuestion } from './tokenise.js';
import type { Sharing } from './tree.js';
import { planTrees, type Capacity, type TreePlan } from './treePlan.js';

/** What a plan depends on of a scorer. */
export type ScorerLimits = Pick<Scorer, 'maxTokens' | 'maxRows' | 'maxLength' | 'cost'>;

/** Trees packed so that the choices of a question, where they are trees of their own, stay together. */
export interface PackedTree extends TreePlan {
  readonly orderLength: number;
  readonly group: number;
}

export interface QuestionPlan {
  /** Of the shard where there is one, else all. */
  readonly trees: readonly TreePlan[];
  /** All of them. */
  readonly packs: readonly Pack<PackedTree>[];
}

export interface PlanQuestions {
  readonly tokenised: readonly TokenisedQuestion[];
  readonly sharing: Sharing;
  readonly scorer: ScorerLimits;
  readonly shard?: (Shard & { readonly workOf: WorkOf }) | undefined;
}

/**
 * Micro-batches in the order in which one device computes them: fixed by the questions, the mode and the scorer's
 * costs.
 */
export function planBatches(trees: readonly TreePlan[], scorer: ScorerLimits): Pack<PackedTree>[] {
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
  return shuffled(packTrees(packable, scorer));
}

/** One micro-batch holds at least a path as long as the model's context, if the scorer is sound. */
function capacityOf({ maxTokens, maxRows }: ScorerLimits): Capacity {
  if (!(maxTokens >= 1) || !(maxRows >= 1))
    throw new Error(`a scorer for ${maxTokens} tokens and ${maxRows} rows cannot score`);
  return { maxTokens, maxRows };
}

/** Throws UserError where a choice does not fit the model. */
export function planQuestions({ tokenised, sharing, scorer, shard }: PlanQuestions): QuestionPlan {
  checkLengths(tokenised, scorer.maxLength, scorer.maxTokens);
  // Trees of all questions, those of other shards and those that are done included: where bits depend on a tree, every
  // run has the same trees.
  const planned = planTrees(tokenised, sharing, capacityOf(scorer)).trees;
  const trees = shard === undefined ? planned : treesOfShard(planned, shard, shard.workOf);
  return { trees, packs: planBatches(trees, scorer) };
}
