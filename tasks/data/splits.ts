/** Rows of a split: the folder of a data set, the files of the split, and their readers. Nothing is downloaded. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename, join, relative, resolve, sep } from 'node:path';
import { UserError } from '../../errors.js';
import { type Dict, isDict, isList, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { isFolder, isHidden, matching, readBounded } from '../../system/read.js';
import type { ClassLabels, RecordType } from './columnTypes.js';
import { csvRows } from './csv.js';
import { type Columns, firstColumns, jsonRows } from './json.js';
import { parquetRows } from './parquet.js';
import { CHECK, DataSettingError, NoRows } from './read.js';
import { configurationOf, frontMatter } from './readme.js';

// Finds the folder of a data set: a clone of its hub repository, or a snapshot in the hub's cache.

/** Where data sets are looked for. */
export interface DataRoots {
  /** --data-root: the only place then; a folder of clones (`owner/name`), a hub cache, or what holds one as `hub`. */
  readonly root?: string | undefined;
  /** Caches of the hub, as the environment names them. */
  readonly hubCaches?: readonly string[] | undefined;
  /** Where `datasets` keeps converted copies: only to say that they are not read. */
  readonly datasetsCache?: string | undefined;
}

const NAME = /^[\w.-]{1,100}(\/[\w.-]{1,100})?$/;

/** A name of the hub, `owner/name` or `name`. Throws UserError for anything else. */
function checkDatasetName(dataset: string): void {
  if (!NAME.test(dataset) || dataset.split('/').some((part) => /^\.+$/.test(part)))
    throw new DataSettingError('dataset_path', `${quote(dataset)} is no name of a data set`);
}

/** The snapshot of a cached repository that a revision names, `main` unless another is asked for. */
function snapshotOf(repository: string, revision: string): string | undefined {
  const snapshots = join(repository, 'snapshots');
  if (!isFolder(snapshots)) return undefined;
  const reference = join(repository, 'refs', revision);
  const commit = existsSync(reference) ? readBounded(reference, 1000).toString('latin1').trim() : revision;
  if (/^[\w.-]+$/.test(commit) && isFolder(join(snapshots, commit))) return join(snapshots, commit);
  if (revision !== 'main') return undefined;
  // Without a reference, the latest.
  const dated = readdirSync(snapshots).map((name) => ({ name, time: statSync(join(snapshots, name)).mtimeMs }));
  const latest = dated.sort((a, b) => b.time - a.time)[0]?.name;
  return latest === undefined ? undefined : join(snapshots, latest);
}

/** The command that downloads what is missing to where it is looked for. */
export function downloadCommand(dataset: string, roots: DataRoots, include?: string): string {
  const to = roots.root === undefined ? '' : ` --local-dir ${join(roots.root, dataset)}`;
  const only = include === undefined ? '' : ` --include '${include}'`;
  return `hf download --repo-type dataset ${dataset}${only}${to}`;
}

/** Throws UserError with the command that downloads it. */
export function datasetFolder(dataset: string, roots: DataRoots, revision = 'main'): string {
  checkDatasetName(dataset);
  if (!/^[\w.-]{1,100}(\/[\w.-]{1,100}){0,3}$/.test(revision) || revision.includes('..'))
    throw new UserError(`${quote(revision)} is no revision of a data set`);
  const cached = `datasets--${dataset.replaceAll('/', '--')}`;
  const places = roots.root === undefined ? (roots.hubCaches ?? []) : [roots.root, join(roots.root, 'hub')];
  for (const place of places) {
    const snapshot = snapshotOf(join(place, cached), revision);
    if (snapshot !== undefined) return snapshot;
    if (roots.root !== undefined && isFolder(join(place, dataset))) return join(place, dataset);
  }
  if (
    roots.root !== undefined &&
    basename(roots.root) === basename(dataset) &&
    existsSync(join(roots.root, 'README.md'))
  )
    return roots.root;
  const converted = join(roots.datasetsCache ?? '', dataset.replaceAll('/', '___'));
  const isConverted = roots.root === undefined && roots.datasetsCache !== undefined && isFolder(converted);
  throw new UserError(
    `the data set ${dataset} is not in ${places[0] ?? 'any folder: there is no home folder'}` +
      (isConverted ? `; ${converted} has a converted copy, which is not read` : ''),
    downloadCommand(dataset, roots),
  );
}

