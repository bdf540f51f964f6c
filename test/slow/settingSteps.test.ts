/**
 * Settings of families that no small checkpoint of the data folder has, with random numbers: steps against scoring, to
 * the bit, on a CPU, in one piece and in many.
 */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading } from '../../commands/loadModel.js';
import { Phases } from '../../driver/phases.js';
import { environment, isBuilt } from '../e2e/support.js';
import { temporaryFolder, writeJson } from '../models/support.js';
import { expectBitsOfScoring } from '../support/scoredSteps.js';
import { DEMO } from '../support/servedModels.js';
import { SILENT } from '../support/silent.js';

const CACHE_TOKENS = 16 * 64;
const SIZES = {
  ...{ hidden_size: 64, intermediate_size: 96, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2 },
  ...{ head_dim: 16, vocab_size: 4096, max_position_embeddings: 512, torch_dtype: 'bfloat16' },
};
const CONFIGS: Readonly<Record<string, object>> = {
  'Phi 3.5 MoE': {
    ...{ architectures: ['PhimoeForCausalLM'], model_type: 'phimoe', num_local_experts: 6, router_jitter_noise: 0.3 },
    ...{ attention_bias: true, lm_head_bias: true },
  },
  'Llama 4 with three experts of a token': {
    ...{ architectures: ['Llama4ForCausalLM'], model_type: 'llama4_text', intermediate_size_mlp: 120 },
    ...{ num_local_experts: 6, num_experts_per_tok: 3, attention_chunk_size: 64, floor_scale: 32 },
  },
  'OPT without a last norm': {
    ...{ architectures: ['OPTForCausalLM'], model_type: 'opt', ffn_dim: 96, _remove_final_layer_norm: true },
  },
};

describe.skipIf(!isBuilt)('steps of families on a CPU', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  it.each(Object.keys(CONFIGS))('give the bits of scoring: %s', async (name) => {
    const folder = temporaryFolder();
    writeJson(folder, 'config.json', { ...SIZES, ...CONFIGS[name] });
    copyFileSync(join(DEMO, 'tokenizer.json'), join(folder, 'tokenizer.json'));
    const text = Array.from({ length: 150 }, (_, i) => (i * 379 + 7 * i * i) % 4096);
    const model = await beginLoading(
      {
        ...{ model: folder, init: { kind: 'random', seed: 3 }, precision: 'f32', threads: 2 },
        ...{ cacheTokens: CACHE_TOKENS, feeds: true },
      },
      SILENT,
      new Phases(),
    ).finish();
    const { logProbs } = await expectBitsOfScoring(model, text, CACHE_TOKENS);
    expect(new Set(logProbs).size).toBeGreaterThan(100);
    await model.close();
  });
});
