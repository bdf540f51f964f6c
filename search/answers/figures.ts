/** How good the answers of a search are: by the number of candidates that are looked at, with standard errors. */
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

export interface Figure {
  /** Of all problems, 0 to 1. */
  readonly mean: number;
  /** From the sample deviation; null for fewer than two problems. */
  readonly stderr: number | null;
}

function figureOf(values: readonly number[]): Figure {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, stderr: n < 2 ? null : Math.sqrt(squares / (n - 1) / n) };
}

/** Shares of problems whose answer is right. */
export interface FiguresAt extends Readonly<Record<Vote, Figure>> {
  readonly size: number;
  readonly pass: Figure;
}

/** By number of candidates. Problems of which it is not known what is right are left out; none at all: empty. */
export function figuresOf(problems: readonly ProblemAnswers[]): readonly FiguresAt[] {
  const known = problems.filter(({ right }) => right !== undefined);
  const sizes = known[0]?.votes.map(({ size }) => size) ?? [];
  return sizes.map((size, i) => {
    const share = (vote: Vote): Figure =>
      figureOf(known.map(({ votes, right }) => (right![votes[i]![vote] ?? -1] === true ? 1 : 0)));
    const pass = known.map(({ right }) => passAt(right!.length, right!.filter(Boolean).length, size));
    return {
      size,
      naive: share('naive'),
      weighted: share('weighted'),
      majority: share('majority'),
      pass: figureOf(pass),
    };
  });
}
