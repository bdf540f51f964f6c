/** Where a separator ends a step: tokens that contain it, and tokens that are whole with those before them. */
import type { Detokenizer } from '../../models/tokenizer/detokenizer.js';

/** In a table of states: not known yet. */
const UNKNOWN = -1;

/**
 * Finds a separator in the bytes of tokens (Knuth, Morris and Pratt). A state is how many of its bytes the text ends
 * with. What a token does in a state is found once.
 */
export class StepStops {
  /** Tokens that contain the separator: an engine ends a step at them by itself. */
  readonly tokens: ReadonlySet<number>;
  private readonly separator: Uint8Array;
  /** For each number of its first bytes: the longest shorter beginning that these end with. */
  private readonly shorter: Int32Array;
  /** For each state: the state behind each token. */
  private readonly after: Int32Array[] = [];
  private readonly bytesOf: (token: number) => Uint8Array;
  private readonly vocabSize: number;

  /** `separator`: not empty. */
  constructor(separator: string, detokenizer: Pick<Detokenizer, 'bytesOf'>, vocabSize: number) {
    this.separator = Buffer.from(separator);
    this.bytesOf = (token) => detokenizer.bytesOf(token);
    this.vocabSize = vocabSize;
    this.shorter = new Int32Array(this.separator.length + 1);
    for (let at = 1, state = 0; at < this.separator.length; at++) {
      state = this.step(state, this.separator[at]!);
      this.shorter[at + 1] = state;
    }
    const tokens = new Set<number>();
    for (let token = 0; token < vocabSize; token++) if (this.next(0, token) === this.whole) tokens.add(token);
    this.tokens = tokens;
  }

  /** The state in which a text has the separator; a text begins with state 0. */
  get whole(): number {
    return this.separator.length;
  }

  /** The state behind a token. Once the separator is whole, it stays whole. */
  next(state: number, token: number): number {
    if (state === this.whole || token < 0 || token >= this.vocabSize) return state;
    const after = (this.after[state] ??= new Int32Array(this.vocabSize).fill(UNKNOWN));
    const known = after[token]!;
    if (known !== UNKNOWN) return known;
    let found = state;
    for (const byte of this.bytesOf(token)) {
      found = this.step(found, byte);
      if (found === this.whole) break;
    }
    return (after[token] = found);
  }

  private step(state: number, byte: number): number {
    let length = state;
    while (length > 0 && this.separator[length] !== byte) length = this.shorter[length]!;
    return this.separator[length] === byte ? length + 1 : length;
  }
}
