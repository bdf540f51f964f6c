/** Gemma 1, 2 and 3: scaled embeddings, norm weights around 1, GELU by tanh, a tied head. */
import { decoderFamily, type DecoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES, type TensorNames } from '../decoder/tensors.js';
import { defined } from '../../system/defined.js';
import { isRecord, quote } from '../../system/json.js';
import type { Json } from '../model/model.js';

/** Sizes of a `text_config` of Gemma 2 or 3 that names none. */
const TEXT_DEFAULTS = { hidden_size: 2304, intermediate_size: 9216, num_hidden_layers: 26, num_attention_heads: 8 };

/** One layer of Gemma 3 in this many has no window, if a file does not say. */
const PATTERN = 6;
const [FULL_THETA, WINDOW_THETA] = [1_000_000, 10_000];

/** What all versions say of a model's keys. */
const GEMMA = {
  headDim: 256,
  activation: 'geluTanh',
  activationKey: 'hidden_activation',
  isTied: true,
} satisfies Partial<DecoderFamily>;

/** Norms before and behind both branches. */
const NAMES_WITH_FOUR_NORMS: TensorNames = {
  ...LLAMA_NAMES,
  norms: {
    attention: { before: 'input_layernorm', after: 'post_attention_layernorm' },
    ffn: { before: 'pre_feedforward_layernorm', after: 'post_feedforward_layernorm' },
  },
};

/**
 * What all versions compute. Embeddings are multiplied by √hidden_size, which transformers rounds to the type in which
 * it computes; in f32 that is no difference. Files of Gemma 1 say "gelu" where GELU by tanh is meant, so `hidden_act`
 * chooses nothing, but SiLU is refused.
 */
function shared(read: ConfigReader) {
  const { hidden_size: hidden, hidden_act: activation } = read.json;
  if (!read.activation('geluTanh').startsWith('gelu'))
    read.fail(`hidden_act is ${quote(activation)}: Gemma computes GELU`);
  return {
    biased: read.attentionBiases(),
    norm: { kind: 'rms', offset: 1, hasBias: false },
    // A hidden size that is none is refused with the keys that all decoders have.
    factors: { embedding: typeof hidden === 'number' && hidden > 0 ? Math.sqrt(hidden) : 1 },
  } as const;
}

/** The factor of attention scores, 1/√query_pre_attn_scalar. */
const scoreFactor = (read: ConfigReader): number => 1 / Math.sqrt(read.number('query_pre_attn_scalar', 256));

/**
 * Rotary settings by the kind of a layer, as transformers 5 writes them. Files of transformers 4 have those of layers
 * without a window at the top, and rope_local_base_freq.
 */
function ropesByKind(read: ConfigReader): Json {
  const { rope_theta: theta, rope_scaling: scaling, rope_parameters: stated } = read.json;
  if (isRecord(stated) && ('full_attention' in stated || 'sliding_attention' in stated)) return read.json;
  const given = isRecord(stated) ? stated : {};
  return {
    ...read.json,
    rope_theta: null,
    rope_scaling: null,
    rope_parameters: {
      full_attention: { rope_theta: theta ?? FULL_THETA, ...given, ...(isRecord(scaling) ? scaling : {}) },
      sliding_attention: { rope_theta: read.number('rope_local_base_freq', WINDOW_THETA, [1, 1e12]) },
    },
  };
}

export const GEMMA_FAMILIES = [
  // arXiv:2403.08295
  decoderFamily({
    ...GEMMA,
    name: 'GemmaForCausalLM',
    modelType: 'gemma',
    covers: 'Gemma 1, CodeGemma',
    textDefaults: {
      vocab_size: 256_000,
      hidden_size: 3072,
      intermediate_size: 24_576,
      num_hidden_layers: 28,
      num_attention_heads: 16,
    },
    maxPositions: 8192,
    kvHeads: 16,
    differences: shared,
  }),

  // arXiv:2408.00118: norms before and behind both branches, soft caps, a window in every other layer.
  decoderFamily({
    ...GEMMA,
    name: 'Gemma2ForCausalLM',
    modelType: 'gemma2',
    covers: 'Gemma 2',
    textDefaults: { vocab_size: 256_000, ...TEXT_DEFAULTS },
    maxPositions: 8192,
    kvHeads: 4,
    names: NAMES_WITH_FOUR_NORMS,
    differences: (read) => {
      const { factors, ...common } = shared(read);
      // A file that leaves a cap out has transformers' default; null is none.
      const cap = (key: string, usual: number): number | undefined =>
        read.number(key, read.json[key] === null ? undefined : usual);
      return {
        ...common,
        windows: read.windows(4096, (layer) => layer % 2 === 0),
        factors: { ...factors, scores: scoreFactor(read) },
        caps: defined({ scores: cap('attn_logit_softcapping', 50), logits: cap('final_logit_softcapping', 30) }),
      };
    },
  }),

  // arXiv:2503.19786, text: Gemma 2 without caps, with norms of heads, and other angles within windows.
  decoderFamily({
    ...GEMMA,
    name: 'Gemma3ForCausalLM',
    modelType: 'gemma3_text',
    covers: 'Gemma 3, text',
    textDefaults: { vocab_size: 262_208, ...TEXT_DEFAULTS },
    maxPositions: 131_072,
    kvHeads: 4,
    theta: FULL_THETA,
    names: NAMES_WITH_FOUR_NORMS,
    prepare: ropesByKind,
    differences: (read) => {
      const { factors, ...common } = shared(read);
      // Files with _sliding_window_pattern have layer_types, which are what is read.
      const pattern = read.number('sliding_window_pattern', PATTERN, [1, 1024]);
      return {
        ...common,
        qkNorm: 'head',
        windows: read.windows(4096, (layer) => (layer + 1) % pattern !== 0),
        factors: { ...factors, scores: scoreFactor(read) },
        // attn_logit_softcapping is a setting that transformers keeps for this family and does not use.
        caps: defined({ logits: read.number('final_logit_softcapping', undefined) }),
      };
    },
  }),
] as const;
