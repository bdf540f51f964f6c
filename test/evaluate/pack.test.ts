import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type BatchCost,
  cutByLength,
  fillBatches,
  type Packable,
  packTrees,
  shuffled,
} from '../../evaluate/packing.js';
import { casesHere } from '../support/thorough.js';

const MAX_KEYS = 50;
const limits = (maxTokens: number, maxRows: number, cost: BatchCost['cost'], maxKeys?: number): BatchCost => ({
  maxTokens,
  maxRows,
  maxKeys,
  cost,
});
/** A step cost with padding to the longest, as bucketed kernels have. */
const stepped =
  (step: number): BatchCost['cost'] =>
  (tokens, rows, longest) =>
    1 + Math.ceil(tokens / step) * 2 + rows * 0.125 + Math.ceil(longest / 4) * 0.5;

/** The cheapest of all 2^(n−1) cuts of the given order. */
function cheapestCut(
  ordered: readonly Packable[],
  { maxTokens, maxRows, maxKeys = Infinity, cost }: BatchCost,
): number {
  let best = Infinity;
  for (let cuts = 0; cuts < 2 ** Math.max(0, ordered.length - 1); cuts++) {
    let total = 0,
      tokens = 0,
      rows = 0,
      keys = 0,
      longest = 0;
    ordered.forEach((tree, i) => {
      tokens += tree.tokens;
      rows += tree.rows;
      keys += tree.keys;
      longest = Math.max(longest, tree.longest);
      if (tokens > maxTokens || rows > maxRows || keys > maxKeys) total = Infinity;
      if (i === ordered.length - 1 || (cuts >> i) % 2 === 1) {
        total += cost(tokens, rows, longest);
        tokens = rows = keys = longest = 0;
      }
    });
    best = Math.min(best, total);
  }
  return ordered.length === 0 ? 0 : best;
}

const tree = fc.record({
  tokens: fc.integer({ min: 1, max: 20 }),
  rows: fc.integer({ min: 1, max: 12 }),
  keys: fc.integer({ min: 1, max: 30 }),
  longest: fc.integer({ min: 1, max: 20 }),
});

describe('cutByLength', () => {
  it('finds the cheapest cut (brute force over all cuts)', () => {
    fc.assert(
      fc.property(fc.array(tree, { maxLength: 11 }), fc.integer({ min: 1, max: 25 }), (trees, step) => {
        const bounds = limits(40, 30, stepped(step), MAX_KEYS);
        const packs = cutByLength(trees, bounds);
        const ordered = trees
          .map((item, index) => ({ item, index }))
          .sort((a, b) => a.item.longest - b.item.longest || a.index - b.index);
        expect(packs.reduce((sum, { seconds }) => sum + seconds, 0)).toBeCloseTo(
          cheapestCut(
            ordered.map(({ item }) => item),
            bounds,
          ),
          9,
        );
        expect(packs.flatMap(({ items }) => items)).toEqual(ordered.map(({ item }) => item));
        for (const { items, tokens, rows, keys } of packs) {
          expect(keys).toBe(items.reduce((sum, item) => sum + item.keys, 0));
          expect(keys).toBeLessThanOrEqual(MAX_KEYS);
          expect(tokens).toBe(items.reduce((sum, item) => sum + item.tokens, 0));
          expect(rows).toBe(items.reduce((sum, item) => sum + item.rows, 0));
          expect(tokens).toBeLessThanOrEqual(40);
          expect(rows).toBeLessThanOrEqual(30);
        }
      }),
      { numRuns: 200 },
    );
  });

  it('keeps trees of equal orderLength together', () => {
    const trees = [9, 3, 8, 2].map((longest, i) => ({
      tokens: 5,
      rows: 1,
      keys: 1,
      longest,
      orderLength: i % 2 === 0 ? 9 : 3,
    }));
    const packs = cutByLength(
      trees,
      limits(10, 10, () => 1),
    );
    expect(packs.map(({ items }) => items.map(({ longest }) => longest))).toEqual([
      [3, 2],
      [9, 8],
    ]);
  });
});

