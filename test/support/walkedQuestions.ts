/** Questions with beginnings in common, and calls of `step` that score them over kept states, to compare with trees. */
import type { LoadedModel } from '../../commands/loadModel.js';
import { scoredRows, scoreInputs, stepInputs, type StepShape, stepShapeOf, walkLimits } from '../../commands/scorer.js';
import type { MicroBatch, WalkLimits } from '../../evaluate/scorer.js';
import { orderPaths } from '../../evaluate/pathOrder.js';
import { buildTree, type Path, type ScoredToken } from '../../evaluate/tree.js';
import { twoPhase } from '../../evaluate/twoPhase.js';
import { walk } from '../../evaluate/walk.js';
import { SCORE, STEP } from '../../ir/function.js';
import type { CallArrays } from '../../runtime/call.js';
import { randomNumbers } from './numbers.js';

/** Three questions after one beginning of `length`, two after half of it, and one by itself; two choices each. */
export function sharedQuestions(seed: number, vocab: number, length = 20): Path[] {
  const next = randomNumbers(seed);
  const random = (count: number): number[] =>
    Array.from({ length: count }, () => Math.floor((next() + 0.5) * vocab) % vocab);
  const shots = random(length);
  return [1, 1, 1, 0.5, 0.5, 0].flatMap((part, question) => {
    const context = Int32Array.from([...shots.slice(0, part * length), ...random(4 + question)]);
    return [1, 3].map((count, choice): Path => {
      return { question, choice, context, continuation: Int32Array.from(random(count)) };
    });
  });
}

const nameOf = ({ question, choice, index }: Omit<ScoredToken, 'row'>): string => `${question} ${choice} ${index}`;

/** All questions as one call of `score`, and the row of each token of a choice. */
export function scoredTree(paths: readonly Path[]): {
  readonly inputs: MicroBatch & CallArrays;
  readonly rows: ReadonlyMap<string, number>;
} {
  const { tokens, position, subtreeEnd, row, target, answers } = buildTree(paths, 'tree');
  const rows = answers.flatMap(({ question, choice, scored }) =>
    [...scored].map((at, index) => [nameOf({ question, choice, index }), at] as const),
  );
  return { inputs: { tokens, position, subtreeEnd, row, target }, rows: new Map(rows) };
}

export interface WalkedCall {
  readonly inputs: CallArrays;
  /** Rows with what they score. */
  readonly scored: readonly (readonly [row: number, name: string])[];
}

/** Calls that keep beginnings, or, in two phases, contexts. */
export function walkedCalls(
  paths: readonly Path[],
  limits: WalkLimits,
  shape: StepShape,
  isTwoPhase = false,
): readonly WalkedCall[] {
  const walked = isTwoPhase ? twoPhase(paths, { limits }) : walk(orderPaths(paths).paths, limits);
  return [...walked].map(({ batch, scored }) => ({
    inputs: stepInputs(batch, shape),
    scored: scored.map((each) => [each.row, nameOf(each)] as const),
  }));
}

/**
 * Scores questions in a tree and over kept states, in calls of `most` tokens and with `states` rows: log-probabilities
 * that differ in any bit are an error. Gives the number of those that it has compared.
 */
export async function checkQuestions(
  model: LoadedModel,
  cacheTokens: number,
  { seed, vocab, length, most, states }: Readonly<Record<'seed' | 'vocab' | 'length' | 'most' | 'states', number>>,
): Promise<number> {
  const { executor } = model;
  const paths = sharedQuestions(seed, vocab, length);
  const { inputs, rows } = scoredTree(paths);
  const wanted = scoredRows(await executor.call(SCORE, scoreInputs(inputs, executor)));
  const memory = { ...stepShapeOf(model.model), cacheTokens };
  const limits = { ...walkLimits(executor, memory), tokens: most, states };
  let compared = 0;
  for (const isTwoPhase of [false, true])
    for (const { inputs: given, scored } of walkedCalls(paths, limits, memory, isTwoPhase)) {
      const { logProb } = scoredRows(await executor.call(STEP, given, executor.epoch));
      for (const [row, name] of scored) {
        const [found, own] = [logProb[row], wanted.logProb[rows.get(name)!]];
        if (found !== own) throw new Error(`${name} of calls of ${most}: ${found}, not ${own}`);
        compared++;
      }
    }
  return compared;
}
