/** The vocabulary of a tokenizer: its pieces, the settings of its model, and the characters of its normalizer. */
import { z } from 'zod';
import { isRecord, quote } from '../../system/json.js';

// The pieces of a vocabulary, by their texts: as objects, or where they lie in the bytes of a file.

export const MAX_ID = 1 << 22;
/** Characters. */
export const MAX_PIECE = 1024;

/** What is asked of a vocabulary. */
export interface Pieces {
  readonly count: number;
  /** -1 where there is no piece. */
  readonly largestId: number;
  hasId(id: number): boolean;
  /** Undefined where there is no such piece. */
  idOf(text: string): number | undefined;
  /** Whether a line's end, as it is or as byte-level pieces write it, comes before a letter in a piece. */
  readonly crossesLines: boolean;
}

/** A line's end before a letter. */
export const CROSSES = /[\nĊ][A-Za-z]/;
const LINE_END = Buffer.from('Ċ');
const isLetter = (code: number): boolean => (code >= 0x41 && code <= 0x5a) || (code >= 0x61 && code <= 0x7a);

/** Pieces of a file, whose bytes are kept. Places are those between the quotes of a key. */
export class ScannedPieces implements Pieces {
  readonly #bytes: Buffer;
  #from = new Uint32Array(1 << 15);
  #to = new Uint32Array(1 << 15);
  #hashes = new Int32Array(1 << 15);
  #ids = new Int32Array(1 << 15);
  #length = 0;
  /** Entry numbers by hash; 0 is free, others are one more. */
  #slots = new Int32Array(0);
  /** Pieces that the file writes with escapes. */
  readonly #escaped = new Map<string, number>();
  #taken = new Uint8Array(1 << 15);
  #largestId = -1;
  #crosses = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get count(): number {
    return this.#length + this.#escaped.size;
  }

  get largestId(): number {
    return this.#largestId;
  }

  get crossesLines(): boolean {
    return this.#crosses;
  }

  hasId(id: number): boolean {
    return this.#taken[id] === 1;
  }

  /** Takes a key; `hash` is FNV-1a of its bytes. False where the id or the key is taken, or the key is too long. */
  add(from: number, to: number, hash: number, hasEscape: boolean, id: number): boolean {
    if (to - from > MAX_PIECE || this.#taken[id] === 1) return false;
    if (id >= this.#taken.length) {
      const size = 1 << Math.ceil(Math.log2(Math.min(MAX_ID, id + 1)));
      const larger = new Uint8Array(size);
      larger.set(this.#taken);
      this.#taken = larger;
    }
    this.#taken[id] = 1;
    if (id > this.#largestId) this.#largestId = id;
    if (hasEscape) {
      const text = JSON.parse(`"${this.#bytes.toString('utf8', from, to)}"`) as string;
      if (this.#escaped.has(text)) return false;
      this.#escaped.set(text, id);
      return true;
    }
    if (this.#length === this.#ids.length) this.#grow();
    const at = this.#length++;
    this.#from[at] = from;
    this.#to[at] = to;
    this.#hashes[at] = hash;
    this.#ids[at] = id;
    return true;
  }

  #grow(): void {
    const larger = <T extends Uint32Array | Int32Array>(made: T, old: T): T => {
      made.set(old);
      return made;
    };
    const size = 2 * this.#length;
    this.#from = larger(new Uint32Array(size), this.#from);
    this.#to = larger(new Uint32Array(size), this.#to);
    this.#hashes = larger(new Int32Array(size), this.#hashes);
    this.#ids = larger(new Int32Array(size), this.#ids);
  }

  /** To be called when all are there. False where a key is there twice, or keys were made to have equal hashes. */
  settle(): boolean {
    const size = 1 << Math.ceil(Math.log2(2 * this.#length + 2));
    this.#slots = new Int32Array(size);
    let steps = 0;
    for (let at = 0; at < this.#length; at++) {
      let slot = mixed(this.#hashes[at]!) & (size - 1);
      for (let other = this.#slots[slot]!; other !== 0; other = this.#slots[slot]!) {
        if (this.#isSame(at, other - 1) || ++steps > MAX_STEPS * (this.#length + 1)) return false;
        slot = (slot + 1) & (size - 1);
      }
      this.#slots[slot] = at + 1;
    }
    for (const text of this.#escaped.keys()) {
      if (this.#find(text) !== undefined) return false;
      this.#crosses ||= CROSSES.test(text);
    }
    this.#crosses ||= this.#findCrossing();
    return true;
  }

  idOf(text: string): number | undefined {
    return this.#escaped.get(text) ?? this.#find(text);
  }

  #find(text: string): number | undefined {
    if (this.#slots.length === 0 || text.length > MAX_PIECE) return undefined;
    const key = Buffer.from(text);
    const size = this.#slots.length;
    let hash = 0x811c9dc5;
    for (const code of key) hash = Math.imul(hash ^ code, 0x01000193);
    for (let slot = mixed(hash) & (size - 1); this.#slots[slot] !== 0; slot = (slot + 1) & (size - 1)) {
      const at = this.#slots[slot]! - 1;
      const [from, to] = [this.#from[at]!, this.#to[at]!];
      if (this.#hashes[at] === hash && to - from === key.length && key.compare(this.#bytes, from, to) === 0)
        return this.#ids[at];
    }
    return undefined;
  }

  #isSame(a: number, b: number): boolean {
    if (this.#hashes[a] !== this.#hashes[b]) return false;
    const [from, to] = [this.#from[a]!, this.#to[a]!];
    return this.#bytes.compare(this.#bytes, this.#from[b], this.#to[b], from, to) === 0;
  }

  #findCrossing(): boolean {
    if (this.#length === 0) return false;
    const [first, last] = [this.#from[0]!, this.#to[this.#length - 1]!];
    const bytes = this.#bytes.subarray(first, last);
    for (let at = bytes.indexOf(LINE_END); at !== -1; at = bytes.indexOf(LINE_END, at + 1))
      if (isLetter(bytes[at + LINE_END.length] ?? 0)) return true;
    return false;
  }
}

/** Of places looked at for a piece, on average; a file whose pieces need more was made to be slow. */
const MAX_STEPS = 16;
/** FNV's low bits alone are alike for alike texts. */
const mixed = (hash: number): number => hash ^ (hash >>> 15);

/** The pieces of a vocabulary that JSON.parse has read. */
export function piecesOf(vocab: Readonly<Record<string, number>>): Pieces {
  const texts = Object.keys(vocab);
  const ids = new Set(Object.values(vocab));
  return {
    count: texts.length,
    largestId: [...ids].reduce((most, id) => Math.max(most, id), -1),
    hasId: (id) => ids.has(id),
    idOf: (text) => (Object.hasOwn(vocab, text) ? vocab[text] : undefined),
    crossesLines: texts.some((text) => CROSSES.test(text)),
  };
}

/** The pieces of a list, which are numbered in order. */
export function piecesOfList(vocab: readonly (readonly [piece: string, score: number])[]): Pieces {
  let ids: ReadonlyMap<string, number> | undefined;
  return {
    count: vocab.length,
    largestId: vocab.length - 1,
    hasId: (id) => id < vocab.length,
    idOf: (text) => (ids ??= new Map(vocab.map(([piece], id) => [piece, id]))).get(text),
    crossesLines: vocab.some(([text]) => CROSSES.test(text)),
  };
}

// The `model` of a tokenizer.json: schemas of the types that are read, with bounds on every size.

/** Twice those of the largest published vocabularies. */
export const MAX_MERGES = 1 << 20;
/** Members of a list of components. */
export const MAX_COMPONENTS = 16;
/** Log-probabilities of pieces are about -20 to 0. Sums of bounded ones stay finite. */
const MAX_SCORE = 1e6;
/** WordPiece compares every part of a word with the vocabulary. */
const MAX_WORD = 1000;

const isId = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_ID;
const isPiece = (value: unknown): value is string => typeof value === 'string' && value.length <= MAX_PIECE;
const isScore = (value: unknown): value is number => typeof value === 'number' && Math.abs(value) <= MAX_SCORE;

export const id = z
  .int()
  .min(0)
  .max(MAX_ID - 1);
export const short = z.string().min(1).max(256);
/** A component without settings. */
export const plain = <T extends string>(type: T): z.ZodObject<{ type: z.ZodLiteral<T> }> =>
  z.object({ type: z.literal(type) });
const flag = z.boolean().optional();
const unaffixed = z.literal('').nullish();
const unknownToken = z.string().max(MAX_PIECE);

const bpe = z.object({
  type: z.literal('BPE'),
  unk_token: unknownToken.nullish(),
  continuing_subword_prefix: unaffixed,
  end_of_word_suffix: unaffixed,
  fuse_unk: flag,
  byte_fallback: flag,
  ignore_merges: flag,
});
const wordLevel = z.object({ type: z.literal('WordLevel'), unk_token: unknownToken });
const wordPiece = z.object({
  type: z.literal('WordPiece'),
  unk_token: unknownToken,
  continuing_subword_prefix: z.string().max(MAX_PIECE).default('##'),
  max_input_chars_per_word: z.int().min(1).max(MAX_WORD).default(100),
});
const unigram = z.object({
  type: z.literal('Unigram'),
  /** The piece that stands for what no piece covers. A text that needs it where it is absent is refused. */
  unk_id: id.nullish(),
  byte_fallback: flag,
});

/** Everything of a model but its vocabulary and merges. */
export const modelSettings = z.discriminatedUnion('type', [bpe, wordLevel, unigram, wordPiece]);
export type ModelSettings = z.infer<typeof modelSettings>;

type Vocab = Readonly<Record<string, number>>;
export type Merge = string | readonly [string, string];
type PieceScores = readonly (readonly [piece: string, score: number])[];

/** The vocabulary of a model as objects. */
export interface WholeVocabulary {
  readonly vocab: Vocab | PieceScores;
  readonly merges?: readonly Merge[];
}

/** Says what is wrong, at a key of the model. */
export type Fail = (key: string, what: string) => never;

/** Checked by hand: a schema an entry takes a second for a hundred thousand, and loses a piece called __proto__. */
function checkVocab(value: unknown, fail: Fail): Vocab {
  const expected = `expected an object of pieces of at most ${MAX_PIECE} characters and their ids below ${MAX_ID}`;
  if (!isRecord(value)) return fail('vocab', expected);
  const texts = new Map<number, string>();
  for (const [text, number] of Object.entries(value)) {
    if (!isPiece(text) || !isId(number)) return fail('vocab', `${expected}; ${quote(text)} is ${quote(number)}`);
    const other = texts.get(number);
    if (other !== undefined) return fail('vocab', `${quote(other)} and ${quote(text)} both have the id ${number}`);
    texts.set(number, text);
  }
  return value as Vocab;
}

const isMerge = (pair: unknown): pair is Merge =>
  Array.isArray(pair)
    ? pair.length === 2 && pair.every(isPiece)
    : typeof pair === 'string' && pair.length <= 2 * MAX_PIECE && /^[^ ]+ [^ ]+$/.test(pair);

function checkMerges(value: unknown, fail: Fail): readonly Merge[] {
  if (!Array.isArray(value) || value.length > MAX_MERGES)
    return fail('merges', `expected a list of at most ${MAX_MERGES} pairs of pieces`);
  // The library takes lists or texts, not both in one file.
  const stray = value.findIndex((pair: unknown) => !isMerge(pair) || typeof pair !== typeof value[0]);
  if (stray !== -1)
    return fail('merges', `merge ${stray + 1} of ${value.length} is no pair of pieces: ${quote(value[stray])}`);
  return value as readonly Merge[];
}

function checkScores(value: unknown, fail: Fail): PieceScores {
  const isEntry = (entry: unknown): boolean =>
    Array.isArray(entry) && entry.length === 2 && isPiece(entry[0]) && entry[0] !== '' && isScore(entry[1]);
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_ID || !value.every(isEntry))
    return fail(
      'vocab',
      `expected 1 to ${MAX_ID} pairs of a piece of 1 to ${MAX_PIECE} characters and a score within ±${MAX_SCORE}`,
    );
  return value as PieceScores;
}

/** The vocabulary of a model that JSON.parse has read. */
export function checkVocabulary(
  { type }: ModelSettings,
  model: Readonly<Record<string, unknown>>,
  fail: Fail,
): WholeVocabulary & { readonly pieces: Pieces } {
  if (type === 'Unigram') {
    const vocab = checkScores(model['vocab'], fail);
    return { vocab, pieces: piecesOfList(vocab) };
  }
  const vocab = checkVocab(model['vocab'], fail);
  const pieces = piecesOf(vocab);
  return type === 'BPE' ? { vocab, merges: checkMerges(model['merges'], fail), pieces } : { vocab, pieces };
}

/** What the settings say of the pieces. */
export function checkUnknown(settings: ModelSettings, pieces: Pieces, fail: Fail): void {
  const isOutside =
    settings.type === 'Unigram'
      ? (settings.unk_id ?? 0) >= pieces.count
      : settings.type === 'WordPiece' && pieces.idOf(settings.unk_token) === undefined;
  if (isOutside) fail(settings.type === 'Unigram' ? 'unk_id' : 'unk_token', 'it is not in the vocabulary');
}

/** Two different pieces with one id; undefined if there are none. */
export function sharedId(
  pieces: Iterable<readonly [piece: string, id: number]>,
): { readonly id: number; readonly pieces: readonly [string, string] } | undefined {
  const texts = new Map<number, string>();
  for (const [piece, id] of pieces) {
    const other = texts.get(id);
    if (other !== undefined && other !== piece) return { id, pieces: [other, piece] };
    texts.set(id, piece);
  }
  return undefined;
}

// The table of characters of a `Precompiled` normalizer, checked before the tokenizer library reads it: the library
// follows its offsets without looking, and ends the process where one leaves the table.
//
// Layout (SentencePiece's precompiled_charsmap, little-endian): u32 bytes of the trie; the trie; the replacements,
// UTF-8 strings that end in NUL. The trie is a double array of u32 units, as Darts-clone writes it:
//
//     bits 0-7 label | bit 8 has a leaf | bit 9 offset counts blocks of 256 | bits 10-30 offset | bit 31 is a leaf
//
// A node whose unit is at `at` has its children at `at ^ offset ^ label`; its leaf is at `at ^ offset` and holds, in
// its low 31 bits, the byte at which the replacement begins.

/** SentencePiece's largest own table (NFKC with case folding) has 0.3 MB. */
const MAX_BYTES = 4 << 20;

const offsetOf = (unit: number): number => (unit >>> 10) << ((unit & 0x200) >>> 6);
const hasLeaf = (unit: number): boolean => (unit & 0x100) !== 0;

/** What a table may do to a text, or why it cannot be used. */
export type CharsmapVerdict =
  | { readonly problem: string; readonly longest?: never }
  | {
      readonly problem?: never;
      /** UTF-16 units of the longest replacement. */
      readonly longest: number;
    };

/** Checks a table in base64: every walk of the trie stays inside it, and every replacement is a whole string. */
export function checkCharsmap(base64: string): CharsmapVerdict {
  if (base64.length > Math.ceil(MAX_BYTES / 3) * 4) return { problem: `it has more than ${MAX_BYTES} bytes` };
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.toString('base64') !== base64) return { problem: 'it is not base64' };
  const trieBytes = bytes.length < 4 ? 0 : bytes.readUInt32LE(0);
  if (trieBytes === 0 || trieBytes % 4 !== 0 || trieBytes > bytes.length - 4)
    return { problem: `a trie of ${trieBytes} bytes in a table of ${bytes.length}` };
  const units = Uint32Array.from({ length: trieBytes / 4 }, (_, i) => bytes.readUInt32LE(4 + 4 * i));
  const replacements = bytes.subarray(4 + trieBytes);
  if (replacements.at(-1) !== 0) return { problem: 'its replacements do not end in NUL' };
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(replacements);
  } catch {
    return { problem: 'its replacements are not UTF-8' };
  }

  let longest = 0;
  const isSeen = new Uint8Array(units.length);
  const open = [0];
  isSeen[0] = 1;
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const unit = units[at]!;
    const base = at ^ offsetOf(unit);
    if (base >= units.length) return { problem: `unit ${at} of its trie leads out of the trie` };
    if (at !== 0 && hasLeaf(unit)) {
      const start = units[base]! & 0x7fff_ffff;
      if (start >= replacements.length || (replacements[start]! & 0xc0) === 0x80)
        return { problem: `unit ${base} of its trie names no replacement` };
      longest = Math.max(longest, replacements.toString('utf8', start, replacements.indexOf(0, start)).length);
    }
    for (let label = 1; label < 256; label++) {
      const child = base ^ label;
      if (child >= units.length) return { problem: `unit ${at} of its trie leads out of the trie` };
      if ((units[child]! & 0x8000_00ff) !== label || isSeen[child] === 1) continue;
      isSeen[child] = 1;
      open.push(child);
    }
  }
  return { longest };
}
