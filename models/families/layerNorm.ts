/** Families with LayerNorm, or with attention and feed-forward side by side. */
import { isGiven, quote } from '../../system/json.js';
import { decoderFamily } from '../decoder/family.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

const LAYER_NORM = { kind: 'layer', offset: 0, hasBias: true } as const;

/** One layer of Command R7B in this many has no window, if a file does not say. */
const PATTERN = 4;

export const LAYER_NORM_FAMILIES = [
  // StableLM (stability.ai, 2023): LayerNorm, and rotary embedding of a part of each head.
  decoderFamily({
    name: 'StableLmForCausalLM',
    modelType: 'stablelm',
    covers: 'StableLM 3B, 2 1.6B, 2 12B and Zephyr',
    maxPositions: 4096,
    kvHeads: 32,
    epsilonKey: 'layer_norm_eps',
    epsilon: 1e-5,
    rotaryPart: 0.25,
    names: { ...LLAMA_NAMES, qkNorms: { q: 'self_attn.q_layernorm', k: 'self_attn.k_layernorm' } },
    differences: (read) => ({
      norm: LAYER_NORM,
      biased: read.flag('use_qkv_bias') ? ['q', 'k', 'v'] : [],
      ...(read.flag('qk_layernorm') ? { qkNorm: 'own head' } : {}),
      ...(read.flag('use_parallel_residual') ? { parallel: 'one norm' } : {}),
    }),
  }),

  // StarCoder 2 (arXiv:2402.19173): a feed-forward block without a gate, biases everywhere, a window. transformers does
  // not read layer_types for it.
  decoderFamily({
    name: 'Starcoder2ForCausalLM',
    modelType: 'starcoder2',
    covers: 'StarCoder 2 3B, 7B and 15B',
    maxPositions: 4096,
    kvHeads: 2,
    epsilonKey: 'norm_epsilon',
    epsilon: 1e-5,
    activation: 'geluTanh',
    isTied: true,
    names: { ...LLAMA_NAMES, projections: { ...LLAMA_NAMES.projections, up: 'mlp.c_fc', down: 'mlp.c_proj' } },
    differences: (read) => ({
      norm: LAYER_NORM,
      biased: read.flag('use_bias', true) ? ['q', 'k', 'v', 'o', 'up', 'down'] : [],
      isGated: false,
      windows: read.without('layer_types').windows(null, () => true),
    }),
  }),

  // GPT-NeoX (arXiv:2204.06745) and Pythia: attention and feed-forward side by side, GELU, biases.
  decoderFamily({
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
    differences: (read) => {
      const { num_key_value_heads: kvHeads, num_attention_heads: heads } = read.json;
      if (isGiven(kvHeads) && kvHeads !== heads)
        read.fail(`num_key_value_heads is ${quote(kvHeads)}: this family has none of its own`);
      return {
        norm: LAYER_NORM,
        biased: [...(read.flag('attention_bias', true) ? (['q', 'k', 'v', 'o'] as const) : []), 'up', 'down'],
        isGated: false,
        ...(read.flag('use_parallel_residual', true) ? { parallel: 'two norms' } : {}),
      };
    },
  }),

  // Command R7B and A (arXiv:2504.00698): blocks side by side behind one norm, no rotary embedding without a window.
  decoderFamily({
    name: 'Cohere2ForCausalLM',
    modelType: 'cohere2',
    covers: 'Command R7B, Command A',
    maxPositions: 8192,
    epsilonKey: 'layer_norm_eps',
    epsilon: 1e-5,
    hasInterleavedPairs: true,
    isTied: true,
    names: { ...LLAMA_NAMES, norms: { attention: { before: 'input_layernorm' }, ffn: {} } },
    differences: (read) => {
      // Files with _sliding_window_pattern have layer_types, which are what is read.
      const pattern = read.number('sliding_window_pattern', PATTERN, [1, 1024]);
      const windows = read.windows(4096, (layer) => (layer + 1) % pattern !== 0);
      return {
        biased: read.attentionBiases(),
        norm: { kind: 'layer', offset: 0, hasBias: false },
        parallel: 'one norm',
        windows,
        unrotated: windows.flatMap((window, layer) => (window === null ? [layer] : [])),
        factors: { logits: read.number('logit_scale', 0.0625) },
      };
    },
  }),
] as const;
