/** What converters of llama.cpp make of the tensors and settings of newer families, by model_type. */
import type { Json } from '../../models/model/model.js';
import type { GgufValue, PlainTensor } from './gguf.js';

export type Names = readonly (readonly [RegExp, string])[];
type Rows = (values: Float64Array, count: number, from: (row: number) => number) => Float64Array;

interface Converter {
  readonly architecture: string;
  /** Before those of LLaMA. A number behind `_exps.`, `_k_b.` or `_v_b.` is the place of a matrix in its tensor. */
  readonly names?: Names;
  /** What a tensor becomes: by default itself. */
  readonly change?: (tensor: PlainTensor, json: Json) => readonly PlainTensor[];
  readonly pairs?: (json: Json, layers: number) => Readonly<Record<string, GgufValue>>;
}

export const u = (value: unknown): GgufValue => ({ u32: value as number });
export const f = (value: unknown): GgufValue => ({ f32: value as number });
const flag = (value: boolean): GgufValue => ({ flag: value });
export const numberOf = (json: Json, key: string): number => json[key] as number;

const POST: Names = [[/post_attention_layernorm/, 'post_attention_norm']];

/** Rows in another order: row i of the result is row `from(i)`. */
const inOrder: Rows = (values, count, from) => {
  const length = values.length / count;
  const out = new Float64Array(values.length);
  for (let row = 0; row < count; row++)
    out.set(values.subarray(from(row) * length, (from(row) + 1) * length), row * length);
  return out;
};

const changed = (tensor: PlainTensor, values: Float64Array, shape = tensor.shape): readonly PlainTensor[] => [
  { ...tensor, values, shape },
];

function transposed({ shape, values }: PlainTensor): Float64Array {
  const [rows = 1, columns = 1] = shape;
  return Float64Array.from(values, (_, i) => values[(i % rows) * columns + Math.floor(i / rows)]!);
}

/** [head of keys, its queries, its key, its value] becomes all queries, all keys, all values. */
function inTurn(tensor: PlainTensor, heads: number, groups: number): readonly PlainTensor[] {
  const each = heads / groups;
  const width = tensor.shape[0]! / (heads + 2 * groups);
  return changed(
    tensor,
    inOrder(tensor.values, tensor.shape[0]!, (row) => {
      const [head, at] = [Math.floor(row / width), row % width];
      const place =
        head < heads
          ? Math.floor(head / each) * (each + 2) + (head % each)
          : ((head - heads) % groups) * (each + 2) + each + Math.floor((head - heads) / groups);
      return place * width + at;
    }),
  );
}

/** Two halves of a head, row by row in turn. */
function byPairs(tensor: PlainTensor, headDim: number): readonly PlainTensor[] {
  return changed(
    tensor,
    inOrder(tensor.values, tensor.shape[0]!, (row) => {
      const at = row % headDim;
      return row - at + (at % 2) * (headDim / 2) + Math.floor(at / 2);
    }),
  );
}

export const headDimOf = (json: Json): number =>
  (json['head_dim'] as number | undefined) ?? numberOf(json, 'hidden_size') / numberOf(json, 'num_attention_heads');

const isLlama = (tensor: PlainTensor, json: Json): readonly PlainTensor[] =>
  /self_attn\.[qk]_proj/.test(tensor.name) ? byPairs(tensor, headDimOf(json)) : [tensor];

const plusOne = (tensor: PlainTensor): readonly PlainTensor[] =>
  changed(
    tensor,
    tensor.values.map((x) => x + 1),
  );

/** Recurrent layers: A for its logarithm, and no dimensions of 1. */
function states(tensor: PlainTensor, isColumn: boolean): readonly PlainTensor[] {
  const { name, shape, values } = tensor;
  const [count = 1] = shape;
  if (name.endsWith('A_log'))
    return changed(
      tensor,
      values.map((x) => -Math.exp(x)),
      isColumn ? [count, 1] : shape,
    );
  if (name.endsWith('mixer.D')) return changed(tensor, values, [count, 1]);
  return name.includes('conv') && shape.length === 3 ? changed(tensor, values, [count, shape[2]!]) : [tensor];
}

