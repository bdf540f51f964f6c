/** A task's figures: answers of all its documents, filtered, measured and joined. */
import { UserError } from '../../errors.js';
import { type Dict, isInt, type PyValue } from '../../python/value.js';
import { at } from '../../system/at.js';
import { clipped } from '../../system/json.js';
import type { TaskSettings } from '../definition/settings.js';
import { HookProblem } from '../hooks/hook.js';
import { type Generation, generationOf } from '../requests/generation.js';
import { Keys, OUTPUT_TYPES, type OutputType } from '../requests/keys.js';
import {
  type AggregationName,
  AGGREGATIONS,
  type Item,
  type MetricFigure,
  problemOf,
  standardError,
} from './aggregate.js';
import { readFilters, type TextFilter } from './filters.js';
import { isText, type Metric, readMetrics, type Response } from './metrics.js';
import { type Answerable, type MetricValues, valuesOf } from './ofDocument.js';

/** What a document's answers came to after one filter. */
export interface Measured {
  readonly filter: string;
  /** One for each request. */
  readonly filtered: readonly Response[];
  /** Whether each is a list of one; see Filter. */
  readonly areLists?: boolean | undefined;
  readonly values: MetricValues;
}

/** The function that takes the place of process_results. Throws UserError. */
function ownResults(
  keys: Keys,
  type: OutputType,
): ((document: Dict, responses: readonly Response[]) => MetricValues) | undefined {
  if (type === 'generate_until') {
    const ofTexts = keys.port('process_results', 'texts');
    return ofTexts && ((document, responses) => ofTexts(document, responses.filter(isText)));
  }
  const of = keys.port('process_results', 'results');
  const ll = (each: Response): number => (isText(each) ? NaN : each.ll);
  return of && ((document, responses) => of(document, responses.map(ll)));
}

/** How a task's answers are scored. */
export class TaskScores {
  readonly type: OutputType;
  readonly metrics: readonly Metric[];
  readonly filters: readonly TextFilter[];
  /** Of a task whose answers are texts. */
  readonly generation: Generation | undefined;
  /** How often each request is asked. */
  readonly repeats: number;
  /** What a function of the task's own measures; undefined where it has none. */
  readonly #own: ((document: Dict, responses: readonly Response[]) => MetricValues) | undefined;
  readonly #where: string;

  /** Throws UserError for what is not supported, with file, line and key. */
  constructor(settings: TaskSettings) {
    const keys = new Keys(settings);
    const where = (key: string): string => keys.where(key);
    const get = (key: string): PyValue => keys.get(key);
    const type = OUTPUT_TYPES.find((each) => each === (get('output_type') ?? 'generate_until'));
    if (type === undefined)
      throw new UserError(`${where('output_type')}: no such type`, `There are ${OUTPUT_TYPES.join(', ')}`);
    this.type = type;
    this.#own = ownResults(keys, type);
    this.#where = where('process_results');
    this.metrics = readMetrics(keys.metrics(), type, this.#own !== undefined, where('metric_list'));
    this.filters = readFilters(keys.filters(), where('filter_list'));
    const repeats = get('repeats') ?? 1;
    if (!isInt(repeats) || repeats < 1 || repeats > 1000)
      throw new UserError(`${where('repeats')}: expected a number from 1 to 1000`);
    this.repeats = Number(repeats);
    this.generation =
      type === 'generate_until' ? generationOf(keys.dict('generation_kwargs'), where('generation_kwargs')) : undefined;
  }

  /** `responses`: for each request, one answer for each repeat. */
  measure(of: Answerable, responses: readonly (readonly Response[])[]): readonly Measured[] {
    return this.filters.map(({ name, leavesList, apply }) => {
      const filtered = responses.map((all) => (all.every(isText) ? apply(all, of.document) : at(all, 0)));
      const values = this.#ownValues(of, filtered) ?? valuesOf(this.type, of, filtered, this.metrics);
      return { filter: name, filtered, values, areLists: leavesList && this.type === 'generate_until' };
    });
  }

  #ownValues({ document }: Answerable, responses: readonly Response[]): MetricValues | undefined {
    try {
      return this.#own?.(document, responses);
    } catch (error) {
      if (error instanceof HookProblem)
        throw new UserError(`${this.#where}: ${clipped(error.message)}`, undefined, { cause: error });
      throw error;
    }
  }

  /** Figures of documents that are all there. */
  figures(documents: readonly (readonly Measured[])[], draws?: number): ReadonlyMap<string, MetricFigure> {
    const values = new TaskValues(this);
    for (const each of documents) values.add(each);
    return values.figures(draws);
  }
}

/** What values are filed by. */
export interface ValueNames {
  readonly filters: readonly Pick<TextFilter, 'name'>[];
  readonly metrics: readonly Pick<Metric, 'name' | 'aggregation'>[];
}

/** The values of a task's documents, which are added in their order: numbers by filter and metric, and no texts. */
export class TaskValues {
  readonly #scores: ValueNames;
  /** By filter, then by metric. */
  readonly #items: readonly (readonly Item[][])[];

  constructor(scores: ValueNames) {
    this.#scores = scores;
    this.#items = scores.filters.map(() => scores.metrics.map(() => []));
  }

  add(measured: readonly Pick<Measured, 'values'>[]): void {
    measured.forEach(({ values }, filter) => this.put(filter, values));
  }

  /** Documents that have the last metric by the last filter: what the harness calls a task's sample_len. */
  get measured(): number {
    return this.#items.flat().findLast((items) => items.length > 0)?.length ?? 0;
  }

  /** The values of one document by one filter. */
  put(filter: number, values: MetricValues): void {
    for (const [m, { name }] of this.#scores.metrics.entries()) {
      const value = values.get(name);
      if (value !== undefined) this.#items[filter]?.[m]?.push(value);
    }
  }

  /** By `metric,filter`, in the order of the harness's results. Figures with a problem are left out. */
  figures(draws?: number): ReadonlyMap<string, MetricFigure> {
    const figures = new Map<string, MetricFigure>();
    for (const { key, aggregation, items } of this.#measured())
      if (problemOf(aggregation, items) === undefined)
        figures.set(key, {
          value: AGGREGATIONS[aggregation].of(items),
          error: standardError(aggregation, items, draws),
        });
    return figures;
  }

  /** Why figures are left out, by `metric,filter`. */
  get problems(): ReadonlyMap<string, string> {
    return new Map(
      this.#measured().flatMap(({ key, aggregation, items }) => {
        const problem = problemOf(aggregation, items);
        return problem === undefined ? [] : [[key, problem] as const];
      }),
    );
  }

  #measured(): { key: string; aggregation: AggregationName; items: readonly Item[] }[] {
    return this.#scores.filters.flatMap(({ name: filter }, i) =>
      this.#scores.metrics
        .map(({ name, aggregation }, m) => ({
          key: `${name},${filter}`,
          aggregation,
          items: at(at(this.#items, i), m),
        }))
        .filter(({ items }) => items.length > 0),
    );
  }
}
