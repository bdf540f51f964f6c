/**
 * Reads the vocabulary and the merges of a tokenizer.json from its bytes, in one pass and without an object for each of
 * their hundred thousands of entries, and writes them anew in the shortest form that the tokenizer library takes. What
 * is not written as tokenizers usually are is left to JSON.parse: nothing is refused here, and no message made.
 */
import { isUtf8 } from 'node:buffer';
import { MAX_ID, MAX_MERGES, MAX_PIECE, ScannedPieces } from './vocabulary.js';

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
const NINE = 0x39;
/** Whitespace of JSON. */
const isBlank = (code: number): boolean => code === SPACE || code === 0x0a || code === 0x0d || code === 0x09;

/** The large parts of a tokenizer.json. */
export interface ScannedTokenizer {
  /** The file with an empty object or list in place of each of them. */
  readonly rest: string;
  readonly pieces: ScannedPieces;
  readonly hasMerges: boolean;
  /** They as members of a JSON object, written anew: UTF-8, in parts. */
  readonly written: readonly Uint8Array[];
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
    return new VocabularyScanner(bytes).file();
  } catch (error) {
    if (error instanceof Unusual) return undefined;
    throw error;
  }
}

interface ByteRange {
  readonly from: number;
  readonly to: number;
}

class VocabularyScanner {
  private readonly bytes: Buffer;
  private at = 0;
  /** What is written anew; never longer than what it is made of. */
  private readonly out: Buffer;
  private end = 0;
  /** Of the string that was copied last. */
  private hash = 0;
  private hasEscape = false;
  private spaces = 0;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.out = Buffer.allocUnsafe(bytes.length);
  }

  file(): ScannedTokenizer {
    let model: { readonly vocab: ByteRange; readonly merges: ByteRange | undefined } | undefined;
    let found: Omit<ScannedTokenizer, 'rest'> | undefined;
    this.members((key) => {
      if (key !== 'model') return this.skip();
      if (found !== undefined) unusual();
      let vocab: { readonly range: ByteRange; readonly pieces: ScannedPieces; readonly written: ByteRange } | undefined;
      let merges: { readonly range: ByteRange; readonly written: ByteRange } | undefined;
      this.members((name) => {
        const [from, start] = [this.at, this.end];
        if (name === 'vocab') {
          if (vocab !== undefined) unusual();
          const pieces = this.vocabulary();
          vocab = { range: { from, to: this.at }, pieces, written: { from: start, to: this.end } };
        } else if (name === 'merges') {
          if (merges !== undefined) unusual();
          this.merges();
          merges = { range: { from, to: this.at }, written: { from: start, to: this.end } };
        } else this.skip();
      });
      if (vocab === undefined) return unusual();
      const [own, pairs] = [vocab.written, merges?.written];
      model = { vocab: vocab.range, merges: merges?.range };
      found = {
        pieces: vocab.pieces,
        hasMerges: pairs !== undefined,
        written: [
          Buffer.from('"vocab":'),
          this.writtenIn(own),
          ...(pairs === undefined ? [] : [Buffer.from(',"merges":'), this.writtenIn(pairs)]),
        ],
      };
    });
    this.blanks();
    if (this.at !== this.bytes.length || model === undefined || found === undefined) return unusual();
    return { rest: this.without(model.vocab, model.merges), ...found };
  }

  private without(vocab: ByteRange, merges: ByteRange | undefined): string {
    const holes = [{ ...vocab, empty: '{}' }, ...(merges === undefined ? [] : [{ ...merges, empty: '[]' }])];
    const parts: string[] = [];
    let from = 0;
    for (const hole of holes.sort((a, b) => a.from - b.from)) {
      parts.push(this.bytes.toString('utf8', from, hole.from), hole.empty);
      from = hole.to;
    }
    return parts.join('') + this.bytes.toString('utf8', from);
  }

  private writtenIn({ from, to }: ByteRange): Uint8Array {
    return this.out.subarray(from, to);
  }

  /** The byte at the place that follows blanks. */
  private blanks(): number {
    const { bytes } = this;
    const { length } = bytes;
    for (let { at } = this; at < length; at++) {
      const code = bytes[at]!;
      if (code > SPACE || !isBlank(code)) {
        this.at = at;
        return code;
      }
    }
    this.at = length;
    return -1;
  }

  private expect(code: number): void {
    if (this.blanks() !== code) unusual();
    this.at++;
  }

  /** The members of an object; `read` takes each value, whose first byte is next. Keys have no escapes. */
  private members(read: (key: string) => void): void {
    this.expect(OPEN_OBJECT);
    if (this.blanks() === CLOSE_OBJECT) {
      this.at++;
      return;
    }
    for (;;) {
      if (this.blanks() !== QUOTE) unusual();
      const from = this.at + 1;
      this.skipString();
      const key = this.bytes.toString('utf8', from, this.at - 1);
      if (key.includes('\\')) unusual();
      this.expect(COLON);
      this.blanks();
      read(key);
      const next = this.blanks();
      this.at++;
      if (next === CLOSE_OBJECT) return;
      if (next !== COMMA) unusual();
    }
  }

  private skipString(): void {
    const bytes = this.bytes;
    let at = this.at + 1;
    for (; at < bytes.length; at++) {
      const code = bytes[at]!;
      if (code === QUOTE) {
        this.at = at + 1;
        return;
      }
      if (code === BACKSLASH) at++;
    }
    unusual();
  }

  /** Any value; whether it is one is for JSON.parse to say. */
  private skip(): void {
    const bytes = this.bytes;
    let depth = 0;
    while (this.at < bytes.length) {
      const code = bytes[this.at]!;
      if (code === QUOTE) this.skipString();
      else if (code === OPEN_OBJECT || code === OPEN_LIST) {
        depth++;
        this.at++;
      } else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
        if (depth === 0) return;
        depth--;
        this.at++;
      } else if (code === COMMA && depth === 0) return;
      else this.at++;
      if (depth === 0 && (code === QUOTE || code === CLOSE_OBJECT || code === CLOSE_LIST)) return;
    }
  }

  /** `{"piece": id, …}`, every id once and every piece once. */
  private vocabulary(): ScannedPieces {
    const bytes = this.bytes;
    const out = this.out;
    const pieces = new ScannedPieces(bytes);
    this.expect(OPEN_OBJECT);
    out[this.end++] = OPEN_OBJECT;
    if (this.blanks() === CLOSE_OBJECT) unusual();
    for (;;) {
      if (this.blanks() !== QUOTE) unusual();
      const from = this.at + 1;
      this.copyString();
      const to = this.at - 1;
      this.expect(COLON);
      out[this.end++] = COLON;
      this.blanks();
      const start = this.at;
      let at = start;
      let { end } = this;
      let id = 0;
      for (; at < bytes.length && id < MAX_ID; at++) {
        const code = bytes[at]!;
        if (code < ZERO || code > NINE) break;
        id = 10 * id + code - ZERO;
        out[end++] = code;
      }
      if (at === start || id >= MAX_ID || (at > start + 1 && bytes[start] === ZERO)) unusual();
      this.at = at;
      this.end = end;
      if (!pieces.add(from, to, this.hash, this.hasEscape, id)) unusual();
      const next = this.blanks();
      this.at++;
      out[this.end++] = next;
      if (next === CLOSE_OBJECT) break;
      if (next !== COMMA) unusual();
    }
    if (!pieces.settle()) unusual();
    return pieces;
  }

  /**
   * A list of pairs, or of texts with one space. Pairs become such texts, which the library reads faster, unless a
   * piece has a space itself.
   */
  private merges(): void {
    const [from, start] = [this.at, this.end];
    if (this.mergeList(true)) return;
    this.at = from;
    this.end = start;
    this.mergeList(false);
  }

  /** False where a pair cannot be `joined` to a text. */
  private mergeList(joined: boolean): boolean {
    const out = this.out;
    this.expect(OPEN_LIST);
    out[this.end++] = OPEN_LIST;
    if (this.blanks() === CLOSE_LIST) {
      this.at++;
      out[this.end++] = CLOSE_LIST;
      return true;
    }
    const arePairs = this.blanks() === OPEN_LIST;
    for (let count = 1; ; count++) {
      if (count > MAX_MERGES) unusual();
      const first = this.end;
      if (arePairs) {
        this.expect(OPEN_LIST);
        if (!joined) out[this.end++] = OPEN_LIST;
        if (this.blanks() !== QUOTE) unusual();
        this.copyString();
        if (joined && (this.spaces > 0 || isHeading(out, first + 1, this.end, this.hasEscape))) return false;
        this.expect(COMMA);
        if (this.blanks() !== QUOTE) unusual();
        if (joined) this.end--;
        else out[this.end++] = COMMA;
        this.copyString(joined ? SPACE : QUOTE);
        if (joined && this.spaces > 0) return false;
        this.expect(CLOSE_LIST);
        if (!joined) out[this.end++] = CLOSE_LIST;
      } else {
        if (this.blanks() !== QUOTE) unusual();
        this.copyString();
        // Both parts have letters: `" b"` and `"a "` are no pairs.
        const [begin, end] = [out[first + 1], out[this.end - 2]];
        if (this.spaces !== 1 || begin === SPACE || end === SPACE) unusual();
      }
      const next = this.blanks();
      this.at++;
      out[this.end++] = next;
      if (next === CLOSE_LIST) return true;
      if (next !== COMMA) unusual();
    }
  }

  /** Copies a string as it is written, one or two pieces long; `open` takes the place of its first quote. */
  private copyString(open = QUOTE): void {
    const bytes = this.bytes;
    const out = this.out;
    const last = Math.min(bytes.length, this.at + 2 * MAX_PIECE);
    let at = this.at + 1;
    let { end } = this;
    let hash = 0x811c9dc5;
    let spaces = 0;
    let hasEscape = false;
    out[end++] = open;
    for (;;) {
      if (at >= last) unusual();
      const code = bytes[at++]!;
      out[end++] = code;
      if (code === QUOTE) break;
      hash = Math.imul(hash ^ code, 0x01000193);
      if (code <= SPACE) {
        if (code < SPACE) unusual();
        spaces++;
      }
      if (code !== BACKSLASH) continue;
      hasEscape = true;
      for (const stop = at + escapeAt(bytes, at); at < stop;) out[end++] = bytes[at++]!;
    }
    this.at = at;
    this.end = end;
    this.hash = hash;
    this.spaces = spaces;
    this.hasEscape = hasEscape;
  }
}