// Which files of a data set are of which split, where nobody wrote patterns: their names tell.

const KEYWORDS = {
  train: ['train', 'training'],
  validation: ['validation', 'valid', 'dev', 'val'],
  test: ['test', 'testing', 'eval', 'evaluation'],
} as const;
const SEPARATOR = '[-._ 0-9]';

const nameHas = (name: string, words: readonly string[]): boolean =>
  words.some((word) => new RegExp(`^(?:.*${SEPARATOR})?${word}${SEPARATOR}`, 's').test(name));
const folderHas = (name: string, words: readonly string[]): boolean =>
  words.some((word) => new RegExp(`^(?:.*${SEPARATOR})?${word}(?:${SEPARATOR}.*)?$`, 's').test(name));

/**
 * Files by split, as they are named: shards in data/, else a split's word in a folder's name, else in a file's, else
 * all of them are `train`.
 */
export function splitsByName(files: readonly string[]): ReadonlyMap<string, readonly string[]> {
  const visible = files.filter((file) => !isHidden(file));
  const shards = new Map<string, string[]>();
  for (const file of visible) {
    const split = /^data\/([\w.]+)-\d{5}-of-\d{5}[^/]*\.[^/]*$/.exec(file)?.[1];
    if (split !== undefined) shards.set(split, [...(shards.get(split) ?? []), file]);
  }
  if (shards.size > 0) return shards;
  const ways: readonly ((file: string, words: readonly string[]) => boolean)[] = [
    (file, words) =>
      file
        .split('/')
        .slice(0, -1)
        .some((name) => folderHas(name, words)),
    (file, words) => nameHas(file.split('/').at(-1) ?? '', words),
  ];
  for (const isOf of ways) {
    const found = Object.entries(KEYWORDS).flatMap(([split, words]) => {
      const own = visible.filter((file) => isOf(file, words));
      return own.length > 0 ? [[split, own] as const] : [];
    });
    if (found.length > 0) return new Map(found);
  }
  return visible.length > 0 ? new Map([['train', visible]]) : new Map();
}

// Rows of a split of a data set, found as the `datasets` library finds them. Nothing is downloaded.

const MAX_FILES = 200_000;
const IS_JSON = /\.(?:jsonl|json|ndjson)(?:\.gz)?$/;
const IS_PARQUET = /\.parquet$/;
const IS_CSV = /\.[ct]sv(?:\.gz)?$/;
/** Files that describe a data set. */
const DESCRIPTIONS: ReadonlySet<string> = new Set(
  'config.json dataset_info.json dataset_infos.json dataset_dict.json state.json package.json'.split(' '),
);
/** A module of `datasets` in the place of a data set: the task names the files itself. */
export const BUILDERS: ReadonlySet<string> = new Set(['json', 'parquet', 'csv']);

const isData = (name: string): boolean =>
  (IS_JSON.test(name) || IS_PARQUET.test(name) || IS_CSV.test(name)) && !DESCRIPTIONS.has(name.split('/').at(-1) ?? '');

/** Whether a data set is named by the path of its folder: one that starts with a dot or a slash. */
export const isPathOfData = (dataset: string): boolean => /^(?:\.{0,2}\/|\.{1,2}$)/.test(dataset);

function filesOf(folder: string): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  if (names.length > MAX_FILES) throw new UserError(`${folder} has more than ${MAX_FILES} files`);
  return names
    .map((name) => name.split(sep).join('/'))
    .filter(isData)
    .sort();
}

