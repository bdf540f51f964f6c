/** Qwen 3 (arXiv:2505.09388): each head of queries and keys is normed before rotary embedding. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { readQwenWindows } from '../decoder/window.js';

export const qwen3 = decoderFamily({
  name: 'Qwen3ForCausalLM',
  modelType: 'qwen3',
  covers: 'Qwen 3, dense',
  textDefaults: {
    vocab_size: 151_936,
    hidden_size: 4096,
    intermediate_size: 22_016,
    num_hidden_layers: 32,
    num_attention_heads: 32,
  },
  maxPositions: 32_768,
  kvHeads: 32,
  headDim: 128,
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'head',
    windows: readQwenWindows(json, where),
  }),
});
