/** What a name stands for: a task, or a group with its members and how their scores are combined. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { listOf, type Settings } from './settings.js';
import type { Yaml } from './yaml.js';

export interface TaskNode {
  readonly kind: 'task';
  readonly name: string;
  /** The task's own keys, with those that groups around it override. */
  readonly settings: Settings;
}

export interface GroupNode {
  readonly kind: 'group';
  /** A group that is written inside of another is `outer::inner`. */
  readonly name: string;
  readonly alias: string | undefined;
  readonly members: readonly Node[];
  /** Empty: the group shows its members and has no score of its own. */
  readonly aggregates: readonly Aggregate[];
  /** `metadata` of the file, such as its version. */
  readonly metadata: ReadonlyMap<string, Yaml>;
}

export type Node = TaskNode | GroupNode;

/** A score of a group: the mean of its tasks' scores. */
export interface Aggregate {
  readonly metric: string;
  /** Whether a task counts as often as it has documents. */
  readonly weightBySize: boolean;
  /** Names of the filters whose results are combined; undefined: all that the tasks have of the metric. */
  readonly filters?: readonly string[] | undefined;
}

/** Keys of a group; all others are passed down to its tasks. */
export const GROUP_KEYS: ReadonlySet<string> = new Set(
  'group group_alias task aggregate_metric_list metadata tag include'.split(' '),
);

const isMap = (value: Yaml | undefined): value is ReadonlyMap<string, Yaml> => value instanceof Map;

/** `aggregate_metric_list` of a group. Throws UserError. */
export function aggregatesOf(settings: Settings): Aggregate[] {
  const setting = settings.get('aggregate_metric_list');
  return listOf(setting?.value).map((item) => {
    const where = setting?.where ?? '';
    if (!isMap(item)) throw new UserError(`${where}: expected keys and values`);
    const metric = item.get('metric');
    if (typeof metric !== 'string') throw new UserError(`${where}: metric is missing`);
    const aggregation = item.get('aggregation') ?? 'mean';
    if (aggregation !== 'mean')
      throw new UserError(`${where}: the aggregation ${quote(String(aggregation))} is not supported; there is mean`);
    const weighted = item.get('weight_by_size') ?? true;
    if (typeof weighted !== 'boolean') throw new UserError(`${where}: weight_by_size: expected true or false`);
    const given = item.get('filter_list') ?? null;
    const filters = given === null ? undefined : listOf(given);
    if (filters?.every((one) => typeof one === 'string') === false)
      throw new UserError(`${where}: filter_list: expected names of filters`);
    return { metric, weightBySize: weighted, filters };
  });
}

/**
 * Files of samples are named after tasks, within their folder, in one line, with room for a date; and so are members of
 * the objects in results: not as one that every object has.
 */
export const canNameResults = (name: string): boolean =>
  /^[^/\\\p{Cc}\u2028\u2029]+$/u.test(name) && Buffer.byteLength(name) <= 200 && !(name in {});

/** All tasks below, in order. A task that several groups name is there several times. */
export function tasksBelow(nodes: readonly Node[]): TaskNode[] {
  return nodes.flatMap((node) => (node.kind === 'task' ? [node] : tasksBelow(node.members)));
}

/** Without what was named before, by itself or within a group: `mmlu,mmlu_stem` is `mmlu`. */
export function withoutRepeats(nodes: readonly Node[]): Node[] {
  const within = new Set<string>();
  const enter = (node: Node): void => {
    if (node.kind === 'group')
      for (const member of node.members) {
        within.add(member.name);
        enter(member);
      }
  };
  nodes.forEach(enter);
  const seen = new Set<string>();
  return nodes.filter(({ name }) => {
    const isNew = !within.has(name) && !seen.has(name);
    seen.add(name);
    return isNew;
  });
}

export const metadataOf = (settings: Settings): ReadonlyMap<string, Yaml> => {
  const value = settings.get('metadata')?.value;
  return isMap(value) ? value : new Map<string, Yaml>();
};
