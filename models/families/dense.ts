/** Families of LLaMA's kind that differ in a few keys: where biases are, how heads turn, where norms lie. */
import { isGiven, isRecord, quote } from '../../system/json.js';
import { decoderFamily, type DecoderFamily } from '../decoder/family.js';
import type { ConfigReader, Projection } from '../decoder/reader.js';
import { LLAMA_NAMES, NAMES_WITH_NORMS_BEHIND, type TensorNames } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

const APERTUS_THETA = 12_000_000;

/** One layer of EXAONE 4 in this many has no window, if a file does not say. */
const PATTERN = 4;

const flagged = (read: ConfigReader, key: string, projections: readonly Projection[], fallback = false) =>
  read.flag(key, fallback) ? projections : [];

/**
 * Hunyuan's `dynamic` with an alpha: a fixed base θ·α^(d/(d − 2)), whatever the length of a text is. Other types that
 * multiply cosine and sine would change the length of heads, which are normed behind them.
 */
function alphaBase(read: ConfigReader): Json {
  const { json } = read;
  const scale = (key: 'rope_parameters' | 'rope_scaling'): unknown => {
    const stated = json[key];
    if (!isRecord(stated)) return stated;
    const type = stated['rope_type'] ?? stated['type'] ?? 'default';
    if (type === 'yarn' || type === 'longrope')
      read.fail(`${key}: rope type ${quote(type)} is not supported where heads are normed behind rotary embedding`);
    const { alpha } = stated;
    if (type !== 'dynamic' || !isGiven(alpha) || alpha === 0) return stated;
    const { hidden_size: hidden, num_attention_heads: heads, head_dim: given } = json;
    const width = Number(given ?? Number(hidden) / Number(heads));
    if (typeof alpha !== 'number' || !(alpha >= 1e-6 && alpha <= 1e6))
      return read.fail(`${key}.alpha: expected a number from 0.000001 to 1000000, got ${quote(alpha)}`);
    if (!(width > 2)) return read.fail(`${key}.alpha: expected heads of more than 2 elements, got ${quote(width)}`);
    const theta = stated['rope_theta'] ?? json['rope_theta'] ?? 10_000;
    if (typeof theta !== 'number') return read.fail(`rope_theta: expected a number, got ${quote(theta)}`);
    return { rope_type: 'default', rope_theta: theta * alpha ** (width / (width - 2)) };
  };
  const [own, old] = [scale('rope_parameters'), scale('rope_scaling')];
  const isMoved = own !== json['rope_parameters'] || old !== json['rope_scaling'];
  return isMoved ? { ...json, rope_parameters: own, rope_scaling: old, rope_theta: null } : json;
}

const GATE_AND_UP = [{ module: 'mlp.gate_up_proj', of: ['gate', 'up'] }] as const;

/** GLM's norms before both branches; those of GLM-4 also behind. */
const GLM_NAMES: TensorNames = { ...LLAMA_NAMES, fused: GATE_AND_UP };
const GLM4_NAMES: TensorNames = {
  ...GLM_NAMES,
  norms: {
    attention: { before: 'input_layernorm', after: 'post_self_attn_layernorm' },
    ffn: { before: 'post_attention_layernorm', after: 'post_mlp_layernorm' },
  },
};

/** What both say: pairs of neighbours, in half of each head. */
const GLM = {
  maxPositions: 131_072,
  kvHeads: 2,
  headDim: 128,
  epsilon: 1.5625e-7,
  rotaryPart: 0.5,
  hasInterleavedPairs: true,
} satisfies Partial<DecoderFamily>;

/** The rotary settings that transformers takes where a file has none. */
function apertusRope({ json }: ConfigReader): Json {
  if ('rope_scaling' in json || isGiven(json['rope_parameters'])) return json;
  const rope_theta = json['rope_theta'] ?? APERTUS_THETA;
  const context = { factor: 8, original_max_position_embeddings: 8192 };
  const rope = { rope_type: 'llama3', rope_theta, ...context, low_freq_factor: 1, high_freq_factor: 4 };
  return { ...json, rope_parameters: rope };
}

