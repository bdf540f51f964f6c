/** What all versions of Gemma have in common. */
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { isRecord, quote } from '../../system/json.js';
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/family.js';
import type { NormKind } from '../decoder/ops.js';
import { readActivation, readNumber, readWindows } from '../decoder/reader.js';
import { LLAMA_NAMES, type TensorNames } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

/** Weights of norms are kept as differences from 1. */
export const GEMMA_NORM: NormKind = { kind: 'rms', offset: 1, hasBias: false };

/** √hidden_size. transformers rounds it to the type in which it computes, which is no difference in f32. */
export function embeddingFactor({ hidden_size: hidden }: Json): number {
  // A hidden size that is none is refused with the keys that all decoders have.
  return typeof hidden === 'number' && hidden > 0 ? Math.sqrt(hidden) : 1;
}

/**
 * Refuses what would change the result. Files of Gemma 1 say "gelu" where GELU by tanh is meant, so `hidden_act`
 * chooses nothing. Throws UserError.
 */
export function checkGemma(json: Json, where: string): void {
  if (readActivation(json, where, 'geluTanh') === 'silu')
    throw new UserError(`${where}: hidden_act is ${quote(json['hidden_act'])}: Gemma computes GELU`);
}

/** Names of models with norms before and behind both branches. */
export const NAMES_WITH_FOUR_NORMS: TensorNames = {
  ...LLAMA_NAMES,
  norms: {
    attention: { before: 'input_layernorm', after: 'post_attention_layernorm' },
    ffn: { before: 'pre_feedforward_layernorm', after: 'post_feedforward_layernorm' },
  },
};

/** 1/√query_pre_attn_scalar, the factor of attention scores. Throws UserError. */
export const scoreFactor = (json: Json, where: string): number =>
  1 / Math.sqrt(readNumber(json, where, 'query_pre_attn_scalar', 256));

// Gemma (arXiv:2403.08295): scaled embeddings, norm weights around 1, GELU by tanh, a tied head.

export const gemma = decoderFamily({
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
  headDim: 256,
  kvHeads: 16,
  activation: 'geluTanh',
  activationKey: 'hidden_activation',
  isTied: true,
  differences: (json, where) => {
    checkGemma(json, where);
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: GEMMA_NORM,
      factors: { embedding: embeddingFactor(json) },
    };
  },
});

// Gemma 2 (arXiv:2408.00118): norms before and behind both branches, soft caps, a window in every other layer.

export const gemma2 = decoderFamily({
  name: 'Gemma2ForCausalLM',
  modelType: 'gemma2',
  covers: 'Gemma 2',
  textDefaults: {
    vocab_size: 256_000,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
  },
  maxPositions: 8192,
  headDim: 256,
  kvHeads: 4,
  activation: 'geluTanh',
  activationKey: 'hidden_activation',
  isTied: true,
  names: NAMES_WITH_FOUR_NORMS,
  differences: (json, where) => {
    checkGemma(json, where);
    // A file that leaves a cap out has transformers' default; null is none.
    const capOf = (key: string, usual: number): number | undefined =>
      readNumber(json, where, key, json[key] === null ? undefined : usual);
    const [scores, logits] = [capOf('attn_logit_softcapping', 50), capOf('final_logit_softcapping', 30)];
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: GEMMA_NORM,
      windows: readWindows(json, where, 4096, (layer) => layer % 2 === 0),
      factors: { embedding: embeddingFactor(json), scores: scoreFactor(json, where) },
      caps: { ...defined({ scores, logits }) },
    };
  },
});

// Gemma 3 (arXiv:2503.19786), text: Gemma 2 without caps, with norms of heads, and other angles within windows.

/** One layer in this many has no window, if a file does not say. */
const PATTERN = 6;
const [FULL_THETA, WINDOW_THETA] = [1_000_000, 10_000];

/**
 * Rotary settings by the kind of a layer, as transformers 5 writes them. Files of transformers 4 have those of layers
 * without a window at the top, and rope_local_base_freq.
 */
function ropesByKind(json: Json, where: string): Json {
  const { rope_theta: theta, rope_scaling: scaling, rope_parameters: stated } = json;
  if (isRecord(stated) && ('full_attention' in stated || 'sliding_attention' in stated)) return json;
  const given = isRecord(stated) ? stated : {};
  return {
    ...json,
    rope_theta: null,
    rope_scaling: null,
    rope_parameters: {
      full_attention: { rope_theta: theta ?? FULL_THETA, ...given, ...(isRecord(scaling) ? scaling : {}) },
      sliding_attention: { rope_theta: readNumber(json, where, 'rope_local_base_freq', WINDOW_THETA, [1, 1e12]) },
    },
  };
}

export const gemma3 = decoderFamily({
  name: 'Gemma3ForCausalLM',
  modelType: 'gemma3_text',
  covers: 'Gemma 3, text',
  textDefaults: {
    vocab_size: 262_208,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
  },
  maxPositions: 131_072,
  headDim: 256,
  kvHeads: 4,
  theta: FULL_THETA,
  activation: 'geluTanh',
  activationKey: 'hidden_activation',
  isTied: true,
  names: NAMES_WITH_FOUR_NORMS,
  prepare: ropesByKind,
  differences: (json, where) => {
    checkGemma(json, where);
    // Files with _sliding_window_pattern have layer_types, which are what is read.
    const pattern = readNumber(json, where, 'sliding_window_pattern', PATTERN, [1, 1024]);
    // attn_logit_softcapping is a setting that transformers keeps for this family and does not use.
    const logits = readNumber(json, where, 'final_logit_softcapping', undefined);
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: GEMMA_NORM,
      qkNorm: 'head',
      windows: readWindows(json, where, 4096, (layer) => (layer + 1) % pattern !== 0),
      factors: { embedding: embeddingFactor(json), scores: scoreFactor(json, where) },
      caps: logits === undefined ? {} : { logits },
    };
  },
});
