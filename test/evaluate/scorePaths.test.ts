/** Questions that are scored by walks over kept keys and values. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evaluate, type EvaluateOptions, type Evaluation, type Progress } from '../../evaluate/evaluate.js';
import type { Scores } from '../../evaluate/metrics.js';
import { countTokens, pathsOf } from '../../evaluate/pathOrder.js';
import { planQuestions } from '../../evaluate/questionPlan.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { NonFiniteError } from '../../runtime/call.js';
import { atOnce } from '../../system/text.js';
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
  pathScorer: FakePathScorer,
  options: Partial<EvaluateOptions> = {},
): Promise<Evaluation> =>
  evaluate({
    questions: tokenized.map(bareQuestion),
    tokenized,
    scorer: fakeScorer(),
    sharing: 'tree',
    pathScorer,
    ...options,
  });

/** Two hundred questions of four subjects, each with 60 tokens of shots and choices of one letter. */
const shots: TokenizedQuestion[] = Array.from({ length: 200 }, (_, docId) => ({
  docId,
  context: Int32Array.from([
    ...Array.from({ length: 60 }, (_token, i) => (docId % 4) * 100 + i),
    1000 + docId,
    ...Array.from({ length: docId % 7 }, (_token, i) => i),
    9,
  ]),
  continuations: [1, 2, 3, 4].map((letter) => Int32Array.of(letter)),
}));
const computed = ({ calls }: FakePathScorer): number => calls.reduce((sum, { batch }) => sum + batch.tokens.length, 0);
const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

