/** The metrics of a task, by its metric_list or by its output type. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { isDict, isList, isTruthy, type Dict, type Value } from '../../python/value.js';
import { AGGREGATIONS, isAggregation, type AggregationName } from './aggregate.js';

export const OUTPUT_TYPES = ['multiple_choice', 'loglikelihood', 'loglikelihood_rolling', 'generate_until'] as const;
export type OutputType = (typeof OUTPUT_TYPES)[number];

interface Known {
  readonly aggregation: AggregationName;
  readonly isHigherBetter: boolean;
  readonly types: readonly OutputType[];
}

const choice = (aggregation: AggregationName = 'mean', isHigherBetter = true): Known => ({
  aggregation,
  isHigherBetter,
  types: ['multiple_choice'],
});
const rolling = (aggregation: AggregationName): Known => ({
  aggregation,
  isHigherBetter: false,
  types: ['loglikelihood_rolling'],
});

const corpus = (aggregation: AggregationName): Known => ({
  aggregation,
  isHigherBetter: true,
  types: ['generate_until'],
});

/** By their names in task files, with what a task need not say. */
const METRICS = {
  acc: { ...choice(), types: ['multiple_choice', 'loglikelihood'] },
  acc_norm: choice(),
  acc_bytes: choice(),
  acc_mutual_info: choice(),
  exact_match: { ...choice(), types: ['multiple_choice', 'generate_until'] },
  brier_score: choice('brier_score', false),
  f1: choice('f1'),
  mcc: choice('mcc'),
  perplexity: { aggregation: 'perplexity', isHigherBetter: false, types: ['loglikelihood'] },
  word_perplexity: rolling('weighted_perplexity'),
  byte_perplexity: rolling('weighted_perplexity'),
  bits_per_byte: rolling('bits_per_byte'),
  bleu: corpus('bleu'),
  chrf: corpus('chrf'),
  /** Less is better, but the harness says otherwise. */
  ter: corpus('ter'),
  /** Nothing is measured; the harness gives it for texts alone. */
  bypass: { aggregation: 'bypass', isHigherBetter: true, types: OUTPUT_TYPES },
} as const satisfies Readonly<Record<string, Known>>;

export type MetricName = keyof typeof METRICS;

const DEFAULTS: Readonly<Record<OutputType, readonly MetricName[]>> = {
  multiple_choice: ['acc', 'acc_norm'],
  loglikelihood: ['perplexity', 'acc'],
  loglikelihood_rolling: ['word_perplexity', 'byte_perplexity', 'bits_per_byte'],
  generate_until: ['exact_match'],
};

export interface Metric {
  /** One of MetricName, or what a task's own function returns. */
  readonly name: string;
  readonly aggregation: AggregationName;
  readonly isHigherBetter: boolean;
  /** The entry of metric_list, with its own settings. */
  readonly entry: Dict;
  readonly where: string;
}

const knownOf = (name: string): Known | undefined =>
  Object.hasOwn(METRICS, name) ? METRICS[name as MetricName] : undefined;

/** How the harness joins a metric unless a task says otherwise; undefined for a metric that it does not know. */
export const aggregationOf = (name: string): AggregationName | undefined => knownOf(name)?.aggregation;

const joinsLike =
  (one: AggregationName) =>
  (other: string): boolean =>
    isAggregation(other) && AGGREGATIONS[other].joins === AGGREGATIONS[one].joins;

/** A metric by its entry of a list. `isOwn`: a function of the task computes it, under any name. */
function metricOf(entry: Dict, type: OutputType, isOwn: boolean, where: string): Metric {
  const name = entry.get('metric');
  if (typeof name !== 'string') throw new UserError(`${where}: expected the name of a metric`);
  const known = knownOf(name);
  if (!isOwn && known?.types.includes(type) !== true) {
    const there = Object.entries(METRICS).filter(([, each]: readonly [string, Known]) => each.types.includes(type));
    throw new UserError(
      `${where}: no metric ${quote(name)} for ${type}`,
      `There are ${there.map(([each]) => each).join(', ')}`,
    );
  }
  const aggregation = entry.get('aggregation') ?? known?.aggregation ?? 'mean';
  if (typeof aggregation !== 'string' || !isAggregation(aggregation))
    throw new UserError(`${where}: no aggregation ${quote(aggregation)}`);
  if (!isOwn && known !== undefined && !joinsLike(known.aggregation)(aggregation))
    throw new UserError(
      `${where}: the aggregation ${quote(aggregation)} cannot join values of ${name}`,
      `There are ${Object.keys(AGGREGATIONS).filter(joinsLike(known.aggregation)).join(', ')}`,
    );
  const better = entry.get('higher_is_better') ?? known?.isHigherBetter ?? true;
  return { name, aggregation, isHigherBetter: isTruthy(better), entry, where };
}

/** Throws UserError for a metric that is not there, or not for this type. */
export function readMetrics(list: Value, type: OutputType, isOwn: boolean, where: string): readonly Metric[] {
  const entries: readonly Value[] =
    list === null ? DEFAULTS[type].map((name) => new Map<string, Value>([['metric', name]])) : isList(list) ? list : [];
  if (entries.length === 0) throw new UserError(`${where}: expected a list of metrics`);
  return entries.map((entry) => {
    if (!isDict(entry)) throw new UserError(`${where}: expected keys and values for each metric`);
    return metricOf(entry, type, isOwn, where);
  });
}
