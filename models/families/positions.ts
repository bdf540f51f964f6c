/** Families that add a vector of its position to each embedding, in place of rotary embedding. */
import { decoderFamily, type DecoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES, type TensorNames } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

/** Keys of other decoders, which these have none of. */
export const WITHOUT = {
  num_key_value_heads: null,
  head_dim: null,
  rope_theta: null,
  rope_parameters: null,
  rope_scaling: null,
  rotary_pct: null,
  partial_rotary_factor: null,
  rms_norm_eps: null,
};

/** LayerNorm without weights. */
const BARE = { kind: 'layer', offset: 0, hasBias: false, isBare: true } as const;
const ALL_BIASES = ['q', 'k', 'v', 'o', 'up', 'down'] as const;

/** What both say. */
const SHARED = { activationKey: 'activation_function', isTied: true } satisfies Partial<DecoderFamily>;

const shared = (read: ConfigReader, rows: number) =>
  ({
    norm: { kind: 'layer', offset: 0, hasBias: true },
    isGated: false,
    positionRows: read.whole('max_position_embeddings', rows, [1, 1 << 24]),
    unrotated: read.layers(),
  }) as const;

/** GPT-2's sizes under the names that decoders share, which a file may have as well. */
function gpt2Sizes({ json }: ConfigReader): Json {
  const hidden = json['n_embd'] ?? json['hidden_size'] ?? 768;
  return {
    ...json,
    ...WITHOUT,
    hidden_size: hidden,
    intermediate_size: json['n_inner'] ?? 4 * Number(hidden),
    num_hidden_layers: json['n_layer'] ?? json['num_hidden_layers'] ?? 12,
    num_attention_heads: json['n_head'] ?? json['num_attention_heads'] ?? 12,
    max_position_embeddings: json['n_positions'] ?? json['max_position_embeddings'] ?? 1024,
    vocab_size: json['vocab_size'] ?? 50_257,
  };
}

/**
 * OPT's modules. Where norms lie behind the sum of stream and branch, the next branch reads what they give and is added
 * to it: attention has the norm that ends the layer before, and the last one stands before the head.
 */
function optNames(read: ConfigReader): TensorNames {
  const layers = 'model.decoder.layers';
  const isBefore = read.flag('do_layer_norm_before', true);
  const [own, behind] = ['self_attn_layer_norm', 'final_layer_norm'];
  return {
    embedding: 'model.decoder.embed_tokens',
    head: 'lm_head',
    finalNorm: isBefore ? `model.decoder.${behind}` : `${layers}.${read.layers().length - 1}.${behind}`,
    layers,
    projections: { ...LLAMA_NAMES.projections, o: 'self_attn.out_proj', up: 'fc1', down: 'fc2' },
    norms: isBefore
      ? { attention: { before: own }, ffn: { before: behind } }
      : { attention: { before: behind, isOfLayerBefore: true }, ffn: { before: own } },
    qkNorms: LLAMA_NAMES.qkNorms,
    positions: { module: 'model.decoder.embed_positions', before: 2 },
    widths: { into: 'model.decoder.project_in', out: 'model.decoder.project_out' },
  };
}

const optSizes = ({ json }: ConfigReader): Json => ({
  ...json,
  ...WITHOUT,
  intermediate_size: json['ffn_dim'] ?? 3072,
});

export const POSITION_FAMILIES = [
  // GPT-2 (OpenAI, 2019): matrices are stored as [in, out].
  decoderFamily({
    ...SHARED,
    name: 'GPT2LMHeadModel',
    modelType: 'gpt2',
    covers: 'GPT-2, DistilGPT2',
    maxPositions: 1024,
    epsilonKey: 'layer_norm_epsilon',
    epsilon: 1e-5,
    activation: 'geluTanh',
    names: {
      embedding: 'transformer.wte',
      head: 'lm_head',
      finalNorm: 'transformer.ln_f',
      layers: 'transformer.h',
      projections: {
        q: 'attn.q',
        k: 'attn.k',
        v: 'attn.v',
        o: 'attn.c_proj',
        gate: 'mlp.gate',
        up: 'mlp.c_fc',
        down: 'mlp.c_proj',
      },
      norms: { attention: { before: 'ln_1' }, ffn: { before: 'ln_2' } },
      qkNorms: LLAMA_NAMES.qkNorms,
      fused: [{ module: 'attn.c_attn', of: ['q', 'k', 'v'] }],
      positions: { module: 'transformer.wpe', before: 0 },
      isTurned: true,
    },
    prepare: gpt2Sizes,
    differences: (read) => ({
      ...shared(read, 1024),
      biased: ALL_BIASES,
      ...(read.flag('scale_attn_by_inverse_layer_idx') ? { dividesScores: true as const } : {}),
      ...(read.flag('scale_attn_weights', true) ? {} : { factors: { scores: 1 } }),
    }),
  }),

  // OPT (arXiv:2205.01068): the table of positions has two rows before the first one.
  decoderFamily({
    ...SHARED,
    name: 'OPTForCausalLM',
    modelType: 'opt',
    covers: 'OPT, Galactica',
    maxPositions: 2048,
    epsilon: 1e-5,
    activation: 'relu',
    names: optNames,
    prepare: optSizes,
    differences: (read) => {
      const hidden = read.whole('hidden_size', 768, [1, 1 << 16]);
      const width = read.whole('word_embed_proj_dim', hidden, [1, 1 << 16]);
      const isBefore = read.flag('do_layer_norm_before', true);
      const hasFinalNorm = !isBefore || !read.flag('_remove_final_layer_norm');
      return {
        ...shared(read, 2048),
        ...(read.flag('layer_norm_elementwise_affine', true) ? {} : { norm: BARE }),
        biased: read.flag('enable_bias', true) ? ALL_BIASES : [],
        ...(isBefore ? {} : { keepsNormed: true as const }),
        ...(hasFinalNorm ? {} : { hasFinalNorm }),
        ...(width === hidden ? {} : { embeddingWidth: width }),
      };
    },
  }),
] as const;
