/** GPT-NeoX (arXiv:2204.06745) and Pythia: attention and feed-forward side by side, LayerNorm, GELU, biases. */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import { readBiases, readFlag } from '../decoder/config.js';
import { decoderFamily } from '../decoder/family.js';
import { readNumber, readWindows } from '../decoder/reader.js';
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

// StableLM (stability.ai, 2023): LayerNorm, and a part of each head that is turned.

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

// StarCoder 2 (arXiv:2402.19173): LayerNorm, a feed-forward block without a gate, biases everywhere, a window.

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

// Command R7B and A (arXiv:2504.00698): blocks side by side behind one LayerNorm, and no angles without a window.

/** One layer in this many has no window, if a file does not say. */
const PATTERN = 4;

export const cohere2 = decoderFamily({
  name: 'Cohere2ForCausalLM',
  modelType: 'cohere2',
  covers: 'Command R7B, Command A',
  maxPositions: 8192,
  epsilonKey: 'layer_norm_eps',
  epsilon: 1e-5,
  hasInterleavedPairs: true,
  isTied: true,
  names: { ...LLAMA_NAMES, norms: { attention: { before: 'input_layernorm' }, ffn: {} } },
  differences: (json, where) => {
    // Files with _sliding_window_pattern have layer_types, which are what is read.
    const pattern = readNumber(json, where, 'sliding_window_pattern', PATTERN, [1, 1024]);
    const windows = readWindows(json, where, 4096, (layer) => (layer + 1) % pattern !== 0);
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: { kind: 'layer', offset: 0, hasBias: false },
      parallel: 'one norm',
      windows,
      unrotated: windows.flatMap((window, layer) => (window === null ? [layer] : [])),
      factors: { logits: readNumber(json, where, 'logit_scale', 0.0625) },
    };
  },
});
