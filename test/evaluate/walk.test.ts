/** The walk over all paths: every token of every choice is scored after its own path, and common tokens once. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { orderPaths } from '../../evaluate/pathOrder.js';
import type { WalkLimits } from '../../evaluate/scorer.js';
import { measureTree, type Path, pathLength } from '../../evaluate/tree.js';
import { walk } from '../../evaluate/walk.js';
import { checkCalls, someQuestions, stretched } from '../support/pathCalls.js';

const check = (paths: readonly Path[], limits: WalkLimits): ReturnType<typeof checkCalls> =>
  checkCalls(paths, walk(orderPaths(paths).paths, limits), limits);

/** 40 questions of four tokens behind the same 50. */
const behindShots = (): Path[] => {
  const shots = Int32Array.from({ length: 50 }, (_, i) => i);
  return Array.from({ length: 40 }, (_, question) => ({
    question,
    choice: 0,
    context: Int32Array.from([...shots, 100 + question, 7, 8, 9]),
    continuation: Int32Array.of(5),
  }));
};

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
    const paths = behindShots();
    expect(check(paths, { tokens: 18, rows: 100, keys: 1000, cacheRows: 80 })).toEqual({
      tokens: 50 + 40 * 4,
      calls: 12,
    });
  });

  it('goes on from rows of states, few or many, and computes again what has none', () => {
    fc.assert(
      fc.property(
        someQuestions,
        fc.boolean(),
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 0, max: 30 }),
        fc.integer({ min: 0, max: 40 }),
        fc.integer({ min: 2, max: 6 }),
        (some, isStretched, tokens, rows, more, keys, states) => {
          const paths = isStretched ? stretched(some) : some;
          const longest = Math.max(...paths.map(pathLength));
          const limits = { tokens, rows, keys: longest + keys, cacheRows: longest + 1 + more };
          check(paths, { ...limits, states });
          if (!isStretched) return;
          // A call that ends before it is full may make the next one compute the end of a context again.
          const [plain, kept] = [check(paths, limits), check(paths, { ...limits, states: 256 })];
          expect(kept.tokens - plain.tokens).toBeLessThanOrEqual(kept.calls);
        },
      ),
      { numRuns: 150, seed: 19 },
    );
  });

  it('leaves the states behind shots, so that questions are trees of their own', () => {
    const paths = behindShots();
    const calls = [...walk(paths, { tokens: 100, rows: 100, keys: 10_000, cacheRows: 200, states: 16 })];
    expect(calls.map(({ batch }) => batch.tokens.length)).toEqual([54, 100, 56]);
    // In each, how many trees go on from a row of states.
    expect(calls.map(({ batch }) => batch.states!.from.filter((row) => row >= 0).length)).toEqual([0, 25, 14]);
  });

  it('keeps the states that save most where rows are too few', () => {
    // Paths that leave the first one at 90, 80, 30 and 28 tokens, in calls that end long before.
    const first = Int32Array.from({ length: 100 }, (_, i) => i);
    const leaving = [100, 90, 80, 30, 28].map((kept, question): Path => ({
      question,
      choice: 0,
      context: Int32Array.from([...first.subarray(0, kept), ...Array.from({ length: 20 }, (_, i) => 1000 - kept + i)]),
      continuation: Int32Array.of(5),
    }));
    const limits = { tokens: 10, rows: 100, keys: 1000, cacheRows: 300 };
    const all = measureTree(leaving, 'tree').tokens;
    const tokensWith = (states: number): number =>
      checkCalls(leaving, walk(leaving, { ...limits, states }), { ...limits, states }).tokens;
    expect([6, 5, 4, 3].map((states) => tokensWith(states) - all)).toEqual([0, 2, 12, 40]);
  });
});
