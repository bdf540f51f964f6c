/** Drafts that a device makes: whatever they are, and whatever happens to their calls, texts are those without. */
import { describe, expect, it } from 'vitest';
import { DeviceDrafts } from '../../engine/deviceDrafts.js';
import { Engine } from '../../engine/engine.js';
import { PagePool } from '../../engine/pages.js';
import { Scheduler } from '../../engine/scheduler.js';
import { resolveSampling } from '../../engine/options.js';
import { Sequence } from '../../engine/sequence.js';
import type { GenerateRequest } from '../../engine/request.js';
import type { PathDraftOptions } from '../support/pathDrafts.js';
import {
  mix,
  PATH_VOCAB,
  type PathModel,
  pathModel,
  type PathModelOptions,
  randomNumbers,
} from '../support/pathModel.js';

const STEMS = [1, 2, 3].map((seed) => Array.from({ length: 60 }, (_, i) => mix(seed, i) % PATH_VOCAB));
const AHEAD = [0, 1] as const;

function engineOf(model: PathModel, tokens: number | 'auto'): Engine {
  const engine = new Engine();
  engine.load('model', { replicas: [model], vocabSize: PATH_VOCAB, drafts: { tokens } });
  return engine;
}

/** Requests of all kinds, some of which begin alike. */
function requestsOf(seed: number, count: number): readonly GenerateRequest[] {
  const random = randomNumbers(seed);
  const below = (most: number): number => Math.floor(random() * most);
  return Array.from({ length: count }, (_, i) => {
    const sampling = [
      {},
      { temperature: 0.7, seed: 3 },
      { temperature: 1, seed: i, topP: 0.9, topK: 20 },
      { temperature: 1.1, seed: i, presencePenalty: 0.5, topLogProbs: 3 },
    ][below(4)]!;
    return {
      prompt: [
        ...STEMS[below(3)]!.slice(0, below(60)),
        ...Array.from({ length: 1 + below(9) }, () => below(PATH_VOCAB)),
      ],
      maxNewTokens: 1 + below(50),
      sampling,
      ...(below(2) === 0 ? { stopTokens: new Set(Array.from({ length: 4 }, () => below(PATH_VOCAB))) } : {}),
    };
  });
}

const run = async (engine: Engine, requests: readonly GenerateRequest[]) =>
  (await Promise.all(requests.map((request) => engine.generate(request)))).map(({ tokens, reason }) => ({
    tokens,
    reason,
  }));

const plain = async (requests: readonly GenerateRequest[]) => run(Engine.of(pathModel()), requests);

const oneIn = (count: number) => (digest: number) => mix(digest, 9) % count === 0;

