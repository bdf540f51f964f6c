/** The techniques of the benchmark: equal answers, and the tokens that each of them is meant to compute. */
import { expect, it } from 'vitest';
import { scoreAll } from '../../bench/ablationPass.js';
import { techniquesOf } from '../../bench/ablationRows.js';
import { countTokens, pathsOf } from '../../eval/tokenCounts.js';
import type { TokenisedQuestion } from '../../eval/tokenise.js';
import { measureTree } from '../../eval/tree.js';
import { fakePathScorer } from '../eval/support/fakePathScorer.js';
import { fakeScorer, referenceScore } from '../eval/support/fakeScorer.js';

/** Contexts of eight tokens and more, of which eight are common to all; choices of one to four tokens. */
const questions: readonly TokenisedQuestion[] = Array.from({ length: 30 }, (_, docId) => ({
  docId,
  context: Int32Array.from([1, 2, 3, 4, 5, 6, 7, 8, ...Array.from({ length: docId % 5 }, () => 100 + docId)]),
  continuations: [1, 2, 3, 4].map((length) =>
    Int32Array.from({ length }, (_token, i) => 10 * (docId % 3) + length + i),
  ),
}));

it('techniques give the same bits, and compute the tokens that they share no longer', async () => {
  const paths = fakePathScorer({ tokens: 64, cacheRows: 128 });
  const engine = { scorer: fakeScorer(), lane: await paths.open(0), limits: paths.limits };
  const techniques = techniquesOf(engine, questions, { sequences: 4, prefillTokens: 20 });
  const passes = [];
  for (const technique of techniques) passes.push(await scoreAll(technique, questions, 2));
  const [trees] = passes;
  for (const { logProbs } of passes) expect(logProbs).toEqual(trees!.logProbs);
  const ends = pathsOf(questions).map(({ context, continuation }) => referenceScore(context, continuation).ll);
  let at = 0;
  const sums = pathsOf(questions).map(({ continuation: { length } }) =>
    trees!.logProbs.subarray(at, (at += length)).reduce((sum, each) => sum + each, 0),
  );
  sums.forEach((sum, i) => expect(sum).toBeCloseTo(ends[i]!, 3));

  const { alone, shared } = countTokens(pathsOf(questions));
  const contexts = measureTree(pathsOf(questions), 'context').tokens;
  expect(passes.map(({ tokens }) => tokens)).toEqual([
    trees!.tokens,
    alone,
    alone,
    contexts,
    contexts,
    contexts,
    contexts,
    passes.at(-1)!.tokens,
  ]);
  expect(trees!.tokens).toBeLessThan(contexts);
  expect(trees!.tokens).toBeGreaterThanOrEqual(shared);
  expect(passes.at(-1)!.tokens).toBeLessThan(1.2 * shared);
  // 120 choices, four a call.
  expect(passes[1]!.calls).toBe(30);
});
