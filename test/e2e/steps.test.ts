/**
 * Steps against scoring, to the bit, on a CPU: a token's log-probability is the same in one piece or in many, alone or
 * beside others, with its prefix computed or found in pages, after its pages were taken away, and by `score`. Greedy
 * continuations are those of an independent program in float64.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { drafterOf } from '../../draft/drafter.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { Engine } from '../../engine/engine.js';
import type { SamplingOptions } from '../../engine/options.js';
import type { Generated, GenerateRequest } from '../../engine/request.js';
import type { DeviceModel } from '../../engine/device.js';
import { tokensOf, treesOf } from '../support/draftedTexts.js';
import { randomTokens } from '../support/numbers.js';
import { randomNumbers } from '../support/pathModel.js';
import { scoreSequences } from '../support/scoring.js';
import { SILENT } from '../support/silent.js';
import { environment, ROOT } from './support.js';

const CACHE_TOKENS = 16 * 256;
const GOLDEN = join(ROOT, '..', 'shared', 'golden', 'greedy', 'demo.greedy-pub.jsonl');

const SHARED = randomTokens(7, 50);
const generateSamples = (generator: Engine, request: GenerateRequest, count: number) =>
  Promise.all(Array.from({ length: count }, (_, sample) => generator.generate({ ...request, sample })));

/** Some begin alike, within a page and past one. */
const SEQUENCES = [
  SHARED,
  [...SHARED, ...randomTokens(3, 70)],
  [...SHARED.slice(0, 37), ...randomTokens(4, 40)],
  randomTokens(5, 1),
  randomTokens(6, 160),
  [...SHARED.slice(0, 5), 9, 9, 9],
];

