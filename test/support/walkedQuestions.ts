/** Questions with beginnings in common, and calls of `step` that score them over kept states, to compare with trees. */
import { stepInputs } from '../../commands/scorer.js';
import type { StateShape } from '../../driver/devices/stateInputs.js';
import type { WalkLimits } from '../../evaluate/scorer.js';
import { orderPaths } from '../../evaluate/pathOrder.js';
import { buildTree, type Path, type ScoredToken } from '../../evaluate/tree.js';
import { twoPhase } from '../../evaluate/twoPhase.js';
import { walk } from '../../evaluate/walk.js';
import type { CallArrays } from '../../runtime/call.js';
import { randomNumbers } from './numbers.js';

/** Three questions after one beginning, two after half of it, and one by itself; two choices each. */
export function sharedQuestions(seed: number, vocab: number): Path[] {
  const next = randomNumbers(seed);
  const random = (count: number): number[] =>
    Array.from({ length: count }, () => Math.floor((next() + 0.5) * vocab) % vocab);
  const shots = random(20);
  return [20, 20, 20, 10, 10, 0].flatMap((kept, question) => {
    const context = Int32Array.from([...shots.slice(0, kept), ...random(4 + question)]);
    return [1, 3].map((length, choice): Path => {
      return { question, choice, context, continuation: Int32Array.from(random(length)) };
    });
  });
}

const nameOf = ({ question, choice, index }: Omit<ScoredToken, 'row'>): string => `${question} ${choice} ${index}`;

/** All questions as one call of `score`, and the row of each token of a choice. */
export function scoredTree(paths: readonly Path[]): { inputs: CallArrays; rows: ReadonlyMap<string, number> } {
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
  states: StateShape,
  isTwoPhase = false,
): readonly WalkedCall[] {
  const all = { ...limits, states: limits.states ?? states.rows };
  const walked = isTwoPhase ? twoPhase(paths, { limits: all }) : walk(orderPaths(paths).paths, all);
  return [...walked].map(({ batch, scored }) => ({
    inputs: stepInputs(batch, { states }),
    scored: scored.map((each) => [each.row, nameOf(each)] as const),
  }));
}
