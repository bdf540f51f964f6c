/** Where a separator ends a step: tokens that contain it, and tokens that are whole with those before them. */
import type { Detokenizer } from '../../models/tokenizer/detokenizer.js';

type Bytes = Pick<Detokenizer, 'bytesOf'>;

/** Bytes of all tokens behind one another, and where those of each token begin. */
interface TokenBytes {
  readonly bytes: Buffer;
  readonly begin: Int32Array;
}

const known = new WeakMap<Bytes, TokenBytes>();

function tokenBytes(detokenizer: Bytes, vocabSize: number): TokenBytes {
  const found = known.get(detokenizer);
  if (found !== undefined && found.begin.length === vocabSize + 1) return found;
  const begin = new Int32Array(vocabSize + 1);
  const parts = Array.from({ length: vocabSize }, (_, token) => detokenizer.bytesOf(token));
  for (const [token, part] of parts.entries()) begin[token + 1] = begin[token]! + part.length;
  const made = { bytes: Buffer.concat(parts), begin };
  known.set(detokenizer, made);
  return made;
}

/** In a table of states: not known yet. */
const UNKNOWN = -1;

/**
 * Finds a separator in the bytes of tokens (Knuth, Morris and Pratt). A state is how many of its bytes the text ends
 * with. What a token does in a state is found once.
 */
export class StepStops {
  /** Tokens that contain the separator: an engine ends a step at them by itself. */
  readonly tokens: ReadonlySet<number>;
  /** The state in which a text has the separator; a text begins with state 0. */
  readonly whole: number;
  private readonly separator: Buffer;
  /** For each number of its first bytes: the longest shorter beginning that these end with. */
  private readonly shorter: Int32Array;
  /** For each state: the state behind each token. */
  private readonly after: Int16Array[] = [];
  private readonly all: TokenBytes;

  /** `separator`: not empty, and of less than 2¹⁵ bytes. */
  constructor(separator: string, detokenizer: Bytes, vocabSize: number) {
    this.separator = Buffer.from(separator);
    this.whole = this.separator.length;
    this.all = tokenBytes(detokenizer, vocabSize);
    this.shorter = new Int32Array(this.whole + 1);
    for (let at = 1, state = 0; at < this.whole; at++) {
      state = this.step(state, this.separator[at]!);
      this.shorter[at + 1] = state;
    }
    this.tokens = this.containing();
  }

  /** The state behind a token. Once the separator is whole, it stays whole. */
  next(state: number, token: number): number {
    const { bytes, begin } = this.all;
    if (state === this.whole || token < 0 || token + 1 >= begin.length) return state;
    const after = (this.after[state] ??= new Int16Array(begin.length - 1).fill(UNKNOWN));
    if (after[token] !== UNKNOWN) return after[token]!;
    let found = state;
    for (let at = begin[token]!; at < begin[token + 1]! && found < this.whole; at++)
      found = this.step(found, bytes[at]!);
    return (after[token] = found);
  }

  private step(state: number, byte: number): number {
    let length = state;
    while (length > 0 && this.separator[length] !== byte) length = this.shorter[length]!;
    return this.separator[length] === byte ? length + 1 : length;
  }

  private containing(): ReadonlySet<number> {
    const { bytes, begin } = this.all;
    const tokens = new Set<number>();
    let token = 0;
    for (let at = bytes.indexOf(this.separator); at >= 0; at = bytes.indexOf(this.separator, at + 1)) {
      while (begin[token + 1]! <= at) token++;
      if (at + this.whole <= begin[token + 1]!) tokens.add(token);
    }
    return tokens;
  }
}