const experts = (count: unknown, chosen: unknown, width: unknown): Readonly<Record<string, GgufValue>> => ({
  expert_count: u(count),
  expert_used_count: u(chosen),
  ...(width === undefined ? {} : { expert_feed_forward_length: u(width) }),
});
const SIGMOIDS = { expert_gating_func: u(2) };

/** GLM's own files have queries, keys and values in one tensor, the converted ones of transformers in three. */
const asChatGlm: Converter['change'] = (tensor, { isJoined }) => [
  isJoined === true ? { ...tensor, name: tensor.name.replace(/self_attn\.[qkv]_proj/, 'attn_qkv') } : tensor,
];

const deepseek: Converter = {
  architecture: 'deepseek2',
  names: [
    [/self_attn\.kv_a_proj_with_mqa/, 'attn_kv_a_mqa'],
    [/self_attn\.kv_a_layernorm/, 'attn_kv_a_norm'],
    [/self_attn\.q_a_proj/, 'attn_q_a'],
    [/self_attn\.q_a_layernorm/, 'attn_q_a_norm'],
    [/self_attn\.q_b_proj/, 'attn_q_b'],
    [/self_attn\.([kv])_b_proj\.(\d+)/, 'attn_$1_b.$2'],
  ],
  change: (tensor, json) => {
    if (!tensor.name.includes('kv_b_proj')) return [tensor];
    const [heads, plain, values] = ['num_attention_heads', 'qk_nope_head_dim', 'v_head_dim'].map((key) =>
      numberOf(json, key),
    );
    const rank = tensor.shape[1]!;
    const rowsOf = (from: number, rows: number): Float64Array => tensor.values.slice(from * rank, (from + rows) * rank);
    return Array.from({ length: heads! }, (_, head): readonly PlainTensor[] => {
      const first = head * (plain! + values!);
      const keys = { name: '', shape: [plain!, rank], values: rowsOf(first, plain!) };
      return [
        { name: tensor.name.replace('kv_b_proj', `k_b_proj.${head}`), shape: [rank, plain!], values: transposed(keys) },
        {
          name: tensor.name.replace('kv_b_proj', `v_b_proj.${head}`),
          shape: [values!, rank],
          values: rowsOf(first + plain!, values!),
        },
      ];
    }).flat();
  },
  pairs: (json) => {
    const [rank, turned, plain] = ['kv_lora_rank', 'qk_rope_head_dim', 'qk_nope_head_dim'].map((key) =>
      numberOf(json, key),
    );
    const isV3 = json['model_type'] !== 'deepseek_v2';
    return {
      'attention.head_count_kv': u(1),
      'attention.key_length': u(rank! + turned!),
      'attention.value_length': u(rank),
      'attention.key_length_mla': u(plain! + turned!),
      'attention.value_length_mla': u(json['v_head_dim']),
      'attention.kv_lora_rank': u(rank),
      ...(json['q_lora_rank'] === null ? {} : { 'attention.q_lora_rank': u(json['q_lora_rank']) }),
      'rope.dimension_count': u(turned),
      ...experts(json['n_routed_experts'], json['num_experts_per_tok'], json['moe_intermediate_size']),
      expert_shared_count: u(json['n_shared_experts']),
      leading_dense_block_count: u(json['first_k_dense_replace']),
      expert_weights_scale: f(json['routed_scaling_factor']),
      vocab_size: u(json['vocab_size']),
      ...(isV3 ? { ...SIGMOIDS, expert_weights_norm: flag(true) } : {}),
      ...(json['n_group'] === undefined
        ? {}
        : { expert_group_count: u(json['n_group']), expert_group_used_count: u(json['topk_group']) }),
      ...(json['rope_scaling'] === undefined ? {} : { 'rope.scaling.yarn_log_multiplier': f(0.1) }),
    };
  },
};

