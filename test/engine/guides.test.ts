/** Guides: the text of a guided continuation is what masking by hand gives, in any company and whatever happens. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { drafterOf } from '../../draft/drafter.js';
import type { StepMessage } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import { allowsAny, onlyTokens, type TokenGuide } from '../../engine/guide.js';
import type { Generated, GenerateRequest } from '../../engine/request.js';
import { isAllowed } from '../../ir/filters.js';
import { type Text, tokensOf, treesOf } from '../support/draftedTexts.js';
import { type MadeUpGuide, madeUpGuide } from '../support/guides.js';
import { mix, PATH_VOCAB, pathModel, type PathModelOptions, randomNumbers } from '../support/pathModel.js';
import { casesHere } from '../support/thorough.js';

const STEM = Array.from({ length: 60 }, (_, i) => mix(3, i) % PATH_VOCAB);

/** Requests of all kinds, most of which have guides: some think at once, some for a while. */
function requestsOf(seed: number, count: number) {
  const random = randomNumbers(seed);
  const below = (most: number): number => Math.floor(random() * most);
  return Array.from({ length: count }, (_, i): GenerateRequest & { readonly guide?: MadeUpGuide } => {
    const turns = [() => 0, () => below(4), () => below(30)][i % 3]!;
    return {
      prompt: [...STEM.slice(0, below(50)), ...Array.from({ length: 1 + below(20) }, () => below(PATH_VOCAB))],
      maxNewTokens: 1 + below(40),
      sampling: [
        {},
        { temperature: 0.7, seed: 3 },
        { temperature: 1, seed: i, topP: 0.9, topK: 20 },
        { repetitionPenalty: 1.3, topLogProbs: 3 },
      ][below(4)]!,
      ...(i % 4 === 3 ? {} : { guide: madeUpGuide({ vocab: PATH_VOCAB, seed: i, turns }) }),
      ...(below(3) === 0 ? { stopTokens: new Set([below(PATH_VOCAB)]), minNewTokens: below(9) } : {}),
    };
  });
}

const textOf = ({ tokens, reason }: Generated) => ({ tokens, reason });

const run = async (engine: Engine, requests: readonly GenerateRequest[]) =>
  (await Promise.all(requests.map((request) => engine.generate(request)))).map(textOf);

/** What alone comes of each. */
const alone = async (requests: readonly GenerateRequest[]) => {
  const texts = [];
  for (const request of requests) texts.push(...(await run(Engine.of(pathModel()), [request])));
  return texts;
};

const ALL_WAYS: readonly (readonly [string, PathModelOptions])[] = [
  ['on a large memory', {}],
  ['whose steps overlap', { limits: { keptRows: 64 } }],
  ['that takes few prompts apart', { limits: { keptRows: 64, besideTokens: 64, takesPromptsApart: true } }],
  ['in small steps', { limits: { tokens: 23, rows: 9, filtered: 5, entries: 400 } }],
  ['with few pages', { cacheTokens: 16 * 12 }],
  ['with few pages, whose steps overlap', { cacheTokens: 16 * 12, limits: { keptRows: 64, tokens: 40 } }],
  ['in a pipeline', { limits: { groups: 3 } }],
  ['whose device ends twice', { lostAt: new Set([7, 40]), limits: { keptRows: 64 } }],
];
const WAYS = casesHere(ALL_WAYS, 3, 5, 7);

