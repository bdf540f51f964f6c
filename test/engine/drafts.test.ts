/** Drafts: whoever proposes them, and whatever happens meanwhile, texts are those without. */
import { describe, expect, it } from 'vitest';
import { type Drafter, drafterOf, usableDraft } from '../../draft/drafter.js';
import { MAX_DRAFTS } from '../../draft/limits.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import { DECODE_RUN } from '../../ir/stepping.js';
import { requestsOf, STEMS, type Text, textOf, textsAlone, textsOf } from '../support/draftedTexts.js';
import { mix, PATH_VOCAB, pathModel, type PathModelOptions, randomNumbers } from '../support/pathModel.js';
import { casesHere } from '../support/thorough.js';

/** Proposes what comes, `count` tokens of it, some of them wrong and of no use. */
const proposing = (request: GenerateRequest, text: Text, count: () => number, wrong: () => boolean): Drafter =>
  drafterOf((tokens) => {
    const done = tokens.length - request.prompt.length;
    const right = text.tokens.slice(done).map(({ token }) => token);
    return Array.from({ length: count() }, (_, i) => (wrong() ? mix(i, done) % PATH_VOCAB : (right[i] ?? 5)));
  });

const SMALL: readonly (readonly [string, PathModelOptions])[] = [
  ['alone on a large memory', {}],
  ['whose steps overlap', { limits: { keptRows: 64 } }],
  ['that takes few prompts apart', { limits: { keptRows: 64, besideTokens: 64, takesPromptsApart: true } }],
  ['in small steps', { limits: { tokens: 23, rows: 9, filtered: 5, entries: 400 } }],
  ['with few pages', { cacheTokens: 16 * 12 }],
  ['with few pages, whose steps overlap', { cacheTokens: 16 * 12, limits: { keptRows: 64, tokens: 40 } }],
  ['whose device ends twice', { lostAt: new Set([7, 40]), limits: { keptRows: 64 } }],
];

