/** Families of LLaMA's kind whose layers have experts. */
import { isGiven, quote } from '../../system/json.js';
import { GRANITE_EXPERTS, QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { graniteFactors } from './llama.js';

export const EXPERT_FAMILIES = [
  // OLMoE (arXiv:2409.02060): norms of whole rows of queries and keys, experts in every layer.
  decoderFamily({
    name: 'OlmoeForCausalLM',
    modelType: 'olmoe',
    covers: 'OLMoE 1B-7B',
    maxPositions: 4096,
    epsilon: 1e-5,
    names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
    differences: (read) => {
      const { clip_qkv: clip } = read.json;
      if (isGiven(clip)) read.fail(`clip_qkv is ${quote(clip)}: bounds of queries, keys and values are not supported`);
      return {
        biased: read.attentionBiases(),
        qkNorm: 'row',
        experts: read.without('mlp_only_layers', 'decoder_sparse_step').experts({
          count: ['num_experts', 'num_local_experts'],
          width: 'intermediate_size',
          hasDenseLayers: true,
          defaults: { count: 64, chosen: 8, width: 2048 },
        }),
      };
    },
  }),

  // Granite 3 with experts: Granite's factors; all experts of a layer lie in one tensor.
  decoderFamily({
    name: 'GraniteMoeForCausalLM',
    modelType: 'granitemoe',
    covers: 'Granite 3 1B-A400M and 3B-A800M',
    maxPositions: 2048,
    names: { ...LLAMA_NAMES, experts: GRANITE_EXPERTS },
    differences: (read) => ({
      biased: read.attentionBiases(),
      factors: graniteFactors(read),
      experts: read.experts({
        count: ['num_local_experts'],
        width: 'intermediate_size',
        defaults: { count: 8, chosen: 2, width: 11_008 },
      }),
    }),
  }),
] as const;
