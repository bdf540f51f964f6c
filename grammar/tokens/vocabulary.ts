/** The bytes of all tokens of a tokenizer, as trees that an automaton walks. */
import { GrammarError } from '../grammar.js';
import { LIMITS } from '../limits.js';

/**
 * Nodes in depth-first order; node 0 is the root. Below node n are the nodes n + 1 … ends[n] - 1, so that a subtree
 * that an automaton cannot enter is skipped by one jump.
 */
export interface TokenTree {
  /** Bytes of its longest token. */
  readonly longest: number;
  readonly bytes: Uint8Array;
  readonly depths: Uint16Array;
  readonly ends: Int32Array;
  /** The token that ends at a node, or -1. Others with the same bytes follow by `Vocabulary.twins`. */
  readonly tokens: Int32Array;
}

export interface VocabularyParts {
  /** Bytes of each token in the middle of a text; none for special tokens and for numbers that are no token. */
  readonly bytes: readonly (Uint8Array | undefined)[];
  /** Special tokens by their texts. A grammar names them; no bytes match them. */
  readonly special: ReadonlyMap<string, number>;
  /** Tokens that end a text. */
  readonly endTokens: Iterable<number>;
}

/** Longest tokens of each tree. What a text may be in so many bytes is often the same for states that differ later. */
const LENGTHS = [8, 24, LIMITS.tokenBytes];

export class Vocabulary {
  readonly size: number;
  readonly bytes: readonly (Uint8Array | undefined)[];
  readonly special: ReadonlyMap<string, number>;
  readonly endTokens: readonly number[];
  readonly trees: readonly TokenTree[];
  /** The next token with the same bytes, or -1. */
  readonly twins: Int32Array;
  readonly #apart: ReadonlySet<number>;

  constructor({ bytes, special, endTokens }: VocabularyParts) {
    this.size = bytes.length;
    this.bytes = bytes;
    this.special = special;
    this.endTokens = [...endTokens].filter((id) => id >= 0 && id < bytes.length);
    if (this.endTokens.length === 0) throw new GrammarError('the vocabulary has no token that ends a text');
    this.#apart = new Set([...special.values(), ...this.endTokens]);
    this.twins = new Int32Array(bytes.length).fill(-1);
    // Texts of one letter a byte sort as their bytes do.
    const entries: { readonly text: string; readonly id: number }[] = [];
    for (const [id, each] of bytes.entries()) {
      if (each === undefined || each.length === 0 || each.length > LIMITS.tokenBytes || this.isApart(id)) continue;
      entries.push({ text: Buffer.from(each.buffer, each.byteOffset, each.length).toString('latin1'), id });
    }
    entries.sort((one, other) => (one.text < other.text ? -1 : one.text > other.text ? 1 : one.id - other.id));
    this.trees = LENGTHS.map((length, at) =>
      this.#treeOf(entries.filter(({ text }) => text.length <= length && text.length > (LENGTHS[at - 1] ?? 0))),
    ).filter(({ bytes: { length } }) => length > 1);
  }

  /** Special tokens, and those that end a text: bytes do not match them. */
  isApart(token: number): boolean {
    return this.#apart.has(token);
  }

  #treeOf(entries: readonly { readonly text: string; readonly id: number }[]): TokenTree {
    let before = '';
    let count = 1;
    for (const { text } of entries) {
      count += text.length - commonLength(before, text);
      before = text;
    }
    const bytes = new Uint8Array(count);
    const depths = new Uint16Array(count);
    const ends = new Int32Array(count);
    const tokens = new Int32Array(count).fill(-1);
    const path = [0];
    let last = 0;
    let longest = 0;
    before = '';
    for (const { text, id } of entries) {
      if (text === before) {
        let twin = tokens[last]!;
        while (this.twins[twin]! >= 0) twin = this.twins[twin]!;
        this.twins[twin] = id;
        continue;
      }
      const common = commonLength(before, text);
      while (path.length > common + 1) ends[path.pop()!] = last + 1;
      for (let at = common; at < text.length; at++) {
        path.push(++last);
        bytes[last] = text.charCodeAt(at);
        depths[last] = at + 1;
      }
      tokens[last] = id;
      longest = Math.max(longest, text.length);
      before = text;
    }
    while (path.length > 0) ends[path.pop()!] = last + 1;
    return { longest, bytes, depths, ends, tokens };
  }
}

const commonLength = (one: string, other: string): number => {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one.charCodeAt(at) === other.charCodeAt(at)) at++;
  return at;
};
