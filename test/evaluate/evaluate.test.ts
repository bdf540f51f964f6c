import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { evaluate, type EvaluateOptions, type Evaluation, type Progress } from '../../evaluate/evaluate.js';
import type { Scores } from '../../evaluate/metrics.js';
import { planQuestions } from '../../evaluate/questionPlan.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { TREE_SHARING } from '../../evaluate/tree.js';
import { NonFiniteError } from '../../runtime/call.js';
import { atOnce } from '../../system/text.js';
import { fakeScorer, referenceScore } from './support/fakeScorer.js';
import { bareQuestion, randomQuestions } from './support/questions.js';

const expectedScores = (tokenized: readonly TokenizedQuestion[]): Scores[] =>
  tokenized.map(({ docId, context, continuations }) => {
    const scored = continuations.map((continuation) => referenceScore(context, continuation));
    return { docId, ll: scored.map(({ ll }) => ll), greedy: scored.map(({ isGreedy }) => isGreedy) };
  });

const run = (tokenized: readonly TokenizedQuestion[], options: Partial<EvaluateOptions> = {}): Promise<Evaluation> =>
  evaluate({ questions: tokenized.map(bareQuestion), tokenized, scorer: fakeScorer(), sharing: 'tree', ...options });

/** Forty questions of four choices with contexts of many lengths. */
const forty: TokenizedQuestion[] = Array.from({ length: 40 }, (_, docId) => ({
  docId,
  context: Int32Array.from({ length: 5 + ((docId * 13) % 50) }, (_token, i) => (docId % 3) * 10 + i),
  continuations: [0, 1, 2, 3].map((choice) =>
    Int32Array.from({ length: 2 + ((choice * docId) % 9) }, (_token, i) => choice + docId * 5 + i),
  ),
}));

