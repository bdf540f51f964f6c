/**
 * The architectures of GGUF files, in the words of config.json and with the names of Hugging Face checkpoints. What a
 * key means, and what stands for an absent one, is what the converters of llama.cpp write and what it computes.
 */
import type { Json, StoredWays } from '../model/model.js';
import { DENSE_ARCHITECTURES } from './dense.js';
import { EXPERT_ARCHITECTURES } from './experts.js';
import { FACTOR, type GgufArchitecture, type GgufFacts, MOST, type Shape } from './facts.js';
import { RECURRENT_ARCHITECTURES } from './recurrent.js';
import { biases, INTERLEAVED, layerTypes, widthOf, window } from './settings.js';
import {
  EACH,
  FOUR_NORMS,
  HEAD_NORMS,
  LLAMA_MODULES,
  MIXTRAL_MODULES,
  NEOX_MODULES,
  OLMO_MODULES,
  PHI_MODULES,
  QWEN_EXPERTS,
  withModules,
} from './modules.js';

/** Norm weights are stored with the 1 that these models add; published checkpoints are in bf16. */
const GEMMA: StoredWays = { hasWholeNormWeights: true };

/** Settings of experts. Routers whose probabilities are no softmax, or that scale them, are refused. */
function experts(facts: GgufFacts, isNormalized: boolean): { readonly count: number; readonly settings: Json } {
  const count = facts.whole('expert_count', 0, MOST) ?? 0;
  const chosen = facts.whole('expert_used_count', 0, MOST);
  const gating = facts.whole('expert_gating_func', 0, 255) ?? 0;
  const scale = facts.number('expert_weights_scale', 0, 1e6) ?? 0;
  const norm = facts.metadata.flag(facts.key('expert_weights_norm')) ?? isNormalized;
  if (gating > 1) facts.refuse(`${facts.key('expert_gating_func')} is ${gating}: routers take a softmax (1)`);
  if (scale !== 0 && scale !== 1) facts.refuse(`${facts.key('expert_weights_scale')} is ${scale}, which is not known`);
  if (norm !== isNormalized) facts.refuse(`${facts.key('expert_weights_norm')} is ${norm}, which is not known here`);
  return { count, settings: count === 0 ? {} : { num_local_experts: count, num_experts_per_tok: chosen } };
}

/** Qwen's settings of experts. Layers without a router have one feed-forward block. */
function qwenExperts(facts: GgufFacts, isNormalized: boolean, layers: number): Json {
  const { settings } = experts(facts, isNormalized);
  const dense = Array.from({ length: layers }, (_, i) => i).filter((i) => !facts.has(`blk.${i}.ffn_gate_inp.weight`));
  return {
    ...settings,
    norm_topk_prob: isNormalized,
    moe_intermediate_size: widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps'),
    mlp_only_layers: dense,
  };
}

/** What scores are divided by the root of. Files do not say: the largest model of a version has a value of its own. */
const gemmaScalar = ({ hidden, heads, headDim, layers }: Shape, largest: number): number =>
  layers === largest ? Math.trunc(hidden / heads) : headDim;

const isOlmo3 = (facts: GgufFacts): boolean => window(facts) !== null;

function llamaSettings(facts: GgufFacts): Json {
  const { count, settings } = experts(facts, true);
  const width = window(facts);
  const layout = facts.metadata.text(facts.key('tensor_data_layout')) ?? 'Meta AI original pth';
  if (layout !== 'Meta AI original pth') facts.refuse(`${facts.key('tensor_data_layout')} is not known`);
  if (count > 0) {
    const inner = widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps');
    // Where experts have a tensor each, feed_forward_length is their width.
    const own = inner === undefined ? {} : { intermediate_size: inner };
    return { model_type: 'mixtral', ...settings, sliding_window: width, ...own };
  }
  if (width !== null) return { model_type: 'mistral', sliding_window: width };
  return { model_type: 'llama', ...biases(facts) };
}

