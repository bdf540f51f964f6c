/**
 * Texts with drafts of a head beside their model on a CPU, end to end: to the bit those without, and each draft is the
 * one that plain loops in float64 make of the text before it.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { SamplingOptions } from '../../engine/options.js';
import {
  HEADS,
  HeadReference,
  safetensorsOf,
  TARGET,
  TARGET_TENSORS,
  targetStreams,
  writeFolder,
} from '../support/draftHeads.js';
import { randomTokens } from '../support/numbers.js';
import { SILENT } from '../support/silent.js';
import { writeCheckpoint } from './smallModel.js';
import { environment } from './support.js';

const CACHE_TOKENS = 16 * 64;
const NEW_TOKENS = 20;
const DEPTH = 3;
const STEM = randomTokens(9, 21);
const PROMPTS = [[...STEM, 5], [...STEM, 6, 7], randomTokens(3, 5), STEM].map((prompt) =>
  prompt.map((token) => token % TARGET.vocab_size),
);

describe('texts with a draft head on a CPU', () => {
  const models: LoadedModel[] = [];
  let target = '';
  let plain: DeviceModel;
  const deviceOf = async (draftModel?: string): Promise<DeviceModel> => {
    const request = {
      ...{ model: target, init: { kind: 'checkpoint' as const }, precision: 'f32' as const, threads: 2, logits: true },
      ...{ cacheTokens: CACHE_TOKENS, feeds: true, ...(draftModel === undefined ? {} : { draftModel }) },
    };
    const loaded = await beginLoading(request, SILENT, new Phases()).finish();
    models.push(loaded);
    return deviceModelOf(loaded, CACHE_TOKENS, { feeds: true });
  };
  const write = async (device: DeviceModel, sampling: SamplingOptions, prompts = PROMPTS) => {
    const engine = new Engine();
    engine.load('model', { replicas: [device], vocabSize: TARGET.vocab_size, drafts: { tokens: DEPTH } });
    const texts = await Promise.all(
      prompts.map((prompt) => engine.generate({ prompt, maxNewTokens: NEW_TOKENS, sampling })),
    );
    const { drafts } = engine.statsOf();
    await engine.close();
    return { texts: texts.map(({ tokens, reason }) => ({ tokens, reason })), drafted: drafts[0]?.drafted ?? [] };
  };

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    target = writeCheckpoint({ config: TARGET, weights: safetensorsOf(TARGET_TENSORS) });
    plain = await deviceOf();
  }, 60_000);
  afterAll(async () => {
    for (const model of models) await model.close();
  });

  it.each(HEADS)(
    'are those without: $name',
    async (head) => {
      const device = await deviceOf(writeFolder(head.config, head.tensors));
      expect(device.draft).toMatchObject({ name: 'eagle', ahead: 1 });
      const samplings = [{ temperature: 0.8, seed: 5 }, {}, { temperature: 1, seed: 6, topP: 0.9 }];
      for (const sampling of samplings) {
        const { texts, drafted } = await write(device, sampling);
        expect(texts).toEqual((await write(plain, sampling)).texts);
        expect(drafted[0]).toBeGreaterThan(0);
        expect(drafted).toHaveLength(DEPTH);
        // Some give way to others, and are computed again.
        const small = { ...device, maxPages: 9, mappedPages: 9 };
        expect((await write(small, sampling)).texts).toEqual(texts);
      }
      // The most likely tokens behind one prompt, by the length of the text that they follow.
      const prompt = PROMPTS[0]!;
      const chains: { readonly at: number; readonly tokens: number[] }[] = [];
      const watched: DeviceModel = {
        ...device,
        step: async (message) => {
          const answer = await device.step(message);
          if (message.isDraft !== true || message.row.length === 0) return answer;
          const token = answer.nextToken[0]!;
          if (message.tokens.every((each) => each >= 0))
            chains.push({ at: message.from[0]! + message.count[0]! + 1, tokens: [token] });
          else chains.at(-1)!.tokens.push(token);
          return answer;
        },
      };
      const [text] = (await write(watched, {}, [prompt])).texts;
      const tokens = [...prompt, ...text!.tokens.map(({ token }) => token)];
      const streams = targetStreams(tokens);
      expect(chains.length).toBeGreaterThan(5);
      for (const { at, tokens: drafts } of chains) {
        const reference = new HeadReference(head);
        let last: ReturnType<HeadReference['step']> | undefined;
        for (let place = 0; place + 1 < at; place++)
          last = reference.step(tokens[place + 1]!, reference.features(streams[place]!), place);
        const wanted = drafts.map((_, depth) => {
          const { token } = reference.draw(last!.logits, { inverseTemperature: 0, low: 0, high: 0 });
          last = reference.step(token, last!.own, at - 1 + depth);
          return token;
        });
        expect(drafts, `behind ${at} tokens`).toEqual(wanted);
      }
    },
    60_000,
  );
});
