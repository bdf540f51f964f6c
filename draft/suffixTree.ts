/**
 * A tree of what was seen in texts: every window of `depth` tokens is a path from its root, with the number of times
 * that it is there. Nodes are where windows part or end, so there are at most two for each token. It keeps the last
 * `tokens` tokens that it was given: each that comes takes out the oldest. Memory is bounded, and taken when it is
 * needed.
 *
 * A node knows a place where its path is in the tokens, the latest one: while any of its windows is kept, that one is.
 */
import { hash32 } from '../ir/gumbel.js';

export const ROOT = 0;
/** No node: the root is nobody's child. */
const NONE = 0;

/** Fields of a node lie side by side, as they are read together: half a line of a processor's cache. */
const FIELD_BITS = 3;
const FIELDS = 1 << FIELD_BITS;
/** Where a node comes from, and the first token on the way from there. */
const PARENT = 0;
const FIRST = 1;
/** Where its path is in the tokens. */
const START = 2;
/** Windows that go through it or end there. */
const COUNT = 3;
/** Its children, the one seen last first. */
const CHILD = 4;
const NEXT = 5;
const BEFORE = 6;
/** The next one with the same hash, or the next one that is free. */
const CHAIN = 7;

export class SuffixTree {
  readonly depth: number;
  private readonly capacity: number;
  private readonly mask: number;
  /** A ring of tokens, and of each the length of the window that begins there; 0: none. */
  private readonly ring: Int32Array;
  private readonly lengths: Uint8Array;
  private head = 0;

  /** Fields of nodes, which are known by where theirs begin. */
  private readonly fields: Int32Array;
  /** Of each node: tokens from the root. */
  private readonly depths: Uint8Array;
  /** Children by their parents and first tokens. */
  private readonly buckets: Int32Array;
  private free = NONE;
  private used = FIELDS;

  /** `tokens` is a power of two; `depth` at most 255 and a quarter of it. */
  constructor(tokens: number, depth: number) {
    this.capacity = tokens;
    this.mask = tokens - 1;
    this.depth = depth;
    const nodes = 2 * tokens + 2;
    [this.ring, this.lengths] = [new Int32Array(tokens), new Uint8Array(tokens)];
    [this.fields, this.depths] = [new Int32Array(FIELDS * nodes), new Uint8Array(nodes)];
    this.buckets = new Int32Array(2 * tokens);
  }

  /** Nodes beside the root. */
  get nodes(): number {
    let free = 0;
    for (let node = this.free; node !== NONE; node = this.fields[node + CHAIN]!) free++;
    return this.used / FIELDS - 1 - free;
  }

  /**
   * Takes tokens `from` to `to` of a text, and of those the windows that are whole; where the text ends there, also
   * those that end with it. The caller goes on at the token that is returned, whose window is the first that is not
   * there.
   */
  add(text: readonly number[], from: number, to: number, isEnd: boolean): number {
    let begin = from;
    while (begin < to) {
      const end = Math.min(to, begin + this.capacity / 2);
      const whole = isEnd && end === to ? end : end - this.depth + 1;
      if (whole <= begin) break;
      const at = this.head;
      for (let i = begin; i < end; i++) this.push(text[i]!);
      for (let i = begin; i < whole; i++) this.insert((at + i - begin) & this.mask, Math.min(this.depth, end - i));
      begin = whole;
    }
    return begin;
  }

  /** The first place of a text, from one on, whose window is not there. A run that is there costs its comparison. */
  unseen(text: readonly number[], from: number): number {
    let at = from;
    while (at + this.depth <= text.length) {
      const node = this.find(text, at, at + this.depth);
      if (node === ROOT) break;
      const start = this.fields[node + START]!;
      let run = this.depth;
      while (run < this.capacity && at + run < text.length && this.ring[(start + run) & this.mask] === text[at + run])
        run++;
      at += run - this.depth + 1;
    }
    return at;
  }

  /** Where a path ends, at a node or on the way to it: tokens `from` to `to` of a text. ROOT: it is not there. */
  find(text: readonly number[], from: number, to = text.length): number {
    const length = to - from;
    if (length <= 0 || length > this.depth) return ROOT;
    let node = ROOT;
    let done = 0;
    while (done < length) {
      node = this.childOf(node, text[from + done]!);
      if (node === NONE) return ROOT;
      const until = Math.min(length, this.depths[node >> FIELD_BITS]!);
      for (done++; done < until; done++)
        if (this.ring[(this.fields[node + START]! + done) & this.mask] !== text[from + done]) return ROOT;
    }
    return node;
  }

  /** How often a path was seen that ends at a node or on the way to it. */
  countOf(node: number): number {
    return this.fields[node + COUNT]!;
  }

  /**
   * What was seen behind a path of `length` tokens: the continuations that came last, as many as `tokens` has room for,
   * and where the path then ends. Returns their number. Those that were seen more often come first.
   */
  after(node: number, length: number, tokens: Int32Array, nodes: Int32Array): number {
    const { fields } = this;
    if (length < this.depths[node >> FIELD_BITS]!) {
      tokens[0] = this.ring[(fields[node + START]! + length) & this.mask]!;
      nodes[0] = node;
      return 1;
    }
    let found = 0;
    for (let child = fields[node + CHILD]!; child !== NONE && found < tokens.length; child = fields[child + NEXT]!) {
      const count = fields[child + COUNT]!;
      let place = found++;
      for (; place > 0 && fields[nodes[place - 1]! + COUNT]! < count; place--) {
        tokens[place] = tokens[place - 1]!;
        nodes[place] = nodes[place - 1]!;
      }
      tokens[place] = fields[child + FIRST]!;
      nodes[place] = child;
    }
    return found;
  }

