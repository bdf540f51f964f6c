/** The settings of a task or group: its file's keys and those of the files it includes. */
import { dirname, resolve, sep } from 'node:path';
import { UserError } from '../../errors.js';
import { type Dict, Float, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { nearest } from '../../system/text.js';
import { readYaml, type Yaml, type YamlFile } from './yaml.js';

/** A key's value and where it is written: `file:line: key`. */
export interface Setting {
  readonly value: Yaml;
  readonly where: string;
}
export type TaskSettings = ReadonlyMap<string, Setting>;

/** How deep includes and groups may nest. */
export const MAX_NESTING = 20;

/** Keys of a task; `class`, a task written in Python, is refused by its own message. */
const TASK_KEYS: ReadonlySet<string> = new Set(
  (
    'task task_alias tag include dataset_path dataset_name dataset_kwargs training_split validation_split test_split ' +
    'fewshot_split process_docs doc_to_text doc_to_target doc_to_choice process_results description target_delimiter ' +
    'fewshot_delimiter fewshot_config num_fewshot metric_list output_type generation_kwargs repeats filter_list ' +
    'should_decontaminate doc_to_decontamination_query gen_prefix metadata unsafe_code'
  ).split(' '),
);

export const listOf = (value: Yaml | undefined): readonly Yaml[] =>
  Array.isArray(value) ? (value as readonly Yaml[]) : value === undefined || value === null ? [] : [value];

/** Reads task files of one folder. Files that many others include are read once. */
export class SettingsReader {
  readonly #root: string;
  readonly #read = new Map<string, TaskSettings>();
  readonly #active = new Set<string>();

  /** No file outside of `root` is included. */
  constructor(root: string) {
    this.#root = resolve(root);
  }

  /** The path of a file that `from` includes. Throws UserError if it leads out of the folder. */
  included(name: Yaml, from: string, where: string): string {
    if (typeof name !== 'string') throw new UserError(`${where}: expected the name of a file`);
    const path = resolve(dirname(from), name);
    if (!path.startsWith(this.#root + sep))
      throw new UserError(`${where}: ${quote(name)} leads out of ${this.#root}`, 'Give the folder that holds both');
    return path;
  }

  /** Keys of a file win over those of the files it includes; of these, later ones win. Throws UserError. */
  read(path: string, depth = 0): TaskSettings {
    const known = this.#read.get(path);
    if (known !== undefined) return known;
    const file = readYaml(path);
    const where = (key: string): string => `${path}:${file.lines.get(key) ?? 1}: ${key}`;
    if (depth > MAX_NESTING) throw new UserError(`${path}: more than ${MAX_NESTING} files include one another`);
    if (this.#active.has(path)) throw new UserError(`${path}: files include each other`);
    this.#active.add(path);
    try {
      return this.#merged(path, file, where, depth);
    } finally {
      this.#active.delete(path);
    }
  }

  #merged(path: string, file: YamlFile, where: (key: string) => string, depth: number): TaskSettings {
    const settings = new Map<string, Setting>();
    for (const name of listOf(file.values.get('include'))) {
      for (const [key, setting] of this.read(this.included(name, path, where('include')), depth + 1))
        settings.set(key, setting);
    }
    for (const [key, value] of file.values) if (key !== 'include') settings.set(key, { value, where: where(key) });
    // Only files that others include are read again.
    if (depth > 0) this.#read.set(path, settings);
    return settings;
  }
}

/** Throws UserError for a key that no task has. */
export function checkTaskKeys(settings: TaskSettings): void {
  const python = settings.get('class');
  if (python !== undefined)
    throw new UserError(`${python.where}: a task that is written in Python is not supported`, 'Choose another task');
  for (const [key, { where }] of settings)
    if (!TASK_KEYS.has(key)) {
      const meant = nearest(key, [...TASK_KEYS]);
      throw new UserError(
        `${where}: no key of a task that is supported`,
        meant === undefined ? 'docs/tasks.md says what is refused' : `did you mean ${meant}?`,
      );
    }
}

// What a name stands for: a task, or a group with its members and how their scores are combined.

export interface TaskNode {
  readonly kind: 'task';
  readonly name: string;
  /** The task's own keys, with those that groups around it override. */
  readonly settings: TaskSettings;
}

export interface GroupNode {
  readonly kind: 'group';
  /** A group that is written inside of another is `outer::inner`. */
  readonly name: string;
  readonly alias: string | undefined;
  readonly members: readonly TaskTree[];
  /** Empty: the group shows its members and has no score of its own. */
  readonly aggregates: readonly Aggregate[];
  /** `metadata` of the file, such as its version. */
  readonly metadata: ReadonlyMap<string, Yaml>;
}

export type TaskTree = TaskNode | GroupNode;

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
export function aggregatesOf(settings: TaskSettings): Aggregate[] {
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
export function tasksBelow(nodes: readonly TaskTree[]): TaskNode[] {
  return nodes.flatMap((node) => (node.kind === 'task' ? [node] : tasksBelow(node.members)));
}

/** Without what was named before, by itself or within a group: `mmlu,mmlu_stem` is `mmlu`. */
export function withoutRepeats(nodes: readonly TaskTree[]): TaskTree[] {
  const within = new Set<string>();
  const enter = (node: TaskTree): void => {
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

export const metadataOf = (settings: TaskSettings): ReadonlyMap<string, Yaml> => {
  const value = settings.get('metadata')?.value;
  return isMap(value) ? value : new Map<string, Yaml>();
};

// What a name can stand for, before it is resolved.

/** One name: a task or a group with the way to its settings, or the tasks of a tag. */
export type Entry =
  | { readonly kind: 'task' | 'group'; readonly tags: readonly string[]; readonly settings: () => TaskSettings }
  | { readonly kind: 'tag'; readonly tasks: string[] };

/** Gives a task the tags it names. */
export function addTags(entries: Map<string, Entry>, task: string, tags: readonly string[]): void {
  for (const tag of tags) {
    const known = entries.get(tag);
    if (known === undefined) entries.set(tag, { kind: 'tag', tasks: [task] });
    else if (known.kind === 'tag') known.tasks.push(task);
  }
}

// What the caller of a run asks of every task, in the place of what its file says.

export interface TaskOverrides {
  /** Keys of generation_kwargs, for tasks that generate. */
  readonly generation?: Dict | undefined;
  /** No metrics: only the model's answers are written. */
  readonly predictsOnly?: boolean | undefined;
}

/** What a task without generation_kwargs has, besides the text that ends its answers. */
const GREEDY: ReadonlyMap<string, Yaml> = new Map<string, Yaml>([
  ['temperature', new Float(0)],
  ['do_sample', false],
  ['max_gen_toks', 256],
]);

/** The settings of a task with these in force. */
export function withAsked(settings: TaskSettings, { generation, predictsOnly }: TaskOverrides): TaskSettings {
  const changed = new Map<string, Setting>(settings);
  const generates = (settings.get('output_type')?.value ?? 'generate_until') === 'generate_until';
  if (generation !== undefined && generation.size > 0 && generates) {
    const own = settings.get('generation_kwargs')?.value;
    const kept: ReadonlyMap<string, Yaml> = own instanceof Map ? (own as ReadonlyMap<string, Yaml>) : GREEDY;
    const value = new Map<string, Yaml | PyValue>([...kept, ...generation]) as ReadonlyMap<string, Yaml>;
    changed.set('generation_kwargs', { value, where: 'generation_kwargs of the command' });
  }
  if (predictsOnly === true) {
    changed.set('metric_list', { value: [new Map([['metric', 'bypass']])], where: 'metric_list' });
    changed.delete('process_results');
  }
  return changed;
}
