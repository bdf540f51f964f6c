/** What one call may cost. Steps are counted, not time, so that the same request fails everywhere or nowhere. */
import { GrammarError } from './grammar.js';

export class Work {
  #left = 0;

  /** A call begins that may take so many steps: nodes of a tree visited, expressions and states made. */
  begin(steps: number): void {
    this.#left = steps;
  }

  /** Throws GrammarError where that was too much. */
  spend(steps: number): void {
    if ((this.#left -= steps) < 0) throw new GrammarError('what is asked of the text takes too long to follow');
  }
}