const delta = (json: Json): Readonly<Record<string, GgufValue>> => ({
  'ssm.conv_kernel': u(json['linear_conv_kernel_dim']),
  'ssm.state_size': u(json['linear_key_head_dim']),
  'ssm.group_count': u(json['linear_num_key_heads']),
  'ssm.time_step_rank': u(json['linear_num_value_heads']),
  'ssm.inner_size': u(numberOf(json, 'linear_value_head_dim') * numberOf(json, 'linear_num_value_heads')),
  full_attention_interval: u(json['full_attention_interval'] ?? 4),
});

const DELTA_NAMES: Names = [
  ...POST,
  [/linear_attn\.in_proj_qkv\b/, 'attn_qkv'],
  [/linear_attn\.in_proj_z/, 'attn_gate'],
  [/linear_attn\.in_proj_ba/, 'ssm_ba'],
  [/linear_attn\.in_proj_a/, 'ssm_alpha'],
  [/linear_attn\.in_proj_b/, 'ssm_beta'],
  [/linear_attn\.conv1d/, 'ssm_conv1d'],
  [/linear_attn\.dt_bias/, 'ssm_dt.bias'],
  [/linear_attn\.A_log/, 'ssm_a'],
  [/linear_attn\.norm/, 'ssm_norm'],
  [/linear_attn\.out_proj/, 'ssm_out'],
];

/** Value heads [key head, its heads] become [head of those of a key head, key head], wherever they are. */
function valueHeadsInTurn(tensor: PlainTensor, json: Json): PlainTensor {
  const [, part] = /linear_attn\.(\w+)/.exec(tensor.name) ?? [];
  const [keyHeads, heads] = [numberOf(json, 'linear_num_key_heads'), numberOf(json, 'linear_num_value_heads')];
  const [count = 1, columns = 1] = tensor.shape;
  const valueDim = numberOf(json, 'linear_value_head_dim');
  const from =
    (before: number, width: number) =>
    (row: number): number => {
      if (row < before) return row;
      const [head, at] = [Math.floor((row - before) / width), (row - before) % width];
      return before + ((head % keyHeads) * (heads / keyHeads) + Math.floor(head / keyHeads)) * width + at;
    };
  switch (part) {
    case 'in_proj_qkv':
    case 'conv1d':
      return { ...tensor, values: inOrder(tensor.values, count, from(count - heads * valueDim, valueDim)) };
    case 'in_proj_z':
      return { ...tensor, values: inOrder(tensor.values, count, from(0, valueDim)) };
    case 'in_proj_a':
    case 'in_proj_b':
    case 'A_log':
    case 'dt_bias':
      return { ...tensor, values: inOrder(tensor.values, count, from(0, 1)) };
    case 'out_proj': {
      const columnOf = from(0, valueDim);
      const at = (i: number): number => i - (i % columns) + columnOf(i % columns);
      return { ...tensor, values: tensor.values.map((_, i) => tensor.values[at(i)]!) };
    }
    default:
      return tensor;
  }
}

function changedDelta(tensor: PlainTensor, json: Json): readonly PlainTensor[] {
  const { name, shape, values } = tensor;
  if (name.endsWith('norm.weight') && !name.includes('linear_attn')) return plusOne(tensor);
  if (!name.includes('in_proj_qkvz')) return states(tensor, false);
  const [groups, key, heads, value] = [
    'linear_num_key_heads',
    'linear_key_head_dim',
    'linear_num_value_heads',
    'linear_value_head_dim',
  ].map((each) => numberOf(json, each)) as [number, number, number, number];
  const own = (heads / groups) * value;
  const [all, columns] = [2 * key + 2 * own, shape[1]!];
  const rows = (from: number, count: number): readonly number[] =>
    Array.from({ length: groups * count }, (_, i) => Math.floor(i / count) * all + from + (i % count));
  const take = (list: readonly number[]): Float64Array =>
    Float64Array.from(list.flatMap((row) => [...values.subarray(row * columns, (row + 1) * columns)]));
  const [qkv, z] = [[...rows(0, key), ...rows(key, key), ...rows(2 * key, own)], rows(2 * key + own, own)];
  return [
    { name: name.replace('qkvz', 'qkv'), shape: [qkv.length, columns], values: take(qkv) },
    { name: name.replace('qkvz', 'z'), shape: [z.length, columns], values: take(z) },
  ];
}

