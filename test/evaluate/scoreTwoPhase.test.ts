/** Questions that are scored in two phases: contexts, then choices on kept keys and values. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { evaluate, type EvaluateOptions, type Evaluation } from '../../evaluate/evaluate.js';
import type { Scores } from '../../evaluate/metrics.js';
import { pathsOf } from '../../evaluate/pathOrder.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { measureTree } from '../../evaluate/tree.js';
import { fakePathScorer, type FakePathScorer, processEnded } from './support/fakePathScorer.js';
import { fakeScorer, referenceScore } from './support/fakeScorer.js';
import { bareQuestion, randomQuestions } from './support/questions.js';

const expectedScores = (tokenized: readonly TokenizedQuestion[]): Scores[] =>
  tokenized.map(({ docId, context, continuations }) => {
    const scored = continuations.map((continuation) => referenceScore(context, continuation));
    return { docId, ll: scored.map(({ ll }) => ll), greedy: scored.map(({ isGreedy }) => isGreedy) };
  });

const run = (
  tokenized: readonly TokenizedQuestion[],
  pathScorer: FakePathScorer | undefined,
  options: Partial<EvaluateOptions> = {},
): Promise<Evaluation> =>
  evaluate({
    questions: tokenized.map(bareQuestion),
    tokenized,
    scorer: fakeScorer(),
    sharing: 'kv',
    pathScorer,
    ...options,
  });

/** A hundred questions: ten tokens or more of context, four choices of three tokens. */
const questions: TokenizedQuestion[] = Array.from({ length: 100 }, (_, index) => ({
  docId: 500 + index,
  context: Int32Array.from({ length: 10 + (index % 5) }, (_token, i) => 7 * index + i),
  continuations: [1, 2, 3, 4].map((choice) => Int32Array.of(choice, 5, 6)),
}));
const needed = questions.reduce((sum, { context }) => sum + context.length + 4 * 2, 0);
const limits = { tokens: 64, rows: 64, keys: 4096, cacheRows: 192 };
const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

describe('two phases', () => {
  it('give the bits of trees, each context computed once (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.integer({ min: 8, max: 40 }),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 3 }),
        async (tokenized, tokens, lanes, inFlight) => {
          const longest = Math.max(1, ...pathsOf(tokenized).map((path) => path.context.length + 9));
          const scorer = fakePathScorer({ tokens, rows: 64, lanes, inFlight, cacheRows: 2 * longest });
          const { scores, tokensComputed } = await run(tokenized, scorer);
          expect(scores).toEqual(expectedScores(tokenized));
          expect(tokensComputed).toBe(measureTree(pathsOf(tokenized), 'context').tokens);
        },
      ),
      { numRuns: 150 },
    );
  });

  it('share groups of contexts out to all devices', async () => {
    const scorer = fakePathScorer({ ...limits, lanes: 4, before: soon });
    const { scores, tokensComputed } = await run(questions, scorer);
    expect(scores).toEqual(expectedScores(questions));
    expect(tokensComputed).toBe(needed);
    for (const lane of [0, 1, 2, 3])
      expect(scorer.calls.filter((call) => call.lane === lane).length).toBeGreaterThan(scorer.calls.length / 8);
  });

  it('go on after finished questions, where they were interrupted', async () => {
    const stop = new AbortController();
    const kept: Scores[] = [];
    const first = fakePathScorer({ ...limits, before: (_, index) => (index === 9 ? stop.abort() : undefined) });
    const { isInterrupted } = await run(questions, first, {
      signal: stop.signal,
      onFinished: (found) => void kept.push(...found),
    });
    expect(isInterrupted).toBe(true);
    expect(kept.length).toBeGreaterThan(5);
    expect(kept.length).toBeLessThan(60);
    const done = new Map(kept.map((scores) => [scores.docId, scores]));
    const rest = await run(questions, fakePathScorer(limits), { done });
    expect(rest.questionsScored).toBe(100 - kept.length);
    expect(rest.scores).toEqual(expectedScores(questions));
  });

  it('compute a group again where a process ends between its phases', async () => {
    const ends = new Set([3, 4, 9]);
    const scorer = fakePathScorer({
      ...limits,
      lanes: 2,
      before: (_, index) => {
        if (ends.has(index)) throw processEnded();
      },
    });
    const { scores, tokensComputed } = await run(questions, scorer);
    expect(scores).toEqual(expectedScores(questions));
    expect(tokensComputed).toBeGreaterThan(needed);
  });

  it('need a cache, and name the question that does not fit it', async () => {
    await expect(run(questions, undefined)).rejects.toThrow('sharing kv needs a model that keeps keys and values');
    const small = run(questions, fakePathScorer({ ...limits, cacheRows: 20 }));
    await expect(small).rejects.toThrow(UserError);
    await expect(small).rejects.toThrow(
      'question 501, choice 0: 11 tokens of context and 3 of the choice, one of 4, do not fit calls of 64 tokens and ' +
        '64 scored ones over a cache of 20',
    );
  });
});
