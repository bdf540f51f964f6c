/** Documents of a task's data set, as process_docs leaves them. */
import { UserError } from '../../errors.js';
import { HookProblem } from '../hooks/hook.js';
import type { Dict, Value } from '../python/value.js';
import type { Keys } from './keys.js';

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
    throw new UserError(`${where}, ${document}: ${error.message}`, undefined, { cause: error });
  }
}

export class Documents {
  readonly #keys: Keys;
  readonly #read: ReadSplit;
  readonly #dataset: string;

  constructor(keys: Keys, read: ReadSplit) {
    const dataset = keys.text('dataset_path');
    if (dataset === undefined) throw new UserError(`${keys.at}: dataset_path is missing`);
    this.#keys = keys;
    this.#read = read;
    this.#dataset = dataset;
  }

  /** The documents of a split, at most `limit`: no more rows are read than these take. */
  async *of(split: string, limit = Infinity): AsyncGenerator<Dict> {
    const keys = this.#keys;
    const options = new Map<string, Value>(keys.dict('dataset_kwargs'));
    const process = keys.port('process_docs', 'document');
    const rows = await this.#read(this.#dataset, keys.text('dataset_name'), split, options);
    let index = 0,
      taken = 0;
    if (limit <= 0) return;
    for await (const row of rows) {
      const at = `row ${index++} of ${split}`;
      const document = process === undefined ? row : portCall(() => process(row), keys.where('process_docs'), at);
      if (document === undefined) continue;
      yield document;
      if (++taken >= limit) return;
    }
  }

  async count(split: string): Promise<number> {
    let count = 0;
    for await (const document of this.of(split)) count += document.size > 0 ? 1 : 0;
    return count;
  }
}
