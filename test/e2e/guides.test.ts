/** Guided texts of a real model on a CPU: what masking by hand gives, in any company, and where pages go. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
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
