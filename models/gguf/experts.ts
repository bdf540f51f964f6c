/** Architectures of GGUF files with experts that came after the first twenty families. */
import { defined } from '../../system/defined.js';
import type { Json } from '../model/model.js';
import { FACTOR, type GgufArchitecture, type GgufFacts, type GgufHeads, MOST } from './facts.js';
import { EACH, HEAD_NORMS, MIXTRAL_MODULES, type Modules, QWEN_EXPERTS, withModules } from './modules.js';
import { biases, expertCounts, INTERLEAVED, requireRouter, routerOf, widthOf, window } from './settings.js';

const SHARED_EXPERTS: Modules = {
  ...QWEN_EXPERTS,
  ffn_gate_shexp: 'mlp.shared_experts.gate_proj',
  ffn_up_shexp: 'mlp.shared_experts.up_proj',
  ffn_down_shexp: 'mlp.shared_experts.down_proj',
};
/** The norm before feed-forward goes by that of another place. */
const NORM_BEHIND: Modules = { post_attention_norm: 'post_attention_layernorm' };
/** A bias for each expert that counts in the choice alone. */
const CHOICE = 'exp_probs_b.bias';

const width = (facts: GgufFacts): number | undefined => widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps');

/** What models of DeepSeek's kind call the settings of their experts. */
function routedExperts(facts: GgufFacts, fallback: 'softmax' | 'sigmoid'): Json & { readonly isSigmoid: boolean } {
  const { count, chosen } = expertCounts(facts);
  const { isSigmoid, isNormalized, factor, groups, keptGroups, dense, shared } = routerOf(facts, fallback);
  // What all of them share; its width is that of so many experts.
  facts.whole('expert_shared_feed_forward_length', 0, MOST);
  return {
    isSigmoid,
    ...{ n_routed_experts: count, num_experts_per_tok: chosen, moe_intermediate_size: width(facts) },
    ...{ n_shared_experts: shared, first_k_dense_replace: dense, routed_scaling_factor: factor },
    ...(groups > 1 ? { n_group: groups, topk_group: keptGroups } : { n_group: 1, topk_group: 1 }),
    norm_topk_prob: isNormalized ?? isSigmoid,
  };
}

/** Latent attention: keys and values are made of one narrow row for all heads. */
function latentHeads(facts: GgufFacts): GgufHeads {
  const heads = facts.alike('attention.head_count', 1, 1024) ?? facts.refuse('attention.head_count is missing');
  facts.alike('attention.head_count_kv', 1, 1024);
  const turned = facts.required('rope.dimension_count', 2, 1024);
  const rank = facts.required('attention.kv_lora_rank', 1, 1 << 16);
  const [stored, storedValues] = ['key', 'value'].map((each) => facts.whole(`attention.${each}_length`, 1, 1 << 17));
  // Files whose keys and values are made in one product have no others.
  const whole = facts.whole('attention.key_length_mla', 2, 2048) ?? stored ?? turned;
  const values = facts.whole('attention.value_length_mla', 1, 2048) ?? storedValues;
  if (whole <= turned) facts.refuse(`heads of ${whole} elements, of which ${turned} are turned`);
  return {
    json: {
      ...{ num_attention_heads: heads, num_key_value_heads: heads, kv_lora_rank: rank },
      ...{ qk_nope_head_dim: whole - turned, qk_rope_head_dim: turned, v_head_dim: values },
      q_lora_rank: facts.whole('attention.q_lora_rank', 1, 1 << 16) ?? null,
    },
    headDim: turned,
    turned,
  };
}

/** What latent attention multiplies scores by, in YaRN's words: a file holds a tenth of mscale_all_dim. */
function latentYarn(facts: GgufFacts): Json {
  const tenth = facts.number('rope.scaling.yarn_log_multiplier', 0, 10) ?? 0;
  const mscale = Number((10 * tenth).toPrecision(6));
  return mscale === 0 ? {} : { mscale, mscale_all_dim: mscale };
}

