/** Sizes of trees and micro-batches: what fits together, and what packing takes and gives. */
import { defined } from '../system/defined.js';
import type { Parts } from '../system/text.js';
import { atOnce } from '../system/text.js';
import type { Scorer } from './scorer.js';
import type { TreeSize } from './tree.js';

/** The largest micro-batch. */
export type Capacity = Pick<Scorer, 'maxTokens' | 'maxRows' | 'maxKeys'>;
export type BatchCost = Capacity & Pick<Scorer, 'cost'>;

/** Whether trees of this size in total fit in a micro-batch. */
export const fits = ({ tokens, rows, keys }: TreeSize, { maxTokens, maxRows, maxKeys = Infinity }: Capacity): boolean =>
  tokens <= maxTokens && rows <= maxRows && keys <= maxKeys;

/** The size of no tree. */
export const EMPTY: TreeSize = { tokens: 0, rows: 0, keys: 0, longest: 0 };

/** The size of two micro-batches as one. */
export const together = (a: TreeSize, b: TreeSize): TreeSize => ({
  tokens: a.tokens + b.tokens,
  rows: a.rows + b.rows,
  keys: a.keys + b.keys,
  longest: Math.max(a.longest, b.longest),
});

const totalSize = (sizes: readonly TreeSize[]): TreeSize => sizes.reduce(together, EMPTY);

/** What packing needs to know about a tree. */
export interface Packable extends TreeSize {
  /** Orders trees instead of their own length. Trees of one question have the same value and so stay together. */
  readonly orderLength?: number;
  /** Trees of one group go into one micro-batch if they fit. */
  readonly group?: number;
}

/** A planned micro-batch. */
export interface Pack<T extends Packable> extends TreeSize {
  readonly items: readonly T[];
  /** Estimated seconds. */
  readonly seconds: number;
}

/** The micro-batch of `items`. */
export function packOf<T extends Packable>(items: readonly T[], { cost }: Pick<BatchCost, 'cost'>): Pack<T> {
  const size = totalSize(items);
  return { items, ...size, seconds: cost(size.tokens, size.rows, size.longest) };
}

/**
 * Divides trees into micro-batches at the least cost by the scorer's own estimate. Two ways are tried and the better
 * one is taken. Either trees are ordered by length and the order is cut by dynamic programming, so that each
 * micro-batch holds similar trees; or micro-batches are filled as full as possible.
 */

/** Limit on evaluations of the cost: a fraction of a second if the cost is a table lookup. */
const MAX_EVALUATIONS = 1_500_000;
/** Fractions of the capacity below which neighbouring trees are kept together, from exact to coarse. */
const GRAINS = [0, 1 / 256, 1 / 128, 1 / 64, 1 / 32];

/** Neighbouring trees that stay together. */
interface Block {
  readonly start: number;
  end: number;
  size: TreeSize;
}

function blocksOf(sizes: readonly TreeSize[], { maxTokens, maxRows, maxKeys }: BatchCost, grain: number): Block[] {
  const most = {
    maxTokens: maxTokens * grain,
    maxRows: maxRows * grain,
    ...defined({ maxKeys: maxKeys === undefined ? undefined : maxKeys * grain }),
  };
  const blocks: Block[] = [];
  for (const [i, size] of sizes.entries()) {
    const last = blocks.at(-1);
    const joined = together(last?.size ?? EMPTY, size);
    if (last !== undefined && fits(joined, most)) {
      last.end = i + 1;
      last.size = joined;
    } else {
      blocks.push({ start: i, end: i + 1, size });
    }
  }
  return blocks;
}

/** Number of runs of blocks that fit in a micro-batch: the evaluations of an exact search. */
function countRuns(blocks: readonly Block[], limits: BatchCost): number {
  let runs = 0,
    start = 0,
    size = EMPTY;
  for (const [i, block] of blocks.entries()) {
    size = together(size, block.size);
    for (; !fits(size, limits); start++) {
      const { tokens, rows, keys } = blocks[start]!.size;
      size = { ...size, tokens: size.tokens - tokens, rows: size.rows - rows, keys: size.keys - keys };
    }
    runs += i - start + 1;
  }
  return runs;
}

