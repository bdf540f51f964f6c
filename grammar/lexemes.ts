/** What the tokens of a vocabulary do inside of lexemes: shared by all grammars, because most have the same strings. */
import { ByteCache } from './byteCache.js';
import { LIMITS } from './limits.js';
import { Automaton } from './regular/automaton.js';
import { NOTHING } from './regular/nodes.js';
import type { TokenTree, Vocabulary } from './vocabulary.js';
import type { Work } from './work.js';

/** What a tree holds for one state of the automaton. */
export interface Inside {
  /** Tokens that stay inside of the lexeme, where they are few. */
  readonly tokens: Int32Array | undefined;
  /** Their mask, where they are many. */
  readonly mask: Uint32Array | undefined;
  /** Nodes at which the lexeme may end and below which there are tokens. */
  readonly exits: Int32Array;
}

export class Lexemes {
  readonly vocabulary: Vocabulary;
  readonly automaton: Automaton;
  readonly #insides = new ByteCache<number, Inside>(LIMITS.cacheBytes);
  /** What the last walk found: the first `foundCount` and `exitCount` of these. */
  readonly found: Int32Array;
  readonly exits: Int32Array;
  foundCount = 0;
  exitCount = 0;
  readonly #path: Int32Array;

  constructor(vocabulary: Vocabulary, work: Work) {
    this.vocabulary = vocabulary;
    this.automaton = new Automaton(work);
    this.found = new Int32Array(vocabulary.size);
    this.exits = new Int32Array(Math.max(1, ...vocabulary.trees.map(({ bytes }) => bytes.length)));
    this.#path = new Int32Array(LIMITS.tokenBytes + 1);
  }

  /** What the tree at that place holds for a state. */
  inside(treeIndex: number, state: number): Inside {
    const tree = this.vocabulary.trees[treeIndex]!;
    const near = this.automaton.near(state, tree.longest);
    const key = treeIndex * 2 ** 26 + near;
    const known = this.#insides.get(key);
    if (known !== undefined) return known;
    this.walk(tree, 0, near);
    const found = this.found.subarray(0, this.foundCount);
    const exits = this.exits.slice(0, this.exitCount);
    const words = Math.ceil(this.vocabulary.size / 32);
    const isMany = found.length > words / 4;
    const inside = {
      tokens: isMany ? undefined : found.slice(),
      mask: isMany ? maskOf(found, words) : undefined,
      exits,
    };
    const sizeBytes = 4 * (exits.length + (isMany ? words : found.length)) + 256;
    this.#insides.set(key, inside, sizeBytes);
    return inside;
  }

  /** Finds the tokens below a node that stay inside of the lexeme from `state` there, and the nodes at which it may end. */
  walk(tree: TokenTree, begin: number, state: number): void {
    const { automaton, found, exits } = this;
    const path = this.#path;
    const { twins } = this.vocabulary;
    const { bytes, depths, ends, tokens } = tree;
    const { isNullable } = automaton;
    let { table, classes, rowOf, classesOf } = automaton;
    const end = ends[begin]!;
    let foundCount = 0;
    let exitCount = 0;
    let visited = 1;
    path[depths[begin]!] = state;
    for (let node = begin + 1; node < end; visited++) {
      const depth = depths[node]!;
      const from = path[depth - 1]!;
      let row = rowOf[from];
      if (row === undefined || row < 0) {
        automaton.prepare(from);
        ({ table, classes, rowOf, classesOf } = automaton);
        row = rowOf[from]!;
      }
      const to = table[row + classes[classesOf[from]! + bytes[node]!]!]!;
      if (to === NOTHING) {
        node = ends[node]!;
        continue;
      }
      path[depth] = to;
      for (let token = tokens[node]!; token >= 0; token = twins[token]!) found[foundCount++] = token;
      if (isNullable[to]! && ends[node]! > node + 1) exits[exitCount++] = node;
      node++;
    }
    this.foundCount = foundCount;
    this.exitCount = exitCount;
    automaton.work.spend(visited);
  }
}

const maskOf = (tokens: Int32Array, words: number): Uint32Array => {
  const mask = new Uint32Array(words);
  for (const token of tokens) mask[token >>> 5]! |= 1 << (token & 31);
  return mask;
};