  private push(token: number): void {
    const at = this.head;
    if (this.lengths[at]! > 0) this.remove(at, this.lengths[at]!);
    this.lengths[at] = 0;
    this.ring[at] = token;
    this.head = (at + 1) & this.mask;
  }

  private insert(at: number, length: number): void {
    this.lengths[at] = length;
    let node = ROOT;
    let done = 0;
    while (done < length) {
      const token = this.ring[(at + done) & this.mask]!;
      let child = this.childOf(node, token);
      if (child === NONE) {
        this.link(this.make(node, token, at, length, 1));
        return;
      }
      const until = Math.min(length, this.depths[child >> FIELD_BITS]!);
      const start = this.fields[child + START]!;
      for (done++; done < until; done++)
        if (this.ring[(start + done) & this.mask] !== this.ring[(at + done) & this.mask]) break;
      if (done < this.depths[child >> FIELD_BITS]!) child = this.split(child, done);
      this.fields[child + COUNT]!++;
      this.fields[child + START] = at;
      this.toFront(child);
      node = child;
    }
  }

  private remove(at: number, length: number): void {
    let node = ROOT;
    for (let done = 0; done < length; done = this.depths[node >> FIELD_BITS]!) {
      node = this.childOf(node, this.ring[(at + done) & this.mask]!);
      this.fields[node + COUNT]!--;
    }
    const above = this.fields[node + PARENT]!;
    if (this.fields[node + COUNT]! > 0) return this.contract(node);
    this.unlink(node);
    this.release(node);
    this.contract(above);
  }

  /** A node on the way to `child`, `depth` tokens from the root. */
  private split(child: number, depth: number): number {
    const middle = this.make(
      this.fields[child + PARENT]!,
      this.fields[child + FIRST]!,
      this.fields[child + START]!,
      depth,
      this.fields[child + COUNT]!,
    );
    this.unlink(child);
    this.link(middle);
    this.fields[child + PARENT] = middle;
    this.fields[child + FIRST] = this.ring[(this.fields[child + START]! + depth) & this.mask]!;
    this.link(child);
    return middle;
  }

  /** Takes out a node where no window parts or ends. */
  private contract(node: number): void {
    const child = this.fields[node + CHILD]!;
    if (node === ROOT || child === NONE || this.fields[child + COUNT] !== this.fields[node + COUNT]) return;
    this.unlink(child);
    this.unlink(node);
    this.fields[child + PARENT] = this.fields[node + PARENT]!;
    this.fields[child + FIRST] = this.fields[node + FIRST]!;
    this.link(child);
    this.release(node);
  }

  private make(parent: number, first: number, start: number, depth: number, count: number): number {
    const node = this.free === NONE ? this.takeNew() : this.free;
    if (node === this.free) this.free = this.fields[node + CHAIN]!;
    this.fields[node + PARENT] = parent;
    this.fields[node + FIRST] = first;
    this.fields[node + START] = start;
    this.depths[node >> FIELD_BITS] = depth;
    this.fields[node + COUNT] = count;
    this.fields[node + CHILD] = NONE;
    return node;
  }

  private takeNew(): number {
    const node = this.used;
    this.used += FIELDS;
    return node;
  }

  private release(node: number): void {
    this.fields[node + CHAIN] = this.free;
    this.free = node;
  }

  private bucketOf(parent: number, token: number): number {
    return hash32(token, parent) & (this.buckets.length - 1);
  }

  private childOf(parent: number, token: number): number {
    let node = this.buckets[this.bucketOf(parent, token)]!;
    while (node !== NONE && (this.fields[node + PARENT] !== parent || this.fields[node + FIRST] !== token))
      node = this.fields[node + CHAIN]!;
    return node;
  }

  /** Makes a node findable, as the first child of its parent. */
  private link(node: number): void {
    const parent = this.fields[node + PARENT]!;
    const bucket = this.bucketOf(parent, this.fields[node + FIRST]!);
    this.fields[node + CHAIN] = this.buckets[bucket]!;
    this.buckets[bucket] = node;
    this.placeFirst(node, parent);
  }

  private unlink(node: number): void {
    const bucket = this.bucketOf(this.fields[node + PARENT]!, this.fields[node + FIRST]!);
    let link = this.buckets[bucket]!;
    if (link === node) this.buckets[bucket] = this.fields[node + CHAIN]!;
    else {
      while (this.fields[link + CHAIN] !== node) link = this.fields[link + CHAIN]!;
      this.fields[link + CHAIN] = this.fields[node + CHAIN]!;
    }
    this.takeOut(node);
  }

  private toFront(node: number): void {
    if (this.fields[node + BEFORE] === NONE) return;
    this.takeOut(node);
    this.placeFirst(node, this.fields[node + PARENT]!);
  }

  private placeFirst(node: number, parent: number): void {
    const second = this.fields[parent + CHILD]!;
    this.fields[node + NEXT] = second;
    this.fields[node + BEFORE] = NONE;
    if (second !== NONE) this.fields[second + BEFORE] = node;
    this.fields[parent + CHILD] = node;
  }

  private takeOut(node: number): void {
    const [before, next] = [this.fields[node + BEFORE]!, this.fields[node + NEXT]!];
    if (before === NONE) this.fields[this.fields[node + PARENT]! + CHILD] = next;
    else this.fields[before + NEXT] = next;
    if (next !== NONE) this.fields[next + BEFORE] = before;
  }
}