describe('drafts of a device', () => {
  it.each(AHEAD)('that are right make as many tokens and one more of each step (ahead %i)', async (ahead) => {
    const requests = [{ prompt: STEMS[0]!.slice(0, 21), maxNewTokens: 41 }];
    const wanted = await plain(requests);
    const model = pathModel({ draft: { ahead } });
    expect(await run(engineOf(model, 4), requests)).toEqual(wanted);
    // A step for the prompt and a token, and eight of five tokens. Rounds have four calls each, the first one more for
    // the prompt. The next ones compute what was accepted: with keys of its own the last two tokens,
    // with features five.
    expect(model.totals).toMatchObject({ steps: 1 + 8, tokens: 21 + 8 * 5 });
    const later = ahead === 0 ? 2 : 5;
    expect(model.drafted).toEqual({
      calls: 1 + 8 * 4,
      rows: 8 * 4,
      tokens: 22 - ahead + 7 * later + 8 * 3,
      errors: [],
    });
  });

  const models: readonly (readonly [string, PathModelOptions])[] = [
    ['alone on a large memory', {}],
    ['whose steps overlap', { limits: { keptRows: 64 } }],
    ['in small steps', { limits: { tokens: 23, rows: 9, filtered: 5, entries: 400 } }],
    ['with few pages', { cacheTokens: 16 * 12, limits: { keptRows: 64, tokens: 40 } }],
    ['whose device ends twice', { lostAt: new Set([7, 40]), limits: { keptRows: 64 } }],
  ];
  const kinds: readonly (readonly [string, PathDraftOptions])[] = [
    ['right', {}],
    ['wrong', { isRight: () => false }],
    ['right at times, in small calls', { isRight: (digest) => !oneIn(3)(digest), limits: { tokens: 9, rows: 3 } }],
    ['not finite at times', { isRight: (digest) => !oneIn(3)(digest), failsOneIn: 40 }],
    ['lost at times', { failsAt: new Set([0, 3, 9, 10, 30, 31, 60]), isRight: (digest) => !oneIn(4)(digest) }],
    ['the end of the device at times', { lostAt: new Set([2, 30]), isRight: (digest) => !oneIn(4)(digest) }],
    ['short', { maxLength: 50, limits: { keys: 200 } }],
  ];
  it.each(AHEAD)('change no text where as many are made as pay (ahead %i)', async (ahead) => {
    const requests = requestsOf(13, 8);
    const wanted = await plain(requests);
    for (const limits of [{}, { keptRows: 64 }]) {
      const model = pathModel({ limits, draft: { ahead, isRight: (digest) => !oneIn(5)(digest) } });
      const engine = engineOf(model, 'auto');
      expect(await run(engine, requests)).toEqual(wanted);
      expect(model.drafted.errors).toEqual([]);
      // It is tried, at least.
      expect(model.drafted.calls).toBeGreaterThan(0);
    }
  });

  describe.each(AHEAD)('change no text (ahead %i)', (ahead) => {
    it.each(models)('of a model %s', async (_name, options) => {
      const requests = requestsOf(12, 7);
      const wanted = await plain(requests);
      for (const [kind, draft] of kinds) {
        const model = pathModel({ ...options, draft: { ahead, ...draft } });
        const engine = engineOf(model, 5);
        expect(await run(engine, requests), kind).toEqual(wanted);
        // And those that find what others left.
        expect(await run(engine, requests.slice(0, 3)), kind).toEqual(wanted.slice(0, 3));
        expect(model.drafted.errors, kind).toEqual([]);
        expect(model.drafted.calls, kind).toBeGreaterThan(2);
        const [{ accepted = [] } = {}] = engine.statsOf().drafts;
        if (kind === 'right') expect(accepted[0]).toBeGreaterThan(2);
      }
    });
  });
});

