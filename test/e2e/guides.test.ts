/** Guided texts of a real model on a CPU: what masking by hand gives, in any company, and where pages go. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import { following } from '../../commands/structure.js';
import { drafterOf } from '../../draft/drafter.js';
import type { TokenGuide } from '../../engine/guide.js';
import { compile } from '../../grammar/tokens/compile.js';
import { Vocabulary } from '../../grammar/tokens/vocabulary.js';
import { tokensOf, treesOf } from '../support/draftedTexts.js';
import { randomNumbers } from '../support/pathModel.js';
import { chosenByHand } from '../support/guidedByHand.js';
import { type MadeUpGuide, madeUpGuide } from '../support/guides.js';
import { randomTokens } from '../support/numbers.js';
import { SILENT } from '../support/silent.js';
import { CONFIG, safetensorsFile, tensorsOf, writeCheckpoint } from './smallModel.js';
import { environment } from './support.js';

const CACHE_TOKENS = 16 * 64;
/** Of the model, whose last token has an embedding that is not finite: no guide allows it. */
const VOCAB = 320;
const BAD = VOCAB - 1;

function model(): string {
  const tensors = tensorsOf().map((tensor) =>
    tensor.name === 'model.embed_tokens.weight'
      ? { ...tensor, values: tensor.values.map((value, i) => (Math.floor(i / 64) === BAD ? NaN : value)) }
      : tensor,
  );
  const head = { name: 'lm_head.weight', shape: [VOCAB, 64], values: tensorsOf(2)[0]!.values };
  return writeCheckpoint({
    config: { ...CONFIG, tie_word_embeddings: false },
    weights: safetensorsFile([...tensors, head]),
  });
}

const REQUESTS = Array.from({ length: 8 }, (_, i): GenerateRequest & { readonly guide?: MadeUpGuide } => ({
  prompt: randomTokens(i, 3 + 9 * i).map((token) => token % BAD),
  maxNewTokens: 10,
  sampling: i % 2 === 0 ? {} : { temperature: 0.8, seed: i, logitBias: [[BAD, -100]] },
  ...(i === 7 ? {} : { guide: madeUpGuide({ vocab: BAD, seed: i, oneIn: 30, turns: () => i % 3 }) }),
}));

describe('guided texts on a CPU', () => {
  let loaded: LoadedModel;
  const stepper = (limits: Partial<DeviceModel['limits']> = {}, cacheTokens = CACHE_TOKENS): DeviceModel => {
    const whole = deviceModelOf(loaded, cacheTokens, { feeds: true });
    return { ...whole, limits: { ...whole.limits, ...limits } };
  };
  const write = async (engine: Engine, requests: readonly GenerateRequest[] = REQUESTS) =>
    (await Promise.all(requests.map((request) => engine.generate(request)))).map(({ tokens }) => tokens);

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const request = {
      model: model(),
      init: { kind: 'checkpoint' as const },
      ...{
        precision: 'f32' as const,
        threads: 2,
        batchTokens: 96,
        cacheTokens: CACHE_TOKENS,
        feeds: true,
        logits: true,
      },
    };
    loaded = await beginLoading(request, SILENT, new Phases()).finish();
  }, 120_000);
  afterAll(() => loaded.close());

  it('are what masking by hand gives', async () => {
    const engine = Engine.of(stepper());
    const texts = await write(engine);
    for (const [i, { guide, ...request }] of REQUESTS.slice(0, 4).entries()) {
      if (guide === undefined) continue;
      const tokens = texts[i]!.map(({ token }) => token);
      expect(await chosenByHand(engine, request, guide, tokens)).toEqual(tokens);
    }
  });

  it('are the same alone, with and without look-ahead, in small steps and where others take their pages', async () => {
    const together = await write(Engine.of(stepper()));
    for (const i of [0, 3, 7]) expect(await write(Engine.of(stepper()), [REQUESTS[i]!])).toEqual([together[i]]);
    expect(await write(Engine.of(stepper({ keptRows: 0 })))).toEqual(together);
    expect(await write(Engine.of(stepper({ tokens: 20, filtered: 2 })))).toEqual(together);
    const few = Engine.of(stepper({}, 16 * 8));
    expect(await write(few)).toEqual(together);
    expect(few.countsOf().preemptions).toBeGreaterThan(0);
  });

  it('are the same with trees of drafts, right and wrong', async () => {
    const together = await write(Engine.of(stepper()));
    const random = randomNumbers(5);
    for (const right of [0.9, 0.4]) {
      const engine = Engine.of(stepper({ filtered: 20 }));
      const drafted = REQUESTS.map((request, i) => ({
        ...request,
        drafts: treesOf(tokensOf({ tokens: together[i]! }), { random, right, chained: 0.5, vocab: BAD }),
      }));
      expect(await write(engine, drafted)).toEqual(together);
    }
  });

  it('keep to a JSON Schema with drafts as without', async () => {
    // A token for each byte, and 0 at the end.
    const bytes = Array.from({ length: BAD }, (_, token) => (token === 0 ? undefined : Uint8Array.of(token % 256)));
    const vocabulary = new Vocabulary({ bytes, special: new Map(), endTokens: [0] });
    const properties = { name: { enum: ['red', 'green'] }, sizes: { type: 'array', items: { enum: [1, 20, 300] } } };
    const schema = { type: 'object', properties, required: ['name', 'sizes'], additionalProperties: false };
    const grammar = compile({ kind: 'schema', schema }, vocabulary);
    const guide: TokenGuide = { begin: () => following(grammar.start()) };
    for (const sampling of [{}, { temperature: 1, seed: 3 }]) {
      const request = { prompt: [7, 8], maxNewTokens: 60, stopTokens: new Set([0]), sampling, guide };
      const plain = Engine.of(stepper());
      const { tokens, reason } = await plain.generate(request);
      const right = treesOf(tokensOf({ tokens }), { random: randomNumbers(2), right: 0.9, chained: 0.6, vocab: 256 });
      for (const drafts of [right, drafterOf(() => [34, 34, 34, 0, 0])]) {
        const engine = Engine.of(stepper());
        const found = await engine.generate({ ...request, drafts });
        expect({ tokens: found.tokens, reason: found.reason }).toEqual({ tokens, reason });
        if (drafts === right) expect(engine.countsOf().calls).toBeLessThan(0.6 * plain.countsOf().calls);
      }
    }
  });

  it('end where a value is not finite, by themselves, and the layer is named', async () => {
    const bad = { ...REQUESTS[1]!, prompt: [1, BAD, 3] };
    const filtered = { prompt: [BAD, 3], maxNewTokens: 5, sampling: { temperature: 1, topK: 5 } };
    for (const limits of [{}, { keptRows: 0 }]) {
      const engine = Engine.of(stepper(limits));
      const failing = [bad, filtered].map((request) => engine.generate(request).catch((error: unknown) => error));
      expect(await write(engine)).toEqual(await write(Engine.of(stepper())));
      for (const error of await Promise.all(failing))
        expect(error).toMatchObject({ name: 'NonFiniteError', where: expect.stringMatching(/^(embed|layers\.0\.)/) });
    }
    expect(bad.guide!.counts.open).toBe(0);
  });
});
