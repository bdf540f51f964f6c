/** Qwen 1.5 and 2 with experts: each token also takes a shared expert, times a gate of its own (arXiv:2407.10671). */
import { readFlag } from '../decoder/config.js';
import { readExperts } from '../decoder/expertConfig.js';
import { QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { readQwenWindows } from '../decoder/window.js';

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
