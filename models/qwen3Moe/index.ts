/** Qwen 3 with experts (arXiv:2505.09388). */
import { readFlag } from '../decoder/config.js';
import { readExperts } from '../decoder/expertConfig.js';
import { QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { readQwenWindows } from '../decoder/window.js';

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
