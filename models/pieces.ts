/** The pieces of a vocabulary, by their texts: as objects, or where they lie in the bytes of a file. */

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
