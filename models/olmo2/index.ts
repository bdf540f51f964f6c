/** OLMo 2 (arXiv:2501.00656): norms behind attention and feed-forward, and of whole rows of queries and keys. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { NAMES_WITH_NORMS_BEHIND } from '../decoder/tensors.js';

export const olmo2 = decoderFamily({
  name: 'Olmo2ForCausalLM',
  modelType: 'olmo2',
  covers: 'OLMo 2',
  maxPositions: 2048,
  epsilon: 1e-5,
  names: NAMES_WITH_NORMS_BEHIND,
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'row',
  }),
});
