/** How many tokens a question set takes, by how much of it is shared. */
import { type OrderedPaths, orderPaths } from './pathOrder.js';
import { contextOf, type TokenizedQuestion } from './tokenize.js';
import { type Path, pathLength } from './tree.js';

export interface TokenCounts {
  /** Every choice is a sequence of its own. */
  readonly alone: number;
  /**
   * Choices with the same inputs are one sequence, as those of one letter are. lm-evaluation-harness shares this much
   * and no more.
   */
  readonly grouped: number;
  /** Every common beginning of the whole set is computed once: no order of computation takes fewer. */
  readonly shared: number;
}

/**
 * What keeping prefixes must save of the tokens of trees, at least, as a factor and in tokens. Calls with a cache have
 * kernels of their own, which take a while to compile.
 */
export const MIN_GAIN = 1.1;
const MIN_SAVED = 100_000;
export const isWorthKeeping = (inTrees: number, kept: number): boolean =>
  inTrees >= MIN_GAIN * kept && inTrees - kept >= MIN_SAVED;

/** The same factor where the memory and the kernels are there already: calls of both kinds take equally long. */
const MIN_GAIN_WITHIN = 1.02;
export const isWorthKeepingWithin = (inTrees: number, kept: number): boolean => inTrees >= MIN_GAIN_WITHIN * kept;

export const pathsOf = (questions: readonly TokenizedQuestion[]): Path[] =>
  questions.flatMap((question, index) =>
    question.continuations.map((continuation, choice): Path => ({
      question: index,
      choice,
      context: contextOf(question, choice),
      continuation,
    })),
  );

export const countTokens = (paths: readonly Path[]): TokenCounts => countOrdered(orderPaths(paths));

export function countOrdered(ordered: OrderedPaths): TokenCounts {
  let alone = 0,
    grouped = 0,
    shared = 0;
  ordered.paths.forEach((path, i) => {
    const length = pathLength(path);
    const common = ordered.shared[i]!;
    const before = ordered.paths[i - 1];
    alone += length;
    if (before === undefined || common < length || pathLength(before) > length) grouped += length;
    shared += length - common;
  });
  return { alone, grouped, shared };
}
