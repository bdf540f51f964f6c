/** Qwen 3 (arXiv:2505.09388): each head of queries and keys is normed before rotary embedding. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { readQwenWindows } from '../decoder/window.js';
import { QWEN_TEXT_DEFAULTS } from '../qwen2/index.js';

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
