/** Regular expressions over bytes, interned: those that are equal by the laws below have the same number. */
import { GrammarError, type Regular } from '../grammar.js';
import { LIMITS } from '../limits.js';
import type { Work } from '../work.js';
import { bytesBetween, type ByteSet, commonOf, isEveryByte, isNoByte, unionOf } from './byteSet.js';

export type Node =
  | { readonly kind: 'nothing' }
  | { readonly kind: 'empty' }
  | { readonly kind: 'bytes'; readonly set: ByteSet }
  /** `first` is never a `then` itself. */
  | { readonly kind: 'then'; readonly first: number; readonly rest: number }
  /** Sorted, without repetition, at most one `bytes`. */
  | { readonly kind: 'either'; readonly of: readonly number[] }
  | { readonly kind: 'both'; readonly of: readonly number[] }
  | { readonly kind: 'repeat'; readonly of: number; readonly min: number; readonly max: number }
  | { readonly kind: 'not'; readonly of: number };

/** No text. */
export const NOTHING = 0;
/** The text without bytes. */
export const EMPTY = 1;
/** Every text. */
export const ANYTHING = 2;

/** Longer texts are not told apart. */
const MOST_BYTES = 2 ** 20;

export class Nodes {
  readonly work: Work;
  readonly nodes: Node[] = [];
  /** Whether the text without bytes is among its texts. */
  readonly isNullable: boolean[] = [];
  /** Without `both` and `not`: it has a text unless it is NOTHING. */
  readonly isPlain: boolean[] = [];
  /** With repetitions that are counted. */
  readonly isCounted: boolean[] = [];
  /** Bytes of its texts at least; less where parts of an intersection need more together. */
  readonly leastBytes: number[] = [];
  /** How deep derivatives recurse. */
  readonly #heights: number[] = [];
  readonly #sequences = new Map<number, number>();
  readonly #others = new Map<string, number>();
  readonly #single: number[] = [];
  /** Grammars share parts, and parts of grammars do: many of them are in each. */
  readonly #known = new WeakMap<Regular, number>();

  constructor(work: Work) {
    this.work = work;
    this.#add({ kind: 'nothing' }, false, true, 0);
    this.#add({ kind: 'empty' }, true, true, 0);
    this.#add({ kind: 'not', of: NOTHING }, true, true, 0);
    this.#others.set('!0', ANYTHING);
  }

  get size(): number {
    return this.nodes.length;
  }

  bytes(set: ByteSet): number {
    if (isNoByte(set)) return NOTHING;
    const key = `[${String.fromCharCode(...new Uint16Array(set.buffer, set.byteOffset, 16))}`;
    return this.#others.get(key) ?? this.#keep(key, { kind: 'bytes', set }, false, true, 0);
  }

  then(first: number, rest: number): number {
    if (first === NOTHING || rest === NOTHING) return NOTHING;
    if (first === EMPTY) return rest;
    if (rest === EMPTY) return first;
    const parts: number[] = [];
    let last = first;
    for (let node = this.nodes[last]!; node.kind === 'then'; node = this.nodes[last]!) {
      parts.push(node.first);
      last = node.rest;
    }
    let all = this.#pair(last, rest);
    for (let at = parts.length - 1; at >= 0; at--) all = this.#pair(parts[at]!, all);
    return all;
  }

  either(of: Iterable<number>): number {
    const parts = new Set<number>();
    let set: ByteSet | undefined;
    const add = (id: number): void => {
      const node = this.nodes[id]!;
      if (node.kind === 'bytes') set = set === undefined ? node.set : unionOf(set, node.set);
      else if (node.kind === 'either') node.of.forEach(add);
      else if (id !== NOTHING) parts.add(id);
    };
    for (const id of of) add(id);
    if (parts.has(ANYTHING)) return ANYTHING;
    if (set !== undefined) parts.add(this.bytes(set));
    if (parts.has(EMPTY) && [...parts].some((id) => id !== EMPTY && this.isNullable[id])) parts.delete(EMPTY);
    return this.#many('either', parts, NOTHING);
  }

