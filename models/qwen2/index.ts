/** Qwen 2 and 2.5 (arXiv:2407.10671): queries, keys and values have biases. */
import { decoderFamily } from '../decoder/index.js';
import { checkWindow } from '../decoder/window.js';

export const qwen2 = decoderFamily({
  name: 'Qwen2ForCausalLM',
  modelType: 'qwen2',
  covers: 'Qwen 2 and 2.5, without a sliding window',
  maxPositions: 32_768,
  kvHeads: 32,
  differences: (json, where) => {
    checkWindow(json, where);
    return { biased: ['q', 'k', 'v'] };
  },
});
