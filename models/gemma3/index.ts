/** Gemma 3 (arXiv:2503.19786), text: Gemma 2 without caps, with norms of heads, and other angles within windows. */
import { isRecord } from '../../system/json.js';
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { readNumber } from '../decoder/settings.js';
import { readWindows } from '../decoder/window.js';
import type { Json } from '../family/model.js';
import { checkGemma, embeddingFactor, GEMMA_NORM, NAMES_WITH_FOUR_NORMS, scoreFactor } from '../gemma/settings.js';

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
