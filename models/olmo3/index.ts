/** OLMo 3: OLMo 2 with a sliding window in three layers of four, which have no rotary scaling. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { NAMES_WITH_NORMS_BEHIND } from '../decoder/tensors.js';
import { readWindows } from '../decoder/window.js';

export const olmo3 = decoderFamily({
  name: 'Olmo3ForCausalLM',
  modelType: 'olmo3',
  covers: 'OLMo 3',
  maxPositions: 2048,
  epsilon: 1e-5,
  names: NAMES_WITH_NORMS_BEHIND,
  theta: 500_000,
  scalesFullLayersOnly: true,
  differences: (json, where) => ({
    biased: readFlag(json, 'attention_bias', where) ? ['q', 'k', 'v', 'o'] : [],
    qkNorm: 'row',
    windows: readWindows(json, where, 4096, (layer) => (layer + 1) % 4 !== 0),
  }),
});
