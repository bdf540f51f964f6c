/** Architectures of GGUF files whose layers keep states, all or some of them. */
import type { Json } from '../model/model.js';
import { type GgufArchitecture, type GgufFacts, type GgufHeads, MOST } from './facts.js';
import { EACH, HEAD_NORMS, type Modules, QWEN_EXPERTS, withModules } from './modules.js';
import { expertCounts, requireRouter, routerOf, widthOf } from './settings.js';

const MAX_TAPS = 64;

/** Gated DeltaNet's sizes, in the words of config.json. */
function deltaSettings(facts: GgufFacts): Json {
  const valueHeads = facts.required('ssm.time_step_rank', 1, 1024);
  const inner = facts.required('ssm.inner_size', 1, MOST);
  if (inner % valueHeads !== 0) facts.refuse(`${facts.key('ssm.inner_size')} ${inner} is not of ${valueHeads} heads`);
  const interval = facts.whole('full_attention_interval', 1, 1024) ?? 4;
  return {
    linear_num_key_heads: facts.required('ssm.group_count', 1, 1024),
    linear_num_value_heads: valueHeads,
    linear_key_head_dim: facts.required('ssm.state_size', 1, 1024),
    linear_value_head_dim: inner / valueHeads,
    linear_conv_kernel_dim: facts.required('ssm.conv_kernel', 1, MAX_TAPS),
    full_attention_interval: interval,
  };
}

const DELTA_MODULES: Modules = {
  ...HEAD_NORMS,
  post_attention_norm: 'post_attention_layernorm',
  attn_qkv: 'linear_attn.in_proj_qkv',
  attn_gate: 'linear_attn.in_proj_z',
  ssm_ba: 'linear_attn.in_proj_ba',
  ssm_alpha: 'linear_attn.in_proj_a',
  ssm_beta: 'linear_attn.in_proj_b',
  ssm_conv1d: 'linear_attn.conv1d',
  ssm_norm: 'linear_attn.norm',
  ssm_out: 'linear_attn.out_proj',
};
const DELTA_WHOLE: Modules = { 'ssm_dt.bias': 'linear_attn.dt_bias', ssm_a: 'linear_attn.A_log' };
const DELTA_WAYS = { hasWholeNormWeights: true, hasProjectionsInTurn: true, hasDecays: true };
/** Value heads that share a key head are as far apart as there are key heads. */
const QWEN35_WAYS = { ...DELTA_WAYS, hasHeadsInTurn: true };

/** Experts chosen by a softmax whose shares add up to 1, and one for all tokens with a gate. */
function qwenExperts(facts: GgufFacts): Json {
  const { count, chosen } = expertCounts(facts);
  requireRouter(facts, { isSigmoid: false, isNormalized: true });
  return {
    ...{ num_experts: count, num_experts_per_tok: chosen, norm_topk_prob: true },
    moe_intermediate_size: widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps'),
    shared_expert_intermediate_size: widthOf(facts, 'expert_shared_feed_forward_length', 'ffn_gate_shexp'),
  };
}

/** Sections of positions in time, height and width, which are one number in texts. */
const passSections = (facts: GgufFacts): void => void facts.metadata.numbers(facts.key('rope.dimension_sections'));

function lfm2Heads(facts: GgufFacts): GgufHeads {
  const hidden = facts.required('embedding_length', 1, 1 << 16);
  const heads = facts.alike('attention.head_count', 1, 1024) ?? facts.refuse('attention.head_count is missing');
  const counts = facts.metadata.numbers(facts.key('attention.head_count_kv')) ?? [];
  const kvHeads = Math.max(0, ...counts);
  if (counts.length !== facts.layers || kvHeads < 1 || counts.some((count) => count !== 0 && count !== kvHeads))
    facts.refuse(`${facts.key('attention.head_count_kv')}: expected 0 or one number of heads for each layer`);
  const headDim = facts.whole('attention.key_length', 2, 1024) ?? hidden / heads;
  facts.whole('attention.value_length', headDim, headDim);
  const turned = facts.whole('rope.dimension_count', headDim, headDim) ?? headDim;
  return {
    json: {
      ...{ num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: headDim },
      layer_types: counts.map((count) => (count === 0 ? 'conv' : 'full_attention')),
    },
    headDim,
    turned,
  };
}

const lfm2Settings = (facts: GgufFacts): Json => ({
  norm_eps: facts.number('attention.layer_norm_rms_epsilon', 0, 0.1),
  conv_L_cache: facts.required('shortconv.l_cache', 1, MAX_TAPS),
  conv_bias: facts.layersWith('shortconv.in_proj.bias').includes(true),
  block_auto_adjust_ff_dim: false,
});

