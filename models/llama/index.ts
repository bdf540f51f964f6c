/** LLaMA (arXiv:2302.13971) and its successors: the decoder as it is, with biases where config.json asks for them. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';

export const llama = decoderFamily({
  name: 'LlamaForCausalLM',
  modelType: 'llama',
  covers: 'LLaMA 1, 2, 3 and models that are exactly like them',
  maxPositions: 2048,
  differences: (json, where) => ({
    biased: [
      ...(readFlag(json, 'attention_bias', where) ? (['q', 'k', 'v', 'o'] as const) : []),
      ...(readFlag(json, 'mlp_bias', where) ? (['gate', 'up', 'down'] as const) : []),
    ],
  }),
});