describe('a round of drafts', () => {
  /** Texts that have been computed but for their last token, on a model of their own. */
  const begin = async (draft: PathDraftOptions, texts: readonly (readonly number[])[], pages = 64) => {
    const model = pathModel({ draft, cacheTokens: 16 * pages, limits: { tokens: 4000 } });
    const pool = new PagePool(pages);
    const scheduler = new Scheduler(pool, model.limits);
    const sequences = texts.map((prompt) => new Sequence({ prompt, longest: 300 }));
    for (const sequence of sequences) scheduler.add(sequence);
    for (let step = scheduler.next(); step !== undefined; step = scheduler.next()) {
      const { nextToken } = await model.step(step.message);
      step.asked.forEach(({ sequence, at }, row) => sequence.read(at, nextToken[row]!));
      scheduler.read(step);
      for (const { sequence } of step.asked) scheduler.pause(sequence);
    }
    for (const sequence of sequences) scheduler.resume(sequence);
    const drafts = new DeviceDrafts(model, model.draft!, pool, scheduler);
    const ask = (depth: number | readonly number[]) =>
      drafts.round(
        sequences.map((sequence, i) => ({ sequence, depth: typeof depth === 'number' ? depth : depth[i]! })),
      );
    return { model, pool, scheduler, sequences, drafts, ask };
  };
  const textOf = (seed: number, length: number): readonly number[] =>
    Array.from({ length }, (_, i) => mix(seed, i) % PATH_VOCAB);

  it.each(AHEAD)(
    'computes once what texts share, and takes several calls of what does not fit one (ahead %i)',
    async (ahead) => {
      const stem = textOf(1, 64);
      const { model, drafts, sequences, ask } = await begin(
        { ahead, limits: { tokens: 50, rows: 2 } },
        [1, 2, 3, 4, 5].map((own) => [...stem, own]),
      );
      const behind = (): readonly number[] => sequences.map((sequence) => drafts.behind(sequence));
      expect(behind()).toEqual(sequences.map(() => 66 - ahead));
      // The first text goes on when two calls have its tokens; of the others, what they have of their own is left.
      expect([...(await ask(2)).keys()]).toEqual([sequences[0]]);
      expect(model.drafted).toMatchObject({ errors: [], calls: 1 + 2, rows: 2, tokens: 66 - ahead + 1 });
      expect([...(await ask(2)).keys()]).toEqual(sequences);
      expect(model.drafted).toMatchObject({ errors: [], calls: 3 + 3 * 2, rows: 2 + 10 });
      expect(model.drafted.tokens).toBe(67 - ahead + (1 + 4 * (2 - ahead)) + 5);
      expect(behind()).toEqual(sequences.map(() => 1));
    },
  );

  it('has as many drafts of each text as it asks for, where there is room', async () => {
    const { ask, sequences, pool, model } = await begin({}, [textOf(1, 20), textOf(2, 30), textOf(3, 9)], 7);
    // Five of seven pages are held. The second text has room for one more token in its two pages.
    expect(pool.available).toBe(2);
    const drafts = await ask([4, 6, 2]);
    expect(sequences.map((sequence) => drafts.get(sequence)?.tokens.length)).toEqual([4, 1, 2]);
    expect(drafts.get(sequences[0]!)!.chances!.every((chance) => Math.abs(chance - 0.9) < 1e-6)).toBe(true);
    expect(model.drafted).toMatchObject({ errors: [], rows: 7 });
  });

  it('lets others draft while a long text is caught up with, a call at a time', async () => {
    const { ask, sequences, model } = await begin({ limits: { tokens: 40 } }, [textOf(1, 8), textOf(2, 150)]);
    const found = [];
    for (let round = 0; round < 5; round++) found.push((await ask(2)).has(sequences[1]!));
    expect(found).toEqual([false, false, false, true, true]);
    expect(model.drafted.errors).toEqual([]);
  });

  it('leaves out texts whose calls failed for a while, twice as long the next time', async () => {
    const { ask, sequences, drafts } = await begin({ failsOneIn: 1 }, [textOf(1, 8)]);
    const tried: number[] = [];
    for (let round = 1, { calls } = drafts.totals; round < 60; round++) {
      expect((await ask(1)).size).toBe(0);
      if (drafts.totals.calls > calls) tried.push(round);
      ({ calls } = drafts.totals);
    }
    expect(tried).toEqual([1, 9, 25, 57]);
    expect(drafts.isResting(sequences[0]!)).toBe(true);
  });

  it('says how likely drafts are with their noise looked at', async () => {
    const model = pathModel({ draft: { confidence: () => 0.5 } });
    const pool = new PagePool(64);
    const scheduler = new Scheduler(pool, model.limits);
    const chances: number[] = [];
    for (let seed = 0; seed < 200; seed++) {
      const sequence = new Sequence({
        prompt: [seed % 90],
        longest: 50,
        sampling: resolveSampling({ temperature: 1, seed }),
      });
      scheduler.add(sequence);
      const step = scheduler.next()!;
      const { nextToken } = await model.step(step.message);
      sequence.read(1, nextToken[0]!);
      scheduler.read(step);
      const drafts = new DeviceDrafts(model, model.draft!, pool, scheduler);
      chances.push((await drafts.round([{ sequence, depth: 1 }])).get(sequence)!.chances![0]!);
      scheduler.remove(sequence);
    }
    // Chances of one half are uniform over keys (chanceOf).
    const mean = chances.reduce((sum, each) => sum + each, 0) / chances.length;
    expect(Math.abs(mean - 0.5)).toBeLessThan((3 * Math.sqrt(1 / 12)) / Math.sqrt(chances.length));
    expect(Math.max(...chances)).toBeGreaterThan(0.9);
    expect(Math.min(...chances)).toBeLessThan(0.1);
  });
});
