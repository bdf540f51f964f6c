import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packTrees, shuffled, type BatchCost, type Packable } from '../../eval/pack.js';

const limits = (maxTokens: number, maxRows: number, cost: BatchCost['cost']): BatchCost => ({ maxTokens, maxRows, cost });
/** A step cost with padding to the longest, as bucketed kernels have. */
const stepped = (step: number): BatchCost['cost'] => (tokens, rows, longest) =>
  1 + Math.ceil(tokens / step) * 2 + rows * 0.125 + Math.ceil(longest / 4) * 0.5;

/** The cheapest of all 2^(n−1) cuts of the given order. */
function cheapestCut(ordered: readonly Packable[], { maxTokens, maxRows, cost }: BatchCost): number {
  let best = Infinity;
  for (let cuts = 0; cuts < 2 ** Math.max(0, ordered.length - 1); cuts++) {
    let total = 0, tokens = 0, rows = 0, longest = 0;
    ordered.forEach((tree, i) => {
      tokens += tree.tokens;
      rows += tree.rows;
      longest = Math.max(longest, tree.longest);
      if (tokens > maxTokens || rows > maxRows) total = Infinity;
      if (i === ordered.length - 1 || (cuts >> i) % 2 === 1) {
        total += cost(tokens, rows, longest);
        tokens = rows = longest = 0;
      }
    });
    best = Math.min(best, total);
  }
  return ordered.length === 0 ? 0 : best;
}

const tree = fc.record({ tokens: fc.integer({ min: 1, max: 20 }), rows: fc.integer({ min: 1, max: 12 }), longest: fc.integer({ min: 1, max: 20 }) });

describe('packTrees', () => {
  it('finds the cheapest cut (brute force over all cuts)', () => {
    fc.assert(fc.property(fc.array(tree, { maxLength: 11 }), fc.integer({ min: 1, max: 25 }), (trees, step) => {
      const bounds = limits(40, 30, stepped(step));
      const packs = packTrees(trees, bounds);
      const ordered = trees.map((item, index) => ({ item, index })).sort((a, b) => a.item.longest - b.item.longest || a.index - b.index);
      expect(packs.reduce((sum, { seconds }) => sum + seconds, 0)).toBeCloseTo(cheapestCut(ordered.map(({ item }) => item), bounds), 9);
      expect(packs.flatMap(({ items }) => items)).toEqual(ordered.map(({ item }) => item));
      for (const { items, tokens, rows } of packs) {
        expect(tokens).toBe(items.reduce((sum, item) => sum + item.tokens, 0));
        expect(rows).toBe(items.reduce((sum, item) => sum + item.rows, 0));
        expect(tokens).toBeLessThanOrEqual(40);
        expect(rows).toBeLessThanOrEqual(30);
      }
    }), { numRuns: 200 });
  });

  it('keeps trees of equal orderLength together', () => {
    const trees = [9, 3, 8, 2].map((longest, i) => ({ tokens: 5, rows: 1, longest, orderLength: i % 2 === 0 ? 9 : 3 }));
    const packs = packTrees(trees, limits(10, 10, () => 1));
    expect(packs.map(({ items }) => items.map(({ longest }) => longest))).toEqual([[3, 2], [9, 8]]);
  });

  it('refuses a tree that no micro-batch holds, and a cost that is no number', () => {
    expect(() => packTrees([{ tokens: 11, rows: 1, longest: 11 }], limits(10, 10, () => 1))).toThrow(/11 tokens/);
    expect(() => packTrees([{ tokens: 1, rows: 1, longest: 1 }], limits(10, 10, () => NaN))).toThrow(/cost/);
  });

  // Evaluations of the cost are the work; counting them does not depend on the machine.
  it.each([1024, 4096, 65_536, 1_000_000])('stays within its work bound for 40,000 trees and batches of %i tokens', (maxTokens) => {
    let calls = 0;
    const trees = Array.from({ length: 40_000 }, (_, i) => ({ tokens: 40 + ((i * 7919) % 130), rows: 36, longest: 40 + ((i * 7919) % 130) }));
    const packs = packTrees(trees, limits(maxTokens, maxTokens, (tokens) => {
      calls++;
      return 1e-4 + tokens * 1e-6;
    }));
    expect(calls).toBeLessThan(3_500_000);
    const total = packs.reduce((sum, { tokens }) => sum + tokens, 0);
    expect(packs.length).toBeLessThanOrEqual(Math.ceil((total / maxTokens) * 1.1));
  });
});

describe('shuffled', () => {
  it('is a permutation, the same every time', () => {
    const items = Array.from({ length: 100 }, (_, i) => i);
    expect(shuffled(items).sort((a, b) => a - b)).toEqual(items);
    expect(shuffled(items)).toEqual(shuffled(items));
    expect(shuffled(items)).not.toEqual(items);
  });
});