describe('evaluate', () => {
  it('gives the same bits for every sharing mode, micro-batch size and packing (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.constantFrom(...TREE_SHARING),
        fc.integer({ min: 40, max: 700 }),
        fc.integer({ min: 9, max: 300 }),
        fc.integer({ min: 1, max: 400 }),
        async (tokenized, sharing, maxTokens, maxRows, step) => {
          const cost = (tokens: number, rows: number): number => 0.001 + Math.ceil(tokens / step) + rows / 7;
          const { scores, isInterrupted } = await run(tokenized, {
            sharing,
            scorer: fakeScorer({ maxTokens, maxRows, cost }),
          });
          expect(isInterrupted).toBe(false);
          expect(scores).toEqual(expectedScores(tokenized));
        },
      ),
      { numRuns: 200 },
    );
  });

  it('computes what was planned in advance, or a part of it (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.constantFrom(...TREE_SHARING),
        fc.integer({ min: 1, max: 5 }),
        async (tokenized, sharing, step) => {
          const limits = { maxTokens: 300, maxRows: 200 };
          const plan = atOnce(planQuestions({ tokenized, sharing, scorer: fakeScorer(limits) }));
          const [ahead, alone] = [fakeScorer(limits), fakeScorer(limits)];
          expect((await run(tokenized, { sharing, scorer: ahead, plan })).scores).toEqual(expectedScores(tokenized));
          await run(tokenized, { sharing, scorer: alone });
          expect(ahead.batches).toEqual(alone.batches);
          const done = new Map(
            expectedScores(tokenized)
              .filter((_, i) => i % step === 0)
              .map((scores) => [scores.docId, scores]),
          );
          const rest = fakeScorer(limits);
          const { scores, questionsScored } = await run(tokenized, { sharing, scorer: rest, plan, done });
          expect(scores).toEqual(expectedScores(tokenized));
          expect(questionsScored).toBe(tokenized.length - done.size);
        },
      ),
      { numRuns: 50 },
    );
  });

  it('finishes questions that ask nothing, in the first shard', async () => {
    const empty = { context: Int32Array.of(1), contexts: [], continuations: [] };
    const tokenized = [{ ...empty, docId: 40 }, ...forty, { ...empty, docId: 41 }];
    const whole = await run(tokenized);
    expect(whole.scores.slice(40)).toEqual([40, 41].map((docId) => ({ docId, ll: [], greedy: [] })));
    expect(whole.scores.slice(0, 40)).toEqual(expectedScores(forty));
    const shards = [1, 2, 3].map((index) => ({ index, count: 3, workOf: ({ tokens }: { tokens: number }) => tokens }));
    const parts = await Promise.all(shards.map((shard) => run(tokenized, { shard })));
    const ids = parts.map(({ scores }) => scores.map(({ docId }) => docId));
    expect(ids[0]).toEqual(expect.arrayContaining([40, 41]));
    expect(ids.flat().sort((a, b) => a - b)).toEqual(whole.scores.map(({ docId }) => docId));
    const nothing = await run([{ ...empty, docId: 0 }]);
    expect(nothing).toMatchObject({
      scores: [{ docId: 0, ll: [], greedy: [] }],
      isInterrupted: false,
      microBatches: 0,
    });
  });

  it('records one micro-batch while the next is in flight, and never has two in flight', async () => {
    const scorer = fakeScorer({ maxTokens: 300, before: () => new Promise((resolve) => setTimeout(resolve, 1)) });
    const startedWhenRecorded: number[] = [];
    const { microBatches } = await run(forty, {
      scorer,
      sharing: 'context',
      onFinished: () => startedWhenRecorded.push(scorer.batches.length),
    });
    expect(microBatches).toBe(scorer.batches.length);
    expect(microBatches).toBeGreaterThan(5);
    expect(startedWhenRecorded).toEqual([...Array(microBatches).keys()].map((i) => Math.min(i + 2, microBatches)));
    expect(scorer.maxInFlight).toBe(1);
  });

  it('keeps as many micro-batches in flight as the scorer says now, and records each as it returns', async () => {
    for (const inFlight of [2, 5]) {
      let batches = 0;
      const scorer = fakeScorer({
        maxTokens: 150,
        inFlight,
        before: () => new Promise((resolve) => setTimeout(resolve, (batches++ * 7) % 5)),
      });
      expect((await run(forty, { scorer, sharing: 'context' })).scores).toEqual(expectedScores(forty));
      expect(scorer.maxInFlight).toBe(inFlight);
    }
    // Devices that join, and that drop out.
    const seen: number[] = [];
    const scorer = fakeScorer({
      maxTokens: 150,
      before: async () => {
        seen.push(++now);
        await new Promise((resolve) => setTimeout(resolve, 1));
        now--;
      },
    });
    let now = 0;
    Object.defineProperty(scorer, 'inFlight', { get: () => (scorer.batches.length < 6 ? 4 : 1) });
    expect((await run(forty, { scorer, sharing: 'context' })).scores).toEqual(expectedScores(forty));
    expect([Math.max(...seen.slice(0, 6)), Math.max(...seen.slice(10))]).toEqual([4, 1]);
  });

  it('counts what it computed, with and without sharing', async () => {
    const scorer = fakeScorer();
    const evaluation = await run(forty, { scorer });
    expect(evaluation.tokensComputed).toBe(scorer.batches.reduce((sum, { tokens }) => sum + tokens.length, 0));
    expect(evaluation.tokenCounts.alone).toBe(
      forty.reduce(
        (sum, { context, continuations }) =>
          sum + continuations.reduce((all, tokens) => all + context.length + tokens.length - 1, 0),
        0,
      ),
    );
    expect(evaluation.questionsScored).toBe(40);
  });

  it.each(TREE_SHARING)('reports progress that grows and finishes questions early (%s)', async (sharing) => {
    const seen: Progress[] = [];
    await run(forty, {
      sharing,
      scorer: fakeScorer({ maxTokens: 200 }),
      onProgress: (progress) => seen.push(progress),
    });
    expect(seen[0]).toMatchObject({ questionsDone: 0, questionsTotal: 40, tokensDone: 0, secondsLeft: null });
    for (let i = 1; i < seen.length; i++) {
      expect(seen[i]?.questionsDone).toBeGreaterThanOrEqual(seen[i - 1]?.questionsDone ?? 0);
      expect(seen[i]?.tokensDone).toBeGreaterThan(seen[i - 1]?.tokensDone ?? 0);
    }
    const last = seen.at(-1);
    expect(last).toMatchObject({ questionsDone: 40, secondsLeft: 0 });
    expect(last?.tokensDone).toBe(last?.tokensTotal);
    // After half of the micro-batches many questions are finished, including long ones.
    const middle = seen[Math.floor(seen.length / 2)];
    expect(middle?.questionsDone).toBeGreaterThanOrEqual(10);
    const total = expectedScores(forty).filter(({ ll, docId }) => ll.indexOf(Math.max(...ll)) === docId % 4).length;
    expect(last?.runningAcc).toBe(total / 40);
  });

  it('does not score what is already done', async () => {
    const all = expectedScores(forty);
    const done = new Map(all.filter(({ docId }) => docId % 2 === 0).map((scores) => [scores.docId, scores]));
    const finished: number[] = [];
    const evaluation = await run(forty, {
      done,
      onFinished: (scores) => finished.push(...scores.map(({ docId }) => docId)),
    });
    expect(evaluation.scores).toEqual(all);
    expect(evaluation.questionsScored).toBe(20);
    expect(finished.sort((a, b) => a - b)).toEqual(all.map(({ docId }) => docId).filter((docId) => docId % 2 === 1));
  });

  it('does nothing if everything is done, or there is nothing to do', async () => {
    const all = expectedScores(forty);
    const scorer = fakeScorer();
    expect((await run(forty, { scorer, done: new Map(all.map((scores) => [scores.docId, scores])) })).scores).toEqual(
      all,
    );
    expect((await run([], { scorer })).scores).toEqual([]);
    expect(scorer.batches).toHaveLength(0);
  });

  it('stops after the micro-batch in flight when told to, and keeps what is finished', async () => {
    const controller = new AbortController();
    const finished: Scores[] = [];
    const scorer = fakeScorer({
      maxTokens: 300,
      before: (_batch, index) => (index === 2 ? controller.abort() : undefined),
    });
    const evaluation = await run(forty, {
      scorer,
      sharing: 'context',
      signal: controller.signal,
      onFinished: (scores) => finished.push(...scores),
    });
    expect(evaluation.isInterrupted).toBe(true);
    expect(scorer.batches).toHaveLength(3);
    expect(evaluation.scores).toEqual(finished.sort((a, b) => a.docId - b.docId));
    expect(finished.length).toBeGreaterThan(0);
    expect(evaluation.tokensComputed).toBe(scorer.batches.reduce((sum, { tokens }) => sum + tokens.length, 0));
  });

  it('names the question if a result is NaN, and keeps what was finished before', async () => {
    const finished: Scores[] = [];
    const scorer = fakeScorer({
      maxTokens: 300,
      after: ({ logProb }, index) => {
        if (index === 3) logProb[0] = NaN;
      },
    });
    const failure = run(forty, { scorer, sharing: 'context', onFinished: (scores) => finished.push(...scores) });
    await expect(failure).rejects.toThrow(UserError);
    await expect(failure).rejects.toThrow(/^question \d+, choice \d.*NaN or infinite$/);
    // Nothing is kept in a file here, and the scorer has no other precision to suggest.
    await expect(failure).rejects.toMatchObject({ hint: 'The weights may hold NaN: check the checkpoint' });
    const named = Number(/question (\d+)/.exec(String(await failure.catch((error: unknown) => error)))?.[1]);
    const source = forty[named];
    expect([...(scorer.batches[3]?.tokens.slice(0, source?.context.length) ?? [])]).toEqual([
      ...(source?.context ?? [0]),
    ]);
    expect(finished.length).toBeGreaterThan(0);
    expect(finished.map(({ docId }) => docId)).not.toContain(named);
  });

  it('gets the same trees again if some questions were done before', async () => {
    const whole = fakeScorer({ maxTokens: 400 });
    const all = await run(forty, { scorer: whole });
    const treesOf = ({ batches }: typeof whole): Set<string> => new Set(batches.map(({ tokens }) => tokens.join(' ')));
    const done = new Map(all.scores.filter(({ docId }) => docId % 7 !== 0).map((scores) => [scores.docId, scores]));
    const rest = fakeScorer({ maxTokens: 400 });
    const resumed = await run(forty, { scorer: rest, done });
    expect(resumed.scores).toEqual(all.scores);
    expect(resumed.questionsScored).toBe(40 - done.size);
    const text = [...treesOf(whole)].join(' ');
    for (const { tokens, subtreeEnd } of rest.batches) {
      for (let root = 0; root < tokens.length; root = subtreeEnd[root]!)
        expect(text).toContain(tokens.slice(root, subtreeEnd[root]).join(' '));
    }
  });

  it('continues with halves if memory runs out, says so once for each size, and gives the same answers', async () => {
    const outOfMemory = Object.assign(new Error('out of memory'), { name: 'OutOfDeviceMemory' });
    const scorer = fakeScorer({
      maxTokens: 700,
      before: ({ tokens }) => (tokens.length > 180 ? Promise.reject(outOfMemory) : Promise.resolve()),
    });
    const warnings: string[] = [];
    const evaluation = await run(forty, { scorer, sharing: 'context', onWarning: (line) => warnings.push(line) });
    expect(evaluation.scores).toEqual(expectedScores(forty));
    expect(evaluation.isInterrupted).toBe(false);
    expect(warnings[0]).toMatch(
      /^the device ran out of memory in a micro-batch of \d+ tokens: continuing with halves$/,
    );
    expect(warnings.length).toBeLessThan(4);
    const attempts = scorer.batches.filter(({ tokens }) => tokens.length > 180).length;
    expect(attempts).toBeLessThan(5);
    // A single tree that does not fit ends the run.
    const single = run(forty.slice(3, 4), { scorer: fakeScorer({ before: () => Promise.reject(outOfMemory) }) });
    await expect(single).rejects.toThrow(UserError);
    await expect(single).rejects.toThrow(
      /^the device ran out of memory in a micro-batch of \d+ tokens, which is a single tree/,
    );
  });

  it('names question and layer of a NaN that the scorer found', async () => {
    const scorer = fakeScorer({ before: () => Promise.reject(new NonFiniteError('layers.3.attention.qkv', [0])) });
    await expect(run(forty.slice(7, 8), { scorer })).rejects.toThrow(
      'question 7, choice 0: a value is NaN or infinite, first in layers.3.attention.qkv',
    );
  });

  it('keeps what other devices finish after one of them has failed', async () => {
    const finished: Scores[] = [];
    const scorer = fakeScorer({
      maxTokens: 150,
      inFlight: 4,
      before: async (_batch, index) => {
        if (index === 5) throw new NonFiniteError('layers.0.ffn.down', [0]);
        await new Promise((resolve) => setTimeout(resolve, 20));
      },
    });
    await expect(
      run(forty, { scorer, sharing: 'context', onFinished: (scores) => finished.push(...scores) }),
    ).rejects.toThrow('first in layers.0.ffn.down');
    expect(scorer.batches.length).toBeLessThanOrEqual(9);
    const questionsOf = (batches: typeof scorer.batches): number =>
      batches.flatMap(({ position }) => [...position].filter((depth) => depth === 0)).length;
    expect(finished).toHaveLength(questionsOf(scorer.batches.filter((_, index) => index !== 5)));
  });

  it('waits for the micro-batch in flight before it passes an error on', async () => {
    let isBusy = false;
    const scorer = fakeScorer({
      maxTokens: 300,
      before: async () => {
        isBusy = true;
        await new Promise((resolve) => setTimeout(resolve, 20));
        isBusy = false;
      },
    });
    const full = new UserError('the disk is full');
    await expect(
      run(forty, {
        scorer,
        onFinished: () => {
          throw full;
        },
      }),
    ).rejects.toBe(full);
    expect(isBusy).toBe(false);
  });

  it('passes on other failures of the scorer, at once or later, and refuses results of a wrong size', async () => {
    const broken = new Error('device lost');
    const atOnce = {
      ...fakeScorer(),
      score: () => {
        throw broken;
      },
    };
    await expect(run(forty, { scorer: atOnce })).rejects.toBe(broken);
    await expect(run(forty, { scorer: fakeScorer({ before: () => Promise.reject(broken) }) })).rejects.toBe(broken);
    const short = {
      ...fakeScorer(),
      score: () => Promise.resolve({ logProb: new Float32Array(1), isArgmax: new Int32Array(1) }),
    };
    await expect(run(forty, { scorer: short })).rejects.toThrow(/1 log-probabilities and 1 flags for \d+ rows/);
  });

  it('refuses a choice longer than the context of the model before anything is scored', async () => {
    const long: TokenizedQuestion = {
      docId: 12,
      context: new Int32Array(30),
      continuations: [new Int32Array(2), new Int32Array(4)],
    };
    const scorer = fakeScorer({ maxLength: 32 });
    await expect(run([long], { scorer })).rejects.toThrow(
      /question 12, choice 1: 33 input tokens \(context 30, choice 4.*context is 32/,
    );
    expect(scorer.batches).toHaveLength(0);
    // 30 + 4 − 1 inputs fit a context of 33: the last token is only predicted.
    expect((await run([long], { scorer: fakeScorer({ maxLength: 33 }) })).scores).toHaveLength(1);
  });
});
