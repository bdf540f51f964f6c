/** LLaMA (arXiv:2302.13971) and its successors: the plain decoder, with biases if config.json has them. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';

export const llama = decoderFamily({
  name: 'LlamaForCausalLM',
  modelType: 'llama',
  covers: 'LLaMA 1, 2, 3 and models with the same architecture',
  maxPositions: 2048,
  differences: (json, where) => ({
    biased: [
      ...(readFlag(json, 'attention_bias', where) ? (['q', 'k', 'v', 'o'] as const) : []),
      ...(readFlag(json, 'mlp_bias', where) ? (['gate', 'up', 'down'] as const) : []),
    ],
  }),
});