const LFM2: Converter = {
  architecture: 'lfm2',
  names: [
    [/conv\.(in_proj|out_proj|conv)\./, 'shortconv.$1.'],
    [/feed_forward\.experts\.(\d+)\.w1/, 'ffn_gate_exps.$1'],
    [/feed_forward\.experts\.(\d+)\.w3/, 'ffn_up_exps.$1'],
    [/feed_forward\.experts\.(\d+)\.w2/, 'ffn_down_exps.$1'],
    [/feed_forward\.gate\./, 'ffn_gate_inp.'],
    [/feed_forward\.expert_bias/, 'exp_probs_b.bias'],
    [/feed_forward\.w1/, 'ffn_gate'],
    [/feed_forward\.w3/, 'ffn_up'],
    [/feed_forward\.w2/, 'ffn_down'],
  ],
  change: (tensor) => states(tensor, false),
  pairs: (json) => ({
    'attention.head_count_kv': {
      i32s: (json['layer_types'] as readonly string[]).map((type) =>
        type === 'conv' ? 0 : numberOf(json, 'num_key_value_heads'),
      ),
    },
    'attention.layer_norm_rms_epsilon': f(json['norm_eps']),
    'shortconv.l_cache': u(json['conv_L_cache']),
    vocab_size: u(json['vocab_size']),
  }),
};

const GPT: Readonly<Record<string, GgufValue>> = { 'attention.layer_norm_epsilon': f(1e-5) };