describe('guided texts', () => {
  it.each(WAYS)('are those of each alone on a model %s', async (_name, options) => {
    const requests = requestsOf(11, 24);
    const texts = await alone(requests);
    expect(await run(Engine.of(pathModel(options)), requests)).toEqual(texts);
    for (const [i, { guide }] of requests.entries()) {
      const tokens = texts[i]!.tokens.map(({ token }) => token);
      tokens.forEach((token, at) => {
        if (guide !== undefined) expect(isAllowed(guide.maskAfter(tokens.slice(0, at)), token)).toBe(true);
      });
      // One mask for each token, whatever was computed again.
      if (guide !== undefined) expect(guide.counts).toEqual({ begun: 2, open: 0, asked: 2 * tokens.length, looked: 0 });
    }
  });

  it('are other texts than those without, and have the log-probabilities of unchanged logits', async () => {
    const request = { prompt: STEM, maxNewTokens: 20 };
    const guide = madeUpGuide({ vocab: PATH_VOCAB, seed: 1 });
    const engine = Engine.of(pathModel());
    const [free, guided] = await run(engine, [request, { ...request, guide }]);
    expect(guided!.tokens).not.toEqual(free!.tokens);
    const path = [...STEM, ...guided!.tokens.map(({ token }) => token)];
    const scored = await engine.generate({ prompt: path, maxNewTokens: 0, scoreFrom: STEM.length });
    expect(guided!.tokens.map(({ logProb }) => logProb)).toEqual(scored.promptScores.map(({ logProb }) => logProb));
  });

  it('cost one mask where rows share it, and none where nobody is guided', async () => {
    const model = pathModel();
    const masks: number[] = [];
    const step = (message: StepMessage) => {
      masks.push(message.filters!.mask.length / 4);
      return model.step(message);
    };
    const engine = Engine.of({ ...model, step });
    const guide: TokenGuide = { begin: () => ({ next: () => ONE_MASK, close: () => undefined }) };
    const ask = (i: number) => ({ prompt: [i], maxNewTokens: 3, sampling: { temperature: 1, seed: i, topK: 9 } });
    await run(
      engine,
      Array.from({ length: 9 }, (_, i) => ({ ...ask(i), ...(i % 2 === 0 ? { guide } : {}) })),
    );
    expect(new Set(masks)).toEqual(new Set([1]));
    masks.length = 0;
    await run(engine, [ask(1), ask(2)]);
    expect(new Set(masks)).toEqual(new Set([0]));
  });

  it('are looked ahead where their mask never changes', async () => {
    const [model, plain] = [pathModel({ limits: { keptRows: 64 } }), pathModel()];
    const request = { prompt: STEM, maxNewTokens: 20, guide: { ...always(ONE_MASK), fixed: ONE_MASK } };
    let unread = 0;
    const step = (message: StepMessage) => {
      unread += message.tokens.filter((token) => token < 0).length;
      return model.step(message);
    };
    const found = await run(Engine.of({ ...model, step }), [request]);
    expect(unread).toBe(19);
    expect(found).toEqual(await run(Engine.of(plain), [{ ...request, guide: always(ONE_MASK) }]));
  });

  it('have states of their own where there are several', async () => {
    const samples: number[] = [];
    const own = madeUpGuide({ vocab: PATH_VOCAB, seed: 4, turns: () => 2 });
    const guide = { begin: (sample: number) => (samples.push(sample), own.begin(sample)) };
    const request = { prompt: [5], maxNewTokens: 12, sampling: { temperature: 1, seed: 9 }, guide };
    const engine = Engine.of(pathModel());
    const together = await engine.submit({ kind: 'generate', ...request, n: 3, sample: 2 }).result();
    expect(samples).toEqual([2, 3, 4]);
    expect(together.map(textOf)).toEqual(
      await run(
        engine,
        [2, 3, 4].map((sample) => ({ ...request, sample })),
      ),
    );
    expect(own.counts).toMatchObject({ begun: 6, open: 0 });
  });
});

const ONE_MASK = Uint32Array.of(0b1011000, 1 << 9, 3, 1);

