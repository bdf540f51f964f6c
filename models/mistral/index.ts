/** Mistral (arXiv:2310.06825): a sliding window over keys in every layer, or none. */
import { decoderFamily } from '../decoder/index.js';
import { readWindows } from '../decoder/window.js';

export const mistral = decoderFamily({
  name: 'MistralForCausalLM',
  modelType: 'mistral',
  covers: 'Mistral 7B, NeMo, Small and models with the same architecture',
  textDefaults: {
    vocab_size: 32_000,
    hidden_size: 4096,
    intermediate_size: 14_336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
  },
  maxPositions: 131_072,
  kvHeads: 8,
  differences: (json, where) => ({
    biased: [],
    // The library that writes these files does not read layer_types for them.
    windows: readWindows({ ...json, layer_types: null }, where, 4096, () => true),
  }),
});