/** A micro-batch as two of about half its tokens. The second half comes first, ready to push onto a stack. */
export function halvePack<T extends Packable>(pack: Pack<T>, limits: BatchCost): readonly [Pack<T>, Pack<T>] {
  if (pack.items.length < 2) throw new Error('a micro-batch of one tree has no halves');
  let cut = 0,
    tokens = 0;
  while (cut < pack.items.length - 1 && (cut === 0 || tokens + pack.items[cut]!.tokens / 2 < pack.tokens / 2))
    tokens += pack.items[cut++]!.tokens;
  return [packOf(pack.items.slice(cut), limits), packOf(pack.items.slice(0, cut), limits)];
}

const secondsOf = (packs: readonly Pack<Packable>[]): number => packs.reduce((sum, { seconds }) => sum + seconds, 0);

/**
 * Micro-batches that cost the least: similar trees together, or full ones. Deterministic. Every tree must fit by
 * itself. Throws Error if one does not, or if the cost is not a number.
 */
export const packTrees = <T extends Packable>(trees: readonly T[], limits: BatchCost): Pack<T>[] =>
  atOnce(packInParts(trees, limits));

/** The same in parts. */
export function* packInParts<T extends Packable>(trees: readonly T[], limits: BatchCost): Parts<Pack<T>[]> {
  const similar = yield* cutInParts(trees, limits),
    full = yield* fillInParts(trees, limits);
  return secondsOf(full) < secondsOf(similar) ? full : similar;
}

/**
 * The cheapest cut of the ordered trees into runs that fit, in that order; exact while the number of possible runs is
 * within bounds, otherwise with small neighbours kept together.
 */
export const cutByLength = <T extends Packable>(trees: readonly T[], limits: BatchCost): Pack<T>[] =>
  atOnce(cutInParts(trees, limits));

function* cutInParts<T extends Packable>(trees: readonly T[], limits: BatchCost): Parts<Pack<T>[]> {
  const items = trees
    .map((tree, index) => ({ tree, index, length: tree.orderLength ?? tree.longest }))
    .sort((a, b) => a.length - b.length || a.index - b.index)
    .map(({ tree }) => tree);
  const tooLarge = items.find((tree) => !fits(tree, limits));
  if (tooLarge !== undefined) {
    throw new Error(
      `a tree of ${tooLarge.tokens} tokens, ${tooLarge.rows} rows and ${tooLarge.keys} keys ` +
        `exceeds a micro-batch of ${limits.maxTokens}, ${limits.maxRows} and ${limits.maxKeys ?? 'any number'}`,
    );
  }
  let blocks: Block[] = [];
  for (const grain of GRAINS) {
    blocks = blocksOf(items, limits, grain);
    yield;
    if (countRuns(blocks, limits) <= MAX_EVALUATIONS) break;
  }

  const best = new Float64Array(blocks.length + 1).fill(Infinity);
  const runStart = new Int32Array(blocks.length + 1);
  best[0] = 0;
  for (let end = 1; end <= blocks.length; end++) {
    let size = EMPTY;
    for (let start = end - 1; start >= 0; start--) {
      size = together(size, blocks[start]!.size);
      if (!fits(size, limits)) break;
      const seconds = (best[start] ?? Infinity) + limits.cost(size.tokens, size.rows, size.longest);
      // `<=` rather than `<`: of two equal batches the larger one leads to fewer of them.
      if (seconds <= (best[end] ?? Infinity)) {
        best[end] = seconds;
        runStart[end] = start;
      }
    }
    if (!Number.isFinite(best[end])) throw new Error('the cost of a micro-batch must be a finite number of seconds');
    yield;
  }

  const packs: Pack<T>[] = [];
  for (let end = blocks.length; end > 0; end = runStart[end] ?? 0) {
    const run = blocks.slice(runStart[end], end);
    packs.push(packOf(items.slice(run[0]?.start, run.at(-1)?.end), limits));
  }
  return packs.reverse();
}

/**
 * A fixed shuffle (Fisher–Yates over a xorshift sequence). Micro-batches come out of packing by length; scored in that
 * order, the running accuracy and the estimated time left would reflect only the short questions.
 */
export function shuffled<T>(items: readonly T[], seed = 0x2545f491): T[] {
  const result = items.slice();
  let state = seed >>> 0 || 1;
  for (let i = result.length - 1; i > 0; i--) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    const j = (state >>> 0) % (i + 1);
    const a = result[i],
      b = result[j];
    if (a === undefined || b === undefined) continue;
    result[i] = b;
    result[j] = a;
  }
  return result;
}

/**
 * Fills micro-batches as full as possible: best fit, largest first. If a device works in whole waves, or a micro-batch
 * has a high fixed cost, full micro-batches beat micro-batches of similar trees.
 */

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
