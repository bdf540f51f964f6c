/** Random configurations of every family, as config.json has them. */
import type { Json } from '../../models/model/model.js';
import { Dice } from './dice.js';

export { Dice } from './dice.js';

interface Sizes {
  readonly layers: number;
  readonly heads: number;
  readonly headDim: number;
}

/** What a family adds to the sizes that all have. */
type Own = (dice: Dice, sizes: Sizes) => Json;

const kinds = (dice: Dice, layers: number): readonly string[] =>
  Array.from({ length: layers }, () => (dice.chance(0.5) ? 'sliding_attention' : 'full_attention'));

const some = (dice: Dice, key: string, value: unknown, part = 0.5): Json => (dice.chance(part) ? { [key]: value } : {});

/** A number of experts and of those that a token takes: from 1 of 1 to 8 of 64. */
function expertCounts(dice: Dice): { readonly count: number; readonly chosen: number } {
  const count = dice.pick([1, 2, 3, 4, 5, 8, 13, 16, 40, 64]);
  return { count, chosen: Math.min(count, dice.pick([1, 2, 3, 4, 8])) };
}

const qwenExperts: Own = (dice, { layers }) => {
  const { count, chosen } = expertCounts(dice);
  return {
    [dice.pick(['num_experts', 'num_local_experts'])]: count,
    num_experts_per_tok: chosen,
    moe_intermediate_size: dice.pick([8, 20, 33, 48]),
    norm_topk_prob: dice.chance(0.5),
    decoder_sparse_step: dice.pick([1, 1, 2]),
    mlp_only_layers: dice.chance(0.3) ? [dice.whole(0, layers - 1)] : [],
  };
};

const qwenWindow: Own = (dice, { layers }) =>
  dice.chance(0.5)
    ? {
        use_sliding_window: true,
        sliding_window: dice.whole(1, 9),
        max_window_layers: dice.whole(0, layers),
        ...some(dice, 'layer_types', kinds(dice, layers), 0.3),
      }
    : {};

/** A part of heads of this width that leaves whole pairs to be turned. */
const part = (dice: Dice, headDim: number): number =>
  dice.pick([0.25, 0.5, 0.75, 1].filter((each) => headDim * each >= 2 && (headDim * each) % 2 === 0));

/** Some layers of kind `kind`, said layer by layer, or left to what the family does without. */
const mixed = (dice: Dice, layers: number, kind: string): Json => {
  const types = Array.from({ length: layers }, () => (dice.chance(0.6) ? kind : 'full_attention'));
  return some(dice, 'layer_types', types, 0.8);
};

/** Latent attention, whose heads are all alike. */
const latent: Own = (dice, { layers, heads }) => ({
  num_key_value_heads: heads,
  head_dim: null,
  // Not a sum of heads' widths.
  hidden_size: dice.pick([16, 24, 40, 48, 72, 100]),
  q_lora_rank: dice.pick([null, 8, 20, 33]),
  kv_lora_rank: dice.pick([4, 12, 32, 45]),
  qk_nope_head_dim: dice.pick([3, 8, 16, 24]),
  qk_rope_head_dim: dice.pick([2, 6, 8, 16]),
  v_head_dim: dice.pick([5, 8, 16, 24]),
  attention_bias: dice.chance(0.3),
  moe_intermediate_size: dice.pick([8, 20, 33, 48]),
  n_shared_experts: dice.whole(0, 2),
  routed_scaling_factor: dice.pick([1, 2.5]),
  first_k_dense_replace: dice.whole(0, Math.max(0, layers - 1)),
});

/** Experts in groups of at least two. */
const grouped = (dice: Dice): Json =>
  dice.pick<Json>([
    { n_routed_experts: 8, num_experts_per_tok: 3, n_group: 1, topk_group: 1 },
    { n_routed_experts: 12, num_experts_per_tok: 4, n_group: 3, topk_group: 2 },
    { n_routed_experts: 16, num_experts_per_tok: 4, n_group: 4, topk_group: 2 },
    { n_routed_experts: 64, num_experts_per_tok: 8, n_group: 8, topk_group: 3 },
  ]);

const deltaNet: Own = (dice, { layers, headDim }) => {
  const keyHeads = dice.pick([1, 2, 3]);
  return {
    linear_num_key_heads: keyHeads,
    linear_num_value_heads: keyHeads * dice.pick([1, 2, 4]),
    linear_key_head_dim: dice.pick([4, 7, 16, 24]),
    linear_value_head_dim: dice.pick([4, 9, 16, 32]),
    linear_conv_kernel_dim: dice.whole(2, 5),
    attention_bias: dice.chance(0.3),
    partial_rotary_factor: part(dice, headDim),
    tie_word_embeddings: dice.chance(0.3),
    ...mixed(dice, layers, 'linear_attention'),
  };
};

