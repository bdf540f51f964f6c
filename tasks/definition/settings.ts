/** The settings of a task or group: its file's keys and those of the files it includes. */
import { dirname, resolve, sep } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { nearest } from '../../system/spelling.js';
import { readYaml, type Yaml, type YamlFile } from './yaml.js';

/** A key's value and where it is written: `file:line: key`. */
export interface Setting {
  readonly value: Yaml;
  readonly where: string;
}
export type Settings = ReadonlyMap<string, Setting>;

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
  readonly #read = new Map<string, Settings>();
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
  read(path: string, depth = 0): Settings {
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

  #merged(path: string, file: YamlFile, where: (key: string) => string, depth: number): Settings {
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
export function checkTaskKeys(settings: Settings): void {
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