const HASH = 0x23;
const VERSION = Buffer.from('#version');
/** Whether the library could take a text with this beginning for a heading, and leave it out. */
function isHeading(out: Buffer, from: number, to: number, hasEscape: boolean): boolean {
  if (hasEscape) return out[from] === HASH || (out[from] === BACKSLASH && unitAt(out, from + 1) === HASH);
  return out[from] === HASH && out.subarray(from, to).subarray(0, VERSION.length).equals(VERSION);
}

const SHORT_ESCAPES: ReadonlySet<number> = new Set([...'"\\/bfnrt'].map((letter) => letter.charCodeAt(0)));
const LETTER_U = 0x75;

/** The unit that an escape stands for, whose letter is at `at`; -1 where it is none of four digits. */
function unitAt(bytes: Buffer, at: number): number {
  const digits = bytes[at] === LETTER_U ? bytes.toString('latin1', at + 1, at + 5) : '';
  return /^[0-9a-fA-F]{4}$/.test(digits) ? parseInt(digits, 16) : -1;
}

/** Bytes of the escape whose letter is at `at`, both halves of a pair. Halves by themselves are for JSON.parse. */
function escapeAt(bytes: Buffer, at: number): number {
  if (SHORT_ESCAPES.has(bytes[at] ?? 0)) return 1;
  const unit = unitAt(bytes, at);
  if (unit < 0 || unit === SPACE) return unusual();
  if ((unit & 0xf800) !== 0xd800) return 5;
  const low = bytes[at + 5] === BACKSLASH ? unitAt(bytes, at + 6) : -1;
  return unit < 0xdc00 && (low & 0xfc00) === 0xdc00 && low >= 0 ? 11 : unusual();
}
