/** Architectures of GGUF files without experts that came after the first twenty families. */
import type { Json } from '../model/model.js';
import { FACTOR, type GgufArchitecture, type GgufFacts, MOST } from './facts.js';
import { HEAD_NORMS, type JoinedRows, LLAMA_MODULES, type Modules, OLMO_MODULES, withModules } from './modules.js';
import { biases, INTERLEAVED, layerTypes, window } from './settings.js';

/** Numbers of config.json that families call differently. */
const epsilon = (facts: GgufFacts): Json => {
  const value = facts.number('attention.layer_norm_epsilon', 0, 0.1);
  return { layer_norm_epsilon: value, norm_epsilon: value, norm_eps: value };
};

/** Models of GPT's kind, whose layers are `layers`. */
const gptModules = (layers: string, model: Modules, layer: Modules) => ({ model, layers, layer });

const GPT2_MODULES = gptModules(
  'transformer.h',
  {
    token_embd: 'transformer.wte',
    position_embd: 'transformer.wpe',
    output_norm: 'transformer.ln_f',
    output: 'lm_head',
  },
  {
    attn_norm: 'ln_1',
    attn_qkv: 'attn.c_attn',
    attn_output: 'attn.c_proj',
    ffn_norm: 'ln_2',
    ffn_up: 'mlp.c_fc',
    ffn_down: 'mlp.c_proj',
  },
);

const BLOOM_MODULES = gptModules(
  'transformer.h',
  {
    token_embd: 'transformer.word_embeddings',
    token_embd_norm: 'transformer.word_embeddings_layernorm',
    output_norm: 'transformer.ln_f',
    output: 'lm_head',
  },
  {
    attn_norm: 'input_layernorm',
    attn_qkv: 'self_attention.query_key_value',
    attn_output: 'self_attention.dense',
    ffn_norm: 'post_attention_layernorm',
    ffn_up: 'mlp.dense_h_to_4h',
    ffn_down: 'mlp.dense_4h_to_h',
  },
);

const MPT_MODULES = gptModules(
  'transformer.blocks',
  { token_embd: 'transformer.wte', output_norm: 'transformer.norm_f', output: 'lm_head' },
  {
    attn_norm: 'norm_1',
    attn_qkv: 'attn.Wqkv',
    attn_output: 'attn.out_proj',
    ffn_norm: 'norm_2',
    ffn_up: 'ffn.up_proj',
    ffn_down: 'ffn.down_proj',
  },
);

/** Falcon's norms: one for both branches, or that of feed-forward first. */
const falconModules = (hasTwoNorms: boolean) => ({
  ...BLOOM_MODULES,
  layer: {
    ...BLOOM_MODULES.layer,
    ...(hasTwoNorms ? { attn_norm: 'ln_mlp', attn_norm_2: 'ln_attn' } : {}),
  },
});

const hasTwoNorms = (facts: GgufFacts): boolean => facts.has('blk.0.attn_norm_2.weight');

/** Queries, keys and values of plain heads, as rows of one module. */
function queriesKeysValues(facts: GgufFacts): readonly JoinedRows[] {
  const heads = facts.alike('attention.head_count', 1, 1024) ?? 1;
  const kvHeads = facts.alike('attention.head_count_kv', 1, 1024) ?? heads;
  const width = facts.whole('attention.key_length', 2, 1024) ?? facts.required('embedding_length', 1, 1 << 16) / heads;
  return [heads, kvHeads, kvHeads].map((count, i) => ({
    module: `self_attn.${'qkv'[i]}_proj`,
    rows: count * width,
  }));
}

/** The norm before feed-forward goes by that of another place. */
const NORM_BEHIND: Modules = { post_attention_norm: 'post_attention_layernorm' };

