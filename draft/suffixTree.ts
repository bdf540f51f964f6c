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

/** What may come next behind a path. */
export interface Next {
  readonly token: number;
  /** Where the path then ends: at `node` or on the way to it. */
  readonly node: number;
  readonly count: number;
}

export class SuffixTree {
  readonly depth: number;
  private readonly capacity: number;
  private readonly mask: number;
  /** A ring of tokens, and of each the length of the window that begins there; 0: none. */
  private readonly ring: Int32Array;
  private readonly lengths: Uint8Array;
  private head = 0;

  /** Of each node: its parent, the first token on the way from there, and where its path is in the ring. */
  private readonly parent: Int32Array;
  private readonly first: Int32Array;
  private readonly start: Int32Array;
  /** Of each node: tokens from the root, and windows that go through it or end there. */
  private readonly depths: Uint8Array;
  private readonly counts: Int32Array;
  /** Children of a node, the one seen last first. */
  private readonly child: Int32Array;
  private readonly next: Int32Array;
  private readonly before: Int32Array;
  /** Children by their parents and first tokens. Nodes that are free follow each other here as well. */
  private readonly buckets: Int32Array;
  private readonly chain: Int32Array;
  private free = NONE;
  private used = 1;

  /** `tokens` is a power of two; `depth` at most 255 and a quarter of it. */
  constructor(tokens: number, depth: number) {
    this.capacity = tokens;
    this.mask = tokens - 1;
    this.depth = depth;
    const nodes = 2 * tokens + 2;
    const ints = (): Int32Array => new Int32Array(nodes);
    [this.ring, this.lengths, this.depths] = [new Int32Array(tokens), new Uint8Array(tokens), new Uint8Array(nodes)];
    [this.parent, this.first, this.start, this.counts] = [ints(), ints(), ints(), ints()];
    [this.child, this.next, this.before, this.chain] = [ints(), ints(), ints(), ints()];
    this.buckets = new Int32Array(2 * tokens);
  }

  /** Nodes beside the root. */
  get nodes(): number {
    let free = 0;
    for (let node = this.free; node !== NONE; node = this.chain[node]!) free++;
    return this.used - 1 - free;
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
      const start = this.start[node]!;
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
      const until = Math.min(length, this.depths[node]!);
      for (done++; done < until; done++)
        if (this.ring[(this.start[node]! + done) & this.mask] !== text[from + done]) return ROOT;
    }
    return node;
  }

  /** How often a path was seen that ends at a node or on the way to it. */
  countOf(node: number): number {
    return this.counts[node]!;
  }

  /** What was seen behind a path of `length` tokens, at most `most`: those that came last, often ones first. */
  after(node: number, length: number, most: number): readonly Next[] {
    if (length < this.depths[node]!) {
      const token = this.ring[(this.start[node]! + length) & this.mask]!;
      return [{ token, node, count: this.counts[node]! }];
    }
    const found: Next[] = [];
    for (let child = this.child[node]!; child !== NONE && found.length < most; child = this.next[child]!)
      found.push({ token: this.first[child]!, node: child, count: this.counts[child]! });
    return found.length > 1 ? found.sort((a, b) => b.count - a.count) : found;
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
      const until = Math.min(length, this.depths[child]!);
      const start = this.start[child]!;
      for (done++; done < until; done++)
        if (this.ring[(start + done) & this.mask] !== this.ring[(at + done) & this.mask]) break;
      if (done < this.depths[child]!) child = this.split(child, done);
      this.counts[child]!++;
      this.start[child] = at;
      this.toFront(child);
      node = child;
    }
  }

  private remove(at: number, length: number): void {
    let node = ROOT;
    for (let done = 0; done < length; done = this.depths[node]!) {
      node = this.childOf(node, this.ring[(at + done) & this.mask]!);
      this.counts[node]!--;
    }
    const above = this.parent[node]!;
    if (this.counts[node]! > 0) return this.contract(node);
    this.unlink(node);
    this.release(node);
    this.contract(above);
  }

  /** A node on the way to `child`, `depth` tokens from the root. */
  private split(child: number, depth: number): number {
    const middle = this.make(this.parent[child]!, this.first[child]!, this.start[child]!, depth, this.counts[child]!);
    this.unlink(child);
    this.link(middle);
    this.parent[child] = middle;
    this.first[child] = this.ring[(this.start[child]! + depth) & this.mask]!;
    this.link(child);
    return middle;
  }

  /** Takes out a node where no window parts or ends. */
  private contract(node: number): void {
    const child = this.child[node]!;
    if (node === ROOT || child === NONE || this.counts[child] !== this.counts[node]) return;
    this.unlink(child);
    this.unlink(node);
    this.parent[child] = this.parent[node]!;
    this.first[child] = this.first[node]!;
    this.link(child);
    this.release(node);
  }

  private make(parent: number, first: number, start: number, depth: number, count: number): number {
    const node = this.free === NONE ? this.used++ : this.free;
    if (node === this.free) this.free = this.chain[node]!;
    this.parent[node] = parent;
    this.first[node] = first;
    this.start[node] = start;
    this.depths[node] = depth;
    this.counts[node] = count;
    this.child[node] = NONE;
    return node;
  }

  private release(node: number): void {
    this.chain[node] = this.free;
    this.free = node;
  }

  private bucketOf(parent: number, token: number): number {
    return hash32(token, parent) & (this.buckets.length - 1);
  }

  private childOf(parent: number, token: number): number {
    let node = this.buckets[this.bucketOf(parent, token)]!;
    while (node !== NONE && (this.parent[node] !== parent || this.first[node] !== token)) node = this.chain[node]!;
    return node;
  }

  /** Makes a node findable, as the first child of its parent. */
  private link(node: number): void {
    const parent = this.parent[node]!;
    const bucket = this.bucketOf(parent, this.first[node]!);
    this.chain[node] = this.buckets[bucket]!;
    this.buckets[bucket] = node;
    this.placeFirst(node, parent);
  }

  private unlink(node: number): void {
    const bucket = this.bucketOf(this.parent[node]!, this.first[node]!);
    let link = this.buckets[bucket]!;
    if (link === node) this.buckets[bucket] = this.chain[node]!;
    else {
      while (this.chain[link] !== node) link = this.chain[link]!;
      this.chain[link] = this.chain[node]!;
    }
    this.takeOut(node);
  }

  private toFront(node: number): void {
    if (this.before[node] === NONE) return;
    this.takeOut(node);
    this.placeFirst(node, this.parent[node]!);
  }

  private placeFirst(node: number, parent: number): void {
    const second = this.child[parent]!;
    this.next[node] = second;
    this.before[node] = NONE;
    if (second !== NONE) this.before[second] = node;
    this.child[parent] = node;
  }

  private takeOut(node: number): void {
    const [before, next] = [this.before[node]!, this.next[node]!];
    if (before === NONE) this.child[this.parent[node]!] = next;
    else this.next[before] = next;
    if (next !== NONE) this.before[next] = before;
  }
}
