/** Fields of documents that sort questions into categories, such as HellaSwag's activity_label. */
import { isRecord } from '../../system/json.js';

const MAX_FIELDS = 40;
const MAX_VALUES = 500;
const MAX_CHARACTERS = 80;

/** A field that has few values, each of several questions. */
export interface Category {
  readonly field: string;
  readonly values: readonly string[];
  /** By question, in the order of the file: place in `values`; -1 where it has none. */
  readonly places: Int32Array;
}

interface Field {
  readonly values: Map<string, number>;
  readonly places: number[];
}

export class Categories {
  readonly #fields = new Map<string, Field | undefined>();
  #questions = 0;

  take(doc: unknown): void {
    const at = this.#questions++;
    if (!isRecord(doc)) return;
    for (const [name, value] of Object.entries(doc)) {
      if (typeof value !== 'string' || value === '') continue;
      if (!this.#fields.has(name)) {
        if (this.#fields.size >= MAX_FIELDS || name.length > MAX_CHARACTERS) continue;
        this.#fields.set(name, { values: new Map(), places: [] });
      }
      const field = this.#fields.get(name);
      if (field === undefined) continue;
      const known = field.values.get(value);
      const place = known ?? field.values.size;
      if (known === undefined) {
        if (value.length > MAX_CHARACTERS || place >= MAX_VALUES) {
          this.#fields.set(name, undefined); // texts, not categories
          continue;
        }
        field.values.set(value, place);
      }
      while (field.places.length < at) field.places.push(-1);
      field.places.push(place);
    }
  }

  /** Those that say something: more than one value, and on average three questions of each. */
  found(): Category[] {
    const all = this.#questions;
    return [...this.#fields].flatMap(([field, found]) => {
      if (found === undefined || found.values.size < 2 || found.values.size * 3 > found.places.length) return [];
      const places = new Int32Array(all).fill(-1);
      places.set(found.places);
      return [{ field, values: [...found.values.keys()], places }];
    });
  }
}