describe('a guide', () => {
  const others = Array.from({ length: 3 }, (_, i) => ({ prompt: [i, 7], maxNewTokens: 30 }));

  it('that never answers keeps nobody waiting, and ends with its request', async () => {
    const [engine, free] = [Engine.of(pathModel({ limits: { keptRows: 64 } })), await alone(others)];
    let [closed, asked] = [0, 0];
    const next = async () => (asked++, new Promise<Uint32Array>(() => undefined));
    const guide: TokenGuide = { begin: () => ({ next, close: () => void closed++ }) };
    const hung = engine.submit({ kind: 'generate', prompt: STEM, maxNewTokens: 5, guide });
    expect(await run(engine, others)).toEqual(free);
    hung.cancel();
    expect(await hung.result()).toMatchObject([{ reason: 'aborted', tokens: [] }]);
    expect([closed, asked]).toEqual([1, 1]);
    await engine.close();
  });

  it.each<[string, Partial<TokenGuide>, string]>([
    [
      'that rejects at the third token',
      madeUpGuide({ vocab: PATH_VOCAB, seed: 1, turns: () => 3, fails: ({ length }) => length === 2 }),
      'its guide failed: nothing may come',
    ],
    ['that throws at the third', madeUpGuide({ vocab: PATH_VOCAB, seed: 1, fails: ({ length }) => length === 2 }), ''],
    [
      'that cannot begin',
      {
        begin: () => {
          throw new Error('no more room');
        },
      },
      'its guide failed: no more room',
    ],
    ['that allows nothing', always(new Uint32Array(4)), 'its guide allows no token'],
    ['that allows tokens of no vocabulary', always(Uint32Array.of(0, 0, 0, 4)), 'its guide allows no token'],
    ['whose mask is too short', always(new Uint32Array(3)), 'gave no mask of 4 words, which 97 tokens have'],
    [
      'that gives no mask',
      always([1, 2, 3, 4] as unknown as Uint32Array),
      'gave no mask of 4 words, which 97 tokens have',
    ],
  ])('%s fails its continuation alone', async (_title, guide, message) => {
    const engine = Engine.of(pathModel());
    const failing = engine.generate({ prompt: STEM, maxNewTokens: 5, guide: guide as TokenGuide });
    const [outcome, texts] = await Promise.all([failing.catch((error: unknown) => error), run(engine, others)]);
    expect(outcome).toBeInstanceOf(Error);
    expect((outcome as Error).message).toContain(message);
    expect(texts).toEqual(await alone(others));
    if ('counts' in guide) expect(guide.counts).toMatchObject({ begun: 1, open: 0 });
    await engine.close();
  });

  it('that only allows an end too early fails, and is obeyed after as many tokens', async () => {
    const engine = Engine.of(pathModel());
    const request = { prompt: [1], maxNewTokens: 9, minNewTokens: 3, stopTokens: new Set([4]) };
    await expect(engine.generate({ ...request, guide: always(Uint32Array.of(16, 0, 0, 0)) })).rejects.toThrow(
      'its guide allows no token but those that end the text, which is to have more tokens',
    );
    const late = await engine.generate({ ...request, guide: always(Uint32Array.of(16 + 32, 0, 0, 0)) });
    expect(late.tokens.map(({ token }) => token).slice(0, 3)).toEqual([5, 5, 5]);
  });

  it('fails its continuation where the device has no allowed token to choose', async () => {
    const model = pathModel();
    const step: typeof model.step = async (message) => {
      const answer = await model.step(message);
      answer.filtered?.token.fill(0);
      return answer;
    };
    const guide = always(Uint32Array.of(8, 0, 0, 0));
    await expect(Engine.of({ ...model, step }).generate({ prompt: [1], maxNewTokens: 3, guide })).rejects.toThrow(
      'no token that its guide allows has a probability above 0',
    );
  });

  it('is closed once where a reader cuts the text', async () => {
    const guide = madeUpGuide({ vocab: PATH_VOCAB, seed: 8, turns: () => 1 });
    const engine = Engine.of(pathModel());
    const handle = engine.submit({ kind: 'generate', prompt: [1], maxNewTokens: 50, guide });
    for await (const { kind } of handle) if (kind === 'token') handle.cut(0, 1, 'stop');
    expect((await handle.result())[0]).toMatchObject({ reason: 'stop', tokens: { length: 1 } });
    await engine.close();
    expect(guide.counts).toMatchObject({ begun: 1, open: 0 });
  });

  it('is refused by models without logits', () => {
    const ask = { kind: 'generate', prompt: [1], maxNewTokens: 2, guide: always(ONE_MASK) } as const;
    const { vocab: _, ...plain } = pathModel();
    expect(() => Engine.of(plain).submit(ask)).toThrow('compiled without logits, which filters, penalties, guides');
  });
});

