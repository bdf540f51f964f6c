/** What tests of the function step on a device share: models that are loaded once, and ways to run sequences. */
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import type { DeviceHost } from '../../driver/devices/deviceHost.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { LoadRequest } from '../../driver/requests.js';
import type { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import type { DeviceModel } from '../../engine/device.js';
import { randomTokens } from '../support/numbers.js';
import { SILENT } from '../support/silent.js';
import { DEMO } from './command.js';
import { temporaryFolder } from './support.js';

export { randomTokens };

/** Tokens of keys and values that models here have room for. */
export const CACHE_TOKENS = 16 * 1024;

export type ModelRequest = Omit<LoadRequest, 'precision'>;

/** The beginning of some of them, and of some requests. */
export const SHARED = randomTokens(7, 50);
/** Some begin alike, within a page and past one. One is longer than a call: for models that have room for it. */
export const SEQUENCES = [
  SHARED,
  [...SHARED, ...randomTokens(3, 70)],
  [...SHARED.slice(0, 37), ...randomTokens(4, 40)],
  randomTokens(5, 1),
  randomTokens(6, 400),
  randomTokens(8, 1100),
  [...SHARED.slice(0, 5), 9, 9, 9],
];

export const demo: ModelRequest = { model: DEMO, init: { kind: 'checkpoint' }, threads: 2 };

/** A small model with random weights, whose heads share keys in groups of 7. */
export function grouped(): ModelRequest {
  const folder = temporaryFolder();
  const config = {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    torch_dtype: 'bfloat16',
    hidden_size: 512,
    intermediate_size: 1024,
    num_hidden_layers: 3,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    head_dim: 128,
    vocab_size: 2000,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: false,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  copyFileSync(join(DEMO, 'tokenizer.json'), join(folder, 'tokenizer.json'));
  return { model: join(folder, 'config.json'), init: { kind: 'random', seed: 4 }, threads: 2 };
}

export const load = (request: LoadRequest, host?: DeviceHost): Promise<LoadedModel> =>
  beginLoading(request, SILENT, new Phases(), { host }).finish();

/** Functions of a model in 16 bits on a device. */
export const loadOnDevice = (
  request: ModelRequest,
  more: Partial<LoadRequest> = {},
  host?: DeviceHost,
): Promise<LoadedModel> =>
  load({ ...request, target: 'cuda', precision: 'bf16', cacheTokens: CACHE_TOKENS, batchTokens: 1024, ...more }, host);

/** A stepper with other limits, and room for fewer tokens. */
export function stepperFor(
  model: LoadedModel,
  options: Parameters<typeof deviceModelOf>[2],
  limits: Partial<DeviceModel['limits']> = {},
  cacheTokens = CACHE_TOKENS,
): DeviceModel {
  const whole = deviceModelOf(model, cacheTokens, options);
  return { ...whole, limits: { ...whole.limits, ...limits } };
}

/** Log-probabilities of every token from `from(i)` on of each sequence. */
export async function scoresOf(
  generator: Engine,
  sequences: readonly (readonly number[])[],
  from: (index: number) => number = () => 1,
): Promise<number[][]> {
  const all = await Promise.all(
    sequences.map((prompt, i) => generator.generate({ prompt, maxNewTokens: 0, scoreFrom: from(i) })),
  );
  return all.map(({ promptScores }) => promptScores.map(({ logProb }) => logProb));
}

export interface Written {
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
}

/** Continuations, all at once. */
export async function write(generator: Engine, requests: readonly GenerateRequest[]): Promise<Written[]> {
  const all = await Promise.all(requests.map((request) => generator.generate(request)));
  return all.map(({ tokens }) => ({
    tokens: tokens.map(({ token }) => token),
    logProbs: tokens.map(({ logProb }) => logProb),
  }));
}