/** By model_type. */
export const CONVERTERS: Readonly<Record<string, Converter>> = {
  gpt2: {
    architecture: 'gpt2',
    change: (tensor) =>
      /\.h\.\d+\.(?:attn|mlp)\..*weight$/.test(tensor.name)
        ? changed(tensor, transposed(tensor), [...tensor.shape].reverse())
        : [tensor],
    pairs: () => GPT,
  },
  starcoder2: { architecture: 'starcoder2', pairs: () => GPT },
  phi: { architecture: 'phi2', pairs: () => GPT },
  nemotron: {
    architecture: 'nemotron',
    change: (tensor) => (tensor.name.endsWith('norm.weight') ? plusOne(tensor) : [tensor]),
    pairs: () => GPT,
  },
  seed_oss: { architecture: 'seed_oss', names: POST },
  arcee: { architecture: 'arcee', change: isLlama },
  apertus: {
    architecture: 'apertus',
    change: (tensor) => (tensor.name.includes('act_fn') ? [] : [tensor]),
  },
  ernie4_5: { architecture: 'ernie4_5' },
  hunyuan_v1_dense: {
    architecture: 'hunyuan-dense',
    pairs: (json) => {
      const { rope_scaling: scaling } = json;
      const { alpha } = scaling as { readonly alpha: number };
      const width = headDimOf(json);
      return {
        'rope.freq_base': f(numberOf(json, 'rope_theta') * alpha ** (width / (width - 2))),
        'rope.scaling.type': { text: 'none' },
        'rope.scaling.factor': f(1),
      };
    },
  },
  exaone4: {
    architecture: 'exaone4',
    names: [...POST, [/post_feedforward_layernorm/, 'post_ffw_norm']],
    pairs: (json, layers) => ({
      'attention.sliding_window': u(json['sliding_window']),
      'attention.sliding_window_pattern': { flags: Array.from({ length: layers }, (_, i) => (i + 1) % 4 !== 0) },
    }),
  },
  cohere: {
    architecture: 'command-r',
    pairs: (json) => ({ ...GPT, logit_scale: f(json['logit_scale']), 'rope.scaling.type': { text: 'none' } }),
  },
  glm4: {
    architecture: 'glm4',
    names: [
      [/post_self_attn_layernorm/, 'post_attention_norm'],
      [/post_mlp_layernorm/, 'post_ffw_norm'],
    ],
  },
  glm: { architecture: 'chatglm', change: asChatGlm },
  olmo: { architecture: 'olmo', change: isLlama, pairs: () => ({ 'attention.clamp_kqv': f(4) }) },
  bloom: {
    architecture: 'bloom',
    change: (tensor, json) =>
      tensor.name.includes('query_key_value')
        ? inTurn(tensor, numberOf(json, 'num_attention_heads'), numberOf(json, 'num_attention_heads'))
        : [tensor],
    pairs: () => GPT,
  },
  mpt: { architecture: 'mpt', pairs: () => ({ ...GPT, 'attention.max_alibi_bias': f(8) }) },
  falcon: {
    architecture: 'falcon',
    names: [
      [/\.ln_mlp\./, '.attn_norm.'],
      [/\.ln_attn\./, '.attn_norm_2.'],
    ],
    change: (tensor, json) =>
      tensor.name.includes('query_key_value')
        ? inTurn(tensor, numberOf(json, 'num_attention_heads'), (json['num_kv_heads'] as number | undefined) ?? 1)
        : [tensor],
    pairs: (json) => ({
      ...GPT,
      tensor_data_layout: { text: 'jploski' },
      'attention.head_count_kv': u(json['num_kv_heads'] ?? 1),
    }),
  },
  gpt_oss: {
    architecture: 'gpt-oss',
    names: [
      ...POST,
      [/self_attn\.sinks/, 'attn_sinks.weight'],
      [/mlp\.router/, 'ffn_gate_inp'],
      [/mlp\.experts\.(gate|up|down)_proj\.bias/, 'ffn_$1_exps.bias'],
    ],
    pairs: (json) => ({
      ...experts(json['num_local_experts'], json['num_experts_per_tok'], json['intermediate_size']),
      'attention.sliding_window': u(json['sliding_window']),
    }),
  },
  deepseek_v2: deepseek,
  deepseek_v3: deepseek,
  glm4_moe: {
    architecture: 'glm4moe',
    names: POST,
    pairs: (json) => ({
      ...experts(json['n_routed_experts'], json['num_experts_per_tok'], json['moe_intermediate_size']),
      ...{ ...SIGMOIDS, expert_weights_norm: flag(true), expert_shared_count: u(json['n_shared_experts']) },
      leading_dense_block_count: u(json['first_k_dense_replace']),
      expert_weights_scale: f(json['routed_scaling_factor']),
      nextn_predict_layers: u(1),
    }),
  },
  llama4_text: {
    architecture: 'llama4',
    names: [
      [/feed_forward\.router/, 'ffn_gate_inp'],
      [/feed_forward\.experts\.(\d+)\.(gate|up|down)_proj/, 'ffn_$2_exps.$1'],
      [/feed_forward\.shared_expert\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
    ],
    pairs: (json) => ({
      ...experts(json['num_local_experts'], json['num_experts_per_tok'], json['intermediate_size']),
      feed_forward_length: u(json['intermediate_size_mlp']),
      interleave_moe_layer_step: u(json['interleave_moe_layer_step']),
      vocab_size: u(json['vocab_size']),
    }),
  },
  olmoe: {
    architecture: 'olmoe',
    pairs: (json) => experts(json['num_experts'], json['num_experts_per_tok'], undefined),
  },
  granitemoe: {
    architecture: 'granitemoe',
    names: [
      [/block_sparse_moe\.router\.layer/, 'ffn_gate_inp'],
      [/block_sparse_moe\.(\d+)\.(gate|up|down)_proj/, 'ffn_$2_exps.$1'],
    ],
    change: isLlama,
    pairs: (json) => ({
      ...experts(json['num_local_experts'], json['num_experts_per_tok'], undefined),
      embedding_scale: f(json['embedding_multiplier']),
      residual_scale: f(json['residual_multiplier']),
      'attention.scale': f(json['attention_multiplier']),
      logit_scale: f(json['logits_scaling']),
    }),
  },
  ernie4_5_moe: {
    architecture: 'ernie4_5-moe',
    names: [[/mlp\.moe_statics\.e_score_correction_bias/, 'exp_probs_b.bias']],
    change: (tensor) =>
      tensor.name.includes('moe_statics') ? changed(tensor, tensor.values, [tensor.values.length]) : [tensor],
    pairs: (json) => ({
      ...experts(json['moe_num_experts'], json['moe_k'], json['moe_intermediate_size']),
      interleave_moe_layer_step: u(1),
      leading_dense_block_count: u(json['moe_layer_start_index']),
      expert_shared_count: u(json['moe_num_shared_experts']),
      expert_shared_feed_forward_length: u(24),
    }),
  },
  minimax_m2: {
    architecture: 'minimax-m2',
    names: [
      [/block_sparse_moe\.gate\./, 'ffn_gate_inp.'],
      [/block_sparse_moe\.e_score_correction_bias/, 'exp_probs_b.bias'],
      [/block_sparse_moe\.experts\.(\d+)\.w1/, 'ffn_gate_exps.$1'],
      [/block_sparse_moe\.experts\.(\d+)\.w3/, 'ffn_up_exps.$1'],
      [/block_sparse_moe\.experts\.(\d+)\.w2/, 'ffn_down_exps.$1'],
    ],
    pairs: (json) => ({
      ...experts(json['num_local_experts'], json['num_experts_per_tok'], json['intermediate_size']),
      ...SIGMOIDS,
      'rope.dimension_count': u(json['rotary_dim']),
    }),
  },
  qwen3_next: {
    architecture: 'qwen3next',
    names: DELTA_NAMES,
    change: changedDelta,
    pairs: (json) => ({
      ...delta(json),
      ...experts(json['num_experts'], json['num_experts_per_tok'], json['moe_intermediate_size']),
      expert_shared_feed_forward_length: u(json['shared_expert_intermediate_size']),
    }),
  },
  qwen3_5_text: {
    architecture: 'qwen35',
    names: DELTA_NAMES,
    change: (tensor, json) => changedDelta(valueHeadsInTurn(tensor, json), json),
    pairs: delta,
  },
  lfm2: LFM2,
  lfm2_moe: {
    ...LFM2,
    architecture: 'lfm2moe',
    pairs: (json, layers) => ({
      ...LFM2.pairs!(json, layers),
      ...experts(json['num_experts'], json['num_experts_per_tok'], json['moe_intermediate_size']),
      ...SIGMOIDS,
      leading_dense_block_count: u(json['num_dense_layers']),
    }),
  },
  mamba2: {
    architecture: 'mamba2',
    names: [
      [/mixer\.in_proj/, 'ssm_in'],
      [/mixer\.out_proj/, 'ssm_out'],
      [/mixer\.conv1d/, 'ssm_conv1d'],
      [/mixer\.dt_bias/, 'ssm_dt.bias'],
      [/mixer\.A_log/, 'ssm_a'],
      [/mixer\.D/, 'ssm_d'],
      [/mixer\.norm/, 'ssm_norm'],
      [/(blk|layers)\.(\d+)\.norm\./, '$1.$2.attn_norm.'],
    ],
    change: (tensor, json) => {
      const groups = numberOf(json, 'n_groups');
      const { name, shape, values } = tensor;
      if (name.endsWith('mixer.norm.weight')) return changed(tensor, values, [groups, shape[0]! / groups]);
      return states(tensor, true);
    },
    pairs: (json) => ({
      'attention.head_count': u(0),
      feed_forward_length: u(0),
      'attention.layer_norm_rms_epsilon': f(json['layer_norm_epsilon']),
      'ssm.conv_kernel': u(json['conv_kernel']),
      'ssm.inner_size': u(numberOf(json, 'num_heads') * numberOf(json, 'head_dim')),
      'ssm.state_size': u(json['state_size']),
      'ssm.time_step_rank': u(json['num_heads']),
      'ssm.group_count': u(json['n_groups']),
    }),
  },
};
