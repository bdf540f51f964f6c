/** A metric of two runs on the questions that both answered. */
import { PythonRandom } from '../../python/random.js';
import { counted } from '../../system/text.js';
import { isRecord } from '../../system/json.js';
import { type AggregationName, AGGREGATIONS, isAggregation, type Item } from '../../tasks/scores/aggregate.js';
import { aggregationOf } from '../../tasks/scores/metrics.js';
import type { TaskFiles } from './findRuns.js';
import type { Pair, SampleSet } from './readSamples.js';

/** Of questions that are right or wrong. */
export interface Flips {
  readonly rightToWrong: number;
  readonly wrongToRight: number;
}

export interface MetricDifference {
  readonly metric: string;
  readonly filter: string;
  /** Undefined where the files do not say. */
  readonly isHigherBetter: boolean | undefined;
  /** Questions that both have a value of. */
  readonly questions: number;
  /** Figures on those questions, as the results files have them on all. */
  readonly a: number;
  readonly b: number;
  /** B less A. */
  readonly difference: number;
  /** Of the difference, 95 %; null where there is none. */
  readonly interval: Interval | null;
  readonly test: Test | null;
  /** Where every question is right or wrong. */
  readonly flips: Flips | null;
}

/** What a group is computed from: differences, where the figure is a mean. */
export interface MetricOfTask extends MetricDifference {
  readonly differences: Float64Array | undefined;
  readonly isBinary: boolean;
}

const isNumber = (item: Item): item is number => typeof item === 'number';
const isSound = (item: Item | undefined): item is Item =>
  item !== undefined && (isNumber(item) ? Number.isFinite(item) : item.length > 0 && item.every(Number.isFinite));

/** What the task says, else what the metric's name means, else the mean. */
function aggregationIn({ config }: TaskFiles, metric: string): AggregationName {
  const list: readonly unknown[] = Array.isArray(config['metric_list']) ? config['metric_list'] : [];
  const entry = list.find((each) => isRecord(each) && each['metric'] === metric);
  const stated = isRecord(entry) ? entry['aggregation'] : undefined;
  if (typeof stated === 'string' && isAggregation(stated)) return stated;
  return aggregationOf(metric) ?? 'mean';
}

/** Of means: by whether all values are right or wrong, McNemar's test or sign flips. */
export function testOfMeans(
  strata: readonly Stratum[],
  isBinary: boolean,
): Pick<MetricDifference, 'difference' | 'interval' | 'test' | 'flips'> {
  const difference = meanDifference(strata);
  const count = (sign: number): number =>
    strata.reduce((all, { differences }) => all + differences.filter((each) => Math.sign(each) === sign).length, 0);
  const flips = isBinary ? { rightToWrong: count(-1), wrongToRight: count(1) } : null;
  const questions = strata.reduce((all, { differences }) => all + differences.length, 0);
  // Every question counts alike.
  const isEven = strata.every(
    ({ differences, weight }) =>
      Math.abs(weight / differences.length / (strata[0]!.weight / strata[0]!.differences.length) - 1) < 1e-12,
  );
  if (flips === null || !isEven) return { difference, interval: meanInterval(strata), test: signFlips(strata), flips };
  const { rightToWrong, wrongToRight } = flips;
  return {
    difference,
    flips,
    interval: shareInterval(wrongToRight, rightToWrong, questions),
    test: { name: 'exact McNemar', p: mcNemar(wrongToRight, rightToWrong) },
  };
}

function compareOne(key: string, task: TaskFiles, items: readonly (readonly [Item, Item])[]): MetricOfTask {
  const comma = key.indexOf(',');
  const [metric, filter] = [key.slice(0, comma), key.slice(comma + 1)];
  const aggregation = aggregationIn(task, metric);
  const { of, error } = AGGREGATIONS[aggregation];
  const figure: (of: readonly Item[]) => number = of;
  const [all, others] = [items.map(([a]) => a), items.map(([, b]) => b)];
  const better = task.isHigherBetter[metric];
  const facts = {
    metric,
    filter,
    questions: items.length,
    a: figure(all),
    b: figure(others),
    isHigherBetter: typeof better === 'boolean' ? better : undefined,
  };
  const isBinary = items.every(([a, b]) => (a === 0 || a === 1) && (b === 0 || b === 1));
  if (aggregation === 'mean') {
    const differences = Float64Array.from(items, ([a, b]) => (b as number) - (a as number));
    return { ...facts, ...testOfMeans([{ differences, weight: 1 }], isBinary), differences, isBinary };
  }
  const isSame = items.every(([a, b]) => JSON.stringify(a) === JSON.stringify(b));
  // `bypass` measures nothing.
  const has = error !== null || aggregation !== 'bypass';
  return {
    ...facts,
    difference: facts.b - facts.a,
    interval: has ? (isSame ? [0, 0] : drawnInterval(all, others, figure)) : null,
    test: has ? (isSame ? { name: 'swaps', p: 1 } : swaps(all, others, figure)) : null,
    flips: null,
    differences: undefined,
    isBinary: false,
  };
}

/** Metrics that both have, in the order of A; and what is left out. */
export function compareMetrics(
  task: TaskFiles,
  pairs: readonly Pair[],
  a: SampleSet,
  b: SampleSet,
): { readonly metrics: readonly MetricOfTask[]; readonly notes: readonly string[] } {
  const notes: string[] = [];
  const metrics = a.keys.flatMap((key, place) => {
    const other = b.keys.indexOf(key);
    if (other < 0) return [];
    const values = pairs.map((pair) => [pair.a.items[place], pair.b.items[other]] as const);
    const sound = values.flatMap(([x, y]) => (isSound(x) && isSound(y) ? [[x, y] as const] : []));
    const given = values.filter(([x, y]) => x !== undefined && y !== undefined).length;
    // Lists that only an aggregation of the task's own can join, as of texts.
    const isMean = aggregationIn(task, key.slice(0, key.indexOf(','))) === 'mean';
    const usable = isMean ? sound.filter(([x, y]) => isNumber(x) && isNumber(y)) : sound.filter(isJoinable);
    if (usable.length < given)
      notes.push(
        `${key}: left out, for want of a finite number: ${counted(given - usable.length, 'question')} of ${given}`,
      );
    return usable.length === 0 ? [] : [compareOne(key, task, usable)];
  });
  return { metrics, notes };
}

/** Both numbers, or lists of one length: what a hostile file mixes, no aggregation could read. */
const isJoinable = ([a, b]: readonly [Item, Item]): boolean =>
  isNumber(a) ? isNumber(b) : !isNumber(b) && a.length === b.length;

/**
 * Tests and intervals for the difference between two runs on the same questions (decision 8). Every draw is seeded:
 * the same files give the same figures.
 */

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
