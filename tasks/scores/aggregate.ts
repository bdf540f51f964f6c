/** What becomes of the values of a metric: their mean or another figure, and its standard error, as the harness has. */
import { at as elementAt, zip } from '../../system/at.js';
import { PythonRandom } from '../../python/random.js';
import type { Aggregate } from '../definition/settings.js';
import { bleuOf, chrfOf, terOf } from './corpus.js';

/** A document's value of a metric: a number, or several that only the aggregation joins. */
export type Item = number | readonly number[];

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const at = (item: Item, place: number): number => (typeof item === 'number' ? item : elementAt(item, place));
const columnsOf = (items: readonly Item[]): readonly [number[], number[]] => [
  items.map((item) => at(item, 0)),
  items.map((item) => at(item, 1)),
];

const mean = (items: readonly Item[]): number => sum(items.map((item) => at(item, 0))) / items.length;

/** Of all numbers of all documents. */
const meanOfAll = (items: readonly Item[]): number => {
  const all = items.flat();
  return sum(all) / all.length;
};

/** Of (log-likelihood, weight). */
function weightedMean(items: readonly Item[]): number {
  const [values, weights] = columnsOf(items);
  return sum(values) / sum(weights);
}

/** The upper one of the two in the middle. */
const median = (items: readonly Item[]): number =>
  elementAt(
    items.map((item) => at(item, 0)).sort((a, b) => a - b),
    items.length >> 1,
  );

/** The mean of the numbers that are not NaN. */
const meanOfNumbers = (items: readonly Item[]): number => mean(items.filter((item) => !Number.isNaN(at(item, 0))));

/** Of (right, chosen) labels, of which 1 is the positive one. */
function f1(items: readonly Item[]): number {
  const [right, chosen] = columnsOf(items);
  const both = right.filter((label, i) => label === 1 && chosen[i] === 1).length;
  const either = right.filter((label) => label === 1).length + chosen.filter((label) => label === 1).length;
  return either === 0 ? 0 : (2 * both) / either;
}

/** scikit-learn's F1 takes two labels at most, one of which is 1 if there are two. */
function problemOfF1(items: readonly Item[]): string | undefined {
  const labels = [...new Set(columnsOf(items).flat())].sort((a, b) => a - b);
  if (labels.length < 2 || (labels.length === 2 && labels.includes(1))) return undefined;
  const shown = labels.slice(0, 5).join(', ') + (labels.length > 5 ? ', …' : '');
  return `F1 is of labels 0 and 1, and here there are ${shown}`;
}

/** The F1 of every label, by how often it is right. */
function weightedF1(items: readonly Item[]): number {
  const [right, chosen] = columnsOf(items);
  const shares = [...new Set(right)].map((label) => {
    const both = right.filter((each, i) => each === label && chosen[i] === label).length;
    const support = right.filter((each) => each === label).length;
    const all = support + chosen.filter((each) => each === label).length;
    return ((2 * both) / all) * support;
  });
  return sum(shares) / right.length;
}

/** Matthews' correlation of (right, chosen) labels, of any number of classes. */
function correlation(items: readonly Item[]): number {
  const [right, chosen] = columnsOf(items);
  const count = (labels: readonly number[]): Map<number, number> => {
    const counts = new Map<number, number>();
    for (const label of labels) counts.set(label, (counts.get(label) ?? 0) + 1);
    return counts;
  };
  const ofRight = count(right),
    ofChosen = count(chosen);
  const n = items.length;
  const correct = right.filter((label, i) => label === chosen[i]).length;
  const product = (a: Map<number, number>, b: Map<number, number>): number =>
    sum([...a].map(([label, times]) => times * (b.get(label) ?? 0)));
  const covariance = correct * n - product(ofRight, ofChosen);
  const spread = (n * n - product(ofRight, ofRight)) * (n * n - product(ofChosen, ofChosen));
  return spread === 0 ? 0 : covariance / Math.sqrt(spread);
}

