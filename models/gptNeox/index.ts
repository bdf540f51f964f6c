/** GPT-NeoX (arXiv:2204.06745) and Pythia: attention and feed-forward side by side, LayerNorm, GELU, biases. */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import { readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

export const gptNeox = decoderFamily({
  name: 'GPTNeoXForCausalLM',
  modelType: 'gpt_neox',
  covers: 'GPT-NeoX 20B, Pythia',
  maxPositions: 2048,
  epsilonKey: 'layer_norm_eps',
  epsilon: 1e-5,
  activation: 'gelu',
  rotaryPart: 0.25,
  thetaKey: 'rotary_emb_base',
  names: {
    embedding: 'gpt_neox.embed_in',
    head: 'embed_out',
    finalNorm: 'gpt_neox.final_layer_norm',
    layers: 'gpt_neox.layers',
    projections: {
      q: 'attention.q_proj',
      k: 'attention.k_proj',
      v: 'attention.v_proj',
      o: 'attention.dense',
      gate: 'mlp.gate',
      up: 'mlp.dense_h_to_4h',
      down: 'mlp.dense_4h_to_h',
    },
    norms: LLAMA_NAMES.norms,
    qkNorms: LLAMA_NAMES.qkNorms,
    fused: [{ module: 'attention.query_key_value', of: ['q', 'k', 'v'], isByHead: true }],
  },
  differences: (json, where) => {
    const { num_key_value_heads: kvHeads, num_attention_heads: heads } = json;
    if (isGiven(kvHeads) && kvHeads !== heads)
      throw new UserError(`${where}: num_key_value_heads is ${quote(kvHeads)}: this family has none of its own`);
    const hasBiases = readFlag({ attention_bias: true, ...json }, 'attention_bias', where);
    const isParallel = readFlag({ use_parallel_residual: true, ...json }, 'use_parallel_residual', where);
    return {
      norm: { kind: 'layer', offset: 0, hasBias: true },
      biased: [...(hasBiases ? (['q', 'k', 'v', 'o'] as const) : []), 'up', 'down'],
      isGated: false,
      ...(isParallel ? { parallel: 'two norms' } : {}),
    };
  },
});
