/** A metric of two runs on the questions that both answered. */
import { counted } from '../../system/format.js';
import { isRecord } from '../../system/json.js';
import { type AggregationName, AGGREGATIONS, isAggregation, type Item } from '../../tasks/scores/aggregate.js';
import { aggregationOf } from '../../tasks/scores/metrics.js';
import type { TaskFiles } from './findRuns.js';
import type { Pair } from './matchQuestions.js';
import {
  drawnInterval,
  type Interval,
  mcNemar,
  meanDifference,
  meanInterval,
  shareInterval,
  signFlips,
  type Stratum,
  swaps,
  type Test,
} from './pairedTests.js';
import type { SampleSet } from './readSamples.js';

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
