/** Task files in folders, found by the names of their tasks, groups and tags. */
import { at } from '../../system/at.js';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, isFolder, kindAt, matching, readBounded } from '../../system/read.js';
import { nearest } from '../../system/text.js';
import {
  addTags,
  aggregatesOf,
  canNameResults,
  checkTaskKeys,
  type Entry,
  GROUP_KEYS,
  type GroupNode,
  listOf,
  MAX_NESTING,
  metadataOf,
  type TaskTree,
  type Setting,
  type TaskSettings,
  SettingsReader,
  type TaskNode,
} from './settings.js';
import { MAX_YAML_BYTES, parseYaml, plainScalar, type Yaml, type YamlMap } from './yaml.js';

// Finds the names in a task file without parsing all of it: folders of task files hold thousands.

/** The keys that say what a file defines. */
export type NamesInFile = ReadonlyMap<string, Yaml>;

const KEYS: ReadonlySet<string> = new Set(['task', 'group', 'tag', 'include', 'class']);
/** A key of the file's top level, up to the next one. */
const SEGMENT = /^(?:"([\w]+)"|'([\w]+)'|([\w]+))[ \t]*:(?=[ \t\r\n]|$)/gm;
const SIMPLE = /^[ \t]*(?:"([\w./:-]+)"|'([\w./:-]+)'|([\w./-]+))[ \t]*(?:[ \t]#[^\n]*)?\s*$/;

function valueOf(key: string, segment: string, path: string): Yaml {
  const [, double, single, plain] = SIMPLE.exec(segment) ?? [];
  if (plain !== undefined) return plainScalar(plain);
  return double ?? single ?? parseYaml(`${key}:${segment}`, path).values.get(key) ?? null;
}

/** What the top level says by itself. */
function scanText(text: string, path: string): NamesInFile {
  const starts = [...text.matchAll(SEGMENT)];
  const wanted = starts.map(([all, double, single, plain], i) => ({
    key: double ?? single ?? plain ?? '',
    from: at(starts, i).index + all.length,
    to: starts[i + 1]?.index ?? text.length,
  }));
  const names = new Map<string, Yaml>();
  try {
    for (const { key, from, to } of wanted) if (KEYS.has(key)) names.set(key, valueOf(key, text.slice(from, to), path));
  } catch (error) {
    // An anchor elsewhere in the file, or a line of a long text that looks like a key: the whole file decides.
    if (!(error instanceof UserError)) throw error;
    return wholeFile(text, path);
  }
  return names.size === 0 ? wholeFile(text, path) : names;
}

function wholeFile(text: string, path: string): YamlMap {
  return new Map([...parseYaml(text, path).values].filter(([key]) => KEYS.has(key)));
}

/** Scans the files of one folder; those that others include are scanned once. */
export class TaskScanner {
  readonly #reader: SettingsReader;
  readonly #scanned = new Map<string, NamesInFile>();
  readonly #active = new Set<string>();

  constructor(reader: SettingsReader) {
    this.#reader = reader;
  }

  /** Task, group and tags of a file, with those it includes. Throws UserError for a file that is no YAML. */
  scan(path: string, depth = 0): NamesInFile {
    const known = this.#scanned.get(path);
    if (known !== undefined) return known;
    const own = scanText(decodeUtf8(readBounded(path, MAX_YAML_BYTES), path), path);
    if (!own.has('include')) return depth > 0 ? this.#keep(path, own) : own;
    if (depth > MAX_NESTING || this.#active.has(path)) throw new UserError(`${path}: files include each other`);
    this.#active.add(path);
    const names = new Map<string, Yaml>();
    try {
      for (const each of listOf(own.get('include'))) {
        const included = this.scan(this.#reader.included(each, path, `${path}: include`), depth + 1);
        for (const [key, value] of included) names.set(key, value);
      }
    } finally {
      this.#active.delete(path);
    }
    for (const [key, value] of own) names.set(key, value);
    return depth > 0 ? this.#keep(path, names) : names;
  }

  #keep(path: string, names: NamesInFile): NamesInFile {
    this.#scanned.set(path, names);
    return names;
  }
}

// Task files that are named by their path, where a name is expected.

const IS_FILE = /\.ya?ml$/;
const IS_PATTERN = /[*?[]/;

export const isPattern = (name: string): boolean => IS_PATTERN.test(name);

const filesIn = (folder: string, pattern: string): string[] =>
  matching([pattern], readdirSync(folder).sort()).map((name) => join(folder, name));

/**
 * The files that a name stands for if it is a path: one `.yaml` file, those that a pattern in its last part matches, or
 * all of a folder. Undefined for a name that is no path. Throws UserError if there is no such file or folder.
 */
export function filesNamed(name: string): readonly string[] | undefined {
  const path = resolve(name);
  const isPath = IS_FILE.test(name);
  if (/[/\\]$/.test(name) && !isFolder(path))
    throw new UserError(
      `${path}: there is no such folder`,
      'Give a folder of task files, or a name of `tilewright tasks`',
    );
  if (!isPath && !isFolder(path)) return undefined;
  // Any folder may have the name of a task.
  if (!isPath && !/[/\\]/.test(name) && filesIn(path, '*.yaml').length === 0) return undefined;
  const folder = isPath ? dirname(path) : path;
  const pattern = isPath ? basename(path) : '*.yaml';
  const found = !isPath || isPattern(pattern) ? (isFolder(folder) ? filesIn(folder, pattern) : []) : [path];
  if (found.length === 0 || !found.every((each) => kindAt(each) === 'file'))
    throw new UserError(
      `${name}: there is no such task file`,
      'Give the path of a .yaml file, or a name of `tilewright tasks`',
    );
  return found;
}

// Tasks, groups and tags by name: those that are built in and those of folders of task files.

const MAX_FILES = 50_000;
const MAX_NODES = 100_000;

type Overrides = ReadonlyMap<string, Setting>;

function yamlFiles(folder: string): string[] {
  if (!isFolder(folder))
    throw new UserError(`${folder}: no folder of task files`, 'Try: --include_path DIR with a folder that is there');
  const found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.yaml') && !/(^|[/\\])(__pycache__|\.ipynb_checkpoints)[/\\]/.test(name),
  );
  if (found.length > MAX_FILES) throw new UserError(`${folder} has more than ${MAX_FILES} task files`);
  return found.sort().map((name) => join(folder, name));
}

/** Names that contain `name` or are contained in it, five at most; else the one that it is a misspelling of. */
function similar(name: string, names: readonly string[]): readonly string[] {
  const wanted = name.toLowerCase();
  const related = names.filter((each) => each.includes(wanted) || (each.length > 2 && wanted.includes(each)));
  return related.length > 0 ? related.slice(0, 5) : [nearest(name, names) ?? []].flat();
}

export class TaskLibrary {
  readonly #entries = new Map<string, Entry>();
  readonly #unreadable: { readonly path: string; readonly message: string }[] = [];
  #nodes = 0;

  /** Files are only scanned for names here. Of a name in several folders, the last counts; in one, the first. */
  constructor(folders: readonly string[], builtin: ReadonlyMap<string, Entry> = new Map()) {
    for (const [name, entry] of builtin) this.#entries.set(name, entry);
    for (const folder of folders) for (const [name, entry] of this.#scan(folder)) this.#entries.set(name, entry);
  }

  #scan(folder: string): Map<string, Entry> {
    const reader = new SettingsReader(folder);
    const scanner = new TaskScanner(reader);
    const entries = new Map<string, Entry>();
    for (const path of yamlFiles(folder)) {
      try {
        const names = scanner.scan(path);
        const group = names.get('group'),
          task = names.get('task');
        const kind = typeof group === 'string' ? 'group' : 'task';
        const name = kind === 'group' ? group : task;
        if (typeof name !== 'string' || entries.has(name)) continue;
        const tags = listOf(names.get('tag')).filter((tag): tag is string => typeof tag === 'string');
        entries.set(name, { kind, tags, settings: () => reader.read(path) });
        if (kind === 'task') addTags(entries, name, tags);
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
        this.#unreadable.push({ path, message: error.message });
      }
    }
    return entries;
  }

  /** Files that are no YAML, or include what is not there: one message each. */
  get unreadable(): readonly string[] {
    return this.#unreadable.map(({ message }) => message);
  }

  /** Names of these kinds, sorted. */
  names(...kinds: readonly Entry['kind'][]): string[] {
    return [...this.#entries].flatMap(([name, entry]) => (kinds.includes(entry.kind) ? [name] : [])).sort();
  }

  #entry(name: string): Entry {
    const entry = this.#entries.get(name);
    if (entry !== undefined) return entry;
    const near = similar(name, this.names('task', 'group', 'tag'));
    const [first] = this.#unreadable;
    const named = this.#unreadable.find(({ path }) => basename(path, '.yaml') === name);
    const own = named ?? (near.length > 0 ? undefined : first);
    throw new UserError(
      `no task, group or tag ${quote(name)}`,
      own !== undefined
        ? `A file that cannot be read: ${own.message}`
        : near.length > 0
          ? `Similar names: ${near.join(', ')}`
          : 'List the names: tilewright tasks (with --include_path DIR, also those of task files)',
    );
  }

  /**
   * What a name stands for: one task or group, the tasks of a tag in order of their names, everything whose name
   * matches a pattern, or what a task file defines. Throws UserError.
   */
  resolve(name: string): readonly TaskTree[] {
    this.#nodes = 0;
    if (this.#entries.has(name)) return this.#build(name, new Map(), 0);
    const files = filesNamed(name);
    if (files !== undefined) return files.map((path) => this.#ofFile(path));
    return this.#matches(name).flatMap((each) => this.#build(each, new Map(), 0));
  }

  /** Names that match a pattern with `*`, `?` or `[…]`; any other name is itself. */
  #matches(name: string): readonly string[] {
    if (!isPattern(name)) return [name];
    const found = matching([name], [...this.#entries.keys()].sort());
    if (found.length === 0)
      throw new UserError(`no task, group or tag matches ${quote(name)}`, 'List the names: tilewright tasks');
    return found;
  }

  /** What one file defines. It may include files of its folder and of the one around it. */
  #ofFile(path: string): TaskTree {
    const settings = new SettingsReader(dirname(dirname(path))).read(path);
    const [group, task] = ['group', 'task'].map((key) => settings.get(key)?.value);
    if (typeof group === 'string') return this.#group(group, settings, new Map(), 0);
    if (typeof task === 'string') return taskNode(task, settings, new Map());
    throw new UserError(
      `${path}: neither "task" nor "group" names what it defines`,
      'Name the file of a task: this one may be for others to include',
    );
  }

  #build(name: string, overrides: Overrides, depth: number): TaskTree[] {
    if (depth > MAX_NESTING) throw new UserError(`the group ${quote(name)} contains itself`);
    if (++this.#nodes > MAX_NODES) throw new UserError(`more than ${MAX_NODES} tasks in one group`);
    const entry = this.#entry(name);
    if (entry.kind === 'tag') return [...entry.tasks].sort().flatMap((task) => this.#build(task, overrides, depth + 1));
    const settings = entry.settings();
    return [
      entry.kind === 'task' ? taskNode(name, settings, overrides) : this.#group(name, settings, overrides, depth),
    ];
  }

  #group(name: string, settings: TaskSettings, overrides: Overrides, depth: number): GroupNode {
    const own = [...settings].filter(([key]) => !GROUP_KEYS.has(key));
    const passed: Overrides = new Map([...own, ...overrides]);
    const alias = settings.get('group_alias')?.value;
    const setting = settings.get('task');
    const members = listOf(setting?.value).flatMap((member) =>
      this.#member(name, member, setting?.where ?? '', passed, depth + 1),
    );
    return {
      kind: 'group',
      name,
      alias: typeof alias === 'string' ? alias : undefined,
      // Members with the same name are one, as in a Python dictionary: the last of them, at the place of the first.
      members: [...new Map(members.map((member) => [member.name, member])).values()],
      aggregates: aggregatesOf(settings),
      metadata: metadataOf(settings),
    };
  }

  /** A member is a name, or a name with keys of its own, or a group or task that is written there. */
  #member(group: string, member: Yaml, where: string, overrides: Overrides, depth: number): TaskTree[] {
    if (typeof member === 'string') return this.#build(member, overrides, depth);
    if (!(member instanceof Map)) throw new UserError(`${where}: expected names, or keys and values`);
    const own = new Map(
      [...(member as ReadonlyMap<string, Yaml>)].map(([key, value]) => [key, { value, where: `${where}: ${key}` }]),
    );
    const inner = own.get('group')?.value;
    const task = own.get('task')?.value;
    if (typeof inner === 'string') {
      if (!this.#entries.has(inner)) {
        if (depth > MAX_NESTING) throw new UserError(`${where}: groups nest more than ${MAX_NESTING} deep`);
        return [this.#group(`${group}::${inner}`, own, overrides, depth)];
      }
      for (const key of GROUP_KEYS) own.delete(key);
      return this.#build(inner, new Map([...overrides, ...own]), depth);
    }
    if (typeof task !== 'string') throw new UserError(`${where}: a member without "task" or "group"`);
    own.delete('task');
    const merged = new Map([...overrides, ...own]);
    if (this.#entries.has(task)) return this.#build(task, merged, depth);
    if (!merged.has('dataset_path')) return this.#build(task, merged, depth);
    return [taskNode(`${group}::${task}`, new Map(), merged)];
  }
}

function taskNode(name: string, settings: TaskSettings, overrides: Overrides): TaskNode {
  const all = new Map([...settings, ...overrides]);
  checkTaskKeys(all);
  if (!canNameResults(name))
    throw new UserError(
      `${all.get('task')?.where ?? 'task'}: ${quote(name)} cannot name a task's files and results`,
      'Name the task by at most 200 letters, digits, spaces and marks but / and \\, and not "constructor" or alike',
    );
  return { kind: 'task', name, settings: all };
}
