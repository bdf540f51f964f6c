/** The documents that examples are drawn from, as bytes: as values a data set takes several times its size. */
import { deserialize, serialize } from 'node:v8';
import { Float, isDict, isList, type Dict, type Value } from '../../python/value.js';

/** Documents that are kept as values, because a sampler may give the same few again and again. */
const MAX_RECENT = 128;

export class Pool {
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
    const document = revived(deserialize(row) as Stored) as Dict;
    if (this.#recent.size >= MAX_RECENT) this.#recent.clear();
    this.#recent.set(place, document);
    return document;
  }
}

/** A value as the serializer returns it: a Float is an object without a class. */
type Stored = Exclude<Value, Float | Dict | readonly Value[]> | readonly Stored[] | StoredDict | { value: number };
type StoredDict = ReadonlyMap<string, Stored>;

function revived(value: Stored): Value {
  if (value === null || typeof value !== 'object') return value;
  if (isList(value)) return value.map((item) => revived(item as Stored));
  if (isDict(value)) return new Map([...(value as StoredDict)].map(([key, item]) => [key, revived(item)]));
  return new Float((value as { value: number }).value);
}
