/**
 * Divides trees into micro-batches at the least cost by the scorer's own estimate. Two ways are tried and the better
 * one is taken. Either trees are ordered by length and the order is cut by dynamic programming, so that each
 * micro-batch holds similar trees; or micro-batches are filled as full as possible.
 */
import { fillBatches } from './fillBatches.js';
import type { BatchCost, Pack, Packable } from './packing.js';
import type { TreeSize } from './tree.js';

/** Limit on evaluations of the cost: a fraction of a second if the cost is a table lookup. */
const MAX_EVALUATIONS = 1_500_000;
/** Fractions of the capacity below which neighbouring trees are kept together, from exact to coarse. */
const GRAINS = [0, 1 / 256, 1 / 128, 1 / 64, 1 / 32];

/** Neighbouring trees that stay together. */
interface Block {
  readonly start: number;
  end: number;
  tokens: number;
  rows: number;
  longest: number;
}

function blocksOf(sizes: readonly TreeSize[], limits: BatchCost, grain: number): Block[] {
  const blocks: Block[] = [];
  for (const [i, { tokens, rows, longest }] of sizes.entries()) {
    const last = blocks.at(-1);
    if (
      last !== undefined &&
      last.tokens + tokens <= limits.maxTokens * grain &&
      last.rows + rows <= limits.maxRows * grain
    ) {
      last.end = i + 1;
      last.tokens += tokens;
      last.rows += rows;
      last.longest = Math.max(last.longest, longest);
    } else {
      blocks.push({ start: i, end: i + 1, tokens, rows, longest });
    }
  }
  return blocks;
}

/** Number of runs of blocks that fit in a micro-batch: the evaluations of an exact search. */
function countRuns(blocks: readonly Block[], limits: BatchCost): number {
  let runs = 0,
    start = 0,
    tokens = 0,
    rows = 0;
  for (const [i, block] of blocks.entries()) {
    tokens += block.tokens;
    rows += block.rows;
    for (; tokens > limits.maxTokens || rows > limits.maxRows; start++) {
      tokens -= blocks[start]?.tokens ?? 0;
      rows -= blocks[start]?.rows ?? 0;
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

function packOf<T extends Packable>(items: readonly T[], limits: BatchCost): Pack<T> {
  const size = items.reduce(
    (sum, { tokens, rows, longest }) => ({
      tokens: sum.tokens + tokens,
      rows: sum.rows + rows,
      longest: Math.max(sum.longest, longest),
    }),
    { tokens: 0, rows: 0, longest: 0 },
  );
  return { items, ...size, seconds: limits.cost(size.tokens, size.rows, size.longest) };
}

const secondsOf = (packs: readonly Pack<Packable>[]): number => packs.reduce((sum, { seconds }) => sum + seconds, 0);

/**
 * Micro-batches that cost the least: similar trees together, or full ones. Deterministic. Every tree must fit by
 * itself. Throws Error if one does not, or if the cost is not a number.
 */
export function packTrees<T extends Packable>(trees: readonly T[], limits: BatchCost): Pack<T>[] {
  const similar = cutByLength(trees, limits),
    full = fillBatches(trees, limits);
  return secondsOf(full) < secondsOf(similar) ? full : similar;
}

/**
 * The cheapest cut of the ordered trees into runs that fit, in that order; exact while the number of possible runs is
 * within bounds, otherwise with small neighbours kept together.
 */
export function cutByLength<T extends Packable>(trees: readonly T[], limits: BatchCost): Pack<T>[] {
  const items = trees
    .map((tree, index) => ({ tree, index, length: tree.orderLength ?? tree.longest }))
    .sort((a, b) => a.length - b.length || a.index - b.index)
    .map(({ tree }) => tree);
  const tooLarge = items.find(({ tokens, rows }) => tokens > limits.maxTokens || rows > limits.maxRows);
  if (tooLarge !== undefined) {
    throw new Error(
      `a tree of ${tooLarge.tokens} tokens and ${tooLarge.rows} rows ` +
        `exceeds a micro-batch of ${limits.maxTokens} and ${limits.maxRows}`,
    );
  }
  let blocks: Block[] = [];
  for (const grain of GRAINS) {
    blocks = blocksOf(items, limits, grain);
    if (countRuns(blocks, limits) <= MAX_EVALUATIONS) break;
  }

  const best = new Float64Array(blocks.length + 1).fill(Infinity);
  const runStart = new Int32Array(blocks.length + 1);
  best[0] = 0;
  for (let end = 1; end <= blocks.length; end++) {
    let tokens = 0,
      rows = 0,
      longest = 0;
    for (let start = end - 1; start >= 0; start--) {
      const block = blocks[start];
      if (block === undefined) break;
      tokens += block.tokens;
      rows += block.rows;
      longest = Math.max(longest, block.longest);
      if (tokens > limits.maxTokens || rows > limits.maxRows) break;
      const seconds = (best[start] ?? Infinity) + limits.cost(tokens, rows, longest);
      // `<=` rather than `<`: of two equal batches the larger one leads to fewer of them.
      if (seconds <= (best[end] ?? Infinity)) {
        best[end] = seconds;
        runStart[end] = start;
      }
    }
    if (!Number.isFinite(best[end])) throw new Error('the cost of a micro-batch must be a finite number of seconds');
  }

  const packs: Pack<T>[] = [];
  for (let end = blocks.length; end > 0; end = runStart[end] ?? 0) {
    const run = blocks.slice(runStart[end], end);
    const tokens = run.reduce((sum, block) => sum + block.tokens, 0);
    const rows = run.reduce((sum, block) => sum + block.rows, 0);
    const longest = run.reduce((max, block) => Math.max(max, block.longest), 0);
    packs.push({
      items: items.slice(run[0]?.start, run.at(-1)?.end),
      tokens,
      rows,
      longest,
      seconds: limits.cost(tokens, rows, longest),
    });
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
