/** The walk over all paths: every token of every choice is scored after its own path, and common tokens once. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { orderPaths } from '../../evaluate/pathOrder.js';
import type { WalkLimits } from '../../evaluate/scorer.js';
import { measureTree, type Path, pathLength } from '../../evaluate/tree.js';
import { walk } from '../../evaluate/walk.js';
import { checkCalls, someQuestions } from '../support/pathCalls.js';

const check = (paths: readonly Path[], limits: WalkLimits): ReturnType<typeof checkCalls> =>
  checkCalls(paths, walk(orderPaths(paths).paths, limits), limits);

describe('the walk', () => {
  it('scores every token of every choice once, after its own path, within any limits', () => {
    fc.assert(
      fc.property(
        someQuestions,
        fc.integer({ min: 1, max: 30 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 0, max: 20 }),
        fc.integer({ min: 0, max: 40 }),
        (paths, tokens, rows, more, keys) => {
          const longest = Math.max(...paths.map(pathLength));
          check(paths, { tokens, rows, keys: longest + keys, cacheRows: longest + 1 + more });
        },
      ),
      { numRuns: 1000, seed: 17 },
    );
  });

  it('computes every common beginning once, in one call or where calls are cut between questions', () => {
    fc.assert(
      fc.property(someQuestions, (paths) => {
        const roomy = { tokens: 10_000, rows: 10_000, keys: 100_000, cacheRows: 10_000 };
        expect(check(paths, roomy)).toEqual({ tokens: measureTree(paths, 'tree').tokens, calls: 1 });
      }),
      { numRuns: 200, seed: 18 },
    );
    const shots = Int32Array.from({ length: 50 }, (_, i) => i);
    const paths = Array.from({ length: 40 }, (_, question): Path => ({
      question,
      choice: 0,
      context: Int32Array.from([...shots, 100 + question, 7, 8, 9]),
      continuation: Int32Array.of(5),
    }));
    expect(check(paths, { tokens: 18, rows: 100, keys: 1000, cacheRows: 80 })).toEqual({
      tokens: 50 + 40 * 4,
      calls: 12,
    });
  });
});
