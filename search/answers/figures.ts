/** How good the answers of a search are, by the number of candidates that are looked at. */
import { AGGREGATIONS, type MetricFigure, standardError } from '../../tasks/scores/aggregate.js';
import type { ProblemResult } from '../result.js';
import { ballotsOf, chosen, type Vote, VOTES } from './votes.js';

/** 1, 2, 4 and so on up to `n`, and `n` itself. */
export function sizesUpTo(n: number, isCompat: boolean): readonly number[] {
  const sizes: number[] = [];
  for (let size = 1; size <= n; size *= 2) sizes.push(size);
  return isCompat || sizes.at(-1) === n ? sizes : [...sizes, n];
}

/**
 * The chance that one of `k` is right, of `n` of which `right` are (Chen et al. 2021): 1 − C(n − right, k) / C(n, k).
 * All are taken where there are fewer than `k`.
 */
export function passAt(n: number, right: number, k: number): number {
  if (right === 0) return 0;
  if (n - right < k) return 1;
  let none = 1;
  for (let i = n - right + 1; i <= n; i++) none *= 1 - k / i;
  return 1 - none;
}

/** The indices of the candidates that votes over the first `size` choose. */
export interface VotesAt extends Readonly<Record<Vote, number | null>> {
  readonly size: number;
}

/** What is said about the answers of one problem. */
export interface ProblemAnswers {
  /** Of candidates, in their order. */
  readonly answers: readonly string[];
  /** Equal answers have equal numbers. */
  readonly groups: readonly number[];
  /** Which answers are right; absent where that is not known. */
  readonly right?: readonly boolean[];
  readonly votes: readonly VotesAt[];
}

/** `n`: how many candidates were asked for. `isRight`: of the text of a candidate and its answer. */
export function answersOf(
  { candidates }: Pick<ProblemResult, 'candidates'>,
  n: number,
  isRight: ((text: string, answer: string) => boolean) | undefined,
  isCompat: boolean,
): ProblemAnswers {
  const ballots = ballotsOf(candidates, isCompat);
  return {
    answers: ballots.map(({ answer }) => answer),
    groups: ballots.map(({ group }) => group),
    ...(isRight && { right: ballots.map(({ answer }, i) => isRight(candidates[i]!.text, answer)) }),
    votes: sizesUpTo(n, isCompat).map((size) => {
      const first = ballots.slice(0, size);
      const [naive, weighted, majority] = VOTES.map((vote) => chosen(vote, first, isCompat));
      return { size, naive: naive!, weighted: weighted!, majority: majority! };
    }),
  };
}

/** Of one problem, whether the votes are right, 0 or 1; and pass@k. */
export interface ValuesAt extends Readonly<Record<Vote, number>> {
  readonly size: number;
  readonly pass: number;
}

/** By number of candidates; empty where it is not known what is right. */
export function valuesOf({ right, votes }: ProblemAnswers): readonly ValuesAt[] {
  if (right === undefined) return [];
  const count = right.filter(Boolean).length;
  const isRight = (place: number | null): number => (place !== null && right[place] ? 1 : 0);
  return votes.map(({ size, naive, weighted, majority }) => ({
    size,
    naive: isRight(naive),
    weighted: isRight(weighted),
    majority: isRight(majority),
    pass: passAt(right.length, count, size),
  }));
}

/** The mean of at least one problem's values, and the error that it has as a sample of problems. */
export const figureOf = (values: readonly number[]): MetricFigure => ({
  value: AGGREGATIONS.mean.of(values),
  error: standardError('mean', values),
});
