/** Figures of groups of tasks, from those of the tasks in them. */
import type { Aggregate } from '../definition/nodes.js';

/** What a task or group has come to. */
export interface Figure {
  readonly value: number;
  /** Null where there is none. */
  readonly error: number | null;
}

/** How many documents of a task were measured, and its figures, by `metric,filter`. */
export interface TaskFigures {
  readonly documents: number;
  readonly figures: ReadonlyMap<string, Figure>;
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** Of samples with these errors and sizes, taken as one. */
function pooledError(errors: readonly number[], sizes: readonly number[]): number {
  const variance =
    sum(errors.map((error, i) => (sizes[i]! - 1) * error ** 2 * sizes[i]!)) / (sum(sizes) - sizes.length);
  return Math.sqrt(variance / sum(sizes));
}

export interface GroupFigure extends Figure {
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
        value: sum(having.map(({ value }, i) => value * weights[i]!)) / sum(weights),
        error: errors.length < having.length ? null : pooledError(errors, sizes),
        documents: sum(sizes),
      });
    }
  }
  return found;
}