const FAMILIES: Readonly<Record<string, Own>> = {
  llama: (dice) => ({
    attention_bias: dice.chance(0.4),
    mlp_bias: dice.chance(0.4),
    tie_word_embeddings: dice.chance(0.4),
  }),
  mistral: (dice) => ({ sliding_window: dice.chance(0.7) ? dice.whole(1, 9) : null }),
  qwen2: (dice, sizes) => ({ tie_word_embeddings: dice.chance(0.5), ...qwenWindow(dice, sizes) }),
  qwen3: (dice, sizes) => ({
    tie_word_embeddings: dice.chance(0.5),
    attention_bias: dice.chance(0.3),
    ...qwenWindow(dice, sizes),
  }),
  olmo: (dice) => ({
    ...{ clip_qkv: dice.pick([null, 0.5, 4]), attention_bias: dice.chance(0.3), tie_word_embeddings: dice.chance(0.3) },
  }),
  olmo2: (dice) => ({ tie_word_embeddings: dice.chance(0.3) }),
  olmo3: (dice, { layers }) => ({ sliding_window: dice.whole(1, 9), layer_types: kinds(dice, layers) }),
  phi3: (dice, { headDim }) => ({
    partial_rotary_factor: part(dice, headDim),
    sliding_window: dice.chance(0.5) ? dice.whole(1, 9) : null,
    head_dim: null,
  }),
  granite: (dice) => ({
    embedding_multiplier: dice.pick([1, 12]),
    residual_multiplier: dice.pick([1, 0.22]),
    attention_multiplier: dice.pick([0.1, 0.25]),
    logits_scaling: dice.pick([1, 8]),
    tie_word_embeddings: dice.chance(0.5),
  }),
  smollm3: (dice, { layers }) => ({
    no_rope_layers: Array.from({ length: layers }, () => dice.whole(0, 1)),
    tie_word_embeddings: dice.chance(0.5),
  }),
  stablelm: (dice, { headDim }) => ({
    partial_rotary_factor: part(dice, headDim),
    use_qkv_bias: dice.chance(0.5),
    use_parallel_residual: dice.chance(0.3),
    qk_layernorm: dice.chance(0.5),
    head_dim: null,
  }),
  starcoder2: (dice) => ({
    tie_word_embeddings: dice.chance(0.5),
    sliding_window: dice.chance(0.5) ? dice.whole(1, 9) : null,
    use_bias: dice.chance(0.7),
  }),
  phi: (dice, { headDim }) => ({
    partial_rotary_factor: part(dice, headDim),
    qk_layernorm: dice.chance(0.5),
    tie_word_embeddings: dice.chance(0.3),
  }),
  gpt_neox: (dice, { headDim, heads }) => ({
    rotary_pct: part(dice, headDim),
    use_parallel_residual: dice.chance(0.7),
    attention_bias: dice.chance(0.7),
    head_dim: null,
    num_key_value_heads: heads,
    hidden_act: dice.pick(['gelu', 'gelu_new', 'gelu_fast']),
  }),
  gemma: () => ({ tie_word_embeddings: true }),
  gemma2: (dice) => ({
    tie_word_embeddings: true,
    sliding_window: dice.whole(1, 9),
    query_pre_attn_scalar: dice.pick([16, 24]),
    attn_logit_softcapping: dice.pick([null, 5, 50]),
    final_logit_softcapping: dice.pick([null, 5, 30]),
  }),
  gemma3_text: (dice) => ({
    tie_word_embeddings: true,
    sliding_window: dice.whole(1, 9),
    sliding_window_pattern: dice.pick([2, 3, 6]),
    query_pre_attn_scalar: dice.pick([16, 24]),
    rope_local_base_freq: dice.pick([5000, 10_000]),
  }),
  cohere2: (dice) => ({
    tie_word_embeddings: true,
    sliding_window: dice.whole(1, 9),
    sliding_window_pattern: dice.pick([2, 4]),
    logit_scale: dice.pick([0.25, 1]),
  }),
  mixtral: (dice) => {
    const { count, chosen } = expertCounts(dice);
    const window = some(dice, 'sliding_window', dice.whole(1, 9), 0.3);
    return { num_local_experts: count, num_experts_per_tok: chosen, ...window };
  },
  qwen2_moe: (dice, sizes) => ({
    ...qwenExperts(dice, sizes),
    ...qwenWindow(dice, sizes),
    shared_expert_intermediate_size: dice.pick([12, 40, 64]),
    qkv_bias: dice.chance(0.7),
    head_dim: null,
  }),
  qwen3_moe: (dice, sizes) => ({ ...qwenExperts(dice, sizes), ...qwenWindow(dice, sizes) }),
  seed_oss: (dice) => ({
    attention_bias: dice.chance(0.7),
    attention_out_bias: dice.chance(0.5),
    mlp_bias: dice.chance(0.3),
  }),
  arcee: (dice) => ({ attention_bias: dice.chance(0.3), mlp_bias: dice.chance(0.5) }),
  ernie4_5: (dice) => ({ use_bias: dice.chance(0.5), tie_word_embeddings: dice.chance(0.5) }),
  hunyuan_v1_dense: (dice) => ({ attention_bias: dice.chance(0.3), tie_word_embeddings: dice.chance(0.5) }),
  glm: (dice, { headDim }) => ({ attention_bias: dice.chance(0.5), partial_rotary_factor: part(dice, headDim) }),
  glm4: (dice, { headDim }) => ({ attention_bias: dice.chance(0.5), partial_rotary_factor: part(dice, headDim) }),
  cohere: (dice) => ({
    attention_bias: dice.chance(0.3),
    use_qk_norm: dice.chance(0.5),
    logit_scale: dice.pick([0.25, 1]),
    tie_word_embeddings: dice.chance(0.7),
  }),
  nemotron: (dice, { headDim }) => ({
    attention_bias: dice.chance(0.3),
    mlp_bias: dice.chance(0.3),
    partial_rotary_factor: part(dice, headDim),
  }),
  falcon: (dice, { heads }) => ({
    head_dim: null,
    bias: dice.chance(0.5),
    ffn_hidden_size: dice.pick([17, 32, 96]),
    ...dice.pick<Json>([
      { multi_query: true },
      { multi_query: false, parallel_attn: false },
      { multi_query: false, parallel_attn: false, alibi: true },
      { alibi: true },
      { new_decoder_architecture: true, num_kv_heads: heads % 2 === 0 ? heads / 2 : heads },
      { new_decoder_architecture: true, num_kv_heads: 1, num_ln_in_parallel_attn: 1 },
    ]),
  }),
  olmoe: (dice) => {
    const { count, chosen } = expertCounts(dice);
    return {
      ...{ num_experts: count, num_experts_per_tok: chosen, norm_topk_prob: dice.chance(0.5) },
      clip_qkv: dice.pick([null, 0.5, 4]),
    };
  },
  granitemoe: (dice) => {
    const { count, chosen } = expertCounts(dice);
    const factors = {
      embedding_multiplier: 12,
      residual_multiplier: 0.22,
      attention_multiplier: 0.25,
      logits_scaling: 8,
    };
    return { num_local_experts: count, num_experts_per_tok: chosen, ...(dice.chance(0.7) ? factors : {}) };
  },
  glm4_moe: (dice, { headDim }) => ({
    ...dice.pick<Json>([
      { n_routed_experts: 8, num_experts_per_tok: 2 },
      { n_routed_experts: 16, num_experts_per_tok: 4, n_group: 4, topk_group: 2 },
    ]),
    n_shared_experts: dice.whole(0, 2),
    moe_intermediate_size: dice.pick([8, 20, 48]),
    routed_scaling_factor: dice.pick([1, 1.5]),
    norm_topk_prob: dice.chance(0.7),
    use_qk_norm: dice.chance(0.5),
    attention_bias: dice.chance(0.5),
    partial_rotary_factor: part(dice, headDim),
  }),
  minimax_m2: (dice, { headDim }) => {
    const { count, chosen } = expertCounts(dice);
    return {
      num_local_experts: count,
      num_experts_per_tok: chosen,
      rotary_dim: headDim * part(dice, headDim),
    };
  },
  ministral3: (dice) => ({
    sliding_window: dice.chance(0.3) ? dice.whole(1, 9) : null,
    rope_theta: null,
    rope_parameters: {
      rope_type: 'default',
      rope_theta: 500,
      original_max_position_embeddings: dice.whole(2, 5),
      llama_4_scaling_beta: dice.pick([0.1, 0.5]),
    },
  }),
  gpt2: (dice) => ({
    head_dim: null,
    n_inner: dice.pick([null, 17, 40]),
    scale_attn_weights: dice.chance(0.7),
    scale_attn_by_inverse_layer_idx: dice.chance(0.3),
  }),
  opt: (dice) => ({
    head_dim: null,
    ffn_dim: dice.pick([17, 56, 96]),
    enable_bias: dice.chance(0.7),
    activation_function: dice.pick(['relu', 'gelu']),
    ...{ do_layer_norm_before: dice.chance(0.6), layer_norm_elementwise_affine: dice.chance(0.8) },
    word_embed_proj_dim: dice.pick([null, null, 16, 24]),
    _remove_final_layer_norm: dice.chance(0.3),
  }),
  llama4_text: (dice, { layers }) => ({
    ...dice.pick<Json>([
      { num_local_experts: 1, num_experts_per_tok: 1 },
      { num_local_experts: 8, num_experts_per_tok: 1 },
      { num_local_experts: 4, num_experts_per_tok: 2 },
      { num_local_experts: 8, num_experts_per_tok: 3 },
    ]),
    attention_chunk_size: dice.whole(2, 9),
    floor_scale: dice.whole(2, 5),
    no_rope_layers: Array.from({ length: layers }, () => dice.whole(0, 1)),
    interleave_moe_layer_step: dice.pick([1, 2]),
    intermediate_size_mlp: dice.pick([17, 40]),
  }),
  bloom: (dice) => ({ head_dim: null, apply_residual_connection_post_layernorm: dice.chance(0.3) }),
  mpt: (dice, { layers, heads, headDim }) => ({
    head_dim: null,
    d_model: heads * headDim,
    n_layers: layers,
    n_heads: heads,
    attn_config: {
      clip_qkv: dice.pick([null, 0.5, 4]),
      softmax_scale: dice.pick([null, 0.3]),
      alibi_bias_max: dice.pick([8, 16]),
    },
  }),
  apertus: (dice) => ({
    attention_bias: dice.chance(0.3),
    tie_word_embeddings: dice.chance(0.5),
    rope_scaling: null,
  }),
  exaone4: (dice, { layers }) => ({
    sliding_window: dice.chance(0.7) ? dice.whole(1, 9) : null,
    layer_types: kinds(dice, layers),
  }),
  deepseek_v2: (dice, sizes) => {
    const inGroups = dice.chance(0.5);
    const { count, chosen } = expertCounts(dice);
    return {
      ...latent(dice, sizes),
      topk_method: inGroups ? 'group_limited_greedy' : 'greedy',
      ...(inGroups ? grouped(dice) : { n_routed_experts: count, num_experts_per_tok: chosen }),
    };
  },
  deepseek_v3: (dice, sizes) => ({
    ...latent(dice, sizes),
    ...grouped(dice),
    norm_topk_prob: dice.chance(0.7),
    rope_interleave: dice.chance(0.7),
  }),
  glm4_moe_lite: (dice, sizes) => ({
    ...latent(dice, sizes),
    ...grouped(dice),
    norm_topk_prob: dice.chance(0.7),
    mlp_layer_types: Array.from({ length: sizes.layers }, () => dice.pick(['dense', 'sparse'])),
  }),
  gpt_oss: (dice, { layers }) => {
    const { count, chosen } = expertCounts(dice);
    return {
      num_local_experts: count,
      num_experts_per_tok: chosen,
      attention_bias: dice.chance(0.7),
      sliding_window: dice.whole(1, 9),
      swiglu_limit: dice.pick([0.5, 7]),
      ...some(dice, 'layer_types', kinds(dice, layers)),
    };
  },
  qwen3_5_text: deltaNet,
  qwen3_next: (dice, sizes) => {
    const { count, chosen } = expertCounts(dice);
    return {
      ...deltaNet(dice, sizes),
      ...qwenExperts(dice, sizes),
      num_experts: count,
      num_experts_per_tok: chosen,
      shared_expert_intermediate_size: dice.pick([12, 40, 64]),
    };
  },
  qwen3_5_moe_text: (dice, sizes) => {
    const { count, chosen } = expertCounts(dice);
    return {
      ...deltaNet(dice, sizes),
      num_experts: count,
      num_experts_per_tok: chosen,
      moe_intermediate_size: dice.pick([8, 20, 33, 48]),
      shared_expert_intermediate_size: dice.pick([12, 40, 64]),
    };
  },
  ernie4_5_moe: (dice) => {
    const { count, chosen } = expertCounts(dice);
    return {
      moe_num_experts: count,
      moe_k: chosen,
      moe_intermediate_size: dice.pick([8, 20, 33, 48]),
      moe_num_shared_experts: dice.whole(0, 2),
      ...{ moe_layer_start_index: dice.whole(0, 1), use_bias: dice.chance(0.4) },
    };
  },
  lfm2_moe: (dice, { layers }) => {
    const { count, chosen } = expertCounts(dice);
    return {
      head_dim: null,
      conv_L_cache: dice.whole(2, 5),
      conv_bias: dice.chance(0.5),
      ...mixed(dice, layers, 'conv'),
      num_experts: count,
      num_experts_per_tok: chosen,
      moe_intermediate_size: dice.pick([8, 20, 33, 48]),
      num_dense_layers: dice.whole(0, 1),
      routed_scaling_factor: dice.pick([1, 2.5]),
      use_expert_bias: dice.chance(0.7),
      norm_topk_prob: dice.chance(0.7),
    };
  },
  lfm2: (dice, { layers }) => ({
    head_dim: null,
    conv_L_cache: dice.whole(2, 5),
    conv_bias: dice.chance(0.5),
    block_auto_adjust_ff_dim: dice.chance(0.5),
    block_multiple_of: dice.pick([1, 16, 24]),
    ...dice.pick<Json>([
      mixed(dice, layers, 'conv'),
      { full_attn_idxs: Array.from({ length: layers }, (_, layer) => layer).filter(() => dice.chance(0.5)) },
    ]),
  }),
  phimoe: (dice, { headDim }) => ({
    num_local_experts: dice.pick([2, 3, 8, 16, 40]),
    num_experts_per_tok: 2,
    router_jitter_noise: dice.pick([0.01, 0.1, 0.4]),
    ...{ attention_bias: dice.chance(0.6), lm_head_bias: dice.chance(0.6) },
    ...(dice.chance(0.5)
      ? {
          ...{ rope_parameters: null, rope_theta: 500 },
          rope_scaling: {
            ...{ type: 'longrope', original_max_position_embeddings: 64, short_mscale: 1.2, long_mscale: 1.3 },
            short_factor: Array.from({ length: headDim / 2 }, (_, pair) => 1 + pair / 8),
          },
        }
      : {}),
  }),
  mamba2: (dice) => {
    const groups = dice.pick([1, 2, 3]);
    const [heads, headDim, expand] = [groups * dice.pick([2, 4]), dice.pick([4, 8, 16]), dice.pick([1, 2])];
    return {
      num_heads: heads,
      head_dim: headDim,
      n_groups: groups,
      expand,
      hidden_size: (heads * headDim) / expand,
      state_size: dice.pick([1, 5, 16, 40]),
      conv_kernel: dice.whole(2, 5),
      use_bias: dice.chance(0.3),
      use_conv_bias: dice.chance(0.7),
      time_step_limit: dice.pick([
        [0, Infinity],
        [0.1, 0.9],
      ]),
    };
  },
};

