/** Newer families in the layouts in which they are published: every matrix has the values that its codes mean. */
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import type { Json } from '../../models/model/model.js';
import { loadAll } from '../support/loadTensors.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { casesHere } from '../support/thorough.js';
import { temporaryFolder, writeJson } from './support.js';

const SIZES: Json = {
  ...{ hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2 },
  ...{ head_dim: 32, vocab_size: 40, max_position_embeddings: 64, tie_word_embeddings: true },
  torch_dtype: 'bfloat16',
};
const OWN_KEYS = { num_key_value_heads: 4, head_dim: null, intermediate_size: 256 };
const ROUTED = { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32 };
const LATENT = {
  ...{ num_key_value_heads: 4, n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32 },
  ...{ n_shared_experts: 1, first_k_dense_replace: 1, n_group: 1, topk_group: 1 },
  ...{ kv_lora_rank: 32, q_lora_rank: 32, qk_nope_head_dim: 32, qk_rope_head_dim: 8, v_head_dim: 32 },
};
const DELTA = {
  ...{ linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 16, linear_value_head_dim: 16 },
  layer_types: ['linear_attention', 'full_attention'],
};

const MODELS: Readonly<Record<string, Json>> = {
  'DeepSeek V2': { model_type: 'deepseek_v2', ...LATENT },
  'DeepSeek V3': { model_type: 'deepseek_v3', ...LATENT },
  'GLM 4.7 Flash': { model_type: 'glm4_moe_lite', ...LATENT },
  'Qwen 3 Next': { model_type: 'qwen3_next', ...DELTA, ...ROUTED, shared_expert_intermediate_size: 32 },
  'Qwen 3.5': { model_type: 'qwen3_5_text', ...DELTA },
  'GLM-4': { model_type: 'glm4' },
  'GLM-4.5': {
    ...{ model_type: 'glm4_moe', n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32 },
    attention_bias: true,
  },
  'Llama 4': { model_type: 'llama4_text', num_local_experts: 2, num_experts_per_tok: 1, intermediate_size_mlp: 96 },
  LFM2: {
    ...{ model_type: 'lfm2', block_auto_adjust_ff_dim: false, conv_L_cache: 3 },
    layer_types: ['conv', 'full_attention'],
  },
  'Mamba 2': { model_type: 'mamba2', num_heads: 8, head_dim: 16, n_groups: 2, state_size: 16 },
  'MiniMax-M2': { model_type: 'minimax_m2', num_local_experts: 4, num_experts_per_tok: 2, intermediate_size: 32 },
  OLMoE: { model_type: 'olmoe', num_experts: 4, num_experts_per_tok: 2, intermediate_size: 32 },
  'Granite 3 with experts': { model_type: 'granitemoe', num_local_experts: 4, num_experts_per_tok: 2 },
  'ERNIE 4.5': { model_type: 'ernie4_5' },
  'ERNIE 4.5 with experts': {
    ...{ model_type: 'ernie4_5_moe', moe_num_experts: 4, moe_k: 2, moe_intermediate_size: 32 },
    moe_num_shared_experts: 1,
  },
  Falcon: { model_type: 'falcon', ...OWN_KEYS, new_decoder_architecture: true, num_kv_heads: 2 },
  BLOOM: { model_type: 'bloom', ...OWN_KEYS },
  MPT: { model_type: 'mpt', ...OWN_KEYS, d_model: 64, n_heads: 4, n_layers: 2, max_seq_len: 64 },
  OPT: { model_type: 'opt', ...OWN_KEYS, ffn_dim: 256 },
  Phi: { model_type: 'phi' },
  'StarCoder 2': { model_type: 'starcoder2' },
  Nemotron: { model_type: 'nemotron' },
  'Seed-OSS': { model_type: 'seed_oss' },
  Arcee: { model_type: 'arcee' },
  Apertus: { model_type: 'apertus' },
  Hunyuan: { model_type: 'hunyuan_v1_dense' },
  'EXAONE 4': { model_type: 'exaone4', sliding_window: null },
  'Command R': { model_type: 'cohere' },
};

/** What tools leave as it is: embeddings, heads, routers, gates, convolutions, and rows that are no whole words. */
const FLOATS =
  /embed|wte|lm_head|\.gate\.weight$|router|shared_expert_gate|conv1d|conv\.conv|in_proj_(?:a|b|ba)\.|kv_b_proj/;

describe.each(casesHere(['gptq, asymmetric', 'awq', 'FP8 in blocks'], 0, 2))('%s', (name) => {
  const format = FORMATS[name]!;
  it.each(casesHere(Object.keys(MODELS), 1, 3))('is read: %s', async (model) => {
    const config: Json = { ...SIZES, ...MODELS[model] };
    const { tensors, meant } = quantizedTensors(config, format.write, 7, FLOATS);
    const dir = temporaryFolder();
    writeQuantized(dir, config, format, safetensorsOf(tensors));
    writeJson(dir, 'tokenizer.json', {});
    const checkpoint = openCheckpoint(dir);
    const kinds = [...checkpoint.tensors.values()].map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === 'encoded').length).toBeGreaterThan(5);
    const loaded = await loadAll(checkpoint);
    for (const [tensor, values] of loaded) expect(values, tensor).toEqual(meant.get(tensor)!.values);
  });
});
