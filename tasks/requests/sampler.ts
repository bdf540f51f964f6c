/** Few-shot examples as the public harness draws them with one rank. */
import { PythonRandom } from '../../python/random.js';
import { isEqual, type Dict } from '../../python/value.js';
import type { Pool } from './pool.js';
import { SEEDS } from './seeds.js';

export type SamplerName = 'default' | 'first_n';

export class Sampler {
  readonly #name: SamplerName;
  readonly #pool: Pool;
  /** Places in the pool. */
  readonly #places: readonly number[];
  readonly #random: PythonRandom;

  constructor(name: SamplerName, pool: Pool, seed: number = SEEDS.fewshot) {
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
