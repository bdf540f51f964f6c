/** Texts with drafts of a model beside theirs, on a CPU, end to end: to the bit those without, in fewer steps. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { DeviceModel, StepMessage } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { SamplingOptions } from '../../engine/options.js';
import { randomTokens } from '../support/numbers.js';
import { SILENT } from '../support/silent.js';
import { CONFIG, headTensors, safetensorsFile, type StoredTensor, tensorsOf, writeCheckpoint } from './smallModel.js';
import { environment } from './support.js';

const CACHE_TOKENS = 16 * 128;
const NEW_TOKENS = 40;
const STEM = randomTokens(9, 40);
const PROMPTS = [[...STEM, 5], [...STEM, 6, 7], randomTokens(3, 5), randomTokens(4, 37), randomTokens(5, 16), STEM].map(
  (prompt) => prompt.map((token) => token % CONFIG.vocab_size),
);

/** The weights of the target, with `share` of others in place of their own. */
const blended = (share: number): StoredTensor[] => {
  const others = tensorsOf(2);
  return tensorsOf().map(({ values, ...rest }, i) => ({
    ...rest,
    values: values.map((value, at) => (1 - share) * value + share * others[i]!.values[at]!),
  }));
};

/** Weights that say little beside the embeddings, so that a head which passes those on is often right. */
const quiet = (): StoredTensor[] => [
  ...tensorsOf().map(({ name, shape, values }) => ({
    ...{ name, shape },
    values: values.map((value) =>
      name === 'model.norm.weight' ? 1 : shape.length === 1 || name.includes('embed') ? value : value / 6,
    ),
  })),
  { ...tensorsOf(4)[0]!, name: 'lm_head.weight' },
];

/** The drafts of steps of one text, by its length. */
async function draftsOf(device: DeviceModel, prompt: readonly number[], count: number, sampling: SamplingOptions) {
  const drafts = new Map<number, readonly number[]>();
  const step: DeviceModel['step'] = (message) => {
    const [from, tokens] = [message.from[0]!, [...message.tokens]];
    if (message.isDraft !== true && from >= prompt.length) drafts.set(from + 1, tokens.slice(1));
    return device.step(message);
  };
  const engine = new Engine();
  engine.load('model', { replicas: [{ ...device, step }], vocabSize: CONFIG.vocab_size, drafts: { tokens: 3 } });
  const { tokens } = await engine.generate({ prompt, maxNewTokens: count, sampling });
  await engine.close();
  return { drafts, text: [...prompt, ...tokens.map(({ token }) => token)] };
}