describe('drafts', () => {
  it.each(casesHere(SMALL, 0, 2, 5, 6))('change no text of a model %s', async (_name, options) => {
    const random = randomNumbers(5);
    const requests = requestsOf(11, 8);
    const texts = await textsAlone(requests);
    const drafters: readonly (readonly [() => number, () => boolean])[] = [
      [() => 40, () => false],
      [() => Math.floor(random() * 9), () => random() < 0.3],
      [() => 5, () => true],
    ];
    for (const [count, wrong] of drafters) {
      const model = pathModel(options);
      const generator = Engine.of(model);
      const drafted = requests.map((request, i) =>
        i % 4 === 3 ? request : { ...request, drafts: proposing(request, texts[i]!, count, wrong) },
      );
      expect(await textsOf(generator, drafted)).toEqual(texts);
      // And those that find what others left.
      expect(await textsOf(generator, drafted.slice(0, 5))).toEqual(texts.slice(0, 5));
    }
  });

  it('make of a right proposal all its tokens and one more in a step', async () => {
    const request = { prompt: STEMS[0]!, maxNewTokens: 64 };
    const [text] = await textsAlone([request]);
    const model = pathModel();
    const engine = Engine.of(model);
    const drafts = proposing(
      request,
      text!,
      () => 99,
      () => false,
    );
    expect(await textsOf(engine, [{ ...request, drafts }])).toEqual([text]);
    // A step for the prompt and the first token, and three for the rest: the last has no drafts past the end.
    expect(model.totals).toMatchObject({ steps: 1 + Math.ceil(63 / (MAX_DRAFTS + 1)), tokens: 60 + 63 });
    const last = Array.from({ length: MAX_DRAFTS - 1 }, () => 4);
    expect(engine.statsOf()).toMatchObject({
      ...{ writtenTokens: 64, writtenParts: 5 },
      drafts: [{ drafter: 'custom', rounds: 4, drafted: [...last, 3], accepted: [...last, 3] }],
    });
    expect(structuredClone(engine.statsOf())).toEqual(engine.statsOf());
  });

  it('end with the request that is cancelled, and change no other', async () => {
    const requests = requestsOf(23, 12);
    const texts = await textsAlone(requests);
    const random = randomNumbers(9);
    const generator = Engine.of(pathModel({ cacheTokens: 16 * 20, limits: { keptRows: 64, tokens: 50 } }));
    const running = requests.map((request, i) => {
      const controller = new AbortController();
      if (i % 3 === 0) setTimeout(() => controller.abort(), Math.floor(random() * 20));
      const drafts = proposing(
        request,
        texts[i]!,
        () => 6,
        () => random() < 0.2,
      );
      return generator.generate({ ...request, drafts, signal: controller.signal });
    });
    for (const [i, result] of (await Promise.all(running)).entries()) {
      const { tokens, reason } = textOf(result);
      if (reason === 'aborted') expect(tokens).toEqual(texts[i]!.tokens.slice(0, tokens.length));
      else expect({ tokens, reason }).toEqual(texts[i]);
    }
    // All pages are back: a text that needs each of them can be had.
    expect((await generator.generate({ prompt: STEMS[2]!, maxNewTokens: 250 })).reason).toBe('length');
  });

  it('end the request alone whose drafter throws, or proposes what is no list', async () => {
    const engine = new Engine();
    engine.load('model', { replicas: [pathModel()], vocabSize: PATH_VOCAB });
    const request = { kind: 'generate', prompt: STEMS[1]!, maxNewTokens: 12 } as const;
    const submit = (drafts?: Drafter) =>
      engine.submit({ ...request, ...(drafts === undefined ? {} : { drafts }) }).result();
    const [plain, strange, ...bad] = await Promise.allSettled([
      submit(),
      submit(drafterOf(() => [PATH_VOCAB, -1, 3])),
      submit(
        drafterOf(() => {
          throw new Error('no idea');
        }),
      ),
      submit(drafterOf((() => undefined) as unknown as () => number[])),
    ]);
    expect(plain.status).toBe('fulfilled');
    const tokensOf = (each: typeof plain) => (each.status === 'fulfilled' ? each.value[0]!.tokens : each);
    expect(tokensOf(strange)).toEqual(tokensOf(plain));
    expect(bad).toMatchObject([{ status: 'rejected', reason: { message: 'no idea' } }, { status: 'rejected' }]);
    await engine.close();
  });

  it('are cut where there is no room for them, and at what is no token', () => {
    const tokensOf = (tokens: readonly number[], most: number, vocab?: number) =>
      usableDraft({ tokens }, most, vocab).tokens;
    const many = Array.from({ length: 30 }, (_, i) => i);
    expect(tokensOf(many, 100)).toEqual(many.slice(0, MAX_DRAFTS));
    expect(MAX_DRAFTS + 1).toBe(DECODE_RUN);
    expect([tokensOf(many, 2), tokensOf(many, -3)]).toEqual([[0, 1], []]);
    expect(tokensOf([4, 5, 6, 2], 9, 6)).toEqual([4, 5]);
    expect([tokensOf([1, 1.5], 9), tokensOf([-1], 9), tokensOf([NaN, 1], 9)]).toEqual([[1], [], []]);
  });

  it('are trees whatever was proposed', () => {
    const parents = [-1, 0, 0, 2, 9, -1, 4, -2, NaN];
    const chances = [1, 0.5, 0.25, 0.2, 0, 0, 0, 0, 0];
    expect(usableDraft({ tokens: [5, 6, 7, -1, 8, 9, 1, 2, 3], parents, chances }, 9)).toEqual({
      tokens: [5, 6, 7, 9],
      parents: [-1, 0, 0, -1],
      chances: [1, 0.5, 0.25, 0],
    });
    expect(usableDraft({ tokens: [5, 6], parents: [-1, 0], chances: [2, 1] }, 9)).toEqual({ tokens: [5, 6] });
  });
});
