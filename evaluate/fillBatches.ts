/**
 * Fills micro-batches as full as possible: best fit, largest first. If a device works in whole waves, or a micro-batch
 * has a high fixed cost, full micro-batches beat micro-batches of similar trees.
 */
import { atOnce, type Parts } from '../system/parts.js';
import { type BatchCost, EMPTY, fits, type Pack, type Packable, packOf, together } from './packing.js';
import type { TreeSize } from './tree.js';

/** Sizes of micro-batches that are tried, as fractions of the largest. */
const SIZES = 64;

/** Trees that stay together, and their total size. */
interface Unit<T extends Packable> {
  readonly items: T[];
  size: TreeSize;
}

/** The trees of each group, as one unit if they fit in a micro-batch; largest units first. */
function unitsOf<T extends Packable>(trees: readonly T[], limits: BatchCost): Unit<T>[] {
  const units: Unit<T>[] = [];
  const open = new Map<number, Unit<T>>();
  for (const tree of trees) {
    const mates = tree.group === undefined ? undefined : open.get(tree.group);
    const joined = together(mates?.size ?? EMPTY, tree);
    if (mates !== undefined && fits(joined, limits)) {
      mates.items.push(tree);
      mates.size = joined;
      continue;
    }
    const unit: Unit<T> = { items: [tree], size: together(EMPTY, tree) };
    units.push(unit);
    if (tree.group !== undefined) open.set(tree.group, unit);
  }
  // Array.sort is stable: equal units keep their order.
  return units.sort((a, b) => b.size.tokens - a.size.tokens);
}

/**
 * Size, in tokens, of the micro-batch with the least cost per token, assuming average rows and average longest trees.
 */
function cheapestSize(trees: readonly Packable[], limits: BatchCost): number {
  const tokens = trees.reduce((sum, tree) => sum + tree.tokens, 0),
    rows = trees.reduce((sum, tree) => sum + tree.rows, 0);
  const longest = trees.reduce((most, tree) => Math.max(most, tree.longest), 0);
  let best = limits.maxTokens,
    least = Infinity;
  for (let i = SIZES; i > SIZES / 8; i--) {
    const size = Math.floor((limits.maxTokens * i) / SIZES);
    const each =
      limits.cost(size, Math.min(limits.maxRows, Math.round((size * rows) / tokens)), Math.min(size, longest)) / size;
    if (each < least) [best, least] = [size, each];
  }
  return best;
}

/** Items keyed by their free room. A bitmap finds the least sufficient room, 32 values at a time. */
class Rooms<T> {
  private readonly most: number;
  private readonly lists = new Map<number, T[]>();
  private readonly used: Uint32Array;

  constructor(most: number) {
    this.most = most;
    this.used = new Uint32Array((most >>> 5) + 1);
  }

  put(thing: T, room: number): void {
    if (room <= 0) return;
    const list = this.lists.get(room);
    if (list === undefined) this.lists.set(room, [thing]);
    else list.push(thing);
    this.used[room >>> 5]! |= 1 << (room & 31);
  }

  /** Removes and returns the first item that `suits`, trying those with at least `least` room in ascending order. */
  take(least: number, suits: (thing: T) => boolean): T | undefined {
    for (let room = this.next(least); room <= this.most; room = this.next(room + 1)) {
      const list = this.lists.get(room) ?? [];
      const at = list.findIndex(suits);
      if (at < 0) continue;
      const [found] = list.splice(at, 1);
      if (list.length === 0) this.used[room >>> 5]! &= ~(1 << (room & 31));
      return found;
    }
    return undefined;
  }

  /** The least value in use that is at least `room`; more than `most` if there is none. */
  private next(room: number): number {
    if (room > this.most) return Infinity;
    let word = room >>> 5;
    let bits = this.used[word]! & (-1 << (room & 31));
    while (bits === 0) {
      if (++word >= this.used.length) return Infinity;
      bits = this.used[word]!;
    }
    return word * 32 + 31 - Math.clz32(bits & -bits);
  }
}

/** Micro-batches of the cheapest size, as full as possible. Deterministic. Every tree must fit `limits` by itself. */
export const fillBatches = <T extends Packable>(trees: readonly T[], limits: BatchCost): Pack<T>[] =>
  atOnce(fillInParts(trees, limits));

/** The same in parts. */
export function* fillInParts<T extends Packable>(trees: readonly T[], limits: BatchCost): Parts<Pack<T>[]> {
  if (trees.length === 0) return [];
  const size = cheapestSize(trees, limits);
  const bins: Unit<T>[] = [];
  const rooms = new Rooms<Unit<T>>(size);
  for (const unit of unitsOf(trees, limits)) {
    let bin = rooms.take(unit.size.tokens, (candidate) => fits(together(candidate.size, unit.size), limits));
    if (bin === undefined) {
      bin = { items: [], size: EMPTY };
      bins.push(bin);
    }
    bin.items.push(...unit.items);
    bin.size = together(bin.size, unit.size);
    rooms.put(bin, size - bin.size.tokens);
    yield;
  }
  return bins.map(({ items }) => packOf(items, limits));
}
