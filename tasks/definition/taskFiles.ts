/** Task files of a folder: tasks by name, with what they include. */
import { readdirSync } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readYaml, type Yaml } from './yaml.js';

/** A key's value and where it is written: `file:line: key`. */
export interface Setting {
  readonly value: Yaml;
  readonly where: string;
}
export type Settings = ReadonlyMap<string, Setting>;

const MAX_FILES = 50_000;
const MAX_INCLUDES = 20;

/** Keys of a task file. */
const TASK_KEYS: ReadonlySet<string> = new Set(
  (
    'task task_alias tag include dataset_path dataset_name dataset_kwargs training_split validation_split test_split ' +
    'fewshot_split process_docs doc_to_text doc_to_target doc_to_choice process_results description target_delimiter ' +
    'fewshot_delimiter fewshot_config num_fewshot metric_list output_type generation_kwargs repeats filter_list ' +
    'should_decontaminate doc_to_decontamination_query gen_prefix metadata'
  ).split(' '),
);

/** Settings of a file and of those it includes, whose own keys give way. No file lies outside `root`. */
export function readSettings(path: string, root: string, depth = 0): Settings {
  const file = readYaml(path);
  const where = (key: string): string => `${path}:${file.lines.get(key) ?? 1}: ${key}`;
  const settings = new Map<string, Setting>();
  const include = file.values.get('include') ?? [];
  if (depth > MAX_INCLUDES) throw new UserError(`${where('include')}: files include each other`);
  for (const name of Array.isArray(include) ? (include as readonly Yaml[]) : [include]) {
    if (typeof name !== 'string') throw new UserError(`${where('include')}: expected the name of a file`);
    const included = resolve(dirname(path), name);
    if (!included.startsWith(resolve(root) + sep))
      throw new UserError(`${where('include')}: ${quote(name)} leads out of ${root}`);
    for (const [key, setting] of readSettings(included, root, depth + 1)) settings.set(key, setting);
  }
  for (const [key, value] of file.values) if (key !== 'include') settings.set(key, { value, where: where(key) });
  return settings;
}

function yamlFiles(folder: string): string[] {
  const found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.yaml'));
  if (found.length > MAX_FILES) throw new UserError(`${folder} has more than ${MAX_FILES} task files`);
  return found.sort().map((name) => join(folder, name));
}

/** The names of tasks, groups and tags in a folder. */
export class TaskFolder {
  readonly #root: string;
  readonly #paths = new Map<string, string>();
  readonly #groups = new Map<string, readonly Yaml[]>();
  readonly #tags = new Map<string, string[]>();
  readonly #unreadable: string[] = [];

  constructor(root: string) {
    this.#root = root;
    for (const path of yamlFiles(root)) {
      try {
        this.#register(path);
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
        this.#unreadable.push(error.message);
      }
    }
  }

  #register(path: string): void {
    const settings = readSettings(path, this.#root);
    const group = settings.get('group')?.value;
    const task = settings.get('task')?.value;
    if (typeof group === 'string') {
      const members = Array.isArray(task) ? (task as readonly Yaml[]) : task === undefined ? [] : [task];
      if (!this.#groups.has(group)) this.#groups.set(group, members);
      return;
    }
    if (typeof task !== 'string' || this.#paths.has(task)) return;
    this.#paths.set(task, path);
    const tag = settings.get('tag')?.value ?? [];
    for (const name of Array.isArray(tag) ? (tag as readonly Yaml[]) : [tag])
      if (typeof name === 'string') this.#tags.set(name, [...(this.#tags.get(name) ?? []), task]);
  }

  /** Names of the tasks that a task, group or tag stands for. Throws UserError for an unknown name. */
  expand(name: string, depth = 0): string[] {
    if (depth > MAX_INCLUDES) throw new UserError(`the group ${quote(name)} contains itself`);
    if (this.#paths.has(name)) return [name];
    const members = this.#groups.get(name);
    if (members !== undefined) {
      return members.flatMap((member) => {
        if (typeof member === 'string') return this.expand(member, depth + 1);
        throw new UserError(`the group ${quote(name)} writes a task inside its list, which is not supported yet`);
      });
    }
    const tagged = this.#tags.get(name);
    if (tagged !== undefined) return [...tagged].sort();
    const [first] = this.#unreadable;
    throw new UserError(
      `no task, group or tag ${quote(name)} in ${this.#root}`,
      first && `Not readable there: ${first}`,
    );
  }

  /** The settings of one task. Throws UserError for a key that no task has. */
  settingsOf(task: string): Settings {
    const path = this.#paths.get(task);
    if (path === undefined) throw new UserError(`no task ${quote(task)} in ${this.#root}`);
    const settings = readSettings(path, this.#root);
    for (const [key, { where }] of settings)
      if (!TASK_KEYS.has(key)) throw new UserError(`${where}: no key of a task that is supported`);
    return settings;
  }
}