function always(mask: Uint32Array): TokenGuide {
  return { begin: () => ({ next: () => mask, close: () => undefined }) };
}

/** The same, whose answers take turns of the event loop. `onNext`: a mask was asked for. */
function slowly(
  guide: TokenGuide,
  turns: Record<'next' | 'ahead', number>,
  onNext = (): void => undefined,
): TokenGuide {
  const after = <T>(count: number, answer: T | Promise<T>): T | Promise<T> => {
    const later = async (): Promise<T> => {
      for (let i = 0; i < count; i++) await nextTurn();
      return answer;
    };
    return count === 0 ? answer : later();
  };
  return {
    begin: (sample) => {
      const state = guide.begin(sample);
      return {
        next: (...tokens) => {
          onNext();
          return after(turns.next, state.next(...tokens));
        },
        ahead: (tokens, drafts) => after(turns.ahead, state.ahead!(tokens, drafts)),
        close: () => state.close(),
      };
    },
  };
}

const range = (from: number, end: number): number[] => Array.from({ length: end - from }, (_, i) => from + i);

describe('guided texts with drafts', () => {
  const requests = requestsOf(19, 9);
  /** Trees in which the text goes some way. */
  const drafted = (texts: readonly Text[], right: number, random: () => number) =>
    requests.map((request, i) => ({
      ...request,
      drafts: treesOf(tokensOf(texts[i]!), { random, right, chained: 0.5 }),
    }));

  it.each(WAYS)('are those without on a model %s', async (_name, options) => {
    const texts = await alone(requests);
    for (const right of [0.9, 0.3]) {
      const all = drafted(texts, right, randomNumbers(17));
      expect(await run(Engine.of(pathModel(options)), all)).toEqual(texts);
    }
    for (const { guide } of requests) if (guide !== undefined) expect(guide.counts.open).toBe(0);
  });

  it('ask once for each step, and compute no draft that may not come', async () => {
    const guide = madeUpGuide({ vocab: PATH_VOCAB, seed: 3, turns: () => 2 });
    const request = { prompt: STEM, maxNewTokens: 60, guide };
    const [text] = await alone([request]);
    let count = 0;
    const endsAt = () => ++count === 41;
    const right = tokensOf(text!);
    Object.assign(guide.counts, { asked: 0 });
    // The text along the second of two runs; the first begins with what may not come.
    const bad = (at: number): number => {
      const mask = guide.maskAfter(right.slice(0, at));
      return Array.from({ length: PATH_VOCAB }, (_, token) => token).find((token) => !isAllowed(mask, token))!;
    };
    const drafts = {
      name: 'two',
      begin: () => ({
        propose: ({ tokens }: { readonly tokens: readonly number[] }) => {
          const done = tokens.length - STEM.length;
          const coming = right.slice(done, done + 3);
          return { tokens: [bad(done), 5, 5, ...coming], parents: [-1, 0, 1, -1, 3, 4] };
        },
      }),
    };
    const model = pathModel();
    const ended = { tokens: text!.tokens.slice(0, 41), reason: 'stop' };
    expect(await run(Engine.of(model), [{ ...request, endsAt, drafts }])).toEqual([ended]);
    // The prompt with the first token; then four with each step. What was forbidden took no rows.
    expect(model.totals).toMatchObject({ steps: 1 + 10, tokens: STEM.length + 10 + 30 });
    expect(guide.counts).toMatchObject({ asked: 1 + 10, looked: 10 });
  });

  it('go on where nothing of what is proposed may come, and ask about that once at most', async () => {
    const own = madeUpGuide({ vocab: PATH_VOCAB, seed: 3, turns: () => 20 });
    const guide = onlyTokens(range(3, PATH_VOCAB), PATH_VOCAB, own);
    // Nothing of the first may come; of the second its first token may, and nothing behind it.
    for (const [tokens, looked] of [
      [range(0, 2), 0],
      [range(3, PATH_VOCAB), undefined],
    ] as const) {
      let proposed = 0;
      const drafter = drafterOf(() => {
        proposed++;
        return tokens.length === 2 ? tokens : [tokens[proposed % tokens.length]!, 0];
      });
      const engine = new Engine();
      engine.load('model', { replicas: [pathModel()], vocabSize: PATH_VOCAB, drafts: { drafter, tokens: 5 } });
      Object.assign(own.counts, { looked: 0 });
      const request = { prompt: STEM, maxNewTokens: 20, guide };
      const found = await run(engine, [request]);
      expect(found).toEqual(await alone([request]));
      expect(own.counts.looked).toBeLessThanOrEqual(looked ?? proposed);
      expect(proposed).toBeLessThan(20);
      await engine.close();
    }
  });

  it('have a mask in every row, also where that of the next token comes while others are looked ahead', async () => {
    const clock = { ms: 1000 };
    const time = vi.spyOn(performance, 'now').mockImplementation(() => clock.ms);
    try {
      const model = pathModel({ limits: { keptRows: 64, tokens: 400, rows: 300, filtered: 300, entries: 9000 } });
      const unmasked: number[] = [];
      const step: typeof model.step = async (message) => {
        unmasked.push(message.filters!.maskRow.filter((row) => row < 0).length);
        const answer = await model.step(message);
        clock.ms += 1000;
        return answer;
      };
      // Every other mask of the first comes too late to be waited for; those behind drafts of the second are.
      let asked = 0;
      const first = slowly(madeUpGuide({ vocab: PATH_VOCAB, seed: 1, oneIn: 2 }), { next: 3, ahead: 0 }, () => {
        clock.ms += ++asked % 2 === 0 ? 100 : 0;
      });
      const second = slowly(madeUpGuide({ vocab: PATH_VOCAB, seed: 2, oneIn: 2 }), { next: 0, ahead: 6 });
      const guided = [first, second].map((guide, i) => ({ prompt: [i], maxNewTokens: 200, guide }));
      const texts = await alone(guided);
      const random = randomNumbers(1);
      const all = guided.map((request, i) => ({
        ...request,
        drafts: treesOf(tokensOf(texts[i]!), { random, right: 0.5, chained: 0.3 }),
      }));
      expect(await run(Engine.of({ ...model, step }), all)).toEqual(texts);
      expect(model.totals.steps).toBeLessThan(200);
      expect(new Set(unmasked)).toEqual(new Set([0]));
    } finally {
      time.mockRestore();
    }
  });

  it('take none where their guide says nothing about drafts, and few where it fails them', async () => {
    for (const options of [
      { takesDrafts: false },
      { turns: () => 1, fails: (path: readonly number[]) => path.length > 30 },
    ]) {
      const guide = madeUpGuide({ vocab: PATH_VOCAB, seed: 4, ...options });
      const request = { prompt: STEM, maxNewTokens: 30, guide };
      const [text] = await alone([request]);
      const drafts = treesOf(tokensOf(text!), { random: randomNumbers(2), right: 1, chained: 1 });
      const model = pathModel();
      expect(await run(Engine.of(model), [{ ...request, drafts }])).toEqual([text]);
      if ('takesDrafts' in options) expect(model.totals.steps).toBe(30);
      else expect(model.totals.steps).toBeLessThan(8);
    }
  });

  it('have allowed tokens alone, and end where nothing more may come', async () => {
    const allowedTokens = [3, 40, 41, 96];
    const engine = Engine.of(pathModel());
    const asked = { kind: 'generate', prompt: STEM.slice(0, 9), maxNewTokens: 30, allowedTokens } as const;
    const guide = madeUpGuide({ vocab: PATH_VOCAB, seed: 6, oneIn: 1 });
    for (const more of [{}, { guide }]) {
      const [plain] = await engine.submit({ ...asked, ...more }).result();
      const drafts = treesOf(tokensOf(plain!), { random: randomNumbers(4), right: 0.8, chained: 0.5 });
      const [other] = await engine.submit({ ...asked, ...more, drafts }).result();
      expect(textOf(other!)).toEqual(textOf(plain!));
      expect(other!.tokens.every(({ token }) => allowedTokens.includes(token))).toBe(true);
    }
    const failing = madeUpGuide({ vocab: PATH_VOCAB, seed: 6, fails: ({ length }) => length === 9 });
    const request = { prompt: STEM, maxNewTokens: 30, guide: failing };
    const right = madeUpGuide({ vocab: PATH_VOCAB, seed: 6 });
    const [text] = await run(engine, [{ ...request, guide: right }]);
    const drafts = treesOf(tokensOf(text!), { random: randomNumbers(4), right: 1, chained: 1 });
    await expect(engine.generate({ ...request, drafts })).rejects.toThrow('its guide failed: nothing may come');
    await engine.close();
  });
});

