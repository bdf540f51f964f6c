/** StableLM (stability.ai, 2023): LayerNorm, and a part of each head that is turned. */
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

export const stablelm = decoderFamily({
  name: 'StableLmForCausalLM',
  modelType: 'stablelm',
  covers: 'StableLM 3B, 2 1.6B, 2 12B and Zephyr',
  maxPositions: 4096,
  kvHeads: 32,
  epsilonKey: 'layer_norm_eps',
  epsilon: 1e-5,
  rotaryPart: 0.25,
  names: { ...LLAMA_NAMES, qkNorms: { q: 'self_attn.q_layernorm', k: 'self_attn.k_layernorm' } },
  differences: (json, where) => ({
    norm: { kind: 'layer', offset: 0, hasBias: true },
    biased: readFlag(json, 'use_qkv_bias', where) ? ['q', 'k', 'v'] : [],
    ...(readFlag(json, 'qk_layernorm', where) ? { qkNorm: 'own head' } : {}),
    ...(readFlag(json, 'use_parallel_residual', where) ? { parallel: 'one norm' } : {}),
  }),
});
