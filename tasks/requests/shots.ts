/** Few-shot examples as the public harness draws them with one rank. */
import { deserialize, serialize } from 'node:v8';
import { UserError } from '../../errors.js';
import { PythonRandom } from '../../python/random.js';
import { str } from '../../python/show.js';
import { type Dict, Float, isDict, isEqual, isInt, isList, type PyValue } from '../../python/value.js';
import type { Documents } from './documents.js';
import type { Keys, Source } from './keys.js';
import { SEEDS } from './seeds.js';

export type SamplerName = 'default' | 'first_n';

export class Sampler {
  readonly #name: SamplerName;
  readonly #pool: ShotPool;
  /** Places in the pool. */
  readonly #places: readonly number[];
  readonly #random: PythonRandom;

  constructor(name: SamplerName, pool: ShotPool, seed: number = SEEDS.fewshot) {
    this.#name = name;
    this.#pool = pool;
    this.#places = Array.from({ length: pool.length }, (_, place) => place);
    this.#random = new PythonRandom(seed);
  }

  /**
   * `count` examples for the next document, in order: the generator goes on from call to call. `excluded` is the
   * document itself where it may be in the pool. Throws RangeError if there are fewer.
   */
  sample(count: number, excluded: Dict | undefined): readonly Dict[] {
    if (count === 0) return [];
    const others = (places: readonly number[]): Dict[] => {
      const kept: Dict[] = [];
      for (const place of places) {
        if (kept.length === count) break;
        const item = this.#pool.at(place);
        if (excluded === undefined || !isEqual(item, excluded)) kept.push(item);
      }
      return kept;
    };
    const drawn = others(
      this.#name === 'first_n'
        ? this.#places
        : this.#random.sample(this.#places, count + (excluded === undefined ? 0 : 1)),
    );
    if (drawn.length < count) throw new RangeError(`${count} shots asked, ${drawn.length} are there`);
    return drawn;
  }
}

// The documents that examples are drawn from, as bytes: as values a data set takes several times its size.

/** Documents that are kept as values, because a sampler may give the same few again and again. */
const MAX_RECENT = 128;

export class ShotPool {
  readonly #rows: Uint8Array[] = [];
  readonly #recent = new Map<number, Dict>();

  get length(): number {
    return this.#rows.length;
  }

  add(document: Dict): void {
    // A copy: what serialize returns may have room for more.
    this.#rows.push(Uint8Array.from(serialize(document)));
  }

  /** Throws RangeError if there is no such document. */
  at(place: number): Dict {
    const known = this.#recent.get(place);
    if (known !== undefined) return known;
    const row = this.#rows[place];
    if (row === undefined) throw new RangeError(`there is no document ${place} of ${this.length}`);
    const document = revived(deserialize(row) as StoredDocument) as Dict;
    if (this.#recent.size >= MAX_RECENT) this.#recent.clear();
    this.#recent.set(place, document);
    return document;
  }
}

/** A value as the serializer returns it: a Float is an object without a class. */
type StoredDocument =
  | Exclude<PyValue, Float | Dict | readonly PyValue[]>
  | readonly StoredDocument[]
  | StoredDict
  | { value: number };
type StoredDict = ReadonlyMap<string, StoredDocument>;

function revived(value: StoredDocument): PyValue {
  if (value === null || typeof value !== 'object') return value;
  if (isList(value)) return value.map((item) => revived(item as StoredDocument));
  if (isDict(value)) return new Map([...(value as StoredDict)].map(([key, item]) => [key, revived(item)]));
  return new Float((value as { value: number }).value);
}

// Which examples a task shows, and how many.

/** Draws the examples of one document after another. */
export interface Shots {
  readonly count: number;
  /** Throws UserError if there are fewer than asked. */
  readonly drawn: (document: Dict) => readonly Dict[];
}

const MAX_SHOTS = 100_000;

/** `shots`: those of the command line; a 0 in the task's file wins. */
export async function shotsOf(
  keys: Keys,
  config: ReadonlyMap<string, Source>,
  documents: Documents,
  scored: string,
  { shots: asked, fewshotSeed }: { readonly shots?: number | undefined; readonly fewshotSeed?: number | undefined },
): Promise<Shots> {
  const written = keys.get('num_fewshot');
  if (written !== null && !isInt(written)) throw new UserError(`${keys.where('num_fewshot')}: expected a whole number`);
  const count = written === null || Number(written) !== 0 ? (asked ?? Number(written ?? 0)) : 0;
  if (!Number.isInteger(count) || count < 0 || count > MAX_SHOTS)
    throw new UserError(`${keys.where('num_fewshot')}: ${count} shots; expected a number up to ${MAX_SHOTS}`);
  const name = config.get('sampler') ?? 'default';
  const where = keys.where('fewshot_config');
  if (name !== 'default' && name !== 'first_n')
    throw new UserError(
      `${where}: no sampler ${typeof name === 'function' ? '' : str(name)}; there are default, first_n`,
    );
  if (count === 0) return { count, drawn: () => [] };

  const split = textOrNull(config.get('split') ?? keys.get('fewshot_split'), where);
  const excludesItself = str(split) === str(keys.get('test_split'));
  const samples = config.get('samples') ?? null;
  const pool = new ShotPool();
  if (split === null && samples !== null) {
    if (!isList(samples as never)) throw new UserError(`${where}: samples: expected a list`);
    for (const sample of samples as readonly unknown[]) if (isDict(sample)) pool.add(sample);
  } else {
    const from = split ?? keys.text('training_split') ?? keys.text('validation_split') ?? scored;
    // The first ones are enough where the document itself cannot be among them.
    const needed = name === 'first_n' && !excludesItself ? count : Infinity;
    for await (const document of documents.of(from, needed)) pool.add(document);
  }
  const sampler = new Sampler(name, pool, fewshotSeed);
  const drawn = (document: Dict): readonly Dict[] => {
    try {
      return sampler.sample(count, excludesItself ? document : undefined);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new UserError(
        `${keys.at}: ${count} shots asked, but there are ${pool.length} examples: ${error.message}`,
        `Try: --num_fewshot ${Math.max(0, pool.length - (excludesItself ? 1 : 0))}`,
        { cause: error },
      );
    }
  };
  return { count, drawn };
}

function textOrNull(value: Source | null, where: string): string | null {
  if (value === null || typeof value === 'string') return value;
  throw new UserError(`${where}: split: expected the name of a split`);
}
