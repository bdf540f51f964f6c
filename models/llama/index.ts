/** LLaMA (arXiv:2302.13971) and its successors: the plain decoder, with biases if config.json has them. */
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';

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
