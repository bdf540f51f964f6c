/** Newer families as a Hugging Face folder and as a GGUF file of the same numbers: the same log-probabilities. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { modulesOf } from '../../../models/adapters/modules.js';
import { openCheckpoint } from '../../../models/checkpoint.js';
import type { Json } from '../../../models/model/model.js';
import { storedValues } from '../../support/checkpoints.js';
import { ggufFile } from '../../support/gguf.js';
import { folder, scores, SIZES, tensorsOf } from '../../support/ggufModels.js';
import { newerPairs, newerTensors } from '../../support/ggufNewer.js';
import { casesHere } from '../../support/thorough.js';
import { loadAll } from '../../support/loadTensors.js';
import { temporaryFolder } from '../support.js';

const LAYER_NORM = { layer_norm_eps: 1e-5, layer_norm_epsilon: 1e-5, norm_epsilon: 1e-5, norm_eps: 1e-5 };
const LATENT = {
  ...{ n_routed_experts: 8, num_experts_per_tok: 3, n_shared_experts: 2, moe_intermediate_size: 16 },
  ...{ first_k_dense_replace: 1, kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 8 },
  ...{ num_key_value_heads: 4 },
};
const DELTA = {
  ...{ linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 8, linear_value_head_dim: 8 },
  ...{ linear_conv_kernel_dim: 4, num_hidden_layers: 4, head_dim: 16, partial_rotary_factor: 0.25 },
};
const LFM2 = {
  ...{ norm_eps: 1e-5, conv_L_cache: 3, block_auto_adjust_ff_dim: false, tie_word_embeddings: true },
  layer_types: ['conv', 'full_attention', 'conv'],
};
const EXPERTS = { num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 24 };
const FACTORS = {
  ...{ embedding_multiplier: 12, residual_multiplier: 0.22, attention_multiplier: 0.1, logits_scaling: 8 },
};
const MHA = { num_key_value_heads: 4, intermediate_size: 128 };

const MODELS: Readonly<Record<string, Json>> = {
  'gpt-oss': {
    ...{ model_type: 'gpt_oss', num_local_experts: 4, num_experts_per_tok: 2, head_dim: 16, sliding_window: 4 },
    rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16, truncate: false },
  },
  'deepseek v2': {
    ...{ model_type: 'deepseek_v2', ...LATENT, q_lora_rank: null, topk_method: 'greedy', routed_scaling_factor: 2 },
  },
  'deepseek v3': {
    ...{ model_type: 'deepseek_v3', ...LATENT, q_lora_rank: 24, n_group: 4, topk_group: 2, routed_scaling_factor: 2.5 },
    rope_scaling: {
      ...{ rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16, mscale: 1, mscale_all_dim: 1 },
    },
  },
  'qwen3-next': {
    ...{ model_type: 'qwen3_next', ...DELTA, ...EXPERTS, shared_expert_intermediate_size: 40, norm_topk_prob: true },
  },
  'qwen3.5': { model_type: 'qwen3_5_text', ...DELTA, linear_num_value_heads: 6 },
  glm4: { model_type: 'glm4', head_dim: 16, partial_rotary_factor: 0.5, attention_bias: true },
  'glm4 with experts': {
    ...{ model_type: 'glm4_moe', head_dim: 16, partial_rotary_factor: 0.5, attention_bias: true, use_qk_norm: true },
    ...{ n_routed_experts: 8, num_experts_per_tok: 2, n_shared_experts: 1, moe_intermediate_size: 24 },
    ...{ first_k_dense_replace: 1, routed_scaling_factor: 2, norm_topk_prob: true },
  },
  glm: { model_type: 'glm', head_dim: 8, partial_rotary_factor: 0.5, attention_bias: false },
  'glm with joined rows': { model_type: 'glm', head_dim: 8, partial_rotary_factor: 0.5, isJoined: true },
  'llama 4': {
    ...{ model_type: 'llama4_text', num_local_experts: 4, num_experts_per_tok: 1, head_dim: 16, num_hidden_layers: 5 },
    ...{ intermediate_size: 24, intermediate_size_mlp: 40, interleave_moe_layer_step: 2 },
  },
  lfm2: { model_type: 'lfm2', ...LFM2 },
  'lfm2 with experts': { model_type: 'lfm2_moe', ...LFM2, ...EXPERTS, num_dense_layers: 1 },
  mamba2: {
    ...{ model_type: 'mamba2', num_heads: 8, head_dim: 8, n_groups: 2, state_size: 8, conv_kernel: 4, expand: 2 },
    ...{ layer_norm_epsilon: 1e-5 },
  },
  'gpt-2': { model_type: 'gpt2', ...MHA, ...LAYER_NORM, tie_word_embeddings: true },
  starcoder2: { model_type: 'starcoder2', ...LAYER_NORM, tie_word_embeddings: true },
  phi: { model_type: 'phi', ...LAYER_NORM, partial_rotary_factor: 0.5 },
  nemotron: { model_type: 'nemotron', ...LAYER_NORM, partial_rotary_factor: 0.5 },
  'seed-oss': { model_type: 'seed_oss', head_dim: 16, attention_bias: true },
  arcee: { model_type: 'arcee' },
  apertus: { model_type: 'apertus', rope_scaling: null },
  ernie: { model_type: 'ernie4_5', head_dim: 16, tie_word_embeddings: true },
  'ernie with experts': {
    ...{ model_type: 'ernie4_5_moe', moe_num_experts: 4, moe_k: 2, moe_intermediate_size: 24 },
    ...{ moe_num_shared_experts: 1, moe_layer_start_index: 1, moe_layer_interval: 1, tie_word_embeddings: true },
  },
  hunyuan: { model_type: 'hunyuan_v1_dense', head_dim: 16, rope_scaling: { type: 'dynamic', alpha: 50, factor: 1 } },
  exaone: { model_type: 'exaone4', sliding_window: 5, num_hidden_layers: 5, sliding_window_pattern: 4 },
  'command-r': { model_type: 'cohere', ...LAYER_NORM, logit_scale: 0.25, use_qk_norm: true, tie_word_embeddings: true },
  bloom: { model_type: 'bloom', ...MHA, ...LAYER_NORM, seq_length: 64, tie_word_embeddings: true },
  mpt: {
    ...{ model_type: 'mpt', ...MHA, ...LAYER_NORM, d_model: 32, n_heads: 4, n_layers: 3, max_seq_len: 64 },
    tie_word_embeddings: true,
  },
  falcon: { model_type: 'falcon', ...MHA, ...LAYER_NORM, multi_query: true, tie_word_embeddings: true },
  'falcon with groups': {
    ...{ model_type: 'falcon', ...MHA, ...LAYER_NORM, new_decoder_architecture: true, num_kv_heads: 2 },
    tie_word_embeddings: true,
  },
  olmoe: { model_type: 'olmoe', num_experts: 6, num_experts_per_tok: 2, intermediate_size: 24, norm_topk_prob: false },
  'granite with experts': { model_type: 'granitemoe', num_local_experts: 4, num_experts_per_tok: 2, ...FACTORS },
  olmo: { model_type: 'olmo', clip_qkv: 4 },
  minimax: {
    ...{ model_type: 'minimax_m2', num_local_experts: 4, num_experts_per_tok: 2, head_dim: 16, rotary_dim: 8 },
    intermediate_size: 24,
  },
};

/** A file holds −e^A_log in f32, where the folder has A_log. */
const LOSS = 1e-5;

