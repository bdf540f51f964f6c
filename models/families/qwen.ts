/** Qwen 2 (arXiv:2407.10671) and Qwen 3 (arXiv:2505.09388), without and with experts. */
import { QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

/** Sizes of a `text_config` that names none: those of transformers' Qwen2Config and Qwen3Config. */
const TEXT_DEFAULTS = {
  vocab_size: 151_936,
  hidden_size: 4096,
  intermediate_size: 22_016,
  num_hidden_layers: 32,
  num_attention_heads: 32,
} as const;

const EXPERT_KEYS = {
  count: ['num_experts', 'num_local_experts'],
  width: 'moe_intermediate_size',
  hasDenseLayers: true,
} as const;

export const QWEN_FAMILIES = [
  // Queries, keys and values have biases.
  decoderFamily({
    name: 'Qwen2ForCausalLM',
    modelType: 'qwen2',
    covers: 'Qwen 2 and 2.5',
    textDefaults: TEXT_DEFAULTS,
    maxPositions: 32_768,
    kvHeads: 32,
    differences: (read) => ({ biased: ['q', 'k', 'v'], windows: read.qwenWindows() }),
  }),

  // Each head of queries and keys is normed before rotary embedding.
  decoderFamily({
    name: 'Qwen3ForCausalLM',
    modelType: 'qwen3',
    covers: 'Qwen 3, dense',
    textDefaults: TEXT_DEFAULTS,
    maxPositions: 32_768,
    kvHeads: 32,
    headDim: 128,
    differences: (read) => ({ biased: read.attentionBiases(), qkNorm: 'head', windows: read.qwenWindows() }),
  }),

  // Each token also takes a shared expert, times a gate of its own. As in transformers, the window is that of every
  // second layer below max_window_layers, and qkv_bias is true where it is null.
  decoderFamily({
    name: 'Qwen2MoeForCausalLM',
    modelType: 'qwen2_moe',
    covers: 'Qwen 1.5 and 2 with experts',
    maxPositions: 32_768,
    kvHeads: 16,
    names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
    differences: (read) => ({
      biased: read.json['qkv_bias'] === null || read.flag('qkv_bias', true) ? ['q', 'k', 'v'] : [],
      windows: read.qwenWindows((layer, bound) => layer % 2 === 0 && layer < bound),
      experts: read.experts({
        ...EXPERT_KEYS,
        sharedWidth: 'shared_expert_intermediate_size',
        defaults: { count: 60, chosen: 4, width: 1408, sharedWidth: 5632 },
      }),
    }),
  }),

  // All layers have the window, or none: transformers reads neither layer_types nor max_window_layers.
  decoderFamily({
    name: 'Qwen3MoeForCausalLM',
    modelType: 'qwen3_moe',
    covers: 'Qwen 3 with experts',
    maxPositions: 32_768,
    kvHeads: 4,
    names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
    differences: (read) => ({
      biased: read.attentionBiases(),
      qkNorm: 'head',
      windows: read.without('layer_types', 'max_window_layers').qwenWindows(() => true),
      experts: read.experts({ ...EXPERT_KEYS, defaults: { count: 128, chosen: 8, width: 768 } }),
    }),
  }),
] as const;
