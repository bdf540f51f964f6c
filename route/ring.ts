/**
 * A ring of nodes: a key belongs to the node whose point comes next, and then to the others in the order in which a
 * walk along the ring meets them. A node that comes or leaves changes only the walks that meet it. Source: Karger et
 * al., "Consistent Hashing and Random Trees" (STOC 1997).
 */
import { hashPair, hashText } from './hash.js';

export class Ring {
  private readonly points: number;
  /** Hash of each node's name. */
  private readonly seeds = new Map<string, number>();
  /** Points in ascending order, and the node of each. */
  private places = new Uint32Array(0);
  private owners: string[] = [];
  private isSorted = true;
  private walks = new Map<string, readonly string[]>();

  /** `points`: how often each node is on the ring. The more, the more even the parts of the nodes. */
  constructor(points: number) {
    this.points = points;
  }

  get size(): number {
    return this.seeds.size;
  }

  has(node: string): boolean {
    return this.seeds.has(node);
  }

  /** Changes nothing if the node is there. */
  add(node: string): void {
    if (this.seeds.has(node)) return;
    this.seeds.set(node, hashText(node));
    this.changed();
  }

  delete(node: string): void {
    if (this.seeds.delete(node)) this.changed();
  }

  private changed(): void {
    this.isSorted = false;
    this.walks.clear();
  }

  private sort(): void {
    const all = [...this.seeds].flatMap(([node, seed]) =>
      Array.from({ length: this.points }, (_, i) => ({ place: hashPair(seed, i), node })),
    );
    // Two nodes may share a place: the order of their names is the same everywhere.
    all.sort((a, b) => a.place - b.place || (a.node < b.node ? -1 : 1));
    this.places = Uint32Array.from(all, ({ place }) => place);
    this.owners = all.map(({ node }) => node);
    this.isSorted = true;
  }

  /** Index of the first point at or behind `place`, going round. */
  private first(place: number): number {
    let low = 0;
    let high = this.places.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.places[middle]! < place) low = middle + 1;
      else high = middle;
    }
    return low === this.places.length ? 0 : low;
  }

  /** All nodes in the order in which a walk from the key meets them, each once. Kept for the keys of late. */
  walk(key: string): readonly string[] {
    const known = this.walks.get(key);
    if (known !== undefined) return known;
    const walk = this.firstOn(key, this.size);
    if (this.walks.size >= KEPT_WALKS) this.walks.clear();
    this.walks.set(key, walk);
    return walk;
  }

  /** The first nodes of the key's walk, `count` at most. Not kept: for keys that come once. */
  firstOn(key: string, count: number): readonly string[] {
    if (!this.isSorted) this.sort();
    const met: string[] = [];
    const { length } = this.owners;
    const isAll = count >= this.size;
    const seen = isAll && length > 0 ? new Set<string>() : undefined;
    const most = Math.min(count, this.size);
    for (let i = 0, at = length > 0 ? this.first(hashText(key)) : 0; i < length && met.length < most; i++) {
      const node = this.owners[at]!;
      if (seen === undefined ? !met.includes(node) : !seen.has(node)) met.push(node);
      seen?.add(node);
      at = at + 1 === length ? 0 : at + 1;
    }
    return met;
  }
}

const KEPT_WALKS = 16_384;
