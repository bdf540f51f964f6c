/** Drafts that a device makes: whatever they are, and whatever happens to their calls, texts are those without. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
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

function engineOf(model: PathModel, tokens: number): Engine {
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
    // the prompt. The next ones compute what was accepted: with keys of its own the last two tokens, with features five.
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
      }
    });
  });
});
