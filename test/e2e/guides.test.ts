/** Guided texts of a real model on a CPU: what masking by hand gives, in any company, and where pages are taken away. */
import { join } from 'node:path';
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
import { environment, ROOT } from './support.js';

const CACHE_TOKENS = 16 * 128;
const VOCAB = 4096;

const REQUESTS = Array.from({ length: 8 }, (_, i): GenerateRequest & { readonly guide?: MadeUpGuide } => ({
  prompt: randomTokens(i, 3 + 9 * i),
  maxNewTokens: 10,
  sampling: i % 2 === 0 ? {} : { temperature: 0.8, seed: i },
  ...(i === 7 ? {} : { guide: madeUpGuide({ vocab: VOCAB, seed: i, oneIn: 400, turns: () => i % 3 }) }),
}));

describe('guided texts on a CPU', () => {
  let model: LoadedModel;
  const stepper = (limits: Partial<DeviceModel['limits']> = {}, cacheTokens = CACHE_TOKENS): DeviceModel => {
    const whole = deviceModelOf(model, cacheTokens, { feeds: true });
    return { ...whole, limits: { ...whole.limits, ...limits } };
  };
  const write = async (engine: Engine, requests: readonly GenerateRequest[] = REQUESTS) =>
    (await Promise.all(requests.map((request) => engine.generate(request)))).map(({ tokens }) => tokens);

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const request = {
      model: join(ROOT, 'models', 'demo'),
      init: { kind: 'checkpoint' as const },
      ...{ precision: 'f32' as const, threads: 2, cacheTokens: CACHE_TOKENS, feeds: true, logits: true },
    };
    model = await beginLoading(request, SILENT, new Phases()).finish();
  }, 120_000);
  afterAll(() => model.close());

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
});
