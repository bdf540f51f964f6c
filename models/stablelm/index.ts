/** StableLM (stability.ai, 2023): LayerNorm, and a part of each head that is turned. */
import { UserError } from '../../errors.js';
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';

export const stablelm = decoderFamily({
  name: 'StableLmForCausalLM',
  modelType: 'stablelm',
  covers: 'StableLM 3B, 2 1.6B and Zephyr, without norms of heads',
  maxPositions: 4096,
  kvHeads: 32,
  epsilonKey: 'layer_norm_eps',
  epsilon: 1e-5,
  rotaryPart: 0.25,
  differences: (json, where) => {
    if (readFlag(json, 'qk_layernorm', where))
      throw new UserError(`${where}: qk_layernorm: norms of heads with weights of their own are not supported`);
    return {
      norm: { kind: 'layer', offset: 0, hasBias: true },
      biased: readFlag(json, 'use_qkv_bias', where) ? ['q', 'k', 'v'] : [],
      ...(readFlag(json, 'use_parallel_residual', where) ? { parallel: 'one norm' } : {}),
    };
  },
});