/** What all splits of a folder have in common. */
interface Folder {
  /** Names of its files of data, in order. */
  readonly files: readonly string[];
  /** The front matter of its README.md. */
  readonly values: ReturnType<typeof frontMatter>;
}

/** Folders that are remembered: tasks of one data set follow each other. */
const MAX_FOLDERS = 8;

/** Folders of data, each looked at once: a data set of 57 subjects is asked for 114 splits. */
export class Folders {
  readonly #known = new Map<string, Folder>();

  /** Throws UserError for a README.md that cannot be read, and for too many files. */
  at(folder: string): Folder {
    const known = this.#known.get(folder);
    if (known !== undefined) return known;
    const found = { values: frontMatter(folder), files: filesOf(folder) };
    if (this.#known.size >= MAX_FOLDERS) this.#known.clear();
    this.#known.set(folder, found);
    return found;
  }
}

interface SplitSource {
  readonly split: string;
  readonly paths: readonly string[];
  /** The first file of the first split: columns of JSON have its types in all splits, unless some are declared. */
  readonly first: string | undefined;
  readonly labels: ClassLabels;
  readonly columns: RecordType | undefined;
}

async function* rowsOf({ split, paths, first, labels, columns: declared }: SplitSource): AsyncGenerator<Dict> {
  const columns: Columns = { type: declared };
  const hasJson = paths.some((path) => IS_JSON.test(path));
  if (declared === undefined && hasJson && first !== undefined && first !== paths[0] && IS_JSON.test(first))
    columns.type = await firstColumns(first);
  let count = 0;
  for (const path of paths) {
    const rows = IS_PARQUET.test(path)
      ? parquetRows(path, labels, declared)
      : IS_CSV.test(path)
        ? csvRows(path, labels, declared)
        : jsonRows(path, labels, columns);
    for await (const row of rows) {
      count++;
      yield row;
    }
  }
  if (count === 0) throw new NoRows(`the split ${quote(split)} has no rows: ${paths.join(', ').slice(0, 500)}`, CHECK);
}

/** `data_files` of a task: paths of each split, or of all. Throws UserError if there are none, or of no known kind. */
function ownFiles(given: PyValue | undefined, split: string, dataset: string): string[] {
  const paths = isDict(given) ? (given.get(split) ?? null) : (given ?? null);
  const listed = isList(paths) ? paths : paths === null ? [] : [paths];
  const found = listed.filter((path) => typeof path === 'string').map((path) => resolve(path));
  if (found.length === 0)
    throw new DataSettingError(
      'dataset_path',
      `${quote(dataset)} needs dataset_kwargs with data_files of the split ${quote(split)}`,
    );
  for (const path of found)
    if (!isData(path)) throw new UserError(`${path}: only .parquet, .json, .jsonl, .csv and .tsv are read`);
  return found;
}

function ownSource(given: PyValue | undefined, split: string, dataset: string): SplitSource {
  const paths = ownFiles(given, split, dataset);
  const [leading] = isDict(given) ? [...given.values()] : [];
  const first = isList(leading) ? leading[0] : leading;
  const isThere = typeof first === 'string' && IS_JSON.test(first) && existsSync(resolve(first));
  const schema = isThere ? resolve(first) : paths[0];
  return { split, paths, first: schema, labels: new Map(), columns: undefined };
}

/**
 * The rows of a split, read as they are taken. `options`: dataset_kwargs of a task. A path that starts with a dot or a
 * slash is a folder of data. Throws UserError that names what is missing and the command that downloads it.
 */
export function openSplit(
  roots: DataRoots,
  dataset: string,
  config: string | undefined,
  split: string,
  options: Dict = new Map(),
  folders = new Folders(),
): AsyncGenerator<Dict> {
  for (const [key, value] of options)
    if (!['data_files', 'data_dir', 'revision', 'trust_remote_code'].includes(key) && value !== null)
      throw new DataSettingError(
        'dataset_kwargs',
        `${quote(key)} is not supported; there are data_files, data_dir, revision`,
      );
  if (BUILDERS.has(dataset)) return rowsOf(ownSource(options.get('data_files'), split, dataset));
  const revision = options.get('revision');
  const isPath = isPathOfData(dataset);
  const folder = isPath
    ? resolve(dataset)
    : datasetFolder(dataset, roots, typeof revision === 'string' ? revision : undefined);
  if (!isFolder(folder)) throw new UserError(`${folder}: no folder of data`);
  const { values, files } = folders.at(folder);
  const {
    name,
    patterns,
    folder: own,
    labels,
    columns,
  } = configurationOf(folder, values, config, isPath ? undefined : downloadCommand(dataset, roots));
  const found = splitFiles(files, patterns, own, split, folder);
  const missing = patterns?.get(split)?.[0];
  if (found.length === 0) {
    const known = [...(patterns ?? splitsByName(commonest(below(files, own)))).keys()];
    const there = known.length === 0 ? 'there is none' : `there are ${known.join(', ')}`.slice(0, 200);
    const isKnown = missing !== undefined;
    throw new UserError(
      isKnown
        ? `${folder}: no file ${quote(missing)} of the split ${quote(split)} of ${name}`
        : `${folder}: no split ${quote(split)} of ${name}; ${there}`,
      isPath ? undefined : downloadCommand(dataset, roots, isKnown ? missing : undefined),
    );
  }
  const [leading] = [...(patterns ?? splitsByName(commonest(below(files, own)))).keys()];
  const first = splitFiles(files, patterns, own, leading ?? split, folder)[0];
  return rowsOf({
    split,
    paths: found.map((file) => inside(folder, file)),
    first: first === undefined ? undefined : inside(folder, first),
    labels,
    columns,
  });
}

/** Without patterns, `datasets` reads the files of one kind: that of which there are most. */
function commonest(files: readonly string[]): readonly string[] {
  const kinds = [IS_PARQUET, IS_JSON, IS_CSV].map((kind) => files.filter((file) => kind.test(file)));
  return kinds.reduce((most, each) => (each.length > most.length ? each : most));
}

const below = (files: readonly string[], folder: string): string[] =>
  folder === '' || folder === '.'
    ? [...files]
    : files.filter((file) => file.startsWith(`${folder}/`)).map((file) => file.slice(folder.length + 1));

function splitFiles(
  files: readonly string[],
  patterns: ReadonlyMap<string, readonly string[]> | undefined,
  own: string,
  split: string,
  folder: string,
): string[] {
  if (patterns === undefined) {
    const named = splitsByName(commonest(below(files, own))).get(split) ?? [];
    return named.map((file) => (own === '' || own === '.' ? file : `${own}/${file}`));
  }
  try {
    return matching(patterns.get(split) ?? [], files);
  } catch (error) {
    if (error instanceof RangeError)
      throw new UserError(`${folder}/README.md: ${error.message}`, undefined, { cause: error });
    throw error;
  }
}

/** A file below the folder, whatever its name says. */
function inside(folder: string, file: string): string {
  const path = join(folder, file);
  if (relative(folder, path).startsWith('..')) throw new UserError(`${quote(file)} leads out of ${folder}`);
  return path;
}

/** How tasks read data sets, for the functions of tasks/requests. What describes a folder is read once. */
export function splitReader(
  roots: DataRoots,
): (dataset: string, config: string | undefined, split: string, options?: Dict) => AsyncGenerator<Dict> {
  const folders = new Folders();
  return (dataset, config, split, options) => openSplit(roots, dataset, config, split, options, folders);
}

/** openSplit with one folder of data sets. */
export const readSplit = (
  root: string,
  dataset: string,
  config: string | undefined,
  split: string,
  options?: Dict,
): AsyncGenerator<Dict> => openSplit({ root }, dataset, config, split, options);
