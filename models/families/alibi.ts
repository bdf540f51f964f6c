/** Families without rotary embedding whose scores fall with distance: ALiBi (arXiv:2108.12409). */
import { isGiven, isRecord, quote } from '../../system/json.js';
import { decoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import { headsOf, mptSlopes, paperSlopes } from '../decoder/slopes.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';
import { WITHOUT } from './positions.js';

const times = (by: number, width: unknown): unknown => (typeof width === 'number' ? by * width : width);

/** What BLOOM calls the sizes that all decoders have. Its feed-forward block is four times as wide as the stream. */
function bloomSizes({ json }: ConfigReader): Json {
  const { n_embed, hidden_size, n_layer, num_hidden_layers, n_head, num_attention_heads, seq_length } = json;
  const hidden = n_embed ?? hidden_size ?? 64;
  return {
    ...json,
    ...WITHOUT,
    hidden_size: hidden,
    intermediate_size: times(4, hidden),
    num_hidden_layers: n_layer ?? num_hidden_layers ?? 2,
    num_attention_heads: n_head ?? num_attention_heads ?? 8,
    max_position_embeddings: seq_length,
    hidden_act: 'gelu_new',
  };
}

/** The same of MPT, whose attention has settings of its own. */
function mptSizes(read: ConfigReader): Json {
  const { json } = read;
  const { d_model: hidden = 2048, n_layers = 24, n_heads = 16, max_seq_len = 2048 } = json;
  return {
    ...json,
    ...WITHOUT,
    hidden_size: hidden,
    intermediate_size: times(4, hidden),
    num_hidden_layers: n_layers,
    num_attention_heads: n_heads,
    max_position_embeddings: max_seq_len,
    hidden_act: 'gelu',
  };
}

/** Values of settings that change what is computed, and are computed; null counts as absent. */
const MPT_ATTENTION: Readonly<Record<string, readonly unknown[]>> = {
  alibi: [true],
  attn_type: ['multihead_attention'],
  attn_uses_sequence_id: [false],
  prefix_lm: [false],
  qk_gn: [false],
  qk_ln: [false],
  rope: [false],
  sliding_window_size: [-1],
};
const MPT: Readonly<Record<string, readonly unknown[]>> = {
  logit_scale: [],
  no_bias: [true],
  norm_type: ['low_precision_layernorm', 'layernorm'],
};

/** Refuses values that are not listed. */
function onlyListed(read: ConfigReader, listed: Readonly<Record<string, readonly unknown[]>>): void {
  for (const [key, values] of Object.entries(listed)) {
    const value = read.json[key];
    if (isGiven(value) && !values.includes(value)) read.fail(`${key} is ${quote(value)}: this is not computed here`);
  }
}

/** The settings of MPT's attention. */
function mptAttention(read: ConfigReader): ConfigReader {
  const { attn_config: own = {} } = read.json;
  if (own !== null && !isRecord(own)) read.fail(`attn_config: expected an object, got ${quote(own)}`);
  return read.within('attn_config');
}

export const ALIBI_FAMILIES = [
  // BLOOM (arXiv:2211.05100): embeddings are normed, biases everywhere, GELU by tanh.
  decoderFamily({
    name: 'BloomForCausalLM',
    modelType: 'bloom',
    covers: 'BLOOM, BLOOMZ',
    maxPositions: 2048,
    epsilonKey: 'layer_norm_epsilon',
    epsilon: 1e-5,
    isTied: true,
    names: {
      embedding: 'transformer.word_embeddings',
      embeddingNorm: 'transformer.word_embeddings_layernorm',
      head: 'lm_head',
      finalNorm: 'transformer.ln_f',
      layers: 'transformer.h',
      projections: {
        q: 'self_attention.q',
        k: 'self_attention.k',
        v: 'self_attention.v',
        o: 'self_attention.dense',
        gate: 'mlp.gate',
        up: 'mlp.dense_h_to_4h',
        down: 'mlp.dense_4h_to_h',
      },
      norms: LLAMA_NAMES.norms,
      qkNorms: LLAMA_NAMES.qkNorms,
      fused: [{ module: 'self_attention.query_key_value', of: ['q', 'k', 'v'], isByHead: true }],
    },
    prepare: bloomSizes,
    differences: (read) => ({
      norm: { kind: 'layer', offset: 0, hasBias: true },
      biased: ['q', 'k', 'v', 'o', 'up', 'down'],
      isGated: false,
      unrotated: read.layers(),
      slopes: paperSlopes(headsOf(read)),
      ...(read.flag('apply_residual_connection_post_layernorm') ? { keepsNormed: true as const } : {}),
    }),
  }),

  // MPT (MosaicML, 2023): no biases at all, GELU. Learned positions are not read where there is ALiBi, nor is
  // expansion_ratio: as in transformers, the feed-forward block is four times as wide as the stream.
  decoderFamily({
    name: 'MptForCausalLM',
    otherNames: ['MPTForCausalLM'],
    modelType: 'mpt',
    covers: 'MPT 7B and 30B',
    maxPositions: 2048,
    epsilonKey: 'layer_norm_epsilon',
    epsilon: 1e-5,
    isTied: true,
    names: {
      embedding: 'transformer.wte',
      head: 'lm_head',
      finalNorm: 'transformer.norm_f',
      layers: 'transformer.blocks',
      projections: {
        q: 'attn.q',
        k: 'attn.k',
        v: 'attn.v',
        o: 'attn.out_proj',
        gate: 'ffn.gate',
        up: 'ffn.up_proj',
        down: 'ffn.down_proj',
      },
      norms: { attention: { before: 'norm_1' }, ffn: { before: 'norm_2' } },
      qkNorms: LLAMA_NAMES.qkNorms,
      fused: [{ module: 'attn.Wqkv', of: ['q', 'k', 'v'] }],
    },
    prepare: mptSizes,
    differences: (read) => {
      onlyListed(read, MPT);
      const { ffn_config: ffn } = read.json;
      if (isRecord(ffn) && isGiven(ffn['ffn_type']) && ffn['ffn_type'] !== 'mptmlp')
        read.fail(`ffn_config.ffn_type is ${quote(ffn['ffn_type'])}: this is not computed here`);
      const own = mptAttention(read);
      onlyListed(own, MPT_ATTENTION);
      const most = own.number('alibi_bias_max', 8, [1e-3, 64]);
      const scale = own.number('softmax_scale', undefined);
      const clip = own.number('clip_qkv', 0, [0, 1e6]);
      return {
        norm: { kind: 'layer', offset: 0, hasBias: false },
        biased: [],
        isGated: false,
        unrotated: read.layers(),
        slopes: mptSlopes(headsOf(read), most),
        ...(clip === 0 ? {} : { clip }),
        ...(scale === undefined ? {} : { factors: { scores: scale } }),
      };
    },
  }),
] as const;