  both(of: Iterable<number>): number {
    const parts = new Set<number>();
    let set: ByteSet | undefined;
    const add = (id: number): void => {
      const node = this.nodes[id]!;
      if (node.kind === 'bytes') set = set === undefined ? node.set : commonOf(set, node.set);
      else if (node.kind === 'both') node.of.forEach(add);
      else if (id !== ANYTHING) parts.add(id);
    };
    for (const id of of) add(id);
    if (set !== undefined) parts.add(this.bytes(set));
    if (parts.has(NOTHING)) return NOTHING;
    for (const id of parts) {
      const node = this.nodes[id]!;
      if (node.kind === 'not' && parts.has(node.of)) return NOTHING;
    }
    if (parts.has(EMPTY)) return [...parts].every((id) => this.isNullable[id]) ? EMPTY : NOTHING;
    return this.#many('both', parts, ANYTHING);
  }

  not(of: number): number {
    if (of === ANYTHING) return NOTHING;
    const node = this.nodes[of]!;
    if (node.kind === 'not') return node.of;
    const key = `!${of}`;
    const found = this.#others.get(key);
    return found ?? this.#keep(key, { kind: 'not', of }, !this.isNullable[of]!, false, this.#heights[of]! + 1);
  }

  repeat(of: number, min: number, max: number): number {
    if (max < min) return NOTHING;
    if (max === 0 || of === EMPTY) return EMPTY;
    if (of === NOTHING) return min === 0 ? EMPTY : NOTHING;
    if (of === ANYTHING || (min === 1 && max === 1)) return of;
    const least = this.isNullable[of]! ? 0 : min;
    const node = this.nodes[of]!;
    if (node.kind === 'repeat' && node.min === 0 && node.max === Infinity) return of;
    if (node.kind === 'bytes' && least === 0 && max === Infinity && isEveryByte(node.set)) return ANYTHING;
    const key = `*${of},${least},${max}`;
    const found = this.#others.get(key);
    if (found !== undefined) return found;
    const height = this.#heights[of]! + 1;
    return this.#keep(key, { kind: 'repeat', of, min: least, max }, least === 0, this.isPlain[of]!, height);
  }

  literal(bytes: Uint8Array, from = 0, to = bytes.length): number {
    this.work.spend(to - from);
    let all = EMPTY;
    for (let at = to - 1; at >= from; at--) all = this.#pairOrFirst(this.#byte(bytes[at]!), all);
    return all;
  }

  /** Any of these texts: a tree of their common beginnings. */
  literals(texts: readonly Uint8Array[]): number {
    const sorted = [...texts].sort((one, other) => Buffer.compare(one, other));
    return this.#tree(sorted, 0, sorted.length, 0, 0);
  }

  /** Throws GrammarError where it is nested too deep or too large. */
  of(regular: Regular, depth = 0): number {
    if (depth > LIMITS.depth) throw new GrammarError('an expression is nested too deep');
    this.work.spend(4);
    let id = this.#known.get(regular);
    if (id === undefined) this.#known.set(regular, (id = this.#make(regular, depth)));
    return id;
  }