describe('a GGUF file of a newer family', () => {
  it.each(casesHere(Object.keys(MODELS), 0, 3, 8, 11, 12))(
    'computes what the Hugging Face folder does: %s',
    async (name) => {
      const json: Json = { ...SIZES, ...MODELS[name] };
      const tensors = tensorsOf(json, 3);
      const plain = openCheckpoint(folder(json, tensors));
      const path = join(temporaryFolder(), 'model.gguf');
      writeFileSync(path, ggufFile({ pairs: newerPairs(json, tensors), tensors: newerTensors(tensors, json) }));
      const copy = openCheckpoint(path);
      expect(new Set(copy.tensors.keys())).toEqual(new Set(plain.tensors.keys()));
      expect(copy.config.architecture).toBe(plain.config.architecture);
      // As kernels load them.
      for (const [tensor, values] of await loadAll(copy))
        expect(values, tensor).toEqual(Float32Array.from(storedValues(copy.tensors.get(tensor)!)));
      const want = scores(plain);
      expect(new Set(want).size).toBeGreaterThan(5);
      const got = scores(copy);
      got.forEach((value, i) => {
        expect(Math.abs(value - want[i]!), `${value} ${want[i]}`).toBeLessThan(LOSS);
      });
    },
  );
});

it('has no modules for adapters where value heads lie in another order', () => {
  const json: Json = { ...SIZES, ...MODELS['qwen3.5'] };
  const tensors = tensorsOf(json, 3);
  const path = join(temporaryFolder(), 'model.gguf');
  writeFileSync(path, ggufFile({ pairs: newerPairs(json, tensors), tensors: newerTensors(tensors, json) }));
  const isOf = (part: string) => (module: string) => module.includes(part);
  const [plain, copy] = [folder(json, tensors), path].map((each) => [...modulesOf(openCheckpoint(each).model).keys()]);
  expect(plain!.filter(isOf('linear_attn'))).not.toEqual([]);
  expect(copy!.filter(isOf('linear_attn'))).toEqual([]);
  expect(copy!.filter(isOf('self_attn'))).toEqual(plain!.filter(isOf('self_attn')));
});
