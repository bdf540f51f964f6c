/**
 * Reads the vocabulary and the merges of a tokenizer.json from its bytes, in one pass and without an object for each of
 * their hundred thousands of entries, and writes them anew in the shortest form that the tokenizer library takes. What
 * is not written as tokenizers usually are is left to JSON.parse: nothing is refused here, and no message made.
 */
import { isUtf8 } from 'node:buffer';
import { ScannedPieces } from './pieces.js';
import { MAX_ID, MAX_MERGES, MAX_PIECE } from './tokenizerModels.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACE = 0x20;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const ZERO = 0x30;
/** Whitespace of JSON. */
const isBlank = (code: number): boolean => code === SPACE || code === 0x0a || code === 0x0d || code === 0x09;

/** The large parts of a tokenizer.json, as JSON that was written anew. */
export interface ScannedTokenizer {
  /** The file with an empty object or list in place of each of them. */
  readonly rest: string;
  readonly pieces: ScannedPieces;
  readonly vocab: string;
  /** Absent where the model has no merges. */
  readonly merges: string | undefined;
}

/** Where the file is not written as usual. */
class Unusual extends Error {}
const unusual = (): never => {
  throw new Unusual();
};

/** Undefined where the file is not valid, breaks a limit, or is not written as tokenizers usually are. */
export function scanTokenizer(bytes: Buffer): ScannedTokenizer | undefined {
  if (!isUtf8(bytes)) return undefined;
  try {
    return new Scanner(bytes).file();
  } catch (error) {
    if (error instanceof Unusual) return undefined;
    throw error;
  }
}

interface Range {
  readonly from: number;
  readonly to: number;
}

