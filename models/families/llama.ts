/** LLaMA and families that differ from it in few places: windows, norms of queries and keys, factors, experts. */
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Factors } from '../decoder/config.js';
import { decoderFamily } from '../decoder/family.js';
import { MIXTRAL_EXPERTS } from '../decoder/experts.js';
import type { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES, NAMES_WITH_NORMS_BEHIND } from '../decoder/tensors.js';
import type { Temperature } from '../decoder/temperature.js';
import type { Json } from '../model/model.js';

const everyLayer = (): boolean => true;

/** One layer in this many of SmolLM3 has no rotary embedding, if a file does not say. */
const UNROTATED_INTERVAL = 4;

/** Layers with 0 in no_rope_layers, which may be longer than the model, else every no_rope_layer_interval-th. */
function unrotatedLayers(read: ConfigReader): readonly number[] {
  const marks: unknown = read.json['no_rope_layers'] ?? undefined;
  const all = read.layers();
  if (marks === undefined) {
    const interval = read.whole('no_rope_layer_interval', UNROTATED_INTERVAL, [1, Infinity]);
    return all.filter((layer) => (layer + 1) % interval === 0);
  }
  if (!Array.isArray(marks) || marks.length < all.length || !marks.every((mark) => mark === 0 || mark === 1))
    read.fail(`no_rope_layers: expected a list of 0 and 1 for ${all.length} layers, got ${quote(marks, 60)}`);
  return all.filter((layer) => marks[layer] === 0);
}

const MINISTRAL_ROPE = {
  rope_type: 'yarn',
  rope_theta: 1_000_000,
  factor: 16,
  original_max_position_embeddings: 16_384,
  beta_fast: 32,
  beta_slow: 1,
  mscale: 1,
  mscale_all_dim: 1,
  llama_4_scaling_beta: 0.1,
};

/** The rotary settings that transformers takes where a file has none. */
function ministralRope({ json }: ConfigReader): Json {
  if (isGiven(json['rope_parameters'] ?? json['rope_scaling'])) return json;
  return {
    ...json,
    rope_parameters: { ...MINISTRAL_ROPE, rope_theta: json['rope_theta'] ?? MINISTRAL_ROPE.rope_theta },
  };
}

/** Queries are multiplied by 1 + β·ln(1 + ⌊position / original context⌋). */
function ministralTemperature(read: ConfigReader): { readonly temperature?: Temperature } {
  const { json } = read;
  const rope = json['rope_parameters'] ?? json['rope_scaling'];
  if (!isRecord(rope)) return {};
  const { llama_4_scaling_beta: beta, original_max_position_embeddings: every } = rope;
  if (!isGiven(beta) || beta === 0) return {};
  if (typeof beta !== 'number' || !(beta > 0 && beta <= 1e3))
    return read.fail(`llama_4_scaling_beta: expected a number from 0 to 1000, got ${quote(beta)}`);
  if (typeof every !== 'number' || !(every >= 1 && every <= 1 << 24))
    return read.fail(
      `original_max_position_embeddings: expected a number beside llama_4_scaling_beta, got ${quote(every)}`,
    );
  return { temperature: { every, by: beta, from: 0, layers: 'all' } };
}

/** Granite's literal factors at four places. */
export const graniteFactors = (read: ConfigReader): Factors => ({
  embedding: read.number('embedding_multiplier', 1),
  residual: read.number('residual_multiplier', 1),
  scores: read.number('attention_multiplier', 1),
  logits: 1 / read.number('logits_scaling', 1),
});

