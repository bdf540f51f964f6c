/** Phi-3 and Phi-4 (arXiv:2404.14219): fused tensors, LongRoPE, and a part of each head that is turned. */
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { readWindows } from '../decoder/window.js';

export const phi3 = decoderFamily({
  name: 'Phi3ForCausalLM',
  modelType: 'phi3',
  covers: 'Phi 3, 3.5 and 4, dense',
  maxPositions: 4096,
  originalMaxPositions: 4096,
  epsilon: 1e-5,
  rotaryPart: 1,
  // What older files call it.
  ropeTypes: { su: 'longrope', yarn: 'longrope' },
  names: {
    ...LLAMA_NAMES,
    fused: [
      { module: 'self_attn.qkv_proj', of: ['q', 'k', 'v'] },
      { module: 'mlp.gate_up_proj', of: ['gate', 'up'] },
    ],
  },
  differences: (json, where) => ({
    biased: [],
    windows: readWindows({ ...json, layer_types: null }, where, null, () => true),
  }),
});