export const DENSE_FAMILIES = [
  // Seed-OSS (ByteDance, 2025): biases of q, k and v, and of o by a flag of its own.
  decoderFamily({
    name: 'SeedOssForCausalLM',
    modelType: 'seed_oss',
    covers: 'Seed-OSS 36B',
    maxPositions: 524_288,
    kvHeads: 8,
    headDim: 128,
    differences: (read) => ({
      biased: [
        ...flagged(read, 'attention_bias', ['q', 'k', 'v'], true),
        ...flagged(read, 'attention_out_bias', ['o']),
        ...flagged(read, 'mlp_bias', ['gate', 'up', 'down']),
      ],
    }),
  }),

  // Arcee (AFM, 2025): feed-forward without a gate, ReLU².
  decoderFamily({
    name: 'ArceeForCausalLM',
    modelType: 'arcee',
    covers: 'Arcee AFM 4.5B',
    maxPositions: 4096,
    epsilon: 1e-5,
    activation: 'relu2',
    differences: (read) => ({
      biased: [...read.attentionBiases(), ...flagged(read, 'mlp_bias', ['up', 'down'])],
      isGated: false,
    }),
  }),

  // Apertus (arXiv:2509.14233): xIELU, whose numbers each layer learns; norms of heads.
  decoderFamily({
    name: 'ApertusForCausalLM',
    modelType: 'apertus',
    covers: 'Apertus 8B and 70B',
    maxPositions: 65_536,
    theta: APERTUS_THETA,
    epsilon: 1e-5,
    activation: 'xielu',
    prepare: apertusRope,
    names: {
      ...LLAMA_NAMES,
      norms: { attention: { before: 'attention_layernorm' }, ffn: { before: 'feedforward_layernorm' } },
    },
    differences: (read) => {
      if (!read.flag('qk_norm', true)) read.fail('qk_norm is false: heads without norms are not supported');
      for (const key of ['mlp_bias', 'post_norm'])
        if (read.flag(key)) read.fail(`${key} is true, which is not supported`);
      return { biased: read.attentionBiases(), isGated: false, qkNorm: 'head' };
    },
  }),

  // OLMo 1 (arXiv:2402.00838): LayerNorm without weights, whose ε files do not say.
  decoderFamily({
    name: 'OlmoForCausalLM',
    modelType: 'olmo',
    covers: 'OLMo 1B and 7B of 2024',
    maxPositions: 2048,
    epsilon: 1e-5,
    prepare: ({ json }) => ({ ...json, rms_norm_eps: null }),
    differences: (read) => {
      const clip = read.number('clip_qkv', 0, [0, 1e6]);
      return {
        norm: { kind: 'layer', offset: 0, hasBias: false, isBare: true },
        biased: read.attentionBiases(),
        ...(clip === 0 ? {} : { clip }),
      };
    },
  }),

  // ERNIE 4.5 (Baidu, 2025), dense: pairs of neighbours turn.
  decoderFamily({
    name: 'Ernie4_5ForCausalLM',
    otherNames: ['Ernie4_5_ForCausalLM'],
    modelType: 'ernie4_5',
    covers: 'ERNIE 4.5 0.3B, dense',
    maxPositions: 131_072,
    kvHeads: 2,
    headDim: 128,
    theta: 500_000,
    epsilon: 1e-5,
    hasInterleavedPairs: true,
    isTied: true,
    differences: (read) => ({ biased: flagged(read, 'use_bias', ['q', 'k', 'v', 'o', 'gate', 'up', 'down']) }),
  }),

  // Hunyuan (Tencent, 2025), dense: heads of q and k are normed behind rotary embedding.
  decoderFamily({
    name: 'HunYuanDenseV1ForCausalLM',
    modelType: 'hunyuan_v1_dense',
    covers: 'Hunyuan 0.5B, 1.8B, 4B and 7B, dense',
    maxPositions: 2048,
    epsilon: 1e-5,
    names: { ...LLAMA_NAMES, qkNorms: { q: 'self_attn.query_layernorm', k: 'self_attn.key_layernorm' } },
    prepare: alphaBase,
    differences: (read) => ({ biased: read.attentionBiases(), qkNorm: 'turned head' }),
  }),

  // GLM-4 9B of 2024 (arXiv:2406.12793).
  decoderFamily({
    ...GLM,
    name: 'GlmForCausalLM',
    modelType: 'glm',
    covers: 'GLM-4 9B of 2024, GLM-Edge',
    names: GLM_NAMES,
    differences: (read) => ({ biased: flagged(read, 'attention_bias', ['q', 'k', 'v'], true) }),
  }),

  // GLM-4 of 2025: norms behind both branches as well.
  decoderFamily({
    ...GLM,
    name: 'Glm4ForCausalLM',
    modelType: 'glm4',
    covers: 'GLM-4 9B and 32B of 2025, GLM-Z1',
    names: GLM4_NAMES,
    differences: (read) => ({ biased: flagged(read, 'attention_bias', ['q', 'k', 'v']) }),
  }),

  // EXAONE 4 (arXiv:2507.11407): norms behind both branches only, and of heads. Where some layers have a window, those
  // without one do not turn.
  decoderFamily({
    name: 'Exaone4ForCausalLM',
    modelType: 'exaone4',
    covers: 'EXAONE 4.0 1.2B and 32B',
    maxPositions: 2048,
    kvHeads: 32,
    epsilon: 1e-5,
    names: NAMES_WITH_NORMS_BEHIND,
    differences: (read) => {
      const { sliding_window: width, layer_types: types, sliding_window_pattern: pattern } = read.json;
      if (width === null) return { biased: [], qkNorm: 'head' };
      // A pattern of letters, which files with layer_types may have, is not read by itself.
      const interval = isGiven(types) ? PATTERN : read.whole('sliding_window_pattern', PATTERN, [1, 1024]);
      if (typeof pattern === 'string' && !/^[LG]{1,1024}$/.test(pattern))
        read.fail(`sliding_window_pattern: expected L and G, got ${quote(pattern)}`);
      const windows = read.windows(4096, (layer) => (layer + 1) % interval !== 0);
      return {
        biased: [],
        qkNorm: 'head',
        windows,
        unrotated: windows.flatMap((window, layer) => (window === null ? [layer] : [])),
      };
    },
  }),
] as const;
