/** Qwen 2 and 2.5 (arXiv:2407.10671): queries, keys and values have biases. */
import { readFlag } from '../decoder/config.js';
import { QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import { readExperts, readQwenWindows } from '../decoder/reader.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

/** Sizes of a `text_config` of Qwen 2 or 3, where it names none: those of transformers' Qwen2Config and Qwen3Config. */
export const QWEN_TEXT_DEFAULTS = {
  vocab_size: 151_936,
  hidden_size: 4096,
  intermediate_size: 22_016,
  num_hidden_layers: 32,
  num_attention_heads: 32,
} as const;

export const qwen2 = decoderFamily({
  name: 'Qwen2ForCausalLM',
  modelType: 'qwen2',
  covers: 'Qwen 2 and 2.5',
  textDefaults: QWEN_TEXT_DEFAULTS,
  maxPositions: 32_768,
  kvHeads: 32,
  differences: (json, where) => ({ biased: ['q', 'k', 'v'], windows: readQwenWindows(json, where) }),
});

// Qwen 3 (arXiv:2505.09388): each head of queries and keys is normed before rotary embedding.

export const qwen3 = decoderFamily({
  name: 'Qwen3ForCausalLM',
  modelType: 'qwen3',
  covers: 'Qwen 3, dense',
  textDefaults: QWEN_TEXT_DEFAULTS,
  maxPositions: 32_768,
  kvHeads: 32,
  headDim: 128,
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'head',
    windows: readQwenWindows(json, where),
  }),
});

// Qwen 1.5 and 2 with experts: each token also takes a shared expert, times a gate of its own (arXiv:2407.10671).

export const qwen2Moe = decoderFamily({
  name: 'Qwen2MoeForCausalLM',
  modelType: 'qwen2_moe',
  covers: 'Qwen 1.5 and 2 with experts',
  maxPositions: 32_768,
  kvHeads: 16,
  names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
  differences: (json, where) => {
    const isBiased = readFlag({ qkv_bias: json['qkv_bias'] ?? true }, 'qkv_bias', where);
    return {
      biased: isBiased ? ['q', 'k', 'v'] : [],
      // As transformers has it: every second layer of those below the bound.
      windows: readQwenWindows(json, where, (layer, bound) => layer % 2 === 0 && layer < bound),
      experts: readExperts(json, where, {
        count: ['num_experts', 'num_local_experts'],
        width: 'moe_intermediate_size',
        sharedWidth: 'shared_expert_intermediate_size',
        hasDenseLayers: true,
        defaults: { count: 60, chosen: 4, width: 1408, sharedWidth: 5632 },
      }),
    };
  },
});

// Qwen 3 with experts (arXiv:2505.09388).

export const qwen3Moe = decoderFamily({
  name: 'Qwen3MoeForCausalLM',
  modelType: 'qwen3_moe',
  covers: 'Qwen 3 with experts',
  maxPositions: 32_768,
  kvHeads: 4,
  names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'head',
    // All layers, or none: transformers reads neither layer_types nor max_window_layers.
    windows: readQwenWindows({ ...json, layer_types: null, max_window_layers: null }, where, () => true),
    experts: readExperts(json, where, {
      count: ['num_experts', 'num_local_experts'],
      width: 'moe_intermediate_size',
      hasDenseLayers: true,
      defaults: { count: 128, chosen: 8, width: 768 },
    }),
  }),
});
