/** Questions about regular languages: whether one is empty, what is in it, and whether two are written alike. */
import { GrammarError, type Regular } from '../grammar.js';
import { Automaton } from '../regular/automaton.js';
import { NOTHING as NO_TEXT } from '../regular/nodes.js';
import { Work } from '../work.js';

/** Steps of all questions about one schema. */
const STEPS = 4_000_000;

const encoder = new TextEncoder();

export class Languages {
  readonly #automaton: Automaton;
  readonly #ids = new WeakMap<Regular, number>();

  constructor() {
    const work = new Work();
    work.begin(STEPS);
    this.#automaton = new Automaton(work);
  }

  /** The same number for languages that are written alike. Throws GrammarError where it is too large. */
  idOf(regular: Regular): number {
    let id = this.#ids.get(regular);
    if (id === undefined) this.#ids.set(regular, (id = this.#automaton.of(regular)));
    return id;
  }

  isEmpty(regular: Regular): boolean {
    return !this.#automaton.isAlive(this.idOf(regular));
  }

  /** Whether the text that stands between quotes for this value is in the language. */
  accepts(regular: Regular, value: string): boolean {
    let state = this.idOf(regular);
    for (const byte of encoder.encode(JSON.stringify(value).slice(1, -1))) {
      state = this.#automaton.next(state, byte);
      if (state === NO_TEXT) return false;
    }
    return this.#automaton.isNullable[state] === true;
  }
}

/** The message of an error that names no place, at this place. */
export const errorAt = (error: unknown, where: string): unknown =>
  error instanceof GrammarError && error.where === undefined ? new GrammarError(error.message, where) : error;
