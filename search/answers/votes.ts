/** What the candidates of a problem choose together: by the best score, by sums of scores, by numbers of answers. */
import type { Candidate } from '../result.js';
import { classesOf } from './classes.js';
import { answerOf } from './extract.js';

/**
 * `naive`: the candidate of the largest score. `weighted`: the answer whose scores come to the largest sum. `majority`:
 * the most frequent answer.
 */
export const VOTES = ['naive', 'weighted', 'majority'] as const;
export type Vote = (typeof VOTES)[number];

/** A candidate as it votes. */
export interface Ballot {
  readonly answer: string;
  /** Equal answers have equal numbers. */
  readonly group: number;
  readonly score: number;
  readonly isCompleted: boolean;
}

/**
 * Ballots in the order of candidates, each with the aggregate of the search. `isCompat`: with the last score, which
 * search-and-learn votes with whatever the search used.
 */
export function ballotsOf(
  candidates: readonly Pick<Candidate, 'text' | 'scores' | 'aggregate' | 'isCompleted'>[],
  isCompat: boolean,
): readonly Ballot[] {
  const answers = candidates.map(({ text }) => answerOf(text));
  const groups = classesOf(answers, isCompat);
  return candidates.map(({ scores, aggregate, isCompleted }, i) => ({
    answer: answers[i]!,
    group: groups[i]!,
    score: isCompat ? (scores.at(-1) ?? aggregate) : aggregate,
    isCompleted: isCompat || isCompleted,
  }));
}

/**
 * Indices of those that count: the completed ones, or all where none is completed; of these, for votes about answers,
 * those with one, or all where none has one. To search-and-learn no answer is an answer like others.
 */
function voters(vote: Vote, ballots: readonly Ballot[], isCompat: boolean): readonly number[] {
  const all = [...ballots.keys()];
  const among = (from: readonly number[], counts: (ballot: Ballot) => boolean): readonly number[] => {
    const some = from.filter((i) => counts(ballots[i]!));
    return some.length === 0 ? from : some;
  };
  if (isCompat) return all;
  const completed = among(all, ({ isCompleted }) => isCompleted);
  return vote === 'naive' ? completed : among(completed, ({ answer }) => answer !== '');
}

/** A group of equal answers. */
interface Tally {
  /** Of its first candidate. */
  readonly first: number;
  readonly sum: number;
}

/** Groups in the order in which they come. Scores are added in the order of candidates. */
function tallies(vote: Vote, ballots: readonly Ballot[], indices: readonly number[]): readonly Tally[] {
  const groups = new Map<number, Tally>();
  for (const i of indices) {
    const { group, score } = ballots[i]!;
    // Every candidate is a group of its own where scores alone decide.
    const key = vote === 'naive' ? i : group;
    const { first, sum } = groups.get(key) ?? { first: i, sum: 0 };
    groups.set(key, { first, sum: sum + (vote === 'majority' ? 1 : score) });
  }
  return [...groups.values()];
}

/** The index of the candidate that is chosen, of a group its first; null where there is none. Ties: the first. */
export function chosen(vote: Vote, ballots: readonly Ballot[], isCompat: boolean): number | null {
  let best: Tally | undefined;
  for (const tally of tallies(vote, ballots, voters(vote, ballots, isCompat)))
    if (best === undefined || tally.sum > best.sum) best = tally;
  return best?.first ?? null;
}

/** Sums of scores are compared with this room for rounding. */
const ROUNDING = 1e-9;

/**
 * Whether the choice stays whatever `left` more candidates are. `largest`: the largest score that there may be, of
 * scores that are not negative; undefined where there is none, and then votes with scores are never decided.
 */
export function isDecided(
  vote: Vote,
  ballots: readonly Ballot[],
  left: number,
  largest: number | undefined,
  isCompat: boolean,
): boolean {
  if (left === 0) return true;
  const indices = voters(vote, ballots, isCompat);
  const first = ballots[indices[0] ?? -1];
  // Where none is completed, or none has an answer, those that come may be the only ones that count.
  if (first === undefined || !(isCompat || (first.isCompleted && (vote === 'naive' || first.answer !== ''))))
    return false;
  if (vote !== 'majority' && largest === undefined) return false;
  const sums = tallies(vote, ballots, indices).map(({ sum }) => sum);
  const most = Math.max(...sums);
  if (vote === 'naive') return most >= largest!;
  const [more, rounding] = vote === 'majority' ? [left, 0] : [left * largest!, ROUNDING];
  const place = sums.indexOf(most);
  // Others, or an answer that is new, may get all that is left; ties go to the first.
  return [...sums, 0].every((sum, i) =>
    i < place ? sum + more + rounding < most : i === place || sum + more + rounding <= most,
  );
}
