/** StarCoder 2 (arXiv:2402.19173): LayerNorm, a feed-forward block without a gate, biases everywhere, a window. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { readWindows } from '../decoder/window.js';

export const starcoder2 = decoderFamily({
  name: 'Starcoder2ForCausalLM',
  modelType: 'starcoder2',
  covers: 'StarCoder 2 3B, 7B and 15B',
  maxPositions: 4096,
  kvHeads: 2,
  epsilonKey: 'norm_epsilon',
  epsilon: 1e-5,
  activation: 'geluTanh',
  isTied: true,
  names: {
    ...LLAMA_NAMES,
    projections: { ...LLAMA_NAMES.projections, up: 'mlp.c_fc', down: 'mlp.c_proj' },
  },
  differences: (json, where) => ({
    norm: { kind: 'layer', offset: 0, hasBias: true },
    biased: readFlag({ use_bias: true, ...json }, 'use_bias', where) ? ['q', 'k', 'v', 'o', 'up', 'down'] : [],
    isGated: false,
    // The library that writes these files does not read layer_types for them.
    windows: readWindows({ ...json, layer_types: null }, where, null, () => true),
  }),
});