export const GGUF_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'llama',
    settings: llamaSettings,
    modules: (facts) => ((facts.whole('expert_count', 0, MOST) ?? 0) > 0 ? MIXTRAL_MODULES : LLAMA_MODULES),
    ways: INTERLEAVED,
  },
  { name: 'qwen2', settings: () => ({ model_type: 'qwen2' }), modules: () => LLAMA_MODULES, ways: {} },
  {
    name: 'qwen3',
    settings: (facts) => ({ model_type: 'qwen3', attention_bias: facts.has('blk.0.attn_q.bias') }),
    modules: () => withModules(HEAD_NORMS),
    ways: {},
  },
  {
    name: 'qwen2moe',
    settings: (facts, { layers }) => ({
      model_type: 'qwen2_moe',
      ...qwenExperts(facts, false, layers),
      qkv_bias: facts.has('blk.0.attn_q.bias'),
      shared_expert_intermediate_size: widthOf(facts, 'expert_shared_feed_forward_length', 'ffn_gate_shexp'),
    }),
    modules: () => withModules(QWEN_EXPERTS),
    ways: {},
  },
  {
    name: 'qwen3moe',
    settings: (facts, { layers }) => ({
      model_type: 'qwen3_moe',
      ...qwenExperts(facts, true, layers),
      attention_bias: facts.has('blk.0.attn_q.bias'),
    }),
    modules: () => withModules({ ...HEAD_NORMS, ...QWEN_EXPERTS }),
    ways: {},
  },
  { name: 'gemma', settings: () => ({ model_type: 'gemma' }), modules: () => LLAMA_MODULES, ways: GEMMA },
  {
    name: 'gemma2',
    settings: (facts, shape) => ({
      model_type: 'gemma2',
      sliding_window: facts.whole('attention.sliding_window', 1, MOST) ?? 4096,
      layer_types: layerTypes(facts, shape.layers, 2),
      query_pre_attn_scalar: gemmaScalar(shape, 46),
      attn_logit_softcapping: facts.number('attn_logit_softcapping', ...FACTOR) ?? 50,
      final_logit_softcapping: facts.number('final_logit_softcapping', ...FACTOR) ?? 30,
    }),
    modules: () => withModules(FOUR_NORMS),
    ways: GEMMA,
  },
  {
    name: 'gemma3',
    settings: (facts, shape) => {
      const width = window(facts);
      const types = layerTypes(facts, shape.layers, 6);
      return {
        model_type: 'gemma3_text',
        sliding_window: width,
        layer_types: width === null ? types.map(() => 'full_attention') : types,
        query_pre_attn_scalar: gemmaScalar(shape, 62),
        final_logit_softcapping: facts.number('final_logit_softcapping', ...FACTOR) ?? null,
      };
    },
    modules: () => withModules({ ...FOUR_NORMS, ...HEAD_NORMS }),
    ways: GEMMA,
    hasWindowTheta: true,
  },
  {
    name: 'phi3',
    settings: (facts) => {
      if (facts.whole('attention.sliding_window', 0, MOST) === undefined)
        facts.refuse(`${facts.key('attention.sliding_window')} is missing: an old file, whose window is not known`);
      return { model_type: 'phi3', sliding_window: window(facts) };
    },
    modules: () => PHI_MODULES,
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'stablelm',
    settings: (facts) => {
      // Converters write true where config.json is silent, which means false: only the second norm tells.
      facts.metadata.flag(facts.key('use_parallel_residual'));
      return {
        model_type: 'stablelm',
        use_qkv_bias: facts.has('blk.0.attn_q.bias'),
        qk_layernorm: facts.has('blk.0.attn_q_norm.weight'),
        use_parallel_residual: !facts.has('blk.0.ffn_norm.weight'),
      };
    },
    modules: () =>
      withModules({
        attn_q_norm: `self_attn.q_layernorm.norms.${EACH}`,
        attn_k_norm: `self_attn.k_layernorm.norms.${EACH}`,
      }),
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'olmo2',
    settings: (facts, { layers }) =>
      isOlmo3(facts)
        ? { model_type: 'olmo3', sliding_window: window(facts), layer_types: layerTypes(facts, layers, 4) }
        : { model_type: 'olmo2' },
    modules: () => OLMO_MODULES,
    ways: {},
  },
  {
    name: 'granite',
    settings: (facts, { headDim }) => {
      const scale = facts.number('attention.scale', 0, 1e6) ?? 0;
      return {
        model_type: 'granite',
        ...biases(facts),
        embedding_multiplier: facts.number('embedding_scale', ...FACTOR) ?? 1,
        residual_multiplier: facts.number('residual_scale', ...FACTOR) ?? 1,
        attention_multiplier: scale === 0 ? 1 / Math.sqrt(headDim) : scale,
        logits_scaling: facts.number('logit_scale', ...FACTOR) ?? 1,
      };
    },
    modules: () => LLAMA_MODULES,
    ways: INTERLEAVED,
  },
  {
    name: 'smollm3',
    settings: (facts) => ({ model_type: 'smollm3', ...biases(facts), no_rope_layer_interval: 4 }),
    modules: () => LLAMA_MODULES,
    ways: INTERLEAVED,
  },
  {
    name: 'cohere2',
    settings: (facts, { layers }) => ({
      model_type: 'cohere2',
      attention_bias: facts.has('blk.0.attn_q.bias'),
      sliding_window: facts.required('attention.sliding_window', 1, MOST),
      layer_types: layerTypes(facts, layers, 4),
      logit_scale: facts.number('logit_scale', ...FACTOR) ?? facts.refuse(`${facts.key('logit_scale')} is missing`),
    }),
    // Its Hugging Face checkpoints pair neighbours too.
    modules: () => LLAMA_MODULES,
    ways: {},
  },
  {
    name: 'gptneox',
    settings: (facts) => ({
      model_type: 'gpt_neox',
      use_parallel_residual: facts.metadata.flag(facts.key('use_parallel_residual')) ?? true,
      attention_bias: facts.has('blk.0.attn_qkv.bias'),
    }),
    modules: () => NEOX_MODULES,
    ways: { hasProjectionsInTurn: true },
    partKey: 'rotary_pct',
  },
  ...DENSE_ARCHITECTURES,
  ...EXPERT_ARCHITECTURES,
  ...RECURRENT_ARCHITECTURES,
];
