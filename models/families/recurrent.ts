/** Families whose layers keep a state, all or some of them. */
import { isGiven, isRecord, quote } from '../../system/json.js';
import { type ExpertNames, type ExpertsConfig, QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import type { ConvConfig, DeltaConfig, MambaConfig } from '../decoder/recurrentConfig.js';
import { LLAMA_NAMES, type TensorNames } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

const MAX_HEADS = 1024;
/** Several times those of the largest published model. */
const MAX_WIDTH = 256;
const MAX_TAPS = 8;

/** The layers of kind `kind`; all others are `full_attention`. `fallback`: of a file without `layer_types`. */
function layersOf(read: ConfigReader, kind: string, fallback: (layer: number) => boolean): readonly number[] {
  const types: unknown = read.json['layer_types'];
  const layers = read.layers();
  if (!isGiven(types)) return layers.filter(fallback);
  const known = ['full_attention', kind];
  if (!Array.isArray(types) || types.length !== layers.length || !types.every((type) => known.includes(type as string)))
    read.fail(
      `layer_types: expected a list of ${known.join(' and ')} for ${layers.length} layers, got ${quote(types)}`,
    );
  return layers.filter((layer) => (types as unknown[])[layer] === kind);
}

/** The gated DeltaNet layers of Qwen. */
function deltaNet(read: ConfigReader): DeltaConfig {
  const interval = read.whole('full_attention_interval', 4, [1, 1024]);
  const keyHeads = read.whole('linear_num_key_heads', 16, [1, MAX_HEADS]);
  const valueHeads = read.whole('linear_num_value_heads', 32, [1, MAX_HEADS]);
  if (valueHeads % keyHeads !== 0)
    read.fail(`linear_num_value_heads ${valueHeads} is not a multiple of linear_num_key_heads ${keyHeads}`);
  return {
    kind: 'delta',
    layers: layersOf(read, 'linear_attention', (layer) => (layer + 1) % interval !== 0),
    taps: read.whole('linear_conv_kernel_dim', 4, [2, MAX_TAPS]),
    keyHeads,
    valueHeads,
    keyDim: read.whole('linear_key_head_dim', 128, [1, MAX_WIDTH]),
    valueDim: read.whole('linear_value_head_dim', 128, [1, MAX_WIDTH]),
  };
}

const AROUND_ONE = { kind: 'rms', offset: 1, hasBias: false } as const;

/** What attention layers of both have. Biases of q are those of its gate too. */
const gatedAttention = (read: ConfigReader) =>
  ({ biased: read.attentionBiases(), qkNorm: 'head', norm: AROUND_ONE, isOutputGated: true }) as const;

const LFM2_NAMES: TensorNames = {
  ...LLAMA_NAMES,
  finalNorm: 'model.embedding_norm',
  projections: {
    ...LLAMA_NAMES.projections,
    o: 'self_attn.out_proj',
    gate: 'feed_forward.w1',
    up: 'feed_forward.w3',
    down: 'feed_forward.w2',
  },
  norms: { attention: { before: 'operator_norm' }, ffn: { before: 'ffn_norm' } },
  qkNorms: { q: 'self_attn.q_layernorm', k: 'self_attn.k_layernorm' },
};

/** LFM2's width of feed-forward blocks, which a file may leave to a rule, in the words of others. */
function lfm2(read: ConfigReader): Json {
  const { json } = read;
  // As in transformers, block_ff_dim goes before intermediate_size.
  const stated = isGiven(json['block_ff_dim']) ? 'block_ff_dim' : 'intermediate_size';
  const width = read.whole(stated, 12_288, [1, 1 << 19]);
  if (!read.flag('block_auto_adjust_ff_dim', true)) return { ...json, intermediate_size: width };
  const factor = read.number('block_ffn_dim_multiplier', 1, [1e-3, 1e3]);
  const multiple = read.whole('block_multiple_of', 256, [1, 1 << 16]);
  const scaled = Math.trunc(factor * Math.trunc((2 * width) / 3));
  return { ...json, intermediate_size: multiple * Math.ceil(scaled / multiple) };
}

/** Layers with attention of an old file, which lists them; undefined: all are. */
function fullLayers(read: ConfigReader): readonly number[] {
  const { full_attn_idxs: listed } = read.json;
  if (!isGiven(listed)) return read.layers();
  const isLayer = (each: unknown): each is number => typeof each === 'number' && Number.isInteger(each) && each >= 0;
  if (!Array.isArray(listed) || listed.length > 1024 || !listed.every(isLayer))
    return read.fail(`full_attn_idxs: expected a list of layers, got ${quote(listed, 60)}`);
  return listed;
}

const shortConvolutions = (read: ConfigReader): ConvConfig => ({
  kind: 'conv',
  layers: layersOf(read, 'conv', (layer) => !fullLayers(read).includes(layer)),
  taps: read.whole('conv_L_cache', 3, [2, MAX_TAPS]),
  isBiased: read.flag('conv_bias'),
});

const LFM2_EXPERTS: ExpertNames = {
  ...QWEN_EXPERTS,
  router: 'feed_forward.gate',
  expert: 'feed_forward.experts',
  matrices: { gate: 'w1', up: 'w3', down: 'w2' },
};

/** What dense models and those with experts share. */
const LFM2 = {
  ...{ maxPositions: 128_000, kvHeads: 8, theta: 1e6, isTied: true },
  ...{ epsilonKey: 'norm_eps', epsilon: 1e-5 },
} as const;

function lfm2Experts(read: ConfigReader): ExpertsConfig {
  const own = read.experts({
    count: ['num_experts'],
    width: 'moe_intermediate_size',
    defaults: { count: 32, chosen: 4, width: 1792 },
  });
  const dense = read.whole('num_dense_layers', 2, [0, 1024]);
  const factor = read.number('routed_scaling_factor', 1);
  return {
    ...own,
    isNormalized: read.flag('norm_topk_prob', true),
    routing: {
      scores: 'sigmoid',
      ...(read.flag('use_expert_bias', true) ? { bias: 'feed_forward.expert_bias' } : {}),
      ...(factor === 1 ? {} : { factor }),
    },
    ...(dense === 0 ? {} : { dense: read.layers().filter((layer) => layer < dense) }),
  };
}

const MAMBA_NAMES: TensorNames = {
  ...LLAMA_NAMES,
  embedding: 'backbone.embeddings',
  finalNorm: 'backbone.norm_f',
  layers: 'backbone.layers',
  norms: { attention: { before: 'norm' }, ffn: {} },
};

/** Mamba has neither attention nor feed-forward blocks, and heads of its own. */
const mamba = ({ json }: ConfigReader): Json => ({
  ...json,
  num_attention_heads: json['num_heads'] ?? 128,
  num_key_value_heads: null,
  head_dim: json['head_dim'] ?? 64,
  intermediate_size: 1,
  vocab_size: json['vocab_size'] ?? 32_768,
  hidden_size: json['hidden_size'] ?? 4096,
  num_hidden_layers: json['num_hidden_layers'] ?? 64,
});

/** A number as transformers writes it, which may be infinite. */
const isInfinity = (value: unknown): boolean =>
  value === Infinity || (isRecord(value) && value['__float__'] === 'Infinity') || value === 'Infinity';

function mambaLayers(read: ConfigReader): MambaConfig {
  const heads = read.whole('num_heads', 128, [1, MAX_HEADS]);
  const headDim = read.whole('head_dim', 64, [1, MAX_WIDTH]);
  const groups = read.whole('n_groups', 8, [1, MAX_HEADS]);
  const expand = read.number('expand', 2, [0.01, 64]);
  const hidden = read.whole('hidden_size', 4096, [1, 1 << 16]);
  if (heads % groups !== 0) read.fail(`num_heads ${heads} is not a multiple of n_groups ${groups}`);
  if (Math.trunc(expand * hidden) !== heads * headDim)
    read.fail(`expand ${expand} × hidden_size ${hidden} is not num_heads ${heads} × head_dim ${headDim}`);
  const { time_step_limit: limit } = read.json;
  const bounds: readonly unknown[] = Array.isArray(limit) && limit.length === 2 ? limit : [0, Infinity];
  const [min, max] = bounds;
  const isBound = (value: unknown): value is number => typeof value === 'number' && value >= 0 && value < 1e6;
  if ((isGiven(limit) && !Array.isArray(limit)) || !isBound(min) || !(isInfinity(max) || (isBound(max) && max >= min)))
    return read.fail(`time_step_limit: expected two numbers in ascending order, got ${quote(limit)}`);
  return {
    kind: 'mamba',
    layers: read.layers(),
    taps: read.whole('conv_kernel', 4, [2, MAX_TAPS]),
    heads,
    headDim,
    groups,
    stateSize: read.whole('state_size', 128, [1, MAX_WIDTH]),
    isBiased: read.flag('use_bias'),
    isConvBiased: read.flag('use_conv_bias', true),
    timeStep: isBound(max) ? [min, max] : [min],
  };
}

export const RECURRENT_FAMILIES = [
  // Three layers of gated DeltaNet, then one of gated attention.
  decoderFamily({
    name: 'Qwen3_5ForCausalLM',
    modelType: 'qwen3_5_text',
    covers: 'Qwen 3.5, dense',
    maxPositions: 32_768,
    kvHeads: 4,
    headDim: 256,
    rotaryPart: 0.25,
    differences: (read) => ({ ...gatedAttention(read), recurrent: deltaNet(read) }),
  }),

  // The same with experts, and with another order of rows.
  decoderFamily({
    name: 'Qwen3NextForCausalLM',
    modelType: 'qwen3_next',
    covers: 'Qwen 3 Next',
    maxPositions: 32_768,
    kvHeads: 2,
    headDim: 256,
    rotaryPart: 0.25,
    names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
    differences: (read) => ({
      ...gatedAttention(read),
      recurrent: { ...deltaNet(read), isByHead: true },
      experts: {
        ...read.experts({
          count: ['num_experts'],
          width: 'moe_intermediate_size',
          sharedWidth: 'shared_expert_intermediate_size',
          hasDenseLayers: true,
          defaults: { count: 512, chosen: 10, width: 512, sharedWidth: 512 },
        }),
        isNormalized: read.flag('norm_topk_prob', true),
      },
    }),
  }),

  // Qwen 3.5 with experts in all layers, chosen as those of Qwen 3 Next are.
  decoderFamily({
    name: 'Qwen3_5MoeForCausalLM',
    modelType: 'qwen3_5_moe_text',
    covers: 'Qwen 3.5 with experts: 35B-A3B, 122B-A10B, 397B-A17B',
    maxPositions: 32_768,
    kvHeads: 2,
    headDim: 256,
    rotaryPart: 0.25,
    names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
    // No layer has a block of this width, which files need not give.
    prepare: ({ json }) => ({ ...json, intermediate_size: json['intermediate_size'] ?? 512 }),
    differences: (read) => ({
      ...gatedAttention(read),
      recurrent: deltaNet(read),
      experts: read.experts({
        count: ['num_experts'],
        width: 'moe_intermediate_size',
        sharedWidth: 'shared_expert_intermediate_size',
        defaults: { count: 256, chosen: 8, width: 512, sharedWidth: 512 },
      }),
    }),
  }),

  // Gated short convolutions, and attention in some layers.
  decoderFamily({
    name: 'Lfm2ForCausalLM',
    modelType: 'lfm2',
    covers: 'LFM2, dense',
    ...LFM2,
    names: LFM2_NAMES,
    prepare: lfm2,
    differences: (read) => ({
      biased: [],
      qkNorm: 'head',
      recurrent: shortConvolutions(read),
    }),
  }),

  // The same with experts behind the first layers, chosen by sigmoids. transformers adds 1e-6 to the sum that their
  // weights are divided by.
  decoderFamily({
    name: 'Lfm2MoeForCausalLM',
    modelType: 'lfm2_moe',
    covers: 'LFM2 8B-A1B and 24B-A2B',
    ...LFM2,
    names: { ...LFM2_NAMES, experts: LFM2_EXPERTS },
    differences: (read) => ({
      biased: [],
      qkNorm: 'head',
      recurrent: shortConvolutions(read),
      experts: lfm2Experts(read),
    }),
  }),

  // No attention and no feed-forward blocks. Positions have no bound: longer contexts than this are not asked for.
  decoderFamily({
    name: 'Mamba2ForCausalLM',
    modelType: 'mamba2',
    covers: 'Mamba 2, Codestral Mamba',
    maxPositions: 1 << 20,
    epsilonKey: 'layer_norm_epsilon',
    epsilon: 1e-5,
    names: MAMBA_NAMES,
    prepare: mamba,
    differences: (read) => ({ biased: [], recurrent: mambaLayers(read) }),
  }),
] as const;