describe('fillBatches', () => {
  const total = (trees: readonly Packable[], what: 'tokens' | 'rows'): number =>
    trees.reduce((sum, item) => sum + item[what], 0);

  it('loses no tree, repeats none, stays within the limits, and leaves at most one batch half empty', () => {
    fc.assert(
      fc.property(fc.array(tree, { maxLength: 60 }), (trees) => {
        const packs = fillBatches(
          trees,
          limits(40, 30, () => 1, MAX_KEYS),
        );
        expect(new Set(packs.flatMap(({ items }) => items)).size).toBe(trees.length);
        expect(packs.reduce((sum, { items }) => sum + items.length, 0)).toBe(trees.length);
        for (const { items, tokens, rows, keys, longest } of packs) {
          expect(keys).toBe(items.reduce((sum, item) => sum + item.keys, 0));
          expect(keys).toBeLessThanOrEqual(MAX_KEYS);
          expect([tokens, rows]).toEqual([total(items, 'tokens'), total(items, 'rows')]);
          expect(longest).toBe(Math.max(...items.map((item) => item.longest)));
          expect(tokens).toBeLessThanOrEqual(40);
          expect(rows).toBeLessThanOrEqual(30);
        }
        // Two batches that are both at most half full by all measures would have been one.
        expect(
          packs.filter(({ tokens, rows, keys }) => tokens <= 20 && rows <= 15 && keys <= MAX_KEYS / 2).length,
        ).toBeLessThanOrEqual(1);
      }),
      { numRuns: 300 },
    );
  });

  it('fills batches that runs of similar trees would leave 10 % empty', () => {
    const trees = Array.from({ length: 2000 }, (_, i) => ({
      tokens: 400 + ((i * 7919) % 625),
      rows: 300,
      keys: 1,
      longest: 100 + (i % 7),
    }));
    const bounds = limits(8448, 8448, (tokens) => tokens + 16);
    const least = Math.ceil(total(trees, 'tokens') / 8448);
    expect(fillBatches(trees, bounds).length).toBeLessThanOrEqual(least + 2);
    expect(cutByLength(trees, bounds).length).toBeGreaterThan(least + 5);
    expect(packTrees(trees, bounds).length).toBeLessThanOrEqual(least + 2);
  });

  it('fills to the size that costs least for each token', () => {
    const trees = Array.from({ length: 300 }, () => ({ tokens: 10, rows: 1, keys: 1, longest: 10 }));
    // 640 tokens are one wave, and anything beyond a wave starts another.
    const packs = fillBatches(
      trees,
      limits(1000, 1000, (tokens) => Math.ceil(tokens / 640)),
    );
    expect(packs.map(({ tokens }) => tokens)).toEqual([640, 640, 640, 640, 440]);
  });

  it('keeps the trees of a group together', () => {
    const trees = Array.from({ length: 40 }, (_, i) => ({
      tokens: 3 + ((i * 5) % 7),
      rows: 1,
      keys: 1,
      longest: 5,
      group: i % 10,
    }));
    for (const { items } of fillBatches(
      trees,
      limits(50, 50, () => 1),
    )) {
      for (const { group } of items) expect(items.filter((item) => item.group === group)).toHaveLength(4);
    }
  });
});

describe('packTrees', () => {
  it('takes the cheaper of two ways', () => {
    fc.assert(
      fc.property(fc.array(tree, { maxLength: 40 }), fc.integer({ min: 1, max: 25 }), (trees, step) => {
        const bounds = limits(40, 30, stepped(step));
        const seconds = (packs: readonly { readonly seconds: number }[]): number =>
          packs.reduce((sum, pack) => sum + pack.seconds, 0);
        expect(seconds(packTrees(trees, bounds))).toBe(
          Math.min(seconds(cutByLength(trees, bounds)), seconds(fillBatches(trees, bounds))),
        );
      }),
    );
  });

  it('refuses a tree that fits no micro-batch, and a cost that is not a number', () => {
    expect(() =>
      packTrees(
        [{ tokens: 11, rows: 1, keys: 1, longest: 11 }],
        limits(10, 10, () => 1),
      ),
    ).toThrow(/11 tokens/);
    expect(() =>
      packTrees(
        [{ tokens: 1, rows: 1, keys: 1, longest: 1 }],
        limits(10, 10, () => NaN),
      ),
    ).toThrow(/cost/);
  });

  // The work is in evaluations of the cost; their number does not depend on the machine.
  it.each(casesHere([1024, 4096, 65_536, 1_000_000], 1))(
    'stays within its work bound for 40,000 trees and batches of %i tokens',
    (maxTokens) => {
      let calls = 0;
      const trees = Array.from({ length: 40_000 }, (_, i) => ({
        tokens: 40 + ((i * 7919) % 130),
        rows: 36,
        keys: 1,
        longest: 40 + ((i * 7919) % 130),
      }));
      const packs = packTrees(
        trees,
        limits(maxTokens, maxTokens, (tokens) => {
          calls++;
          return 1e-4 + tokens * 1e-6;
        }),
      );
      expect(calls).toBeLessThan(3_500_000);
      const total = packs.reduce((sum, { tokens }) => sum + tokens, 0);
      expect(packs.length).toBeLessThanOrEqual(Math.ceil((total / maxTokens) * 1.1));
    },
  );
});

describe('shuffled', () => {
  it('is a permutation, the same every time', () => {
    const items = Array.from({ length: 100 }, (_, i) => i);
    expect(shuffled(items).sort((a, b) => a - b)).toEqual(items);
    expect(shuffled(items)).toEqual(shuffled(items));
    expect(shuffled(items)).not.toEqual(items);
  });
});
