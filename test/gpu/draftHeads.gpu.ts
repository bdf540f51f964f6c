/**
 * Texts with drafts of a head beside their model on a real device: to the bit those without, with heads that read inner
 * layers and have fewer tokens, heads that read the last stream, and narrow caches.
 */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { LoadRequest } from '../../driver/requests.js';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { SamplingOptions } from '../../engine/options.js';
import { SILENT } from '../support/silent.js';
import { deviceHere } from './device.js';
import { CACHE_TOKENS, grouped, randomTokens, SHARED } from './sequences.js';
import { temporaryFolder } from './support.js';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

const { skip } = await deviceHere();

const LAYER = {
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  hidden_size: 512,
  intermediate_size: 768,
  num_hidden_layers: 1,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 64,
  vocab_size: 2000,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
};
/** Its model has three layers, too few for the streams that heads read by default. */
const EAGLE3 = {
  ...LAYER,
  architectures: ['LlamaForCausalLMEagle3'],
  draft_vocab_size: 800,
  eagle_config: { eagle_aux_hidden_state_layer_ids: [0, 1] },
};
const EAGLE = { ...LAYER, architectures: ['EagleLlamaForCausalLM'] };

const PROMPTS = [SHARED, [...SHARED, ...randomTokens(3, 70)], randomTokens(5, 3), randomTokens(6, 400)];

function folderOf(config: object): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  return join(folder, 'config.json');
}

describe('drafts of a head on a device', { skip }, () => {
  const loaded: LoadedModel[] = [];
  after(async () => {
    for (const model of loaded) await model.close();
  });
  const open = async (request: Partial<LoadRequest>): Promise<DeviceModel> => {
    const asked = {
      ...grouped(),
      target: 'cuda',
      precision: 'bf16',
      batchTokens: 1024,
      feeds: true,
      logits: true,
    } as const;
    const model = await beginLoading(
      { ...asked, cacheTokens: CACHE_TOKENS, ...request },
      SILENT,
      new Phases(),
    ).finish();
    loaded.push(model);
    return deviceModelOf(model, CACHE_TOKENS, { feeds: true });
  };
  const write = async (device: DeviceModel, sampling: SamplingOptions) => {
    const engine = new Engine();
    engine.load('model', { replicas: [device], vocabSize: 2000, drafts: { tokens: 3 } });
    const texts = await Promise.all(PROMPTS.map((prompt) => engine.generate({ prompt, maxNewTokens: 40, sampling })));
    const { drafts } = engine.statsOf();
    await engine.close();
    return { texts: texts.map(({ tokens, reason }) => ({ tokens, reason })), drafted: drafts[0]?.drafted ?? [] };
  };

  for (const kvCache of ['16bit', 'fp8'] as const)
    for (const [name, config] of [
      ['EAGLE-3', EAGLE3],
      ['EAGLE', EAGLE],
    ] as const)
      it(`changes no bit of a text: ${name}, a cache of ${kvCache}`, async () => {
        const [plain, drafting] = [await open({ kvCache }), await open({ kvCache, draftModel: folderOf(config) })];
        for (const sampling of [{}, { temperature: 0.8, seed: 3 }, { temperature: 1, seed: 4, topP: 0.9 }]) {
          const wanted = await write(plain, sampling);
          const { texts, drafted } = await write(drafting, sampling);
          assert.deepEqual(texts, wanted.texts);
          assert.equal(drafted.length, 3);
          assert.ok(drafted[0]! > 0);
        }
      });
});
