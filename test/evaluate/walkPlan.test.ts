import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evaluate } from '../../evaluate/evaluate.js';
import { countTokens, orderPaths, pathsOf } from '../../evaluate/pathOrder.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { pathLength } from '../../evaluate/tree.js';
import { planWalks } from '../../evaluate/walk.js';
import { fakePathScorer } from './support/fakePathScorer.js';
import { fakeScorer } from './support/fakeScorer.js';
import { bareQuestion, randomQuestions } from './support/questions.js';

describe('a plan of walks', () => {
  it('counts what one device computes, call by call (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(randomQuestions(), fc.integer({ min: 1, max: 60 }), fc.boolean(), async (...given) => {
        const [tokenized, tokens, hasStates] = given;
        const paths = pathsOf(tokenized);
        const cacheRows = Math.max(0, ...paths.map(pathLength)) + tokens;
        const pathScorer = fakePathScorer({ tokens, cacheRows, ...(hasStates ? { states: 3 } : {}) });
        const plan = planWalks(orderPaths(paths), pathScorer.limits);
        const questions = tokenized.map(bareQuestion);
        await evaluate({ questions, tokenized, scorer: fakeScorer(), sharing: 'tree', pathScorer });
        expect(plan.calls).toBe(pathScorer.calls.length);
        expect(plan.tokens).toEqual([pathScorer.calls.reduce((sum, { batch }) => sum + batch.tokens.length, 0)]);
      }),
      { numRuns: 100 },
    );
  });

  it('shares few-shot questions out evenly, and computes little twice', () => {
    // One subject has a third of all questions, as in MMLU.
    const tokenized = Array.from({ length: 1500 }, (_, docId): TokenizedQuestion => {
      const subject = docId % 3 === 0 ? 0 : 1 + (docId % 40);
      const shots = Array.from({ length: 500 }, (_token, i) => subject * 1000 + i);
      return {
        docId,
        context: Int32Array.from([...shots, ...Array.from({ length: 60 + (docId % 90) }, (_token, i) => docId + i)]),
        continuations: [1, 2, 3, 4].map((letter) => Int32Array.of(letter)),
      };
    });
    const paths = pathsOf(tokenized);
    const { shared, grouped } = countTokens(paths);
    for (const lanes of [1, 2, 4]) {
      const { tokens } = planWalks(
        orderPaths(paths),
        { tokens: 8192, keys: 65_536, rows: 8192, cacheRows: 16_384 },
        lanes,
      );
      const all = tokens.reduce((sum, each) => sum + each, 0);
      expect(all).toBeLessThanOrEqual(1.03 * shared + (lanes - 1) * 4 * 500);
      expect(all).toBeLessThan(grouped / 4);
      expect(Math.max(...tokens)).toBeLessThan((1.1 * all) / lanes);
    }
  });
});
