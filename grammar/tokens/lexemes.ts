/** What the tokens of a vocabulary do inside of lexemes: shared by all grammars, because most have the same strings. */
import { LIMITS } from '../limits.js';
import { Automaton } from '../regular/automaton.js';
import { NOTHING } from '../regular/nodes.js';
import { Relatives } from '../regular/relatives.js';
import type { Work } from '../work.js';
import { ByteCache } from './byteCache.js';
import type { TokenTree, Vocabulary } from './vocabulary.js';

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
  readonly #relatives: Relatives;
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
    this.#relatives = new Relatives(this.automaton);
    this.found = new Int32Array(vocabulary.size);
    this.exits = new Int32Array(Math.max(1, ...vocabulary.trees.map(({ bytes }) => bytes.length)));
    this.#path = new Int32Array(LIMITS.tokenBytes + 1);
  }

  /** What the tree at that place holds for a state. */
  inside(treeIndex: number, state: number): Inside {
    const tree = this.vocabulary.trees[treeIndex]!;
    const near = this.#relatives.near(state, tree.longest);
    const key = treeIndex * 2 ** 26 + near;
    const known = this.#insides.get(key);
    if (known !== undefined) return known;
    const wider = this.#relatives.wider(near);
    const most = wider === undefined ? undefined : this.inside(treeIndex, wider);
    const inside =
      most?.mask === undefined ? this.#insideOf(tree, near) : this.#withinOf(tree, near, wider!, most.mask, most.exits);
    const { tokens, mask, exits } = inside;
    this.#insides.set(key, inside, 4 * (exits.length + (tokens?.length ?? 0) + (mask?.length ?? 0)) + 256);
    return inside;
  }

  /** Whether many bytes may come at a state. */
  isWide(state: number): boolean {
    let count = 0;
    for (let byte = 32; byte < 127; byte++) if (this.automaton.next(state, byte) !== NOTHING) count++;
    return count > 16;
  }

  #insideOf(tree: TokenTree, state: number): Inside {
    this.walk(tree, 0, state);
    const found = this.found.subarray(0, this.foundCount);
    const exits = this.exits.slice(0, this.exitCount);
    const words = Math.ceil(this.vocabulary.size / 32);
    if (found.length <= words / 4) return { tokens: found.slice(), mask: undefined, exits };
    const mask = new Uint32Array(words);
    for (const token of found) mask[token >>> 5]! |= 1 << (token & 31);
    return { tokens: undefined, mask, exits };
  }

  /** The same for a state whose texts are all those of a wider one: only where they differ is walked. */
  #withinOf(tree: TokenTree, state: number, wider: number, most: Uint32Array, mostExits: Int32Array): Inside {
    const { automaton, exits } = this;
    const { twins } = this.vocabulary;
    const { bytes, depths, ends, tokens } = tree;
    const mask = most.slice();
    const path = [state];
    const widerPath = [wider];
    let exitCount = 0;
    let mostAt = 0;
    const keepExits = (end: number): void => {
      while (mostAt < mostExits.length && mostExits[mostAt]! < end) exits[exitCount++] = mostExits[mostAt++]!;
    };
    const skipExits = (end: number): void => {
      while (mostAt < mostExits.length && mostExits[mostAt]! < end) mostAt++;
    };
    let visited = 1;
    for (let node = 1; node < bytes.length; visited++) {
      const depth = depths[node]!;
      const end = ends[node]!;
      const widerTo = automaton.next(widerPath[depth - 1]!, bytes[node]!);
      const to = automaton.next(path[depth - 1]!, bytes[node]!);
      if (to === widerTo) {
        node = end;
        continue;
      }
      keepExits(node);
      if (to === NOTHING) {
        for (let each = node; each < end; each++) {
          for (let token = tokens[each]!; token >= 0; token = twins[token]!) mask[token >>> 5]! &= ~(1 << (token & 31));
        }
        visited += end - node;
        skipExits(end);
        node = end;
        continue;
      }
      skipExits(node + 1);
      if (automaton.isNullable[to]! && end > node + 1) exits[exitCount++] = node;
      path[depth] = to;
      widerPath[depth] = widerTo;
      node++;
    }
    keepExits(bytes.length);
    automaton.work.spend(visited);
    return { tokens: undefined, mask, exits: exits.slice(0, exitCount) };
  }

  /**
   * Sets the bits of tokens below nodes that stay inside of the lexeme from `state` at each of them. Gives the nodes at
   * which it may end, each as often as it was met.
   */
  enter(tree: TokenTree, nodes: readonly number[], state: number, mask: Uint32Array): number[] {
    const { automaton } = this;
    const { twins } = this.vocabulary;
    const { bytes, ends, tokens } = tree;
    const exits: number[] = [];
    // Makes the row of the state.
    automaton.next(state, 0);
    const row = automaton.rowOf[state]!;
    const classes = automaton.classesOf[state]!;
    let visited = nodes.length;
    for (const node of nodes) {
      const end = ends[node]!;
      for (let child = node + 1; child < end; child = ends[child]!) {
        visited++;
        const to = automaton.table[row + automaton.classes[classes + bytes[child]!]!]!;
        if (to === NOTHING) continue;
        for (let token = tokens[child]!; token >= 0; token = twins[token]!) mask[token >>> 5]! |= 1 << (token & 31);
        if (ends[child] === child + 1) continue;
        if (automaton.isNullable[to]!) exits.push(child);
        this.walk(tree, child, to);
        for (let at = 0; at < this.foundCount; at++) mask[this.found[at]! >>> 5]! |= 1 << (this.found[at]! & 31);
        for (let at = 0; at < this.exitCount; at++) exits.push(this.exits[at]!);
      }
    }
    automaton.work.spend(visited);
    return exits;
  }

  /** Finds tokens below a node that stay inside of the lexeme from `state` there, and nodes at which it may end. */
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