export const FAMILY_TYPES: readonly string[] = Object.keys(FAMILIES);

/** As TYPICAL_PLACES: of FAMILY_TYPES. */
export const TYPICAL_TYPES: readonly number[] = [
  'llama',
  'qwen2',
  'qwen3',
  'olmo3',
  'phi3',
  'granite',
  'smollm3',
  'stablelm',
  'gpt_neox',
  'gemma3_text',
  'cohere2',
  'mixtral',
  'qwen2_moe',
  'hunyuan_v1_dense',
  'glm4',
  'falcon',
  'gpt2',
].map((type) => FAMILY_TYPES.indexOf(type));

/** A small model of the family `type`: head widths, ratios, vocabularies and depths that a large one may have. */
export function randomFamily(type: string, seed: number): Json {
  const dice = new Dice(seed * 7919 + FAMILY_TYPES.indexOf(type) + 1);
  const kvHeads = dice.pick([1, 1, 2, 3]);
  const heads = kvHeads * dice.pick([1, 2, 3, 7]);
  const headDim = dice.pick([8, 12, 16, 24, 32, 40]);
  const own = FAMILIES[type]!(dice, { layers: 0, heads, headDim });
  const isWhole = own['head_dim'] === null;
  const layers = dice.whole(1, 3);
  const theta = dice.pick([500, 10_000, 1_000_000]);
  return {
    model_type: type,
    dtype: 'bfloat16',
    hidden_size: isWhole ? heads * headDim : dice.pick([16, 24, 40, 48, 72, 100]),
    intermediate_size: dice.pick([17, 32, 56, 96]),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    vocab_size: dice.pick([97, 150, 257, 600, 1001]),
    max_position_embeddings: 64,
    ...(dice.chance(0.5) || type === 'gemma3_text'
      ? { rope_theta: theta }
      : { rope_parameters: { rope_theta: theta, rope_type: 'default' } }),
    ...FAMILIES[type]!(dice, { layers, heads, headDim }),
  };
}
