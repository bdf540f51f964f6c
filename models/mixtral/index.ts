/** Mixtral: LLaMA with experts in place of feed-forward blocks (arXiv:2401.04088). */
import { readExperts } from '../decoder/expertConfig.js';
import { MIXTRAL_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { readWindows } from '../decoder/window.js';

export const mixtral = decoderFamily({
  name: 'MixtralForCausalLM',
  modelType: 'mixtral',
  covers: 'Mixtral 8x7B and 8x22B',
  maxPositions: 131_072,
  kvHeads: 8,
  theta: 1_000_000,
  epsilon: 1e-5,
  names: { ...LLAMA_NAMES, experts: MIXTRAL_EXPERTS },
  differences: (json, where) => {
    const defaults = { count: 8, chosen: 2, width: 14_336 };
    return {
      biased: [],
      windows: readWindows({ ...json, layer_types: null }, where, null, () => true),
      experts: readExperts(json, where, { count: ['num_local_experts'], width: 'intermediate_size', defaults }),
    };
  },
});