export const DENSE_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'gpt2',
    settings: (facts) => ({
      ...{ model_type: 'gpt2', ...epsilon(facts) },
      n_inner: facts.required('feed_forward_length', 1, MOST),
    }),
    modules: () => GPT2_MODULES,
    ways: { hasRowsOfOutputs: true },
  },
  {
    name: 'starcoder2',
    settings: (facts) => ({
      ...{ model_type: 'starcoder2', ...epsilon(facts), sliding_window: window(facts) },
      use_bias: facts.has('blk.0.attn_q.bias'),
    }),
    modules: () => withModules({ ffn_up: 'mlp.c_fc', ffn_down: 'mlp.c_proj' }),
    ways: {},
  },
  {
    name: 'phi2',
    settings: () => ({ model_type: 'phi' }),
    modules: () => ({
      ...withModules({ attn_output: 'self_attn.dense', ffn_up: 'mlp.fc1', ffn_down: 'mlp.fc2' }),
      model: { ...LLAMA_MODULES.model, output_norm: 'model.final_layernorm' },
    }),
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'nemotron',
    settings: (facts) => ({ model_type: 'nemotron', ...biases(facts), ...epsilon(facts) }),
    modules: () => LLAMA_MODULES,
    ways: { hasWholeNormWeights: true },
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'seed_oss',
    settings: (facts) => ({
      ...{ model_type: 'seed_oss', ...biases(facts) },
      attention_out_bias: facts.has('blk.0.attn_output.bias'),
    }),
    modules: () => withModules(NORM_BEHIND),
    ways: {},
  },
  {
    name: 'arcee',
    settings: (facts) => ({ model_type: 'arcee', ...biases(facts) }),
    modules: () => LLAMA_MODULES,
    ways: INTERLEAVED,
  },
  {
    name: 'apertus',
    settings: (facts) => ({
      ...{ model_type: 'apertus', attention_bias: facts.has('blk.0.attn_q.bias') },
      // Without them a config.json would have frequencies of its own.
      ...(facts.has('rope_freqs.weight') ? {} : { rope_scaling: null }),
    }),
    modules: () => withModules({ attn_norm: 'attention_layernorm', ffn_norm: 'feedforward_layernorm', ...HEAD_NORMS }),
    ways: {},
    lists: {
      'xielu.alpha_p': 'mlp.act_fn.alpha_p',
      'xielu.alpha_n': 'mlp.act_fn.alpha_n',
      'xielu.beta': 'mlp.act_fn.beta',
      'xielu.eps': 'mlp.act_fn.eps',
    },
  },
  {
    name: 'ernie4_5',
    settings: (facts) => ({ model_type: 'ernie4_5', use_bias: facts.has('blk.0.attn_q.bias') }),
    // Its Hugging Face checkpoints pair neighbours too.
    modules: () => LLAMA_MODULES,
    ways: {},
  },
  {
    name: 'olmo',
    settings: (facts) => ({
      ...{ model_type: 'olmo', attention_bias: facts.has('blk.0.attn_q.bias') },
      clip_qkv: facts.number('attention.clamp_kqv', 0, 1e6) ?? null,
    }),
    modules: () => LLAMA_MODULES,
    ways: INTERLEAVED,
  },
  {
    // Files hold the base that alpha gives.
    name: 'hunyuan-dense',
    settings: (facts) => ({ model_type: 'hunyuan_v1_dense', attention_bias: facts.has('blk.0.attn_q.bias') }),
    modules: () => withModules({ attn_q_norm: 'self_attn.query_layernorm', attn_k_norm: 'self_attn.key_layernorm' }),
    ways: {},
  },
  {
    name: 'exaone4',
    settings: (facts, { layers }) => {
      const width = window(facts);
      return {
        ...{ model_type: 'exaone4', sliding_window: width },
        ...(width === null ? {} : { layer_types: layerTypes(facts, layers, 4) }),
      };
    },
    modules: () => OLMO_MODULES,
    ways: {},
  },
  {
    name: 'command-r',
    settings: (facts) => ({
      model_type: 'cohere',
      attention_bias: facts.has('blk.0.attn_q.bias'),
      use_qk_norm: facts.has('blk.0.attn_q_norm.weight'),
      logit_scale: facts.number('logit_scale', ...FACTOR) ?? facts.refuse(`${facts.key('logit_scale')} is missing`),
    }),
    // Its Hugging Face checkpoints pair neighbours too.
    modules: () => withModules(HEAD_NORMS),
    ways: {},
  },
  {
    name: 'glm4',
    settings: (facts) => ({ model_type: 'glm4', attention_bias: facts.has('blk.0.attn_q.bias') }),
    modules: () => {
      const { ffn_gate: _, ...others } = withModules({
        post_attention_norm: 'post_self_attn_layernorm',
        ffn_norm: 'post_attention_layernorm',
        post_ffw_norm: 'post_mlp_layernorm',
        ffn_up: 'mlp.gate_up_proj',
      }).layer;
      return { ...LLAMA_MODULES, layer: others };
    },
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    // GLM-4 of 2024, and ChatGLM, whose files have queries, keys and values in one module.
    name: 'chatglm',
    settings: (facts) => ({
      model_type: 'glm',
      attention_bias: facts.has('blk.0.attn_q.bias') || facts.has('blk.0.attn_qkv.bias'),
    }),
    modules: (facts) => {
      const { ffn_gate: _, ...others } = withModules({ ffn_up: 'mlp.gate_up_proj' }).layer;
      return { ...LLAMA_MODULES, layer: others, joined: { attn_qkv: queriesKeysValues(facts) } };
    },
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'bloom',
    settings: (facts) => ({
      ...{ model_type: 'bloom', ...epsilon(facts) },
      seq_length: facts.required('context_length', 1, MOST),
    }),
    modules: () => BLOOM_MODULES,
    ways: { hasProjectionsInTurn: true },
  },
  {
    name: 'mpt',
    settings: (facts, { hidden, heads, layers }) => {
      const clip = facts.number('attention.clamp_kqv', 0, 1e6) ?? 0;
      return {
        ...{ model_type: 'mpt', ...epsilon(facts), d_model: hidden, n_heads: heads, n_layers: layers },
        max_seq_len: facts.required('context_length', 1, MOST),
        attn_config: {
          alibi_bias_max: facts.number('attention.max_alibi_bias', 1e-3, 64) ?? 8,
          ...(clip === 0 ? {} : { clip_qkv: clip }),
        },
      };
    },
    modules: () => MPT_MODULES,
    ways: {},
  },
  {
    name: 'falcon',
    settings: (facts, { heads }) => {
      const layout = facts.metadata.text(facts.key('tensor_data_layout')) ?? 'jploski';
      if (layout !== 'jploski') facts.refuse(`${facts.key('tensor_data_layout')} is not known`);
      const kvHeads = facts.alike('attention.head_count_kv', 1, 1024) ?? heads;
      const isGrouped = kvHeads > 1;
      return {
        ...{ model_type: 'falcon', ...epsilon(facts), bias: facts.has('blk.0.attn_qkv.bias') },
        ...{ new_decoder_architecture: isGrouped, num_kv_heads: kvHeads, multi_query: !isGrouped },
        ...(isGrouped ? { num_ln_in_parallel_attn: hasTwoNorms(facts) ? 2 : 1 } : {}),
        ffn_hidden_size: facts.required('feed_forward_length', 1, MOST),
      };
    },
    modules: (facts) => falconModules(hasTwoNorms(facts)),
    ways: { hasProjectionsInTurn: true },
  },
];