describe('steps on a CPU', () => {
  let model: LoadedModel;
  let wanted: readonly (readonly number[])[];
  const stepper = (limits: Partial<DeviceModel['limits']> = {}, cacheTokens = CACHE_TOKENS): DeviceModel => {
    const whole = deviceModelOf(model, cacheTokens, { feeds: true });
    return { ...whole, limits: { ...whole.limits, ...limits } };
  };
  /** Log-probabilities of every token but the first of each sequence. */
  const scores = async (generator: Engine, sequences = SEQUENCES): Promise<readonly (readonly number[])[]> => {
    const all = await Promise.all(
      sequences.map((prompt) => generator.generate({ prompt, maxNewTokens: 0, scoreFrom: 1 })),
    );
    return all.map(({ promptScores }) => promptScores.map(({ logProb }) => logProb));
  };

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const request = {
      model: join(ROOT, 'models', 'demo'),
      init: { kind: 'checkpoint' as const },
      precision: 'f32' as const,
      threads: 2,
      cacheTokens: CACHE_TOKENS,
      feeds: true,
    };
    model = await beginLoading(request, SILENT, new Phases()).finish();
    wanted = await scoreSequences(model, SEQUENCES);
  }, 120_000);
  afterAll(() => model.close());

  it.each([1, 7, 16, 100, 1000])('equal score in calls of at most %i tokens', async (tokens) => {
    expect(await scores(Engine.of(stepper({ tokens })))).toEqual(wanted);
  });

  it('equal score one sequence at a time, and from pages', async () => {
    const generator = Engine.of(stepper());
    for (const [i, sequence] of SEQUENCES.entries()) {
      expect(await scores(generator, [sequence])).toEqual([wanted[i]]);
      const { promptScores, foundTokens } = await generator.generate({
        prompt: sequence,
        maxNewTokens: 0,
        scoreFrom: Math.max(1, sequence.length - 1),
      });
      expect(promptScores.map(({ logProb }) => logProb)).toEqual(wanted[i]!.slice(-1));
      expect(foundTokens).toBe(sequence.length - 1);
    }
  });

  it('equal score where pages are taken away', async () => {
    const generator = Engine.of(stepper({ tokens: 24 }, 16 * 12));
    expect(await scores(generator)).toEqual(wanted);
    expect(generator.countsOf().evictions).toBeGreaterThan(0);
  });

  it.skipIf(!existsSync(GOLDEN)).each([
    ['with room for all', CACHE_TOKENS],
    ['with sequences that give way to others', 16 * 24],
  ])('continue prompts as float64 does, %s', async (_title, cacheTokens) => {
    const golden = readFileSync(GOLDEN, 'utf8')
      .trim()
      .split('\n')
      .slice(0, 24)
      .map((line) => JSON.parse(line) as { prompt_tokens: number[]; tokens: number[]; logprobs: number[] });
    const generator = Engine.of(stepper({}, cacheTokens));
    const all = await Promise.all(
      golden.map(({ prompt_tokens: prompt }) => generator.generate({ prompt, maxNewTokens: 48 })),
    );
    expect(all.map(({ tokens }) => tokens.map(({ token }) => token))).toEqual(golden.map(({ tokens }) => tokens));
    const error = all.flatMap(({ tokens }, i) => tokens.map(({ logProb }, t) => logProb - golden[i]!.logprobs[t]!));
    expect(Math.max(...error.map(Math.abs))).toBeLessThan(1e-3);
    if (cacheTokens < CACHE_TOKENS) expect(generator.countsOf().preemptions).toBeGreaterThan(0);
  });

  it('draw the same tokens alone, in any company and chunks, and after they gave way', async () => {
    const draw = (generator: Engine, which: readonly number[]) =>
      Promise.all(
        which.map(async (i) => {
          const sampling = { temperature: 0.5 + i / 4, seed: 1234 + (i % 3) };
          const request = { prompt: SEQUENCES[i]!, maxNewTokens: 30, sampling };
          return (await generator.generate(request)).tokens;
        }),
      );
    const all = SEQUENCES.map((_, i) => i);
    const together = await draw(Engine.of(stepper()), all);
    for (const i of all) expect(await draw(Engine.of(stepper()), [i])).toEqual([together[i]]);
    expect(await draw(Engine.of(stepper({ tokens: 13 })), [...all].reverse())).toEqual([...together].reverse());
    const small = Engine.of(stepper({}, 16 * 14));
    expect(await draw(small, all)).toEqual(together);
    expect(small.countsOf().preemptions).toBeGreaterThan(0);
    expect(new Set(together.map((tokens) => tokens.map(({ token }) => token).join())).size).toBe(all.length);
    // A draw's log-probability is that of scoring it, at temperature 1.
    const { promptScores } = await Engine.of(stepper()).generate({
      prompt: [...SEQUENCES[2]!, ...together[2]!.map(({ token }) => token)],
      maxNewTokens: 0,
      scoreFrom: SEQUENCES[2]!.length,
    });
    expect(promptScores.map(({ logProb }) => logProb)).toEqual(together[2]!.map(({ logProb }) => logProb));
  });

  it('share the pages of a prompt between samples, each of which is the same beside any number of others', async () => {
    const request = { prompt: SEQUENCES[1]!, maxNewTokens: 12, sampling: { temperature: 1, seed: 9 } };
    const ids = (all: readonly Generated[]) => all.map(({ tokens }) => tokens.map(({ token }) => token));
    const generator = Engine.of(stepper());
    const samples = await generateSamples(generator, request, 5);
    // All but the last token, behind which each draws.
    const found = request.prompt.length - 1;
    expect(found % 16).not.toBe(0);
    expect(samples.map(({ foundTokens }) => foundTokens)).toEqual([0, found, found, found, found]);
    expect(generator.countsOf().computedTokens).toBe(request.prompt.length + 4 + 5 * 11);
    expect(new Set(ids(samples).map(String)).size).toBe(5);
    expect(ids(await generateSamples(Engine.of(stepper()), request, 2))).toEqual(ids(samples).slice(0, 2));
    expect(ids([await Engine.of(stepper()).generate(request)])).toEqual(ids(samples).slice(0, 1));
  });

  it('refuse values out of range', async () => {
    const generate = (sampling: SamplingOptions) =>
      Engine.of(stepper()).generate({ prompt: [1], maxNewTokens: 1, sampling });
    await expect(generate({ temperature: -1 })).rejects.toThrow(
      'sampling: temperature: expected a number from 0 to 100',
    );
    await expect(generate({ temperature: NaN })).rejects.toThrow('sampling: temperature: expected a number from 0');
    await expect(generate({ seed: 2 ** 64 })).rejects.toThrow('sampling: seed: expected a whole number of 64 bits');
  });

  it('score what was generated as it was generated', async () => {
    const prompt = SEQUENCES[2]!;
    const { tokens } = await Engine.of(stepper()).generate({ prompt, maxNewTokens: 40 });
    const { promptScores } = await Engine.of(stepper({ tokens: 33 })).generate({
      prompt: [...prompt, ...tokens.map(({ token }) => token)],
      maxNewTokens: 0,
      scoreFrom: prompt.length,
    });
    expect(promptScores.map(({ logProb }) => logProb)).toEqual(tokens.map(({ logProb }) => logProb));
    expect(promptScores.every(({ isArgmax }) => isArgmax)).toBe(true);
  });

  it('give any rows the bits of score, computed or from beside pages', async () => {
    const engine = Engine.of(stepper());
    const rowsOf = (i: number) => SEQUENCES[i]!.slice(1).map((_, position) => ({ position }));
    for (let turn = 0; turn < 2; turn++)
      for (const [i, tokens] of SEQUENCES.entries()) {
        const rows = await engine.submit({ kind: 'score', tokens, rows: rowsOf(i) }).result();
        expect(rows.map(({ logProb }) => logProb)).toEqual(wanted[i]);
      }
    // The second time only the last rows' tokens are computed.
    const all = SEQUENCES.reduce((sum, tokens) => sum + tokens.length, 0);
    expect(engine.countsOf().computedTokens).toBeLessThanOrEqual(all + SEQUENCES.length);
    const sparse = [{ position: 90 }, { position: 33, target: 5 }, { position: 33 }];
    const [late, other, next] = await engine.submit({ kind: 'score', tokens: SEQUENCES[4]!, rows: sparse }).result();
    expect([late!.logProb, next!.logProb]).toEqual([wanted[4]![90], wanted[4]![33]]);
    expect(other!.argmax).toEqual(next!.argmax);
  });

  it('write the same with drafts, right, wrong and in between, and with trees of them', async () => {
    const requests = SEQUENCES.map((prompt, i) => ({
      prompt,
      maxNewTokens: 20 + i,
      sampling: i % 2 === 0 ? {} : { temperature: 0.9, seed: i },
    }));
    const texts: Generated[] = [];
    for (const request of requests) texts.push(await Engine.of(stepper()).generate(request));
    const random = randomNumbers(3);
    for (const wrong of [0, 2, 1]) {
      const engine = Engine.of(stepper({}, wrong === 1 ? 16 * 20 : CACHE_TOKENS));
      const drafted = requests.map((request, i) => ({
        ...request,
        drafts:
          i % 2 === 0
            ? treesOf(tokensOf(texts[i]!), { random, right: 1 - wrong / 4, chained: 0.4, vocab: 200 })
            : drafterOf((tokens) =>
                texts[i]!.tokens.slice(tokens.length - request.prompt.length).map(({ token }, at) =>
                  wrong > 0 && (tokens.length + at) % (2 * wrong) === 1 ? 7 : token,
                ),
              ),
      }));
      const found = await Promise.all(drafted.map((request) => engine.generate(request)));
      expect(found.map(({ tokens, reason }) => ({ tokens, reason }))).toEqual(
        texts.map(({ tokens, reason }) => ({ tokens, reason })),
      );
    }
  });
});
