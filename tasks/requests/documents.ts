/** Documents of a task's data set, as process_docs leaves them. */
import type { Shuffles } from './seeds.js';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { type Dict, isDict, isList, type PyValue } from '../../python/value.js';
import { clipped } from '../../system/json.js';
import { isFolder } from '../../system/read.js';
import { DataSettingError, NoRows } from '../data/read.js';
import { BUILDERS, type DataRoots, datasetFolder, isPathOfData } from '../data/splits.js';
import type { TaskSettings } from '../definition/settings.js';
import { HookProblem } from '../hooks/hook.js';
import { Keys } from './keys.js';

/** Rows of a split in their order. They are read as they are taken, where the source can do so. */
export type Rows = AsyncIterable<Dict> | Iterable<Dict>;

/**
 * Reads the rows of a split of a data set. `options`: dataset_kwargs of the task's file. Whoever stops taking rows
 * ends the reading.
 */
export type ReadSplit = (
  dataset: string,
  config: string | undefined,
  split: string,
  options?: Dict,
) => Rows | Promise<Rows>;

/** Runs a function that takes the place of Python's; a document that it cannot use is named. */
export function portCall<T>(action: () => T, where: string, document: string): T {
  try {
    return action();
  } catch (error) {
    if (!(error instanceof HookProblem)) throw error;
    throw new UserError(`${where}, ${document}: ${clipped(error.message)}`, undefined, { cause: error });
  }
}

/** The rows; a split without any is named with its task. */
async function* named(rows: Rows, task: string): AsyncGenerator<Dict> {
  try {
    yield* rows;
  } catch (error) {
    if (!(error instanceof NoRows)) throw error;
    throw new UserError(`${task}: ${error.message}`, error.hint, { cause: error });
  }
}

export class Documents {
  readonly #keys: Keys;
  readonly #read: ReadSplit;
  readonly #shuffles: Shuffles;
  readonly #dataset: string;

  constructor(keys: Keys, read: ReadSplit, shuffles: Shuffles) {
    const dataset = keys.text('dataset_path');
    if (dataset === undefined) throw new UserError(`${keys.at}: dataset_path is missing`);
    this.#keys = keys;
    this.#read = read;
    this.#shuffles = shuffles;
    this.#dataset = dataset;
  }

  /** The documents of a split, at most `limit`: no more rows are read than these take. */
  async *of(split: string, limit = Infinity): AsyncGenerator<Dict> {
    const keys = this.#keys;
    const process = keys.processDocs();
    const call = <T>(action: () => T, index: number): T =>
      portCall(action, keys.where('process_docs'), `row ${index} of ${split}`);
    let rows: Rows = named(await this.#rows(split), keys.at);
    if (process !== undefined && 'shuffled' in process) {
      const name = JSON.stringify([this.#dataset, keys.get('dataset_name'), split]);
      rows = await this.#shuffles.documents(process.shuffled, name, rows, call);
    }
    const each = process !== undefined && 'document' in process ? process.document : undefined;
    let index = 0,
      taken = 0;
    if (limit <= 0) return;
    for await (const row of rows) {
      const at = index++;
      const document = each === undefined ? row : call(() => each(row), at);
      if (document === undefined) continue;
      yield document;
      if (++taken >= limit) return;
    }
  }

  async #rows(split: string): Promise<Rows> {
    const keys = this.#keys;
    const options = new Map<string, PyValue>(keys.dict('dataset_kwargs'));
    try {
      return await this.#read(this.#dataset, keys.text('dataset_name'), split, options);
    } catch (error) {
      if (!(error instanceof DataSettingError)) throw error;
      throw new UserError(`${keys.where(error.key)}: ${error.problem}`, error.hint, { cause: error });
    }
  }

  async count(split: string): Promise<number> {
    let count = 0;
    for await (const document of this.of(split)) count += document.size > 0 ? 1 : 0;
    return count;
  }
}

// Whether the data of tasks are there, before anything is computed.

/**
 * Throws one UserError that names every data set, folder and file that is missing, with the commands that download
 * them. Configurations, splits and what files hold are looked at when a task begins.
 */
export function requireDatasets(tasks: readonly TaskSettings[], roots: DataRoots): void {
  const problems = new Map<string, UserError>();
  for (const task of tasks)
    for (const problem of problemsOf(new Keys(task), roots))
      if (!problems.has(problem.message)) problems.set(problem.message, problem);
  const [first, ...more] = problems.values();
  if (first === undefined) return;
  if (more.length === 0) throw first;
  const hints = [...new Set([...problems.values()].flatMap(({ hint }) => hint ?? []))];
  const isCommand = (hint: string): boolean => hint.startsWith('hf ');
  const commands = hints.filter(isCommand).join(' && ');
  throw new UserError(
    `data of these tasks are missing:\n${[...problems.keys()].map((line) => `  ${line}`).join('\n')}`,
    [...hints.filter((hint) => !isCommand(hint)), ...(commands === '' ? [] : [commands])].join('; '),
  );
}

function problemsOf(keys: Keys, roots: DataRoots): readonly UserError[] {
  const dataset = keys.text('dataset_path');
  if (dataset === undefined) return [];
  const options = keys.dict('dataset_kwargs');
  if (BUILDERS.has(dataset)) {
    const given = options.get('data_files') ?? null;
    // Files of splits that are not scored may be missing.
    const scored = keys.text('test_split') ?? keys.text('validation_split') ?? '';
    const absent = ownPaths(isDict(given) ? (given.get(scored) ?? null) : given).filter((path) => !existsSync(path));
    return absent.map(
      (path) => new UserError(`${keys.where('dataset_kwargs')}: ${path}: no such file`, 'check data_files there'),
    );
  }
  if (isPathOfData(dataset)) {
    const folder = resolve(dataset);
    return isFolder(folder) ? [] : [new UserError(`${keys.where('dataset_path')}: ${folder}: no folder of data`)];
  }
  const revision = options.get('revision');
  try {
    datasetFolder(dataset, roots, typeof revision === 'string' ? revision : undefined);
    return [];
  } catch (error) {
    if (error instanceof UserError) return [error];
    throw error;
  }
}

const ownPaths = (given: PyValue): readonly string[] =>
  (isList(given) ? given : [given]).filter((path) => typeof path === 'string').map((path) => resolve(path));
