/** A vocabulary of byte strings with ranks, as tiktoken has them: neighbours merge whose union has the lowest rank. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { pieceOf, type ByteLevelTokenizer } from './byteLevel.js';
import { findMerges } from './merges.js';

/** The longest token of published files has 256 bytes. */
const MAX_TOKEN_BYTES = 512;
/** Twice the tokens of the largest published vocabularies. */
export const MAX_RANKS = 1 << 19;

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const encodedLength = (bytes: number): number => 4 * Math.ceil(bytes / 3);

/** The bytes that `text` stands for in base64, as characters U+0000 to U+00FF; or what is wrong with it. */
function decode(text: string): string | { readonly problem: string } {
  if (text.length > encodedLength(MAX_TOKEN_BYTES)) return { problem: `more than ${MAX_TOKEN_BYTES} bytes` };
  if (text.length % 4 !== 0 || !BASE64.test(text)) return { problem: 'not base64' };
  return Buffer.from(text, 'base64').toString('latin1');
}

/** Collects tokens by rank. What is wrong is said by `fail` with the place of the token. */
export class Ranks {
  readonly #byRank: (string | undefined)[] = [];
  readonly #ids = new Map<string, number>();
  readonly #where: string;
  readonly #hint: string;

  constructor(where: string, hint: string) {
    this.#where = where;
    this.#hint = hint;
  }

  get size(): number {
    return this.#byRank.length;
  }

  /** `place`: of the token, for messages. Throws UserError. */
  add(base64: string, rank: number, place: string): void {
    const fail = (what: string): never => this.#fail(`${place}: ${what}`);
    const bytes = decode(base64);
    if (typeof bytes !== 'string') return fail(bytes.problem);
    if (rank >= MAX_RANKS) return fail(`rank ${rank}; the limit is ${MAX_RANKS}`);
    if (this.#byRank[rank] !== undefined) return fail(`rank ${rank} is there twice`);
    const other = this.#ids.get(bytes);
    if (other !== undefined) return fail(`the token of rank ${rank} has rank ${other} too`);
    this.#byRank[rank] = bytes;
    this.#ids.set(bytes, rank);
  }

  /** All tokens by rank. Throws UserError if a rank or a byte is missing. */
  tokens(): readonly string[] {
    for (let rank = 0; rank < this.#byRank.length; rank++)
      if (this.#byRank[rank] === undefined)
        this.#fail(`no token has rank ${rank}, and one has ${this.#byRank.length - 1}`);
    for (let byte = 0; byte < 256; byte++)
      if (!this.#ids.has(String.fromCharCode(byte))) this.#fail(`byte ${byte} is no token: not every text has tokens`);
    return this.#byRank as readonly string[];
  }

  /**
   * The pieces, whose ids are their ranks and `shift`, and their merges. Throws UserError as tokens does, and if a name
   * in `special` is a piece.
   */
  finish(special: readonly string[], shift = 0): Pick<ByteLevelTokenizer, 'vocab' | 'merges'> {
    const tokens = this.tokens();
    // No prototype: a piece may be called __proto__.
    const vocab = Object.create(null) as Record<string, number>;
    tokens.forEach((bytes, rank) => (vocab[pieceOf(bytes)] = rank + shift));
    const taken = special.find((name) => name in vocab);
    if (taken !== undefined)
      this.#fail(`the special token ${quote(taken)} is the token of rank ${vocab[taken]! - shift} too`);
    const merges = findMerges(tokens, this.#ids, (what) => this.#fail(what));
    return { vocab, merges: merges.map(([left, right]) => [pieceOf(left), pieceOf(right)]) };
  }

  #fail(what: string): never {
    throw new UserError(`${this.#where}: ${what}`, this.#hint);
  }
}
