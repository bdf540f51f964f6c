/**
 * Divides trees into micro-batches at the least cost by the scorer's own estimate. Two ways are tried and the better
 * one is taken. Either trees are ordered by length and the order is cut by dynamic programming, so that each
 * micro-batch holds similar trees; or micro-batches are filled as full as possible.
 */
import { atOnce, type Parts } from '../system/parts.js';
import { fillInParts } from './fillBatches.js';
import { type BatchCost, EMPTY, fits, type Pack, type Packable, packOf, together } from './packing.js';
import type { TreeSize } from './tree.js';

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
    ...(maxKeys === undefined ? {} : { maxKeys: maxKeys * grain }),
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