export const EXPERT_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'gpt-oss',
    settings: (facts, { layers }) => {
      const { count, chosen } = expertCounts(facts);
      requireRouter(facts, { isSigmoid: false, isNormalized: true });
      return {
        ...{ model_type: 'gpt_oss', num_local_experts: count, num_experts_per_tok: chosen },
        attention_bias: facts.has('blk.0.attn_q.bias'),
        intermediate_size: width(facts),
        sliding_window: facts.required('attention.sliding_window', 1, MOST),
        layer_types: Array.from({ length: layers }, (_, layer) =>
          layer % 2 === 0 ? 'sliding_attention' : 'full_attention',
        ),
      };
    },
    modules: () => ({
      ...withModules({
        ...NORM_BEHIND,
        ffn_gate_inp: 'mlp.router',
        ffn_gate_exps: `mlp.experts.${EACH}.gate_proj`,
        ffn_up_exps: `mlp.experts.${EACH}.up_proj`,
        ffn_down_exps: `mlp.experts.${EACH}.down_proj`,
      }),
      whole: { 'attn_sinks.weight': 'self_attn.sinks' },
    }),
    ways: {},
    yarn: () => ({ truncate: false }),
  },
  {
    // DeepSeek V2 and V3, Kimi K2, GLM 4.7 Flash. Sigmoids tell V3 from V2.
    name: 'deepseek2',
    heads: latentHeads,
    settings: (facts) => {
      const { isSigmoid, ...experts } = routedExperts(facts, 'softmax');
      if (isSigmoid) return { model_type: 'deepseek_v3', ...experts };
      const isGrouped = Number(experts['n_group']) > 1;
      return { model_type: 'deepseek_v2', ...experts, topk_method: isGrouped ? 'group_limited_greedy' : 'greedy' };
    },
    modules: () => ({
      ...withModules({
        ...SHARED_EXPERTS,
        attn_q_a: 'self_attn.q_a_proj',
        attn_q_a_norm: 'self_attn.q_a_layernorm',
        attn_q_b: 'self_attn.q_b_proj',
        attn_kv_a_mqa: 'self_attn.kv_a_proj_with_mqa',
        attn_kv_a_norm: 'self_attn.kv_a_layernorm',
        attn_k_b: `self_attn.kv_b_proj.keys.${EACH}`,
        attn_v_b: `self_attn.kv_b_proj.values.${EACH}`,
      }),
      whole: { [CHOICE]: 'mlp.gate.e_score_correction_bias' },
    }),
    ways: {},
    yarn: latentYarn,
    apart: /\.self_attn\.kv_b_proj\.weight$/,
  },
  {
    name: 'glm4moe',
    settings: (facts) => {
      const { isSigmoid, ...experts } = routedExperts(facts, 'sigmoid');
      if (!isSigmoid) facts.refuse(`${facts.key('expert_gating_func')} is not 2: routers take sigmoids`);
      return {
        ...{ model_type: 'glm4_moe', ...experts, attention_bias: facts.has('blk.0.attn_q.bias') },
        use_qk_norm: facts.has('blk.0.attn_q_norm.weight'),
      };
    },
    modules: () => ({
      ...withModules({ ...NORM_BEHIND, ...HEAD_NORMS, ...SHARED_EXPERTS }),
      whole: { [CHOICE]: 'mlp.gate.e_score_correction_bias' },
    }),
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    // Chunks, temperatures and layers that do not turn are those of the published models, which files do not say.
    name: 'llama4',
    settings: (facts) => {
      const { count, chosen } = expertCounts(facts);
      const router = requireRouter(facts, { isSigmoid: true, isNormalized: false });
      if (router.dense > 0) facts.refuse(`${facts.key('leading_dense_block_count')} is ${router.dense}`);
      const isChunked = facts.metadata.flag(facts.key('expert_swa')) ?? true;
      return {
        ...{ model_type: 'llama4_text', num_local_experts: count, num_experts_per_tok: chosen },
        interleave_moe_layer_step: facts.whole('interleave_moe_layer_step', 1, 1024) ?? 1,
        intermediate_size: width(facts),
        intermediate_size_mlp: facts.alike('feed_forward_length', 1, MOST),
        attention_bias: facts.has('blk.0.attn_q.bias'),
        attention_chunk_size: isChunked ? 8192 : null,
        // Maverick norms no heads.
        use_qk_norm: count !== 128,
      };
    },
    modules: () =>
      withModules({
        ffn_gate: 'feed_forward.gate_proj',
        ffn_up: 'feed_forward.up_proj',
        ffn_down: 'feed_forward.down_proj',
        ffn_gate_inp: 'feed_forward.router',
        ffn_gate_exps: `feed_forward.experts.${EACH}.gate_proj`,
        ffn_up_exps: `feed_forward.experts.${EACH}.up_proj`,
        ffn_down_exps: `feed_forward.experts.${EACH}.down_proj`,
        ffn_gate_shexp: 'feed_forward.shared_expert.gate_proj',
        ffn_up_shexp: 'feed_forward.shared_expert.up_proj',
        ffn_down_shexp: 'feed_forward.shared_expert.down_proj',
      }),
    // Its Hugging Face checkpoints pair neighbours too.
    ways: {},
  },
  {
    name: 'olmoe',
    settings: (facts) => {
      const { count, chosen } = expertCounts(facts);
      requireRouter(facts, { isSigmoid: false, isNormalized: false });
      const own = width(facts);
      return {
        ...{ model_type: 'olmoe', num_experts: count, num_experts_per_tok: chosen, norm_topk_prob: false },
        ...defined({ intermediate_size: own }),
      };
    },
    modules: () => withModules({ ...HEAD_NORMS, ...QWEN_EXPERTS }),
    ways: {},
  },
  {
    name: 'granitemoe',
    settings: (facts, { headDim }) => {
      const { count, chosen } = expertCounts(facts);
      requireRouter(facts, { isSigmoid: false, isNormalized: true });
      const scale = facts.number('attention.scale', 0, 1e6) ?? 0;
      return {
        ...{ model_type: 'granitemoe', num_local_experts: count, num_experts_per_tok: chosen, ...biases(facts) },
        ...defined({ intermediate_size: width(facts) }),
        embedding_multiplier: facts.number('embedding_scale', ...FACTOR) ?? 1,
        residual_multiplier: facts.number('residual_scale', ...FACTOR) ?? 1,
        attention_multiplier: scale === 0 ? 1 / Math.sqrt(headDim) : scale,
        logits_scaling: facts.number('logit_scale', ...FACTOR) ?? 1,
      };
    },
    modules: () =>
      withModules({
        ffn_gate_inp: 'block_sparse_moe.router.layer',
        ffn_gate_exps: `block_sparse_moe.${EACH}.gate_proj`,
        ffn_up_exps: `block_sparse_moe.${EACH}.up_proj`,
        ffn_down_exps: `block_sparse_moe.${EACH}.down_proj`,
      }),
    ways: INTERLEAVED,
  },
  {
    name: 'ernie4_5-moe',
    settings: (facts) => {
      const { count, chosen } = expertCounts(facts);
      const { dense, shared } = requireRouter(facts, { isSigmoid: false, isNormalized: true });
      // A width that converters compute otherwise than the model does.
      facts.whole('expert_shared_feed_forward_length', 0, MOST);
      return {
        ...{ model_type: 'ernie4_5_moe', moe_num_experts: count, moe_k: chosen, moe_num_shared_experts: shared },
        ...{ moe_layer_start_index: dense, moe_intermediate_size: width(facts) },
        moe_layer_interval: facts.whole('interleave_moe_layer_step', 1, 1024) ?? 1,
        use_bias: facts.has('blk.0.attn_q.bias'),
      };
    },
    modules: () => ({
      ...withModules(SHARED_EXPERTS),
      whole: { [CHOICE]: 'mlp.moe_statics.e_score_correction_bias' },
    }),
    ways: {},
  },
  {
    name: 'minimax-m2',
    settings: (facts) => {
      const { count, chosen } = expertCounts(facts);
      requireRouter(facts, { isSigmoid: true, isNormalized: true });
      return {
        ...{ model_type: 'minimax_m2', num_local_experts: count, num_experts_per_tok: chosen },
        ...(window(facts) === null ? {} : facts.refuse(`${facts.key('attention.sliding_window')} is not known here`)),
        intermediate_size: width(facts),
      };
    },
    modules: () => ({
      ...MIXTRAL_MODULES,
      layer: { ...MIXTRAL_MODULES.layer, ...HEAD_NORMS },
      whole: { [CHOICE]: 'block_sparse_moe.e_score_correction_bias' },
    }),
    ways: {},
    partKey: 'partial_rotary_factor',
  },
];
