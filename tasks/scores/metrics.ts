/** Metrics by name, and exact_match, which compares generated texts. */
import { OUTPUT_TYPES, type OutputType } from '../requests/keys.js';
import { UserError } from '../../errors.js';
import { FileRegex } from '../../python/regex.js';
import { type Dict, isDict, isList, isTruthy, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { type AggregationName, AGGREGATIONS, isAggregation } from './aggregate.js';

// exact_match of generated texts: what the harness takes from Hugging Face's evaluate library.

const OPTIONS: ReadonlySet<string> = new Set([
  'metric',
  'aggregation',
  'higher_is_better',
  'ignore_case',
  'ignore_punctuation',
  'ignore_numbers',
  'regexes_to_ignore',
  // Says where the harness gets the same metric from.
  'hf_evaluate',
]);
const PUNCTUATION = /[!-/:-@[-`{-~]/g;

/** Makes texts comparable as a task's entry of metric_list says. Throws UserError. */
export function comparable(entry: Dict, where: string): (text: string) => string {
  for (const key of entry.keys())
    if (!OPTIONS.has(key)) throw new UserError(`${where}: exact_match has no setting ${quote(key)}`);
  const isOn = (key: string): boolean => isTruthy(entry.get(key) ?? null);
  const given = entry.get('regexes_to_ignore') ?? [];
  const fail = (problem: string): UserError => new UserError(`${where}: exact_match ${problem}`);
  // Python's list of a text is its characters.
  const ignored = typeof given === 'string' ? [...given] : given;
  if (!isList(ignored) || !ignored.every((pattern) => typeof pattern === 'string'))
    throw fail('needs texts for regexes_to_ignore');
  const regexes = ignored.map((pattern) => new FileRegex(pattern, fail));
  return (text) => {
    let left = regexes.reduce((rest, regex) => regex.without(rest), text);
    if (isOn('ignore_case')) left = left.toLowerCase();
    if (isOn('ignore_punctuation')) left = left.replace(PUNCTUATION, '');
    if (isOn('ignore_numbers')) left = left.replace(/[0-9]/g, '');
    // NumPy's texts of fixed length lose NUL at their end.
    return left.replace(/\0+$/, '');
  };
}

// The metrics of a task, by its metric_list or by its output type.

interface KnownMetric {
  readonly aggregation: AggregationName;
  readonly isHigherBetter: boolean;
  readonly types: readonly OutputType[];
}

const choice = (aggregation: AggregationName = 'mean', isHigherBetter = true): KnownMetric => ({
  aggregation,
  isHigherBetter,
  types: ['multiple_choice'],
});
const rolling = (aggregation: AggregationName): KnownMetric => ({
  aggregation,
  isHigherBetter: false,
  types: ['loglikelihood_rolling'],
});

const corpus = (aggregation: AggregationName): KnownMetric => ({
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
} as const satisfies Readonly<Record<string, KnownMetric>>;

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

const knownOf = (name: string): KnownMetric | undefined =>
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
    const there = Object.entries(METRICS).filter(([, each]: readonly [string, KnownMetric]) =>
      each.types.includes(type),
    );
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
export function readMetrics(list: PyValue, type: OutputType, isOwn: boolean, where: string): readonly Metric[] {
  const entries: readonly PyValue[] =
    list === null
      ? DEFAULTS[type].map((name) => new Map<string, PyValue>([['metric', name]]))
      : isList(list)
        ? list
        : [];
  if (entries.length === 0) throw new UserError(`${where}: expected a list of metrics`);
  return entries.map((entry) => {
    if (!isDict(entry)) throw new UserError(`${where}: expected keys and values for each metric`);
    return metricOf(entry, type, isOwn, where);
  });
}

// What a model answers to the requests of a document.

/** The answer to a request for the likelihood of a text. */
export interface LogLikelihood {
  /** Natural log, a sum over the text's tokens. */
  readonly ll: number;
  /** Whether every token is the most likely one. */
  readonly isGreedy: boolean;
}

/** A log-likelihood, or the text that was generated. */
export type Response = LogLikelihood | string;

export const isText = (response: Response): response is string => typeof response === 'string';
