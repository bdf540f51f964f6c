/** LLaMA (arXiv:2302.13971) and its successors: the plain decoder, with biases if config.json has them. */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import { readBiases, readFlag } from '../decoder/config.js';
import { MIXTRAL_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import { layersOf, readExperts, readNumber, readWindows, usesWindow } from '../decoder/reader.js';
import { LLAMA_NAMES, NAMES_WITH_NORMS_BEHIND } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

export const llama = decoderFamily({
  name: 'LlamaForCausalLM',
  modelType: 'llama',
  covers: 'LLaMA 1, 2, 3 and models with the same architecture',
  textDefaults: {
    vocab_size: 32_000,
    hidden_size: 4096,
    intermediate_size: 11_008,
    num_hidden_layers: 32,
    num_attention_heads: 32,
  },
  maxPositions: 2048,
  differences: (json, where) => ({ biased: readBiases(json, where) }),
});

// Mistral (arXiv:2310.06825): a sliding window over keys in every layer, or none.

export const mistral = decoderFamily({
  name: 'MistralForCausalLM',
  modelType: 'mistral',
  covers: 'Mistral 7B, NeMo, Small and models with the same architecture',
  textDefaults: {
    vocab_size: 32_000,
    hidden_size: 4096,
    intermediate_size: 14_336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
  },
  maxPositions: 131_072,
  kvHeads: 8,
  differences: (json, where) => ({
    biased: [],
    // The library that writes these files does not read layer_types for them.
    windows: readWindows({ ...json, layer_types: null }, where, 4096, () => true),
  }),
});

// Mixtral: LLaMA with experts in place of feed-forward blocks (arXiv:2401.04088).

export const mixtral = decoderFamily({
  name: 'MixtralForCausalLM',
  modelType: 'mixtral',
  covers: 'Mixtral 8x7B and 8x22B',
  maxPositions: 131_072,
  kvHeads: 8,
  theta: 1_000_000,
  epsilon: 1e-5,
  names: { ...LLAMA_NAMES, experts: MIXTRAL_EXPERTS },
  differences: (json, where) => {
    const defaults = { count: 8, chosen: 2, width: 14_336 };
    return {
      biased: [],
      windows: readWindows({ ...json, layer_types: null }, where, null, () => true),
      experts: readExperts(json, where, { count: ['num_local_experts'], width: 'intermediate_size', defaults }),
    };
  },
});

// Granite 3 (arXiv:2408.13359, maximal update parametrisation): literal factors at four places.

export const granite = decoderFamily({
  name: 'GraniteForCausalLM',
  modelType: 'granite',
  covers: 'Granite 3, dense',
  maxPositions: 2048,
  differences: (json, where) => ({
    biased: readBiases(json, where),
    factors: {
      embedding: readNumber(json, where, 'embedding_multiplier', 1),
      residual: readNumber(json, where, 'residual_multiplier', 1),
      scores: readNumber(json, where, 'attention_multiplier', 1),
      logits: 1 / readNumber(json, where, 'logits_scaling', 1),
    },
  }),
});

// SmolLM3: every fourth layer has no rotary embedding (arXiv:2501.18795).

const INTERVAL = 4;

/**
 * Layers without rotary embedding: those with 0 in no_rope_layers, which may be longer than the model, else every
 * no_rope_layer_interval-th.
 */
function readUnrotated(json: Json, where: string): readonly number[] {
  const { no_rope_layers: marks, no_rope_layer_interval: stated } = json;
  const all = layersOf(json);
  if (!isGiven(marks)) {
    const interval = stated ?? INTERVAL;
    if (typeof interval !== 'number' || !Number.isInteger(interval) || interval < 1)
      throw new UserError(`${where}: no_rope_layer_interval: expected a whole number from 1, got ${quote(interval)}`);
    return all.filter((layer) => (layer + 1) % interval === 0);
  }
  if (!Array.isArray(marks) || marks.length < all.length || !marks.every((mark) => mark === 0 || mark === 1))
    throw new UserError(
      `${where}: no_rope_layers: expected a list of 0 and 1 for ${all.length} layers, got ${quote(marks, 60)}`,
    );
  return all.filter((layer) => marks[layer] === 0);
}

export const smollm3 = decoderFamily({
  name: 'SmolLM3ForCausalLM',
  modelType: 'smollm3',
  covers: 'SmolLM3',
  maxPositions: 32_768,
  kvHeads: 4,
  theta: 2_000_000,
  isTied: true,
  differences: (json, where) => {
    const unrotated = readUnrotated(json, where);
    const hasWindow = usesWindow(json, where);
    const { layer_types: types } = json;
    if (!hasWindow && Array.isArray(types) && types.includes('sliding_attention'))
      throw new UserError(`${where}: layer_types names sliding_attention, but use_sliding_window is not true`);
    return {
      biased: readBiases(json, where),
      unrotated,
      // Layers that do not turn have the window.
      windows: hasWindow ? readWindows(json, where, null, (layer) => unrotated.includes(layer)) : [],
    };
  },
});

// Phi-3 and Phi-4 (arXiv:2404.14219): fused tensors, LongRoPE, and a part of each head that is turned.

export const phi3 = decoderFamily({
  name: 'Phi3ForCausalLM',
  modelType: 'phi3',
  covers: 'Phi 3, 3.5 and 4, dense',
  maxPositions: 4096,
  originalMaxPositions: 4096,
  epsilon: 1e-5,
  rotaryPart: 1,
  // What older files call it.
  ropeTypes: { su: 'longrope', yarn: 'longrope' },
  names: {
    ...LLAMA_NAMES,
    fused: [
      { module: 'self_attn.qkv_proj', of: ['q', 'k', 'v'] },
      { module: 'mlp.gate_up_proj', of: ['gate', 'up'] },
    ],
  },
  differences: (json, where) => ({
    biased: [],
    windows: readWindows({ ...json, layer_types: null }, where, null, () => true),
  }),
});

// OLMo 2 (arXiv:2501.00656): norms behind attention and feed-forward, and of whole rows of queries and keys.

export const olmo2 = decoderFamily({
  name: 'Olmo2ForCausalLM',
  modelType: 'olmo2',
  covers: 'OLMo 2',
  maxPositions: 2048,
  epsilon: 1e-5,
  names: NAMES_WITH_NORMS_BEHIND,
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'row',
  }),
});

// OLMo 3: OLMo 2 with a sliding window in three layers of four, which have no rotary scaling.

export const olmo3 = decoderFamily({
  name: 'Olmo3ForCausalLM',
  modelType: 'olmo3',
  covers: 'OLMo 3',
  maxPositions: 2048,
  epsilon: 1e-5,
  names: NAMES_WITH_NORMS_BEHIND,
  theta: 500_000,
  scalesFullLayersOnly: true,
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'row',
    windows: readWindows(json, where, 4096, (layer) => (layer + 1) % 4 !== 0),
  }),
});