class Scanner {
  readonly #bytes: Buffer;
  #at = 0;
  /** What is written anew; never longer than what it is made of. */
  readonly #out: Buffer;
  #end = 0;
  /** Of the string that was copied last. */
  #hash = 0;
  #hasEscape = false;
  #spaces = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#out = Buffer.allocUnsafe(bytes.length);
  }

  file(): ScannedTokenizer {
    let model: { readonly vocab: Range; readonly merges: Range | undefined } | undefined;
    let found: Pick<ScannedTokenizer, 'pieces' | 'vocab' | 'merges'> | undefined;
    this.#members((key) => {
      if (key !== 'model') return this.#skip();
      if (found !== undefined) unusual();
      let vocab: { readonly range: Range; readonly pieces: ScannedPieces; readonly text: string } | undefined;
      let merges: { readonly range: Range; readonly text: string } | undefined;
      this.#members((name) => {
        const from = this.#at;
        if (name === 'vocab') {
          if (vocab !== undefined) unusual();
          const pieces = this.#vocabulary();
          vocab = { range: { from, to: this.#at }, pieces, text: this.#written() };
        } else if (name === 'merges') {
          if (merges !== undefined) unusual();
          this.#merges();
          merges = { range: { from, to: this.#at }, text: this.#written() };
        } else this.#skip();
      });
      if (vocab === undefined) return unusual();
      model = { vocab: vocab.range, merges: merges?.range };
      found = { pieces: vocab.pieces, vocab: vocab.text, merges: merges?.text };
    });
    this.#blanks();
    if (this.#at !== this.#bytes.length || model === undefined || found === undefined) return unusual();
    return { rest: this.#without(model.vocab, model.merges), ...found };
  }

  #without(vocab: Range, merges: Range | undefined): string {
    const holes = [{ ...vocab, empty: '{}' }, ...(merges === undefined ? [] : [{ ...merges, empty: '[]' }])];
    const parts: string[] = [];
    let from = 0;
    for (const hole of holes.sort((a, b) => a.from - b.from)) {
      parts.push(this.#bytes.toString('utf8', from, hole.from), hole.empty);
      from = hole.to;
    }
    return parts.join('') + this.#bytes.toString('utf8', from);
  }

  #written(): string {
    const text = this.#out.toString('utf8', 0, this.#end);
    this.#end = 0;
    return text;
  }

  /** The byte at the place that follows blanks. */
  #blanks(): number {
    const bytes = this.#bytes;
    let at = this.#at;
    while (at < bytes.length && isBlank(bytes[at]!)) at++;
    this.#at = at;
    return at < bytes.length ? bytes[at]! : -1;
  }

  #expect(code: number): void {
    if (this.#blanks() !== code) unusual();
    this.#at++;
  }

  /** The members of an object; `read` takes each value, whose first byte is next. Keys have no escapes. */
  #members(read: (key: string) => void): void {
    this.#expect(OPEN_OBJECT);
    if (this.#blanks() === CLOSE_OBJECT) {
      this.#at++;
      return;
    }
    for (;;) {
      if (this.#blanks() !== QUOTE) unusual();
      const from = this.#at + 1;
      this.#skipString();
      const key = this.#bytes.toString('utf8', from, this.#at - 1);
      if (key.includes('\\')) unusual();
      this.#expect(COLON);
      this.#blanks();
      read(key);
      const next = this.#blanks();
      this.#at++;
      if (next === CLOSE_OBJECT) return;
      if (next !== COMMA) unusual();
    }
  }

  #skipString(): void {
    const bytes = this.#bytes;
    let at = this.#at + 1;
    for (; at < bytes.length; at++) {
      const code = bytes[at]!;
      if (code === QUOTE) {
        this.#at = at + 1;
        return;
      }
      if (code === BACKSLASH) at++;
    }
    unusual();
  }

  /** Any value; whether it is one is for JSON.parse to say. */
  #skip(): void {
    const bytes = this.#bytes;
    let depth = 0;
    while (this.#at < bytes.length) {
      const code = bytes[this.#at]!;
      if (code === QUOTE) this.#skipString();
      else if (code === OPEN_OBJECT || code === OPEN_LIST) {
        depth++;
        this.#at++;
      } else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
        if (depth === 0) return;
        depth--;
        this.#at++;
      } else if (code === COMMA && depth === 0) return;
      else this.#at++;
      if (depth === 0 && (code === QUOTE || code === CLOSE_OBJECT || code === CLOSE_LIST)) return;
    }
  }

  /** `{"piece": id, …}`, every id once and every piece once. */
  #vocabulary(): ScannedPieces {
    const bytes = this.#bytes;
    const out = this.#out;
    const pieces = new ScannedPieces(bytes);
    this.#expect(OPEN_OBJECT);
    out[this.#end++] = OPEN_OBJECT;
    if (this.#blanks() === CLOSE_OBJECT) unusual();
    for (;;) {
      if (this.#blanks() !== QUOTE) unusual();
      const from = this.#at + 1;
      this.#copyString();
      const to = this.#at - 1;
      this.#expect(COLON);
      out[this.#end++] = COLON;
      this.#blanks();
      const start = this.#at;
      let id = 0;
      for (; this.#at < bytes.length; this.#at++) {
        const digit = bytes[this.#at]! - ZERO;
        if (digit < 0 || digit > 9 || id >= MAX_ID) break;
        id = 10 * id + digit;
        out[this.#end++] = digit + ZERO;
      }
      const digits = this.#at - start;
      if (digits === 0 || id >= MAX_ID || (digits > 1 && bytes[start] === ZERO)) unusual();
      if (!pieces.add(from, to, this.#hash, this.#hasEscape, id)) unusual();
      const next = this.#blanks();
      this.#at++;
      out[this.#end++] = next;
      if (next === CLOSE_OBJECT) break;
      if (next !== COMMA) unusual();
    }
    if (!pieces.settle()) unusual();
    return pieces;
  }

  /**
   * A list of pairs, or of texts with one space. Pairs become such texts, which the library reads faster, unless a piece
   * has a space itself.
   */
  #merges(): void {
    const from = this.#at;
    if (this.#mergeList(true)) return;
    this.#at = from;
    this.#end = 0;
    this.#mergeList(false);
  }

  /** False where a pair cannot be `joined` to a text. */
  #mergeList(joined: boolean): boolean {
    const out = this.#out;
    this.#expect(OPEN_LIST);
    out[this.#end++] = OPEN_LIST;
    if (this.#blanks() === CLOSE_LIST) {
      this.#at++;
      out[this.#end++] = CLOSE_LIST;
      return true;
    }
    const arePairs = this.#blanks() === OPEN_LIST;
    for (let count = 1; ; count++) {
      if (count > MAX_MERGES) unusual();
      const first = this.#end;
      if (arePairs) {
        this.#expect(OPEN_LIST);
        if (!joined) out[this.#end++] = OPEN_LIST;
        if (this.#blanks() !== QUOTE) unusual();
        this.#copyString();
        if (joined && (this.#spaces > 0 || startsWithVersion(out, first + 1, this.#end))) return false;
        this.#expect(COMMA);
        if (this.#blanks() !== QUOTE) unusual();
        if (joined) this.#end--;
        else out[this.#end++] = COMMA;
        this.#copyString(joined ? SPACE : QUOTE);
        if (joined && this.#spaces > 0) return false;
        this.#expect(CLOSE_LIST);
        if (!joined) out[this.#end++] = CLOSE_LIST;
      } else {
        if (this.#blanks() !== QUOTE) unusual();
        this.#copyString();
        // Both parts have letters: `" b"` and `"a "` are no pairs.
        const [begin, end] = [out[first + 1], out[this.#end - 2]];
        if (this.#spaces !== 1 || begin === SPACE || end === SPACE) unusual();
      }
      const next = this.#blanks();
      this.#at++;
      out[this.#end++] = next;
      if (next === CLOSE_LIST) return true;
      if (next !== COMMA) unusual();
    }
  }

  /** Copies a string of at most MAX_PIECE bytes a piece, as it is written; `open` takes the place of its first quote. */
  #copyString(open = QUOTE): void {
    const bytes = this.#bytes;
    const out = this.#out;
    const last = Math.min(bytes.length, this.#at + 2 * MAX_PIECE);
    let [at, end, hash, spaces, hasEscape] = [this.#at + 1, this.#end, 0x811c9dc5, 0, false];
    out[end++] = open;
    for (;;) {
      if (at >= last) unusual();
      const code = bytes[at++]!;
      out[end++] = code;
      if (code === QUOTE) break;
      if (code < SPACE) unusual();
      if (code === SPACE) spaces++;
      hash = Math.imul(hash ^ code, 0x01000193);
      if (code !== BACKSLASH) continue;
      hasEscape = true;
      const length = escapeAt(bytes, at);
      if (length === 5 && parseInt(bytes.toString('latin1', at + 1, at + 5), 16) === SPACE) unusual();
      for (const stop = at + length; at < stop;) out[end++] = bytes[at++]!;
    }
    this.#at = at;
    this.#end = end;
    this.#hash = hash;
    this.#spaces = spaces;
    this.#hasEscape = hasEscape;
  }
}

const VERSION = Buffer.from('#version');
/** The library takes such a text for a heading. */
const startsWithVersion = (out: Buffer, from: number, to: number): boolean =>
  to - from > VERSION.length &&
  out[from] === VERSION[0] &&
  out.compare(VERSION, 0, VERSION.length, from, from + VERSION.length) === 0;

const SHORT_ESCAPES: ReadonlySet<number> = new Set([...'"\\/bfnrt'].map((letter) => letter.charCodeAt(0)));
const LETTER_U = 0x75;

/** Bytes of the escape whose letter is at `at`. */
function escapeAt(bytes: Buffer, at: number): number {
  const letter = bytes[at] ?? 0;
  if (SHORT_ESCAPES.has(letter)) return 1;
  const digits = letter === LETTER_U ? bytes.toString('latin1', at + 1, at + 5) : '';
  // Halves of surrogate pairs are for JSON.parse.
  if (!/^[0-9a-fA-F]{4}$/.test(digits) || /^d[89a-f]/i.test(digits)) return unusual();
  return 5;
}
