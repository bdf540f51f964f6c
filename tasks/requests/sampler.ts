/** Few-shot examples as the public harness draws them with one rank. */
import { PythonRandom } from '../python/random.js';
import { isEqual, type Dict } from '../python/value.js';
import { SEEDS } from './seeds.js';

export type SamplerName = 'default' | 'first_n';

export class Sampler {
  readonly #name: SamplerName;
  readonly #pool: readonly Dict[];
  readonly #random: PythonRandom;

  constructor(name: SamplerName, pool: readonly Dict[], seed: number = SEEDS.fewshot) {
    this.#name = name;
    this.#pool = pool;
    this.#random = new PythonRandom(seed);
  }

  /**
   * `count` examples for the next document, in order: the generator goes on from call to call. `excluded` is the
   * document itself where it may be in the pool. Throws RangeError if there are fewer.
   */
  sample(count: number, excluded: Dict | undefined): readonly Dict[] {
    if (count === 0) return [];
    const others = (items: readonly Dict[]): Dict[] => {
      const kept: Dict[] = [];
      for (const item of items) {
        if (kept.length === count) break;
        if (excluded === undefined || !isEqual(item, excluded)) kept.push(item);
      }
      return kept;
    };
    const drawn = others(
      this.#name === 'first_n' ? this.#pool : this.#random.sample(this.#pool, count + (excluded === undefined ? 0 : 1)),
    );
    if (drawn.length < count) throw new RangeError(`${count} shots asked, ${drawn.length} are there`);
    return drawn;
  }
}
