/** Qwen 2 and 2.5 (arXiv:2407.10671): queries, keys and values have biases. */
import { decoderFamily } from '../decoder/index.js';
import { readQwenWindows } from '../decoder/window.js';

/** Sizes of a `text_config` of Qwen 2 or 3, where it names none: those of transformers' Qwen2Config and Qwen3Config. */
export const QWEN_TEXT_DEFAULTS = {
  vocab_size: 151_936,
  hidden_size: 4096,
  intermediate_size: 22_016,
  num_hidden_layers: 32,
  num_attention_heads: 32,
} as const;

export const qwen2 = decoderFamily({
  name: 'Qwen2ForCausalLM',
  modelType: 'qwen2',
  covers: 'Qwen 2 and 2.5',
  textDefaults: QWEN_TEXT_DEFAULTS,
  maxPositions: 32_768,
  kvHeads: 32,
  differences: (json, where) => ({ biased: ['q', 'k', 'v'], windows: readQwenWindows(json, where) }),
});
