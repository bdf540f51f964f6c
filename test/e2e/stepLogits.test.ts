/** Tokens that are chosen from rows of logits: the same in any company, and beams scored afterwards to the bit. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { drafterOf } from '../../draft/drafter.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import type { SamplingOptions } from '../../engine/options.js';
import type { DeviceModel } from '../../engine/device.js';
import { SILENT } from '../support/silent.js';
import { environment, ROOT } from './support.js';

const CACHE_TOKENS = 16 * 256;
const PROMPTS = [3, 40, 17, 80, 33].map((length, i) => Array.from({ length }, (_, at) => (at * 37 + i * 101) % 500));
const OPTIONS: readonly SamplingOptions[] = [
  { temperature: 0.9, topK: 20, seed: 5 },
  { temperature: 1.2, topP: 0.8, repetitionPenalty: 1.2, seed: 6 },
  { temperature: 0.7, minP: 0.05, frequencyPenalty: 0.3, seed: 7 },
  { presencePenalty: 0.5 },
  { temperature: 1, seed: 8 },
];

describe('steps that choose from logits', () => {
  let model: LoadedModel;
  const stepper = (limits: Partial<DeviceModel['limits']> = {}, cacheTokens = CACHE_TOKENS): DeviceModel => {
    const whole = deviceModelOf(model, cacheTokens, { feeds: true });
    return { ...whole, limits: { ...whole.limits, ...limits } };
  };
  const run = (generator: Engine, which = PROMPTS.map((_, i) => i)) =>
    Promise.all(
      which.map(async (i) => {
        const request = { prompt: PROMPTS[i]!, maxNewTokens: 24, sampling: OPTIONS[i]! };
        return (await generator.generate(request)).tokens;
      }),
    );

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const request = {
      model: join(ROOT, 'models', 'demo'),
      init: { kind: 'checkpoint' as const },
      precision: 'f32' as const,
      threads: 2,
      cacheTokens: CACHE_TOKENS,
      logits: true,
      feeds: true,
    };
    model = await beginLoading(request, SILENT, new Phases()).finish();
  }, 120_000);
  afterAll(() => model.close());

  it('choose the same tokens alone, in any company and chunks, and after they gave way', async () => {
    const together = await run(Engine.of(stepper()));
    for (const i of PROMPTS.keys()) expect(await run(Engine.of(stepper()), [i])).toEqual([together[i]]);
    expect(await run(Engine.of(stepper({ tokens: 13, rows: 2 })))).toEqual(together);
    expect(await run(Engine.of(stepper({ filtered: 1, entries: 200 })))).toEqual(together);
    const small = Engine.of(stepper({}, 16 * 9));
    expect(await run(small)).toEqual(together);
    expect(small.countsOf().preemptions).toBeGreaterThan(0);
  });

  it('choose the same tokens with drafts, right and wrong: a row counts those before it', async () => {
    const together = await run(Engine.of(stepper()));
    for (const [every, cacheTokens] of [
      [99, CACHE_TOKENS],
      [3, 16 * 12],
    ] as const) {
      const engine = Engine.of(stepper({}, cacheTokens));
      const drafted = await Promise.all(
        PROMPTS.map(async (prompt, i) => {
          const drafts = drafterOf((tokens) =>
            together[i]!.slice(tokens.length - prompt.length).map(({ token }, at) =>
              (at + 1) % every === 0 ? 9 : token,
            ),
          );
          const request = { prompt, maxNewTokens: 24, sampling: OPTIONS[i]!, drafts };
          return (await engine.generate(request)).tokens;
        }),
      );
      expect(drafted).toEqual(together);
    }
  });

  it('choose the same tokens whether a call begins before the one before it is read or not', async () => {
    const whole = stepper();
    let [under, most] = [0, 0];
    const counting = async (generator: (counted: DeviceModel) => DeviceModel) => {
      [under, most] = [0, 0];
      const step: DeviceModel['step'] = async (message) => {
        most = Math.max(most, ++under);
        return whole.step(message).finally(() => under--);
      };
      return { tokens: await run(Engine.of(generator({ ...whole, step }))), most };
    };
    const fed = await counting((counted) => counted);
    const unfed = await counting((counted) => ({ ...counted, limits: { ...counted.limits, keptRows: 0 } }));
    expect([fed.most, unfed.most]).toEqual([2, 1]);
    expect(fed.tokens).toEqual(unfed.tokens);
  });

  it('give each token the log-probability of scoring it, to the bit', async () => {
    const together = await run(Engine.of(stepper()));
    for (const [i, prompt] of PROMPTS.entries()) {
      const tokens = together[i]!.map(({ token }) => token);
      const { promptScores } = await Engine.of(stepper()).generate({
        prompt: [...prompt, ...tokens],
        maxNewTokens: 0,
        scoreFrom: prompt.length,
      });
      expect(promptScores.map(({ logProb }) => logProb)).toEqual(together[i]!.map(({ logProb }) => logProb));
    }
  });

  it('draw as the head does', async () => {
    const ids = async (sampling: SamplingOptions): Promise<readonly number[]> => {
      const generator = Engine.of(stepper());
      const { tokens } = await generator.generate({ prompt: PROMPTS[2]!, maxNewTokens: 24, sampling });
      return tokens.map(({ token }) => token);
    };
    for (const temperature of [0, 0.6, 1.5])
      expect(await ids({ temperature, seed: 3, topLogProbs: 4 })).toEqual(await ids({ temperature, seed: 3 }));
  });

  it('give log-probabilities of the most likely tokens', async () => {
    const { tokens } = await Engine.of(stepper()).generate({
      prompt: PROMPTS[1]!,
      maxNewTokens: 8,
      sampling: { topLogProbs: 20 },
    });
    for (const { token, logProb, top } of tokens) {
      expect([top!.length, top![0]]).toEqual([20, { token, logProb }]);
      expect(top!.map((each) => each.logProb)).toEqual([...top!.map((each) => each.logProb)].sort((a, b) => b - a));
    }
  });

  it('find beams whose scores are those of scoring their paths, to the bit', async () => {
    const beams = await searchBeams(Engine.of(stepper()), { prompt: PROMPTS[1]!, maxNewTokens: 12, beams: 4 });
    expect(beams.length).toBe(4);
    for (const { tokens, logProbs } of beams) {
      const { promptScores } = await Engine.of(stepper({ tokens: 29 })).generate({
        prompt: [...PROMPTS[1]!, ...tokens],
        maxNewTokens: 0,
        scoreFrom: PROMPTS[1]!.length,
      });
      expect(promptScores.map(({ logProb }) => logProb)).toEqual(logProbs);
    }
    const greedy = await Engine.of(stepper()).generate({ prompt: PROMPTS[1]!, maxNewTokens: 12 });
    const sum = greedy.tokens.reduce((total, { logProb }) => total + logProb, 0);
    expect(beams[0]!.score).toBeGreaterThanOrEqual(sum);
  });

  it('are refused by a model without logits', async () => {
    const generator = Engine.of({ ...stepper(), vocab: undefined });
    const request = { prompt: [1], maxNewTokens: 1, sampling: { topLogProbs: 1 } };
    await expect(generator.generate(request)).rejects.toThrow('compiled without logits');
  });
});
