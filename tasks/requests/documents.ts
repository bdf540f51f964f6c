/** Documents of a task's data set, as process_docs leaves them. */
import { UserError } from '../../errors.js';
import { clipped } from '../../system/json.js';
import { DataSettingError, NoRows } from '../data/noRows.js';
import { HookProblem } from '../hooks/hook.js';
import type { Dict, Value } from '../../python/value.js';
import type { Keys } from './keys.js';
import type { Shuffles } from './shuffles.js';

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
    const options = new Map<string, Value>(keys.dict('dataset_kwargs'));
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
