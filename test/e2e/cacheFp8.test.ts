/**
 * Keys and values in 8 bits on a CPU: steps give what score gives, to the bit, in any pieces and beside others, from
 * pages and in beams; texts of the demo model stay near those of f32; the cache is as small as it says.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { cacheBytesOf } from '../../commands/cacheSize.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { arithmeticName, CODED_CACHES, type KvCache } from '../../driver/precision.js';
import { searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import { tokensOf, treesOf } from '../support/draftedTexts.js';
import { randomTokens } from '../support/numbers.js';
import { randomNumbers } from '../support/pathModel.js';
import { scoreSequence } from '../support/scoring.js';
import { SILENT } from '../support/silent.js';
import { environment, ROOT } from './support.js';

const CACHE_TOKENS = 16 * 64;

const SHARED = randomTokens(7, 50);
const SEQUENCES = [SHARED, [...SHARED.slice(0, 37), ...randomTokens(4, 40)], randomTokens(5, 1), randomTokens(6, 90)];

const open = (kvCache: KvCache): Promise<LoadedModel> =>
  beginLoading(
    {
      model: join(ROOT, 'models', 'demo'),
      init: { kind: 'checkpoint' },
      precision: 'f32',
      threads: 2,
      cacheTokens: CACHE_TOKENS,
      logits: true,
      kvCache,
    },
    SILENT,
    new Phases(),
  ).finish();

describe.each(CODED_CACHES)('a cache in %s on a CPU', (kvCache) => {
  let model: LoadedModel;
  let plain: LoadedModel;
  const generator = (limits = {}): Engine => {
    const whole = deviceModelOf(model, CACHE_TOKENS, {});
    return Engine.of({ ...whole, limits: { ...whole.limits, ...limits } });
  };
  const scores = async (own: Engine): Promise<readonly (readonly number[])[]> => {
    const all = await Promise.all(SEQUENCES.map((prompt) => own.generate({ prompt, maxNewTokens: 0, scoreFrom: 1 })));
    return all.map(({ promptScores }) => promptScores.map(({ logProb }) => logProb));
  };

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    [model, plain] = [await open(kvCache), await open('16bit')];
  }, 120_000);
  afterAll(() => Promise.all([model.close(), plain.close()]));

  it('gives what score gives, in any pieces and from pages', async () => {
    const wanted = [];
    for (const tokens of SEQUENCES) wanted.push(await scoreSequence(model, tokens));
    for (const tokens of [1, 7, 1000]) expect(await scores(generator({ tokens })), `${tokens} a call`).toEqual(wanted);
    const own = generator();
    expect(await scores(own)).toEqual(wanted);
    // What is asked for of its last token lies beside its page.
    const prompt = SEQUENCES[3]!;
    const last = await own.generate({ prompt, maxNewTokens: 0, scoreFrom: prompt.length - 1 });
    expect(last.promptScores.map(({ logProb }) => logProb)).toEqual(wanted[3]!.slice(-1));
    expect(last.foundTokens).toBe(prompt.length - 1);
  });

  it('writes with trees of drafts what it writes without', async () => {
    const random = randomNumbers(8);
    for (const [i, prompt] of SEQUENCES.entries()) {
      const request = { prompt, maxNewTokens: 24, sampling: i % 2 === 0 ? {} : { temperature: 1, seed: i } };
      const { tokens } = await generator().generate(request);
      const drafts = treesOf(tokensOf({ tokens }), { random, right: 0.8, chained: 0.4, vocab: 200 });
      const own = generator();
      expect((await own.generate({ ...request, drafts })).tokens).toEqual(tokens);
      expect(own.countsOf().calls).toBeLessThan(20);
    }
  });

  it('gives beams the bits of their own paths', async () => {
    const prompt = SEQUENCES[1]!;
    for (const { tokens, logProbs } of await searchBeams(generator(), { prompt, maxNewTokens: 6, beams: 3 }))
      expect((await scoreSequence(model, [...prompt, ...tokens])).slice(prompt.length - 1)).toEqual(logProbs);
  });

  it('changes answers a little, and names itself', async () => {
    const tokens = SEQUENCES[3]!;
    const [own, other] = [await scoreSequence(model, tokens), await scoreSequence(plain, tokens)];
    const mean = own.reduce((sum, x, i) => sum + Math.abs(x - other[i]!), 0) / own.length;
    expect(mean).toBeGreaterThan(1e-4);
    expect(mean).toBeLessThan(0.3);
    expect(arithmeticName(model.model)).toBe(`f32, ${kvCache === 'fp8' ? 'FP8' : 'int8'} cache`);
    expect(cacheBytesOf(model.model)).toBeLessThan(0.4 * cacheBytesOf(plain.model));
  });
});
