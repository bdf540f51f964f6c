/**
 * What one call may cost. Steps are counted, not time, so that the same request fails everywhere or nowhere. A step is
 * about 10 ns: what a node of a tree of tokens takes.
 */
import { GrammarError } from './grammar.js';

/** Making and finding a part takes so many times what a step does. */
const STEPS_OF_PART = 32;

export class Work {
  #steps = 0;
  #parts = 0;

  /**
   * A call begins that may take so many steps, and may add so many parts to what is
   * kept: expressions, states and their threads.
   */
  begin(steps: number, parts = Infinity): void {
    this.#steps = steps;
    this.#parts = parts;
  }

  /** Throws GrammarError where that was too much. */
  spend(steps: number): void {
    if ((this.#steps -= steps) < 0) throw new GrammarError('what is asked of the text takes too long to follow');
  }

  /** Throws GrammarError where that was too much. */
  add(parts: number): void {
    this.spend(STEPS_OF_PART * parts);
    if ((this.#parts -= parts) < 0) throw new GrammarError('what is asked of the text has too many states');
  }
}
