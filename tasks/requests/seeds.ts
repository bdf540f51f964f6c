/** Seeds of a run, and the order of documents whose choices are shuffled. */
import { UserError } from '../../errors.js';
import { PythonRandom } from '../../python/random.js';
import type { Dict } from '../../python/value.js';
import type { Ports } from '../hooks/hook.js';

/** Seeds of the public harness's generators. */
export interface Seeds {
  /** Python's own, which some tasks shuffle with. */
  readonly python: number;
  /** NumPy's: nothing here draws from it, and it is recorded; null for none. */
  readonly numpy: number | null;
  /** PyTorch's. Drawn texts follow from it, by tilewright's generator. */
  readonly torch: number;
  /** That of the examples. */
  readonly fewshot: number;
}

export const SEEDS: Seeds = { python: 0, numpy: 1234, torch: 1234, fewshot: 1234 };

// Documents of tasks whose choices are shuffled by Python's own generator, which all tasks of a run share: what a task
// gets depends on those before it. As with an empty cache of `datasets`, a split is shuffled once, when the first of
// its documents is wanted.

const MAX_ROWS = 100_000;

export class Shuffles {
  readonly #random: PythonRandom;
  readonly #done = new Map<Ports['shuffled'], Map<string, readonly Dict[]>>();

  constructor(seed: number = SEEDS.python) {
    this.#random = new PythonRandom(seed);
  }

  /**
   * All documents of a split. `split` names it; `rows` are read the first time. `call` runs the function on a row and
   * says which one it cannot use.
   */
  async documents(
    run: Ports['shuffled'],
    split: string,
    rows: AsyncIterable<Dict> | Iterable<Dict>,
    call: (action: () => Dict, index: number) => Dict,
  ): Promise<readonly Dict[]> {
    const ofFunction = this.#done.get(run) ?? new Map<string, readonly Dict[]>();
    this.#done.set(run, ofFunction);
    const known = ofFunction.get(split);
    if (known !== undefined) return known;
    const made: Dict[] = [];
    for await (const row of rows) {
      if (made.length === MAX_ROWS) throw new UserError(`more than ${MAX_ROWS} documents to shuffle`);
      made.push(call(() => run(row, this.#random), made.length));
    }
    ofFunction.set(split, made);
    return made;
  }
}