describe('walks', () => {
  it('give the same bits for any sizes of calls and caches, and any number of devices (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.integer({ min: 1, max: 90 }),
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 3 }),
        async (tokenized, tokens, rows, lanes, inFlight) => {
          const longest = Math.max(0, ...pathsOf(tokenized).map((path) => path.context.length + 9));
          const scorer = fakePathScorer({ tokens, rows, lanes, inFlight, cacheRows: longest + tokens });
          expect((await run(tokenized, scorer)).scores).toEqual(expectedScores(tokenized));
        },
      ),
      { numRuns: 150 },
    );
  });

  it('take paths that are longer than a micro-batch, which trees do not', async () => {
    const scorer = fakeScorer({ maxTokens: 64, maxLength: 64 });
    const cutLimit = { kind: 'context', tokens: 70 } as const;
    const planned = { tokenized: shots, sharing: 'tree', scorer } as const;
    expect(() => atOnce(planQuestions(planned))).toThrow('65 input tokens (context 65');
    expect(() => atOnce(planQuestions({ ...planned, cutLimit: { ...cutLimit, tokens: 66 } }))).toThrow(
      "but the model's context is 66",
    );
    const plan = atOnce(planQuestions({ ...planned, cutLimit }));
    const packs = atOnce(plan.packs());
    expect(plan.questions).toHaveLength(200);
    const inTrees = packs.flatMap(({ items }) => items.flatMap(({ paths }) => paths));
    expect(inTrees.length + plan.oversized.flatMap(({ paths }) => paths).length).toBe(4 * 200);
    expect(Math.max(...packs.map(({ tokens }) => tokens))).toBeLessThanOrEqual(64);
    const { scores } = await run(shots, fakePathScorer({ tokens: 64 }), { scorer, plan });
    expect(scores).toEqual(expectedScores(shots));
    const questions = shots.map(bareQuestion);
    await expect(evaluate({ questions, tokenized: shots, scorer, sharing: 'tree', plan })).rejects.toThrow(
      'paths that fit no micro-batch',
    );
  });

  it('compute the shots of a subject once', async () => {
    const scorer = fakePathScorer();
    const { scores, tokensComputed, microBatches } = await run(shots, scorer);
    expect(scores).toEqual(expectedScores(shots));
    expect(tokensComputed).toBe(computed(scorer));
    expect(microBatches).toBe(scorer.calls.length);
    const { alone, grouped, shared } = countTokens(pathsOf(shots));
    const own = shots.reduce((sum, { context }) => sum + context.length - 60, 0);
    expect({ alone, grouped, shared }).toEqual({
      alone: 4 * (200 * 60 + own),
      grouped: 200 * 60 + own,
      shared: 4 * 60 + own,
    });
    expect(tokensComputed).toBeLessThanOrEqual(1.03 * shared);
  });

  it('compute little more on several devices, which all have work', async () => {
    const scorer = fakePathScorer({ lanes: 4, before: soon });
    const { scores, tokensComputed } = await run(shots, scorer);
    expect(scores).toEqual(expectedScores(shots));
    const byLane = [0, 1, 2, 3].map((lane) =>
      computed({ ...scorer, calls: scorer.calls.filter((c) => c.lane === lane) }),
    );
    expect(Math.min(...byLane)).toBeGreaterThan(tokensComputed / 8);
    expect(tokensComputed).toBeLessThan(2 * countTokens(pathsOf(shots)).shared);
  });

  it('go on after finished questions, and keep what was finished when they are interrupted', async () => {
    const stop = new AbortController();
    const kept: Scores[] = [];
    const first = fakePathScorer({ before: (_lane, index) => (index === 5 ? stop.abort() : undefined) });
    const interrupted = await run(shots, first, {
      signal: stop.signal,
      onFinished: (found) => void kept.push(...found),
    });
    expect(interrupted.isInterrupted).toBe(true);
    expect(first.calls.length).toBeLessThanOrEqual(8);
    expect(kept.length).toBeGreaterThan(10);
    const done = new Map(kept.map((scores) => [scores.docId, scores]));
    const rest = await run(shots, fakePathScorer(), { done });
    expect(rest.questionsScored).toBe(200 - kept.length);
    expect(rest.scores).toEqual(expectedScores(shots));
  });

  it('begin again with an empty cache where a process ends', async () => {
    const ends = new Set([3, 4, 9]);
    const scorer = fakePathScorer({
      before: (_lane, index) => {
        if (ends.has(index)) throw processEnded();
      },
    });
    expect((await run(shots, scorer)).scores).toEqual(expectedScores(shots));
  });

  it('leave the work of a device that is lost to others, also where these were done already', async () => {
    let opened = 0;
    const scorer = fakePathScorer({
      lanes: 2,
      tokens: 32,
      before: async (lane, index) => {
        if (lane === 1 && index > 4) await new Promise((resolve) => setTimeout(resolve, 40));
        if (lane === 1 && index > 4) throw processEnded();
      },
      onOpen: (lane) => {
        if (lane === 1 && opened++ > 0) throw new Error('no device');
      },
    });
    expect((await run(shots, scorer)).scores).toEqual(expectedScores(shots));
    const none = fakePathScorer({
      onOpen: () => {
        throw new Error('no device');
      },
    });
    await expect(run(shots, none)).rejects.toThrow('no device');
  });

  it('name the choices where a value is not finite, and keep calls that were computed', async () => {
    let finished = 0;
    const scorer = fakePathScorer({
      before: (_lane, index) => {
        if (index === 3) throw new NonFiniteError('layers.1.ffn.down', [0]);
      },
    });
    await expect(run(shots, scorer, { onFinished: ({ length }) => (finished += length) })).rejects.toThrow(
      /^question \d+, choice 0.*: a value is NaN or infinite, first in layers.1.ffn.down/,
    );
    expect(finished).toBeGreaterThan(0);
  });

  it('say what helps where a device runs out of memory', async () => {
    const scorer = fakePathScorer({
      before: () => {
        throw Object.assign(new Error('none left'), { name: 'OutOfDeviceMemory' });
      },
    });
    await expect(run(shots, scorer)).rejects.toThrow('the device ran out of memory in a call of 64 tokens');
  });

  it('report progress that ends with everything done', async () => {
    const seen: Progress[] = [];
    await run(shots, fakePathScorer(), { onProgress: (progress) => void seen.push(progress) });
    expect(seen[0]).toMatchObject({ questionsDone: 0, questionsTotal: 200, tokensDone: 0, secondsLeft: null });
    expect(seen.at(-1)!.questionsDone).toBe(200);
    expect(seen.at(-1)!.tokensDone / seen.at(-1)!.tokensTotal).toBeCloseTo(1, 2);
  });
});