const LFM2_LAYER: Modules = {
  attn_norm: 'operator_norm',
  ffn_norm: 'ffn_norm',
  attn_output: 'self_attn.out_proj',
  attn_q_norm: 'self_attn.q_layernorm',
  attn_k_norm: 'self_attn.k_layernorm',
  ffn_gate: 'feed_forward.w1',
  ffn_up: 'feed_forward.w3',
  ffn_down: 'feed_forward.w2',
  'shortconv.conv': 'conv.conv',
  'shortconv.in_proj': 'conv.in_proj',
  'shortconv.out_proj': 'conv.out_proj',
};

/** The last norm goes by the name of that of embeddings in older files. */
const lfm2Modules = (layer: Modules, whole: Modules = {}) => {
  const own = withModules({ ...LFM2_LAYER, ...layer });
  const norm = 'model.embedding_norm';
  return { ...own, model: { ...own.model, token_embd_norm: norm, output_norm: norm }, whole };
};

const MAMBA_MODULES: Modules = {
  attn_norm: 'norm',
  ssm_in: 'mixer.in_proj',
  ssm_conv1d: 'mixer.conv1d',
  ssm_norm: 'mixer.norm',
  ssm_out: 'mixer.out_proj',
};

export const RECURRENT_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'qwen3next',
    settings: (facts) => ({ model_type: 'qwen3_next', ...deltaSettings(facts), ...qwenExperts(facts) }),
    modules: () => ({ ...withModules({ ...DELTA_MODULES, ...QWEN_EXPERTS }), whole: DELTA_WHOLE }),
    ways: DELTA_WAYS,
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'qwen35',
    settings: (facts) => {
      passSections(facts);
      return { model_type: 'qwen3_5_text', ...deltaSettings(facts) };
    },
    modules: () => ({ ...withModules(DELTA_MODULES), whole: DELTA_WHOLE }),
    ways: QWEN35_WAYS,
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'qwen35moe',
    settings: (facts) => {
      passSections(facts);
      return { model_type: 'qwen3_5_moe_text', ...deltaSettings(facts), ...qwenExperts(facts) };
    },
    modules: () => ({ ...withModules({ ...DELTA_MODULES, ...QWEN_EXPERTS }), whole: DELTA_WHOLE }),
    ways: QWEN35_WAYS,
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'lfm2',
    heads: lfm2Heads,
    settings: (facts) => ({ model_type: 'lfm2', ...lfm2Settings(facts) }),
    modules: () => lfm2Modules({}),
    ways: {},
  },
  {
    name: 'lfm2moe',
    heads: lfm2Heads,
    settings: (facts) => {
      const { count, chosen } = expertCounts(facts);
      const { isSigmoid, isNormalized = true, factor, dense } = routerOf(facts, 'sigmoid');
      if (!isSigmoid) facts.refuse(`${facts.key('expert_gating_func')} is not 2: routers take sigmoids`);
      return {
        ...{ model_type: 'lfm2_moe', ...lfm2Settings(facts), num_experts: count, num_experts_per_tok: chosen },
        ...{ num_dense_layers: dense, norm_topk_prob: isNormalized, routed_scaling_factor: factor },
        moe_intermediate_size: widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps'),
        use_expert_bias: facts.layersWith('exp_probs_b.bias').includes(true),
      };
    },
    modules: () =>
      lfm2Modules(
        {
          ffn_gate_inp: 'feed_forward.gate',
          ffn_gate_exps: `feed_forward.experts.${EACH}.w1`,
          ffn_up_exps: `feed_forward.experts.${EACH}.w3`,
          ffn_down_exps: `feed_forward.experts.${EACH}.w2`,
        },
        { 'exp_probs_b.bias': 'feed_forward.expert_bias' },
      ),
    ways: {},
  },
  {
    name: 'mamba2',
    heads: (facts) => {
      facts.whole('attention.head_count', 0, 0);
      const heads = facts.required('ssm.time_step_rank', 1, 1024);
      const headDim = facts.required('ssm.inner_size', 1, MOST) / heads;
      return { json: { num_heads: heads, head_dim: headDim }, headDim, turned: headDim };
    },
    settings: (facts, { hidden }) => ({
      model_type: 'mamba2',
      layer_norm_epsilon: facts.number('attention.layer_norm_rms_epsilon', 0, 0.1),
      conv_kernel: facts.required('ssm.conv_kernel', 1, MAX_TAPS),
      state_size: facts.required('ssm.state_size', 1, 1024),
      n_groups: facts.required('ssm.group_count', 1, 1024),
      expand: facts.required('ssm.inner_size', 1, MOST) / hidden,
      use_bias: facts.has('blk.0.ssm_in.bias'),
      use_conv_bias: facts.has('blk.0.ssm_conv1d.bias'),
    }),
    modules: () => {
      const own = withModules(MAMBA_MODULES);
      return {
        model: { ...own.model, token_embd: 'backbone.embeddings', output_norm: 'backbone.norm_f' },
        layers: 'backbone.layers',
        layer: MAMBA_MODULES,
        whole: { 'ssm_dt.bias': 'mixer.dt_bias', ssm_a: 'mixer.A_log', ssm_d: 'mixer.D' },
      };
    },
    ways: { hasDecays: true },
  },
];