  #make(regular: Regular, depth: number): number {
    switch (regular.kind) {
      case 'bytes':
        return this.bytes(regular.set);
      case 'literal':
        return this.literal(regular.bytes);
      case 'sequence':
        return regular.of.reduceRight((rest, part) => this.then(this.of(part, depth + 1), rest), EMPTY);
      case 'choice': {
        const texts = regular.of.flatMap((part) => (part.kind === 'literal' ? [part.bytes] : []));
        const others = regular.of.filter(({ kind }) => kind !== 'literal').map((part) => this.of(part, depth + 1));
        return this.either(texts.length === 0 ? others : [this.literals(texts), ...others]);
      }
      case 'repeat':
        return this.repeat(this.of(regular.of, depth + 1), regular.min, regular.max);
      case 'and':
        return this.both(regular.of.map((part) => this.of(part, depth + 1)));
      case 'not':
        return this.not(this.of(regular.of, depth + 1));
      default:
        return regular satisfies never;
    }
  }

  #beginsWithAnything(id: number): boolean {
    const node = this.nodes[id]!;
    return id === ANYTHING || (node.kind === 'then' && node.first === ANYTHING);
  }

  #byte(byte: number): number {
    return (this.#single[byte] ??= this.bytes(bytesBetween(byte, byte)));
  }

  #pairOrFirst(first: number, rest: number): number {
    return rest === EMPTY ? first : this.#pair(first, rest);
  }

  #pair(first: number, rest: number): number {
    if (first === ANYTHING && this.#beginsWithAnything(rest)) return rest;
    const key = first * 2 ** 26 + rest;
    const found = this.#sequences.get(key);
    if (found !== undefined) return found;
    const isNullable = this.isNullable[first]! && this.isNullable[rest]!;
    const isPlain = this.isPlain[first]! && this.isPlain[rest]!;
    const height = Math.max(this.#heights[first]!, this.isNullable[first]! ? this.#heights[rest]! : 0) + 1;
    const id = this.#add({ kind: 'then', first, rest }, isNullable, isPlain, height);
    this.#sequences.set(key, id);
    return id;
  }

  #many(kind: 'either' | 'both', parts: ReadonlySet<number>, none: number): number {
    if (parts.size === 0) return none;
    const of = [...parts].sort((one, other) => one - other);
    if (of.length === 1) return of[0]!;
    this.work.spend(24 * of.length);
    const key = `${kind === 'either' ? '|' : '&'}${of.join()}`;
    const found = this.#others.get(key);
    if (found !== undefined) return found;
    const isNullable = kind === 'either' ? of.some((id) => this.isNullable[id]) : of.every((id) => this.isNullable[id]);
    const isPlain = kind === 'either' && of.every((id) => this.isPlain[id]);
    const height = of.reduce((most, id) => Math.max(most, this.#heights[id]!), 0) + 1;
    return this.#keep(key, { kind, of }, isNullable, isPlain, height);
  }

  #tree(texts: readonly Uint8Array[], begin: number, end: number, from: number, depth: number): number {
    const first = texts[begin]!;
    const last = texts[end - 1]!;
    let to = from;
    while (to < first.length && to < last.length && first[to] === last[to]) to++;
    if (to === first.length && to === last.length) return this.literal(first, from, to);
    const options: number[] = [];
    for (let at = begin; at < end;) {
      const byte = texts[at]![to];
      let next = at + 1;
      while (next < end && texts[next]![to] === byte) next++;
      if (byte === undefined) options.push(EMPTY);
      else if (depth < LIMITS.depth) options.push(this.#tree(texts, at, next, to, depth + 1));
      else for (let each = at; each < next; each++) options.push(this.literal(texts[each]!, to));
      at = next;
    }
    return this.then(this.literal(first, from, to), this.either(options));
  }

  #isCounted(node: Node): boolean {
    if (node.kind === 'then') return this.isCounted[node.first]! || this.isCounted[node.rest]!;
    if (node.kind === 'either' || node.kind === 'both') return node.of.some((part) => this.isCounted[part]);
    if (node.kind === 'not') return this.isCounted[node.of]!;
    return (
      node.kind === 'repeat' && (node.min > 1 || (node.max > 1 && node.max < Infinity) || this.isCounted[node.of]!)
    );
  }

  #leastBytes(node: Node): number {
    switch (node.kind) {
      case 'nothing':
        return MOST_BYTES;
      case 'empty':
        return 0;
      case 'bytes':
        return 1;
      case 'then':
        return this.leastBytes[node.first]! + this.leastBytes[node.rest]!;
      case 'either':
        return node.of.reduce((least, part) => Math.min(least, this.leastBytes[part]!), MOST_BYTES);
      case 'both':
        return node.of.reduce((most, part) => Math.max(most, this.leastBytes[part]!), 0);
      case 'repeat':
        return node.min * this.leastBytes[node.of]!;
      case 'not':
        return this.isNullable[node.of]! ? 1 : 0;
      default:
        return node satisfies never;
    }
  }

  #keep(key: string, node: Node, isNullable: boolean, isPlain: boolean, height: number): number {
    const id = this.#add(node, isNullable, isPlain, height);
    this.#others.set(key, id);
    return id;
  }

  #add(node: Node, isNullable: boolean, isPlain: boolean, height: number): number {
    if (height > LIMITS.depth) throw new GrammarError('an expression is nested too deep');
    this.work.add(1);
    this.nodes.push(node);
    this.isNullable.push(isNullable);
    this.isPlain.push(isPlain);
    this.isCounted.push(this.#isCounted(node));
    this.leastBytes.push(Math.min(MOST_BYTES, this.#leastBytes(node)));
    this.#heights.push(height);
    return this.nodes.length - 1;
  }
}