export const LLAMA_FAMILIES = [
  // LLaMA (arXiv:2302.13971) and its successors: the plain decoder, with biases if config.json has them.
  decoderFamily({
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
    differences: (read) => ({ biased: read.biases() }),
  }),

  // Mistral (arXiv:2310.06825): a sliding window over keys in every layer, or none. transformers does not read
  // layer_types for it.
  decoderFamily({
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
    differences: (read) => ({ biased: [], windows: read.without('layer_types').windows(4096, everyLayer) }),
  }),

  // Ministral 3 (2025): queries beyond the original context are scaled.
  decoderFamily({
    name: 'Ministral3ForCausalLM',
    modelType: 'ministral3',
    covers: 'Ministral 3',
    textDefaults: {
      vocab_size: 131_072,
      hidden_size: 4096,
      intermediate_size: 14_336,
      num_hidden_layers: 34,
      num_attention_heads: 32,
    },
    maxPositions: 262_144,
    kvHeads: 8,
    headDim: 128,
    epsilon: 1e-5,
    prepare: ministralRope,
    differences: (read) => ({
      biased: [],
      windows: read.without('layer_types').windows(null, everyLayer),
      ...ministralTemperature(read),
    }),
  }),

  // OLMo 2 (arXiv:2501.00656): norms behind attention and feed-forward, and of whole rows of queries and keys.
  decoderFamily({
    name: 'Olmo2ForCausalLM',
    modelType: 'olmo2',
    covers: 'OLMo 2',
    maxPositions: 2048,
    epsilon: 1e-5,
    names: NAMES_WITH_NORMS_BEHIND,
    differences: (read) => ({ biased: read.attentionBiases(), qkNorm: 'row' }),
  }),

  // OLMo 3: OLMo 2 with a sliding window in three layers of four, which have no rotary scaling.
  decoderFamily({
    name: 'Olmo3ForCausalLM',
    modelType: 'olmo3',
    covers: 'OLMo 3',
    maxPositions: 2048,
    epsilon: 1e-5,
    names: NAMES_WITH_NORMS_BEHIND,
    theta: 500_000,
    scalesFullLayersOnly: true,
    differences: (read) => ({
      biased: read.attentionBiases(),
      qkNorm: 'row',
      windows: read.windows(4096, (layer) => (layer + 1) % 4 !== 0),
    }),
  }),

  // Phi-3 and Phi-4 (arXiv:2404.14219): fused tensors, LongRoPE, and rotary embedding of a part of each head.
  decoderFamily({
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
    differences: (read) => ({ biased: [], windows: read.without('layer_types').windows(null, everyLayer) }),
  }),

  // Granite 3 (arXiv:2408.13359, maximal update parametrisation): literal factors at four places.
  decoderFamily({
    name: 'GraniteForCausalLM',
    modelType: 'granite',
    covers: 'Granite 3, dense',
    maxPositions: 2048,
    differences: (read) => ({
      biased: read.biases(),
      factors: graniteFactors(read),
    }),
  }),

  // SmolLM3: every fourth layer has no rotary embedding (arXiv:2501.18795), and the window if there is one.
  decoderFamily({
    name: 'SmolLM3ForCausalLM',
    modelType: 'smollm3',
    covers: 'SmolLM3',
    maxPositions: 32_768,
    kvHeads: 4,
    theta: 2_000_000,
    isTied: true,
    differences: (read) => {
      const unrotated = unrotatedLayers(read);
      const hasWindow = read.flag('use_sliding_window');
      const { layer_types: types } = read.json;
      if (!hasWindow && Array.isArray(types) && types.includes('sliding_attention'))
        read.fail('layer_types names sliding_attention, but use_sliding_window is not true');
      return {
        biased: read.biases(),
        unrotated,
        windows: hasWindow ? read.windows(null, (layer) => unrotated.includes(layer)) : [],
      };
    },
  }),

  // Mixtral: Mistral with experts in place of feed-forward blocks (arXiv:2401.04088).
  decoderFamily({
    name: 'MixtralForCausalLM',
    modelType: 'mixtral',
    covers: 'Mixtral 8x7B and 8x22B',
    maxPositions: 131_072,
    kvHeads: 8,
    theta: 1_000_000,
    epsilon: 1e-5,
    names: { ...LLAMA_NAMES, experts: MIXTRAL_EXPERTS },
    differences: (read) => ({
      biased: [],
      windows: read.without('layer_types').windows(null, everyLayer),
      experts: read.experts({
        count: ['num_local_experts'],
        width: 'intermediate_size',
        defaults: { count: 8, chosen: 2, width: 14_336 },
      }),
    }),
  }),
] as const;
