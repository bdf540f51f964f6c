/**
 * What was computed about the tokens of pages: the log-probability of each after all before it, and the most likely
 * token in its place. It lies beside the page, so that a beginning which is found again answers for its rows, and goes
 * with what the page contains.
 */
import { PAGE_TOKENS } from './limits.js';

export interface TokenFact {
  readonly logProb: number;
  readonly isArgmax: boolean;
  readonly argmax: number;
  readonly argmaxLogProb: number;
}

/** A fact takes 12 bytes, and two bits: 200 bytes a page. */
export class PageFacts {
  /** Bits of the tokens that are known, and of those that are the most likely ones. */
  private readonly known: Uint16Array;
  private readonly isArgmax: Uint16Array;
  private readonly logProbs: Float32Array;
  private readonly argmax: Int32Array;
  private readonly argmaxLogProbs: Float32Array;

  constructor(pages: number) {
    this.known = new Uint16Array(pages);
    this.isArgmax = new Uint16Array(pages);
    this.logProbs = new Float32Array(pages * PAGE_TOKENS);
    this.argmax = new Int32Array(pages * PAGE_TOKENS);
    this.argmaxLogProbs = new Float32Array(pages * PAGE_TOKENS);
  }

  /** `at`: the place of the token in the page. */
  set(page: number, at: number, { logProb, isArgmax, argmax, argmaxLogProb }: TokenFact): void {
    const bit = 1 << at;
    const index = page * PAGE_TOKENS + at;
    this.known[page]! |= bit;
    if (isArgmax) this.isArgmax[page]! |= bit;
    else this.isArgmax[page]! &= ~bit;
    this.logProbs[index] = logProb;
    this.argmax[index] = argmax;
    this.argmaxLogProbs[index] = argmaxLogProb;
  }

  get(page: number, at: number): TokenFact | undefined {
    const bit = 1 << at;
    if ((this.known[page]! & bit) === 0) return undefined;
    const index = page * PAGE_TOKENS + at;
    return {
      logProb: this.logProbs[index]!,
      isArgmax: (this.isArgmax[page]! & bit) !== 0,
      argmax: this.argmax[index]!,
      argmaxLogProb: this.argmaxLogProbs[index]!,
    };
  }

  /** The first `rows` tokens of `to` are those of `from`. */
  copy(from: number, to: number, rows: number): void {
    for (let at = 0; at < rows; at++) {
      const fact = this.get(from, at);
      if (fact !== undefined) this.set(to, at, fact);
    }
  }

  forget(page: number): void {
    this.known[page] = 0;
  }
}