/** Of counts, which are added up over all documents. */
const ofSums =
  (figure: (sums: readonly number[]) => number) =>
  (items: readonly Item[]): number => {
    const sums: number[] = [];
    for (const item of items)
      for (const [i, value] of (typeof item === 'number' ? [item] : item).entries()) sums[i] = (sums[i] ?? 0) + value;
    return figure(sums);
  };

/** Of (right choice, probability of each choice). */
function brier(items: readonly Item[]): number {
  const errors = items.map((item) => {
    const [right = 0, ...shares] = typeof item === 'number' ? [item] : item;
    // Places may count from the end.
    const place = right < 0 ? right + shares.length : right;
    return sum(shares.map((share, i) => (share - (i === place ? 1 : 0)) ** 2));
  });
  return sum(errors) / errors.length;
}

/** NumPy adds up documents that have equally many choices, the right one among them. */
function problemOfBrier(items: readonly Item[]): string | undefined {
  const choices = (item: Item): number => (typeof item === 'number' ? 0 : item.length - 1);
  const count = choices(elementAt(items, 0));
  if (items.some((item) => choices(item) !== count)) return 'documents have different numbers of choices';
  const isOutside = (item: Item): boolean => at(item, 0) >= count || at(item, 0) < -count;
  return items.some(isOutside) ? 'the right answer of a document is none of its choices' : undefined;
}

/** What a document's value is: only figures of the same kind can be made of it. */
type Kind = 'number' | 'labels' | 'weighted' | 'shares' | 'numbers' | 'bleu' | 'chrf' | 'ter' | 'nothing';

interface Aggregation {
  readonly joins: Kind;
  readonly of: (items: readonly Item[]) => number;
  /** How its standard error is found; null: the harness has none. */
  readonly error: 'sample' | 'bootstrap' | null;
  /** The most samples that the harness draws of it. */
  readonly draws?: number;
  /** Why there is no such figure of these values, where the harness ends with an error. */
  readonly problem?: (items: readonly Item[]) => string | undefined;
}

/** By their names in task files. */
export const AGGREGATIONS = {
  mean: { joins: 'number', of: mean, error: 'sample' },
  nanmean: { joins: 'number', of: meanOfNumbers, error: 'bootstrap' },
  median: { joins: 'number', of: median, error: 'bootstrap' },
  perplexity: { joins: 'number', of: (items) => Math.exp(-mean(items)), error: 'bootstrap' },
  weighted_perplexity: { joins: 'weighted', of: (items) => Math.exp(-weightedMean(items)), error: null },
  bits_per_byte: { joins: 'weighted', of: (items) => -weightedMean(items) / Math.LN2, error: null },
  f1: { joins: 'labels', of: f1, error: 'bootstrap', problem: problemOfF1 },
  mcc: { joins: 'labels', of: correlation, error: 'bootstrap' },
  matthews_corrcoef: { joins: 'labels', of: correlation, error: 'bootstrap' },
  brier_score: { joins: 'shares', of: brier, error: null, problem: problemOfBrier },
  weighted_f1: { joins: 'labels', of: weightedF1, error: null },
  mean_of_all: { joins: 'numbers', of: meanOfAll, error: null },
  bleu: { joins: 'bleu', of: ofSums(bleuOf), error: 'bootstrap', draws: 100 },
  chrf: { joins: 'chrf', of: ofSums(chrfOf), error: 'bootstrap', draws: 100 },
  ter: { joins: 'ter', of: ofSums(terOf), error: 'bootstrap', draws: 100 },
  bypass: { joins: 'nothing', of: () => 999, error: null },
} as const satisfies Readonly<Record<string, Aggregation>>;

export type AggregationName = keyof typeof AGGREGATIONS;

export const isAggregation = (name: string): name is AggregationName => Object.hasOwn(AGGREGATIONS, name);

/** Why there is no such figure of these values; undefined where there is one. */
export function problemOf(name: AggregationName, items: readonly Item[]): string | undefined {
  const { problem }: Aggregation = AGGREGATIONS[name];
  return problem?.(items);
}

