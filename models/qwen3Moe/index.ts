/** Qwen 3 with experts (arXiv:2505.09388). */
import { readFlag } from '../decoder/config.js';
import { readExperts, refuseWindow } from '../decoder/expertConfig.js';
import { QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

export const qwen3Moe = decoderFamily({
  name: 'Qwen3MoeForCausalLM',
  modelType: 'qwen3_moe',
  covers: 'Qwen 3 with experts, without a sliding window',
  maxPositions: 32_768,
  kvHeads: 4,
  names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
  differences: (json, where) => {
    refuseWindow(json, where);
    return {
      biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
      qkNorm: 'head',
      experts: readExperts(json, where, {
        count: ['num_experts', 'num_local_experts'],
        width: 'moe_intermediate_size',
        hasDenseLayers: true,
        defaults: { count: 128, chosen: 8, width: 768 },
      }),
    };
  },
});