describe('texts with a draft model on a CPU', () => {
  const models: LoadedModel[] = [];
  const loadedWith = async (model: string, draftModel?: string): Promise<LoadedModel> => {
    const request = {
      ...{ model, init: { kind: 'checkpoint' as const }, precision: 'f32' as const, threads: 2, logits: true },
      ...{ cacheTokens: CACHE_TOKENS, feeds: true, ...(draftModel === undefined ? {} : { draftModel }) },
    };
    const loaded = await beginLoading(request, SILENT, new Phases()).finish();
    models.push(loaded);
    return loaded;
  };
  const opened = (loaded: LoadedModel): DeviceModel => deviceModelOf(loaded, CACHE_TOKENS, { feeds: true });
  const deviceOf = async (draftModel?: string): Promise<DeviceModel> => opened(await loadedWith(target, draftModel));
  /** The texts, and of each draft at a depth how many were accepted. */
  const write = async (device: DeviceModel, sampling: SamplingOptions, tokens: number | 'auto' = 3) => {
    const engine = new Engine();
    engine.load('model', { replicas: [device], vocabSize: CONFIG.vocab_size, drafts: { tokens } });
    const texts = await Promise.all(
      PROMPTS.map((prompt) => engine.generate({ prompt, maxNewTokens: NEW_TOKENS, sampling })),
    );
    const { steps, drafts } = engine.statsOf();
    await engine.close();
    const [{ drafted, accepted } = { drafted: [], accepted: [] }] = drafts;
    return {
      texts: texts.map((text) => ({ tokens: text.tokens, reason: text.reason })),
      steps,
      drafted,
      accepted,
    };
  };
  let target = '';
  let plain: DeviceModel;
  let similarModel: LoadedModel;
  let similar: DeviceModel;

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    target = writeCheckpoint();
    plain = await deviceOf();
    similarModel = await loadedWith(target, writeCheckpoint({ weights: safetensorsFile(blended(0.1)) }, 'similar'));
    similar = opened(similarModel);
  }, 60_000);
  afterAll(async () => {
    for (const model of models) await model.close();
  });

  const samplings: readonly SamplingOptions[] = [
    {},
    { temperature: 0.7, seed: 5 },
    { temperature: 1, seed: 6, topP: 0.9, repetitionPenalty: 1.2 },
  ];

  it.each(samplings)('are those without: %o', async (sampling) => {
    const wanted = await write(plain, sampling);
    const { texts, accepted, drafted } = await write(similar, sampling);
    expect(texts).toEqual(wanted.texts);
    expect(accepted[0]).toBeGreaterThan(20);
    expect(accepted[0]).toBeLessThan(drafted[0]!);
    // Some give way to others, and are computed again; and pages are found.
    const small = { ...similar, maxPages: 20, mappedPages: 20 };
    expect((await write(small, sampling)).texts).toEqual(wanted.texts);
    expect((await write(similar, sampling, 'auto')).texts).toEqual(wanted.texts);
  });

  it('come of all drafts where the model drafts for itself', async () => {
    const itself = await deviceOf(target);
    for (const sampling of samplings.slice(0, 2)) {
      const { texts, drafted, accepted } = await write(itself, sampling);
      expect(texts).toEqual((await write(plain, sampling)).texts);
      // A token behind the prompt, and nine rounds of four; the last three have two drafts and one more.
      expect(drafted).toEqual([10, 10, 9].map((rounds) => rounds * PROMPTS.length));
      expect(accepted).toEqual(drafted);
    }
  });

  it('take more of drafts that are drawn with their noise than of others, or of the most likely tokens', async () => {
    const sampling = { temperature: 1, seed: 8 };
    /** Draws its drafts otherwise. */
    const drawing = (change: (message: StepMessage) => Partial<StepMessage>): DeviceModel => ({
      ...similar,
      step: (message) => similar.step(message.isDraft === true ? { ...message, ...change(message) } : message),
    });
    const others = drawing(({ keyLow }) => ({ keyLow: keyLow.map((key) => key ^ 0x5eed) }));
    const greedy = drawing(({ inverseTemperature: { length } }) => ({ inverseTemperature: new Float32Array(length) }));
    const [own, other, likely] = [
      await write(similar, sampling),
      await write(others, sampling),
      await write(greedy, sampling),
    ];
    const rateOf = ({ accepted, drafted }: typeof own): number => accepted[0]! / drafted[0]!;
    expect([other.texts, likely.texts]).toEqual([own.texts, own.texts]);
    expect(rateOf(own)).toBeGreaterThan(0.5);
    expect(rateOf(other)).toBeLessThan(rateOf(own) / 3);
    expect(rateOf(likely)).toBeLessThan(rateOf(own) / 2);
  });

  it.each(['a draft model', 'a head'])(
    'have the drafts that %s makes of the same text from its beginning',
    async (kind) => {
      const loaded =
        kind === 'a head'
          ? await loadedWith(
              writeCheckpoint({ config: { tie_word_embeddings: false }, weights: safetensorsFile(quiet()) }, 'quiet'),
              writeCheckpoint({ config: { num_hidden_layers: 1 }, weights: safetensorsFile(headTensors()) }, 'head'),
            )
          : similarModel;
      expect(opened(loaded).draft).toMatchObject(kind === 'a head' ? { name: 'eagle', ahead: 1 } : { ahead: 0 });
      for (const sampling of [{}, { temperature: 1, seed: 12 }]) {
        const { drafts, text } = await draftsOf(opened(loaded), PROMPTS[3]!, NEW_TOKENS, sampling);
        let [accepted, rejected] = [0, 0];
        for (const [length, found] of drafts) {
          const prompt = text.slice(0, length - 1);
          const again = await draftsOf(opened(loaded), prompt, Math.min(5, text.length - prompt.length), sampling);
          expect(again.drafts.get(length)).toEqual(found);
          if (found[0] === text[length]) accepted++;
          if (found.some((token, i) => length + i < text.length && token !== text[length + i])) rejected++;
        }
        expect(Math.min(accepted, rejected)).toBeGreaterThan(0);
      }
    },
  );

  it('are those without where drafts are not finite, or end before the text', async () => {
    const wanted = await write(plain, {});
    const broken = blended(0.1).map(({ values, ...rest }) => ({
      ...rest,
      values: values.map((value, i) => (i % 7 === 3 ? NaN : value)),
    }));
    const device = await deviceOf(writeCheckpoint({ weights: safetensorsFile(broken) }, 'broken'));
    let calls = 0;
    const step: DeviceModel['step'] = (message) => {
      if (message.isDraft === true) calls++;
      return device.step(message);
    };
    expect(await write({ ...device, step }, {})).toMatchObject({ texts: wanted.texts, drafted: [] });
    // Each is tried again after 8 rounds, and then after 16 more: 40 rounds would have at least 120 calls.
    expect(calls).toBeLessThan(40);
    const config = { max_position_embeddings: 48 };
    const short = await deviceOf(writeCheckpoint({ config, weights: safetensorsFile(blended(0.1)) }, 'short'));
    const { texts, drafted } = await write(short, {});
    expect(texts).toEqual(wanted.texts);
    expect(drafted[0]).toBeGreaterThan(0);
  });
});