function sampleDeviation(values: readonly number[]): number {
  const middle = sum(values) / values.length;
  return Math.sqrt(sum(values.map((value) => (value - middle) ** 2)) / (values.length - 1));
}

/** Draws per chunk: the generator of chunk i has the seed i. */
const CHUNK = 1000;

/** Deviation of a figure over samples with replacement, which are those that CPython draws. */
function bootstrap(of: Aggregation['of'], items: readonly Item[], draws: number): number {
  const chunk = Math.min(CHUNK, draws);
  const found: number[] = [];
  for (let seed = 0; seed < Math.floor(draws / chunk); seed++) {
    const random = new PythonRandom(seed);
    for (let i = 0; i < chunk; i++) found.push(of(random.choices(items, items.length)));
  }
  return sampleDeviation(found);
}

/** Samples that the harness draws unless it is told otherwise. */
export const BOOTSTRAP_DRAWS = 100_000;

/** Null where there is none: for one document, and for some figures. */
export function standardError(
  name: AggregationName,
  items: readonly Item[],
  draws: number = BOOTSTRAP_DRAWS,
): number | null {
  const { of, error, draws: most = Infinity }: Aggregation = AGGREGATIONS[name];
  if (items.length < 2) return null;
  if (error === 'sample') return sampleDeviation(items.map((item) => at(item, 0))) / Math.sqrt(items.length);
  return error === null || draws < 2 ? null : bootstrap(of, items, Math.min(draws, most));
}

// Figures of groups of tasks, from those of the tasks in them.

/** What a task or group has come to. */
export interface MetricFigure {
  readonly value: number;
  /** Null where there is none. */
  readonly error: number | null;
}

/** How many documents of a task were measured, and its figures, by `metric,filter`. */
export interface TaskFigures {
  readonly documents: number;
  readonly figures: ReadonlyMap<string, MetricFigure>;
}

/** Of samples with these errors and sizes, taken as one. */
function pooledError(errors: readonly number[], sizes: readonly number[]): number {
  const variance =
    sum(zip(errors, sizes).map(([error, size]) => (size - 1) * error ** 2 * size)) / (sum(sizes) - sizes.length);
  return Math.sqrt(variance / sum(sizes));
}

export interface GroupFigure extends MetricFigure {
  /** Documents of the tasks that have the metric. */
  readonly documents: number;
}

/** Names of the filters that tasks have results of a metric by, in order of their names. */
const filtersOf = (leaves: readonly TaskFigures[], metric: string): readonly string[] => {
  const keys = leaves.flatMap(({ figures }) => [...figures.keys()]);
  const own = keys.filter((key) => key.startsWith(`${metric},`)).map((key) => key.slice(metric.length + 1));
  return [...new Set(own)].sort();
};

/** By `metric,filter`. Tasks without a metric do not count in it; a metric that no task has is left out. */
export function figuresOfGroup(
  leaves: readonly TaskFigures[],
  aggregates: readonly Aggregate[],
): ReadonlyMap<string, GroupFigure> {
  const found = new Map<string, GroupFigure>();
  for (const { metric, filters, weightBySize } of aggregates) {
    for (const filter of filters ?? filtersOf(leaves, metric)) {
      const key = `${metric},${filter}`;
      const having = leaves.flatMap(({ documents, figures }) => {
        const figure = figures.get(key);
        return figure === undefined ? [] : [{ documents, ...figure }];
      });
      if (having.length === 0) continue;
      const sizes = having.map(({ documents }) => documents);
      const weights = weightBySize ? sizes : having.map(() => 1);
      const errors = having.flatMap(({ error }) => error ?? []);
      found.set(key, {
        value: sum(zip(having, weights).map(([{ value }, weight]) => value * weight)) / sum(weights),
        error: errors.length < having.length ? null : pooledError(errors, sizes),
        documents: sum(sizes),
      });
    }
  }
  return found;
}
