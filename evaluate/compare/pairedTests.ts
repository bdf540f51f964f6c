/**
 * Tests and intervals for the difference between two runs on the same questions (decision 53). Every draw is seeded:
 * the same files give the same figures.
 */
import { PythonRandom } from '../../python/random.js';

/** Questions that count alike, as those of one task. */
export interface Stratum {
  /** B less A, for each question. */
  readonly differences: Float64Array;
  /** Its share in the whole; shares need not add up to 1. */
  readonly weight: number;
}

/** From, to. */
export type Interval = readonly [number, number];

export interface Test {
  readonly name: 'exact McNemar' | 'sign flips' | 'swaps';
  readonly p: number;
  /** Random draws; absent for an exact test. */
  readonly draws?: number;
}

export const SEED = 1234;
/** 97.5 % of the normal distribution. */
const Z = 1.959963984540054;
const MAX_DRAWS = 10_000;
const MIN_DRAWS = 1_000;
/** Sums and draws that a test may take: a second or so. */
const WORK = 2e8;

const clamp = (value: number, least: number, most: number): number => Math.min(most, Math.max(least, value));

/** Natural log of n!/(k!·(n−k)!). */
function logChoose(n: number, k: number): number {
  let sum = 0;
  for (let i = 1; i <= k; i++) sum += Math.log((n - k + i) / i);
  return sum;
}

/**
 * Two-sided p of McNemar's test in its exact form: of b + c questions that changed, b one way, when either way is as
 * likely. 1 where none changed.
 */
export function mcNemar(b: number, c: number): number {
  const n = b + c;
  const least = Math.min(b, c);
  let term = Math.exp(logChoose(n, least) - n * Math.LN2);
  let tail = 0;
  for (let k = least; k >= 0 && term > 0; k--) {
    tail += term;
    term *= k / (n - k + 1);
  }
  return Math.min(1, 2 * tail);
}

/**
 * 95 % interval of the difference of two shares on the same n questions, b of which only B has, c only A: Wald's
 * interval after half a question is added to each of the four cells (Bonett and Price 2012). It has a width also where
 * nothing changed, since other questions might.
 */
export function shareInterval(b: number, c: number, n: number): Interval {
  const [up, down] = [(b + 1) / (n + 2), (c + 1) / (n + 2)];
  const half = Z * Math.sqrt((up + down - (up - down) ** 2) / (n + 2));
  return [Math.max(-1, up - down - half), Math.min(1, up - down + half)];
}

const SMALL_T = [NaN, 12.706204736, 4.30265273, 3.182446305, 2.776445105];

/** 97.5 % of Student's distribution: Cornish and Fisher's expansion, from 5 degrees of freedom to 4 digits. */
function studentT(freedom: number): number {
  if (freedom < SMALL_T.length) return SMALL_T[freedom] ?? NaN;
  const [z3, z5, z7, z9] = [Z ** 3, Z ** 5, Z ** 7, Z ** 9];
  return (
    Z +
    (z3 + Z) / (4 * freedom) +
    (5 * z5 + 16 * z3 + 3 * Z) / (96 * freedom ** 2) +
    (3 * z7 + 19 * z5 + 17 * z3 - 15 * Z) / (384 * freedom ** 3) +
    (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * Z) / (92160 * freedom ** 4)
  );
}

const sum = (values: Float64Array): number => values.reduce((total, value) => total + value, 0);
const totalWeight = (strata: readonly Stratum[]): number => strata.reduce((total, { weight }) => total + weight, 0);

/** Weighted mean of the means. */
export function meanDifference(strata: readonly Stratum[]): number {
  const total = strata.reduce((all, each) => all + (each.weight * sum(each.differences)) / each.differences.length, 0);
  return total / totalWeight(strata);
}

/** 95 % interval of the weighted mean; null where a stratum has a single question. */
export function meanInterval(strata: readonly Stratum[]): Interval | null {
  const whole = totalWeight(strata);
  let variance = 0,
    questions = 0;
  for (const { differences, weight } of strata) {
    const n = differences.length;
    if (n < 2) return null;
    const mean = sum(differences) / n;
    const squares = differences.reduce((all, value) => all + (value - mean) ** 2, 0);
    variance += ((weight / whole) ** 2 * squares) / (n - 1) / n;
    questions += n;
  }
  const middle = meanDifference(strata);
  const half = studentT(questions - strata.length) * Math.sqrt(variance);
  return [middle - half, middle + half];
}

/**
 * Two-sided p of a permutation test: if A and B do not differ, each question's difference might as well have the other
 * sign. The share of drawn signs, that which was seen among them, whose sum is as far from 0.
 */
export function signFlips(strata: readonly Stratum[]): Test {
  const terms = Float64Array.from(
    strata.flatMap(({ differences, weight }) =>
      Array.from(
        differences.filter((each) => each !== 0),
        (each) => (each * weight) / differences.length,
      ),
    ),
  );
  if (terms.length === 0) return { name: 'sign flips', p: 1 };
  const seen = Math.abs(sum(terms));
  // Sums in another order differ in their last bits.
  const bound = seen - 1e-12 * terms.reduce((all, each) => all + Math.abs(each), 0);
  const draws = Math.round(clamp(WORK / terms.length, MIN_DRAWS, MAX_DRAWS));
  const random = new PythonRandom(SEED);
  let asFar = 1;
  for (let draw = 0; draw < draws; draw++) {
    let total = 0,
      bits = 0;
    for (let i = 0; i < terms.length; i++) {
      if (i % 31 === 0) bits = random.below(2 ** 31);
      total += (bits & 1) === 0 ? terms[i]! : -terms[i]!;
      bits >>>= 1;
    }
    if (Math.abs(total) >= bound) asFar++;
  }
  return { name: 'sign flips', p: asFar / (draws + 1), draws };
}

/** Figures that are no mean: answers are swapped between A and B, question by question, and figures found again. */
export function swaps<T>(a: readonly T[], b: readonly T[], figure: (items: readonly T[]) => number): Test {
  const seen = Math.abs(figure(b) - figure(a));
  const draws = Math.round(clamp(WORK / 10 / a.length, MIN_DRAWS, MAX_DRAWS));
  const random = new PythonRandom(SEED);
  let asFar = 1;
  for (let draw = 0; draw < draws; draw++) {
    const isSwapped = a.map(() => random.below(2) === 1);
    const first = a.map((item, i) => (isSwapped[i] === true ? b[i]! : item));
    const second = b.map((item, i) => (isSwapped[i] === true ? a[i]! : item));
    if (Math.abs(figure(second) - figure(first)) >= seen * (1 - 1e-12)) asFar++;
  }
  return { name: 'swaps', p: asFar / (draws + 1), draws };
}

/** 95 % interval of the difference of figures: percentiles over questions drawn with replacement. */
export function drawnInterval<T>(
  a: readonly T[],
  b: readonly T[],
  figure: (items: readonly T[]) => number,
): Interval | null {
  if (a.length < 2) return null;
  const draws = Math.round(clamp(WORK / 10 / a.length, MIN_DRAWS, MAX_DRAWS));
  const random = new PythonRandom(SEED);
  const found = new Float64Array(draws);
  for (let draw = 0; draw < draws; draw++) {
    const places = a.map(() => random.below(a.length));
    found[draw] = figure(places.map((i) => b[i]!)) - figure(places.map((i) => a[i]!));
  }
  found.sort();
  const at = (share: number): number => found[Math.round(share * (draws - 1))]!;
  return [at(0.025), at(0.975)];
}