describe('a mask', () => {
  it('allows a token of the vocabulary that is not banned', () => {
    expect(allowsAny(Uint32Array.of(0, 1), 33)).toBe(true);
    expect(allowsAny(Uint32Array.of(0, 2), 33)).toBe(false);
    expect(allowsAny(Uint32Array.of(1 << 31), 32)).toBe(true);
    expect(allowsAny(Uint32Array.of(0b110), 32, new Set([1, 2]))).toBe(false);
    expect(allowsAny(Uint32Array.of(0b110), 32, new Set([1]))).toBe(true);
  });
});
describe('allowed tokens', () => {
  const allowedTokens = [3, 40, 41, 96];

  it('are those that are masked by hand, alone and of those that a guide allows', async () => {
    const engine = Engine.of(pathModel());
    const asked = { prompt: STEM.slice(0, 9), maxNewTokens: 20, sampling: { temperature: 1, seed: 2 } } as const;
    const own = new Uint32Array(Math.ceil(PATH_VOCAB / 32));
    for (const token of allowedTokens) own[token >> 5]! |= 1 << (token & 31);
    const byHand: TokenGuide = { begin: () => ({ next: () => own, close: () => undefined }) };
    const of = async (more: object) => {
      const [found] = await engine.submit({ kind: 'generate', ...asked, ...more }).result();
      return found!.tokens.map(({ token }) => token);
    };
    const tokens = await of({ allowedTokens });
    expect(tokens).toEqual(await of({ guide: byHand }));
    expect(tokens.every((token) => allowedTokens.includes(token))).toBe(true);
    const ended: string[] = [];
    const late: TokenGuide = {
      begin: () => ({
        // Allows token 96 alone at first, and then all of allowedTokens.
        next: (token) => Promise.resolve(token === undefined ? Uint32Array.of(0, 0, 0, 1) : own),
        close: () => void ended.push('closed'),
      }),
    };
    const both = await of({ allowedTokens, guide: late });
    expect(both[0]).toBe(96);
    expect(both.every((token) => allowedTokens.includes(token))).toBe(true);
    expect(ended).toEqual(['closed']);
    expect(() => engine.submit({ kind: 'generate', ...asked, allowedTokens: [] })).toThrow('allowedTokens: no token');
    await engine.close();
  });
});
