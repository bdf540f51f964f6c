/** Families with LayerNorm, or with attention and feed-forward side by side. */
import { isGiven, quote } from '../../system/json.js';
import { decoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import { headsOf, roundedSlopes } from '../decoder/slopes.js';
import { LLAMA_NAMES, type TensorNames } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

const LAYER_NORM = { kind: 'layer', offset: 0, hasBias: true } as const;

/** One layer of Command R7B in this many has no window, if a file does not say. */
const PATTERN = 4;

/** What the flags of a Falcon say of its layers. */
interface FalconShape {
  /** Heads of keys have groups of queries; else one serves all queries, or each has its own. */
  readonly isGrouped: boolean;
  readonly isMultiQuery: boolean;
  readonly isParallel: boolean;
  /** Norms before the branches. */
  readonly norms: 1 | 2;
}

function falconShape(read: ConfigReader): FalconShape {
  const isGrouped = read.flag('new_decoder_architecture');
  const isParallel = read.flag('parallel_attn', true);
  if (isGrouped && !isParallel) read.fail('parallel_attn is false: new_decoder_architecture has parallel branches');
  const norms = read.whole('num_ln_in_parallel_attn', isGrouped ? 2 : 1, [1, 2]);
  if (norms === 2 && !isGrouped) read.fail('num_ln_in_parallel_attn is 2: it takes new_decoder_architecture');
  return {
    isGrouped,
    isMultiQuery: !isGrouped && read.flag('multi_query', true),
    isParallel,
    norms: norms === 2 || !isParallel ? 2 : 1,
  };
}

function falconNames({ isGrouped, isMultiQuery, isParallel, norms }: FalconShape): TensorNames {
  const two = isParallel
    ? (['ln_attn', 'ln_mlp'] as const)
    : (['input_layernorm', 'post_attention_layernorm'] as const);
  const [attention, ffn] = norms === 2 ? two : (['input_layernorm', undefined] as const);
  return {
    embedding: 'transformer.word_embeddings',
    head: 'lm_head',
    finalNorm: 'transformer.ln_f',
    layers: 'transformer.h',
    projections: {
      q: 'self_attention.query',
      k: 'self_attention.key',
      v: 'self_attention.value',
      o: 'self_attention.dense',
      gate: 'mlp.gate',
      up: 'mlp.dense_h_to_4h',
      down: 'mlp.dense_4h_to_h',
    },
    norms: { attention: { before: attention }, ffn: ffn === undefined ? {} : { before: ffn } },
    qkNorms: LLAMA_NAMES.qkNorms,
    fused: [{ module: 'self_attention.query_key_value', of: ['q', 'k', 'v'], isByHead: isGrouped || !isMultiQuery }],
  };
}

/**
 * ALiBi of Falcon RW: slopes, and their products with positions of keys from the first token on, are bf16 whatever the
 * model's type is, and are divided by √headDim with the scores.
 */
function falconSlopes(read: ConfigReader) {
  const { hidden_size: hidden, num_attention_heads: count } = read.json;
  const heads = headsOf(read);
  // Sizes that are none are refused with those of all decoders.
  const width = typeof hidden === 'number' && hidden >= heads ? hidden / heads : 1;
  const isWhole = count === heads;
  return {
    unrotated: read.layers(),
    ...(isWhole ? { slopes: roundedSlopes(heads), slopeFactor: 1 / Math.sqrt(width) } : {}),
  };
}

/** Falcon's sizes under the names that decoders share. It has no width of heads of its own. */
function falconSizes(read: ConfigReader): Json {
  const { json } = read;
  const { isGrouped, isMultiQuery } = falconShape(read);
  const { num_attention_heads: heads, num_kv_heads: stated, n_embed: embed } = json;
  if (!isGrouped && !isMultiQuery && isGiven(stated) && stated !== heads)
    read.fail(`num_kv_heads is ${quote(stated)}: without multi_query each of ${quote(heads)} heads has its own keys`);
  const hidden = isGiven(embed) ? embed : json['hidden_size'];
  return {
    ...json,
    hidden_size: hidden,
    intermediate_size: json['ffn_hidden_size'] ?? 4 * Number(hidden),
    num_key_value_heads: isMultiQuery ? 1 : isGrouped ? (stated ?? null) : null,
    head_dim: null,
  };
}

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

  // Phi 1, 1.5 and 2 (arXiv:2309.05463): branches side by side behind one norm, biases everywhere, also at the head.
  decoderFamily({
    name: 'PhiForCausalLM',
    modelType: 'phi',
    covers: 'Phi 1, 1.5 and 2',
    maxPositions: 2048,
    epsilonKey: 'layer_norm_eps',
    epsilon: 1e-5,
    activation: 'geluTanh',
    rotaryPart: 0.5,
    names: {
      ...LLAMA_NAMES,
      finalNorm: 'model.final_layernorm',
      projections: { ...LLAMA_NAMES.projections, o: 'self_attn.dense', up: 'mlp.fc1', down: 'mlp.fc2' },
      norms: { attention: { before: 'input_layernorm' }, ffn: {} },
      qkNorms: { q: 'self_attn.q_layernorm', k: 'self_attn.k_layernorm' },
    },
    differences: (read) => ({
      norm: LAYER_NORM,
      biased: ['q', 'k', 'v', 'o', 'up', 'down'],
      isGated: false,
      parallel: 'one norm',
      hasHeadBias: true,
      ...(read.flag('qk_layernorm') ? { qkNorm: 'head' } : {}),
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

  // Command R and R+ (Cohere, 2024): Command R7B without windows; R+ norms heads of q and k by weights of their own.
  decoderFamily({
    name: 'CohereForCausalLM',
    modelType: 'cohere',
    covers: 'Command R, R+, Aya 23 and Expanse',
    maxPositions: 8192,
    epsilonKey: 'layer_norm_eps',
    epsilon: 1e-5,
    hasInterleavedPairs: true,
    isTied: true,
    names: {
      ...LLAMA_NAMES,
      norms: { attention: { before: 'input_layernorm' }, ffn: {} },
      hasNormsInOne: true,
    },
    differences: (read) => ({
      biased: read.attentionBiases(),
      norm: { kind: 'layer', offset: 0, hasBias: false },
      parallel: 'one norm',
      ...(read.flag('use_qk_norm') ? { qkNorm: 'own head' } : {}),
      factors: { logits: read.number('logit_scale', 0.0625) },
    }),
  }),

  // Nemotron (arXiv:2402.16819): LayerNorm with weights around 1, ReLU², rotary embedding of a part of each head.
  decoderFamily({
    name: 'NemotronForCausalLM',
    modelType: 'nemotron',
    covers: 'Nemotron 4, Minitron 4B and 8B',
    maxPositions: 4096,
    epsilonKey: 'norm_eps',
    epsilon: 1e-5,
    activation: 'relu2',
    rotaryPart: 0.5,
    differences: (read) => ({
      norm: { kind: 'layer', offset: 1, hasBias: true },
      biased: [...read.attentionBiases(), ...(read.flag('mlp_bias') ? (['up', 'down'] as const) : [])],
      isGated: false,
    }),
  }),

  // Falcon (arXiv:2311.16867): one head of keys in 7B; groups, and two norms or one, in 40B, 180B and 2 11B.
  decoderFamily({
    name: 'FalconForCausalLM',
    modelType: 'falcon',
    covers: 'Falcon 7B, 40B, 180B, 2 11B and RW',
    maxPositions: 2048,
    epsilonKey: 'layer_norm_epsilon',
    epsilon: 1e-5,
    activation: 'gelu',
    activationKey: 'activation',
    isTied: true,
    prepare: falconSizes,
    names: (read) => falconNames(falconShape(read)),
    differences: (read) => {
      const { isParallel, norms } = falconShape(read);
      return {
        norm: LAYER_NORM,
        biased: read.flag('bias') ? ['q', 'k', 'v', 'o', 'up', 'down'] : [],
        isGated: false,
        ...(isParallel ? { parallel: norms === 2 ? 'two norms' : 'one norm' } : {}),
        ...(read.flag('alibi') ? falconSlopes(read) : {}),
      };
    },
  }),
] as const;
