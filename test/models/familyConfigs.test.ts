/** What each family reads from config.json beside the keys that all decoders share, and the defaults of absent keys. */
import { describe, expect, it } from 'vitest';
import type { DecoderConfig } from '../../models/decoder/config.js';
import { describeModel } from '../../models/config.js';
import { ropeInverseFrequencies } from '../../models/decoder/rope.js';
import { SMALL_CONFIG, userError } from './support.js';

type Changes = Readonly<Record<string, unknown>>;

/** The model of a file that says no more than it must, and `changes`. */
function parse(modelType: string, changes: Changes = {}): DecoderConfig {
  const { hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, vocab_size } = SMALL_CONFIG;
  const sizes = { hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, vocab_size };
  return describeModel({ ...sizes, model_type: modelType, ...changes }, 'config.json').config as DecoderConfig;
}

const refusal = (modelType: string, changes: Changes): string => userError(() => parse(modelType, changes)).message;

/** Whether no part of `value` can be changed. */
const isFrozen = (value: unknown): boolean =>
  typeof value !== 'object' || value === null || (Object.isFrozen(value) && Object.values(value).every(isFrozen));

describe('families', () => {
  it.each([
    ['llama', {}, { maxPositions: 2048, kvHeads: 2, headDim: 4, tieWordEmbeddings: false, biased: [] }],
    ['qwen2', { num_attention_heads: 64, hidden_size: 256 }, { maxPositions: 32_768, kvHeads: 32, headDim: 4 }],
    ['qwen2', { num_key_value_heads: null }, { kvHeads: 2, biased: ['q', 'k', 'v'] }],
    ['qwen3', { num_attention_heads: 64 }, { maxPositions: 32_768, kvHeads: 32, headDim: 128, qkNorm: 'head' }],
    ['granite', {}, { maxPositions: 2048, biased: [], factors: { embedding: 1, residual: 1, scores: 1, logits: 1 } }],
    [
      'smollm3',
      { num_attention_heads: 8, hidden_size: 16, num_hidden_layers: 9 },
      { maxPositions: 32_768, kvHeads: 4, tieWordEmbeddings: true, unrotated: [3, 7] },
    ],
    [
      'gpt_neox',
      { head_dim: 16 },
      {
        biased: ['q', 'k', 'v', 'o', 'up', 'down'],
        norm: { kind: 'layer', offset: 0, hasBias: true },
        activation: 'gelu',
        isGated: false,
        parallel: 'two norms',
        rotary: { rotated: 4, interleaved: false },
        rmsNormEps: 1e-5,
      },
    ],
    [
      'gemma',
      { hidden_size: 48, torch_dtype: 'bfloat16', hidden_act: 'gelu', num_attention_heads: 16 },
      {
        headDim: 256,
        kvHeads: 16,
        tieWordEmbeddings: true,
        activation: 'geluTanh',
        norm: { kind: 'rms', offset: 1, hasBias: false },
        // √48, which bf16 would round to 6.9375.
        factors: { embedding: Math.sqrt(48) },
      },
    ],
    ['phi3', {}, { maxPositions: 4096, kvHeads: 2, rmsNormEps: 1e-5, biased: [] }],
    [
      'stablelm',
      { num_attention_heads: 32, hidden_size: 256, rope_parameters: { partial_rotary_factor: 0.25 } },
      {
        maxPositions: 4096,
        kvHeads: 32,
        rmsNormEps: 1e-5,
        norm: { kind: 'layer', offset: 0, hasBias: true },
        rotary: { rotated: 2, interleaved: false },
      },
    ],
    [
      'starcoder2',
      { num_attention_heads: 4 },
      {
        maxPositions: 4096,
        kvHeads: 2,
        biased: ['q', 'k', 'v', 'o', 'up', 'down'],
        norm: { kind: 'layer', offset: 0, hasBias: true },
        activation: 'geluTanh',
        isGated: false,
        rmsNormEps: 1e-5,
        tieWordEmbeddings: true,
      },
    ],
    [
      'mistral',
      { num_attention_heads: 8, hidden_size: 16 },
      { maxPositions: 131_072, kvHeads: 8, windows: [4096, 4096, 4096] },
    ],
    [
      'gemma2',
      { hidden_size: 36, num_attention_heads: 8, attn_logit_softcapping: null },
      {
        headDim: 256,
        kvHeads: 4,
        windows: [4096, null, 4096],
        factors: { embedding: 6, scores: 1 / 16 },
        caps: { logits: 30 },
        tieWordEmbeddings: true,
      },
    ],
    [
      'cohere2',
      { num_hidden_layers: 5 },
      {
        norm: { kind: 'layer', offset: 0, hasBias: false },
        parallel: 'one norm',
        rotary: { rotated: 4, interleaved: true },
        windows: [4096, 4096, 4096, null, 4096],
        unrotated: [3],
        factors: { logits: 0.0625 },
        rmsNormEps: 1e-5,
        tieWordEmbeddings: true,
      },
    ],
    ['seed_oss', { num_key_value_heads: null }, { maxPositions: 524_288, headDim: 128, biased: ['q', 'k', 'v'] }],
    ['arcee', {}, { maxPositions: 4096, rmsNormEps: 1e-5, activation: 'relu2', isGated: false, biased: [] }],
    [
      'hunyuan_v1_dense',
      { rope_scaling: { type: 'dynamic', factor: 1 } },
      { maxPositions: 2048, rmsNormEps: 1e-5, qkNorm: 'turned head', biased: [] },
    ],
    [
      'glm4',
      {},
      {
        maxPositions: 131_072,
        kvHeads: 2,
        headDim: 128,
        rmsNormEps: 1.5625e-7,
        rotary: { rotated: 64, interleaved: true },
        biased: [],
      },
    ],
    ['glm', {}, { headDim: 128, rmsNormEps: 1.5625e-7, biased: ['q', 'k', 'v'] }],
    [
      'exaone4',
      { num_attention_heads: 32, hidden_size: 256, num_hidden_layers: 5, max_position_embeddings: 8192 },
      { kvHeads: 32, rmsNormEps: 1e-5, qkNorm: 'head', windows: [4096, 4096, 4096, null, 4096], unrotated: [3] },
    ],
    [
      'cohere',
      { use_qk_norm: true },
      { rmsNormEps: 1e-5, parallel: 'one norm', qkNorm: 'own head', factors: { logits: 0.0625 } },
    ],
    ['apertus', { rope_scaling: null }, { rmsNormEps: 1e-5, activation: 'xielu', isGated: false, qkNorm: 'head' }],
    [
      'nemotron',
      {},
      { rmsNormEps: 1e-5, norm: { kind: 'layer', offset: 1, hasBias: true }, activation: 'relu2', isGated: false },
    ],
    [
      'falcon',
      {},
      { rmsNormEps: 1e-5, kvHeads: 1, intermediateSize: 32, parallel: 'one norm', activation: 'gelu', biased: [] },
    ],
    ['falcon', { new_decoder_architecture: true }, { rmsNormEps: 1e-5, kvHeads: 2, parallel: 'two norms' }],
    [
      'falcon',
      { n_embed: 16, multi_query: false, parallel_attn: false },
      { rmsNormEps: 1e-5, hiddenSize: 16, kvHeads: 2 },
    ],
    [
      'olmoe',
      {},
      { qkNorm: 'row', rmsNormEps: 1e-5, experts: { count: 64, chosen: 8, width: 12, isNormalized: false } },
    ],
    [
      'glm4_moe',
      { num_attention_heads: 8, hidden_size: 64, num_nextn_predict_layers: 1, routed_scaling_factor: 1 },
      {
        kvHeads: 8,
        rmsNormEps: 1e-5,
        rotary: { rotated: 4, interleaved: false },
        experts: {
          ...{ count: 128, chosen: 8, width: 1408, isNormalized: true, sharedWidth: 1408, hasSharedGate: false },
          ...{ dense: [0], routing: { scores: 'sigmoid', bias: 'mlp.gate.e_score_correction_bias' } },
        },
      },
    ],
    ['granitemoe', {}, { experts: { count: 8, chosen: 2, isNormalized: true }, factors: { logits: 1 } }],
    [
      'gpt2',
      { n_embd: 24, n_head: 3 },
      {
        rmsNormEps: 1e-5,
        hiddenSize: 24,
        heads: 3,
        intermediateSize: 96,
        positionRows: 1024,
        unrotated: [0, 1, 2],
        activation: 'geluTanh',
      },
    ],
    [
      'phimoe',
      { lm_head_bias: true, num_key_value_heads: null },
      {
        experts: { count: 16, chosen: 2, routing: { inTurn: 0.02 } },
        hasHeadBias: true,
        norm: { kind: 'layer', hasBias: true },
        rmsNormEps: 1e-5,
      },
    ],
    ['olmo', { rms_norm_eps: 0.1, clip_qkv: 8 }, { rmsNormEps: 1e-5, clip: 8, norm: { kind: 'layer', isBare: true } }],
    ['opt', { ffn_dim: 20 }, { intermediateSize: 20, positionRows: 2048, rmsNormEps: 1e-5, activation: 'relu' }],
    ['olmo2', {}, { maxPositions: 2048, kvHeads: 2, rmsNormEps: 1e-5, qkNorm: 'row', biased: [] }],
    [
      'olmo3',
      { max_position_embeddings: 8192, num_hidden_layers: 5 },
      { rmsNormEps: 1e-5, qkNorm: 'row', windows: [4096, 4096, 4096, null, 4096] },
    ],
  ])('%s: %j fills in what transformers does', (type, changes, expected) => {
    const config = parse(type, changes);
    expect(config).toMatchObject({ rmsNormEps: 1e-6, eosTokenIds: [], ...expected });
    const theta = { smollm3: 2_000_000, olmo3: 500_000, phimoe: 1_000_000, apertus: 12_000_000 }[type] ?? 10_000;
    expect(config.rope).toEqual({ theta, scaling: { type: 'none' } });
    expect(config.windowRope).toBeUndefined();
  });

  it('stretch positions where a file says nothing of them', () => {
    const scaling = { type: 'llama3', factor: 8, originalMaxPositions: 8192 };
    expect(parse('apertus')).toMatchObject({ rope: { theta: 12_000_000, scaling } });
  });

  it('are deeply frozen', () => {
    const rope_scaling = { rope_type: 'yarn', factor: 2, original_max_position_embeddings: 64 };
    for (const [type, changes] of [
      ['llama', { attention_bias: true, eos_token_id: [1, 2] }],
      ['granite', { embedding_multiplier: 2 }],
      ['olmo3', { sliding_window: 4 }],
      ['smollm3', { num_key_value_heads: 1 }],
    ] as const)
      expect(isFrozen(parse(type, { ...changes, rope_scaling })), type).toBe(true);
  });

  it('reads marks of layers without rotary embedding, also more than there are layers', () => {
    const marks = (no_rope_layers: unknown): DecoderConfig['unrotated'] =>
      parse('smollm3', { num_key_value_heads: 1, no_rope_layers }).unrotated;
    expect(marks([0, 1, 0])).toEqual([0, 2]);
    expect(marks([1, 0, 1, 0])).toEqual([1]);
  });

  it.each([
    ['mistral', { sliding_window: 20, layer_types: ['full_attention'] }, [20, 20, 20]],
    ['mistral', { sliding_window: null }, undefined],
    ['starcoder2', {}, undefined],
    ['starcoder2', { sliding_window: 20 }, [20, 20, 20]],
    // A window as long as the context hides nothing.
    ['mistral', { sliding_window: 64, max_position_embeddings: 64 }, undefined],
    ['qwen2', { sliding_window: 20, max_window_layers: 0 }, undefined],
    ['qwen2', { use_sliding_window: true, max_window_layers: 2, sliding_window: 20 }, [null, null, 20]],
    ['qwen3', { use_sliding_window: true, max_window_layers: 1 }, [null, 4096, 4096]],
    ['qwen3', { use_sliding_window: true }, undefined],
    [
      'qwen3',
      {
        use_sliding_window: true,
        sliding_window: 9,
        layer_types: ['sliding_attention', 'full_attention', 'full_attention'],
      },
      [9, null, null],
    ],
    ['smollm3', { use_sliding_window: true, sliding_window: 9, no_rope_layers: [1, 0, 1] }, [null, 9, null]],
    ['smollm3', { use_sliding_window: true }, undefined],
  ])('%s: %j sets the windows %j', (type, changes, windows) => {
    expect(parse(type, { num_key_value_heads: 1, ...changes }).windows).toEqual(windows);
  });

  it('reads LongRoPE as far as the model was trained, under all of its names', () => {
    const short_factor = [1, 2];
    for (const [rope_type, key] of [
      ['longrope', 'rope_parameters'],
      ['su', 'rope_scaling'],
      ['yarn', 'rope_scaling'],
    ] as const) {
      const sizes = { max_position_embeddings: 8192, original_max_position_embeddings: 64 };
      const config = parse('phi3', {
        ...sizes,
        [key]: { [key === 'rope_scaling' ? 'type' : 'rope_type']: rope_type, short_factor },
      });
      const attentionFactor = Math.sqrt(1 + Math.log(128) / Math.log(64));
      expect(config.maxPositions).toBe(64);
      expect(config.rope).toEqual({
        theta: 10_000,
        scaling: { type: 'longrope', factors: [1, 2], originalMaxPositions: 64, attentionFactor },
      });
      expect([...ropeInverseFrequencies(config)]).toEqual([1, 0.005]);
    }
    // Factors are of pairs that turn.
    const half = { partial_rotary_factor: 0.5, rope_scaling: { type: 'su', short_factor: [3] } };
    expect(parse('phi3', half)).toMatchObject({
      maxPositions: 4096,
      rope: { scaling: { factors: [3], attentionFactor: 1 } },
    });
  });

  it('takes dynamic scaling for none: texts within the context are not stretched', () => {
    const config = parse('llama', { rope_scaling: { type: 'dynamic', factor: 4 } });
    expect(config).toEqual(parse('llama'));
  });

  it('reads rotary settings of Gemma 3 as transformers 4 and 5 write them, also where no window hides anything', () => {
    const small = {
      num_key_value_heads: 1,
      num_hidden_layers: 7,
      max_position_embeddings: 64,
      query_pre_attn_scalar: 64,
    };
    const linear = { rope_type: 'linear', factor: 8 };
    const old = { ...small, rope_theta: 2e6, rope_local_base_freq: 5000, rope_scaling: linear };
    const nested = {
      ...small,
      rope_parameters: {
        full_attention: { rope_theta: 2e6, ...linear },
        sliding_attention: { rope_theta: 5000, rope_type: 'default' },
      },
    };
    for (const changes of [old, nested])
      expect(parse('gemma3_text', changes)).toMatchObject({
        qkNorm: 'head',
        windows: [4096, 4096, 4096, 4096, 4096, null, 4096],
        rope: { theta: 2e6, scaling: { type: 'linear', factor: 8 } },
        windowRope: { theta: 5000, scaling: { type: 'none' } },
        factors: { scores: 1 / 8 },
        caps: {},
      });
    expect(parse('gemma3_text', small)).toMatchObject({ rope: { theta: 1e6 }, windowRope: { theta: 1e4 } });
    expect(parse('gemma3_text', { ...small, _sliding_window_pattern: 2 })).toEqual(parse('gemma3_text', small));
    expect(parse('gemma3_text', { ...small, attn_logit_softcapping: 5, final_logit_softcapping: 9 }).caps).toEqual({
      logits: 9,
    });
    expect(parse('gemma3_text', { ...small, sliding_window_pattern: 2 }).windows?.slice(0, 3)).toEqual([
      4096,
      null,
      4096,
    ]);
  });

  it('reads Gemma 3 inside a model that reads pictures, whose text_config leaves sizes out', () => {
    const text_config = { model_type: 'gemma3_text', hidden_size: 36, num_hidden_layers: 2, intermediate_size: 8 };
    const outer = { architectures: ['Gemma3ForConditionalGeneration'], model_type: 'gemma3', torch_dtype: 'bfloat16' };
    const read = (text: unknown): DecoderConfig =>
      describeModel({ ...outer, text_config: text, eos_token_id: [1, 106] }, 'config.json').config as DecoderConfig;
    expect(read(text_config)).toMatchObject({
      architecture: 'Gemma3ForCausalLM',
      vocabSize: 262_208,
      heads: 8,
      kvHeads: 4,
      headDim: 256,
      layers: 2,
      dtype: 'bf16',
      eosTokenIds: [1, 106],
    });
    expect(userError(() => read({ ...text_config, hidden_size: 'x' })).message).toMatch(
      /^config\.json: text_config: hidden_size: expected/,
    );
  });

  it('scales only the full layers of OLMo 3, and reads rotary settings by the kind of a layer', () => {
    const scaling = { type: 'linear', factor: 4 } as const;
    const plain = { theta: 7e4, scaling: { type: 'none' } };
    const old = { rope_theta: 7e4, rope_scaling: { rope_type: 'linear', factor: 4 } };
    const nested = {
      rope_parameters: {
        full_attention: { rope_type: 'linear', factor: 4, rope_theta: 7e4 },
        sliding_attention: { rope_type: 'default', rope_theta: 7e4 },
      },
    };
    for (const changes of [old, nested])
      expect(parse('olmo3', changes)).toMatchObject({ rope: { theta: 7e4, scaling }, windowRope: plain });
    // In other families, what is given once is of all layers.
    expect(parse('mistral', { num_key_value_heads: 1, ...old })).not.toHaveProperty('windowRope');
    const same = { full_attention: { rope_theta: 7e4 }, sliding_attention: { rope_theta: 7e4 } };
    expect(parse('olmo3', { rope_parameters: same }).rope).toEqual(plain);
    expect(parse('olmo3', { rope_parameters: same })).not.toHaveProperty('windowRope');
  });

  it.each([
    [
      'phi3',
      { rope_scaling: { type: 'longrope', short_factor: [1, 2, 3] } },
      'short_factor has 3 numbers, but rotary embedding turns 2 pairs',
    ],
    ['phi3', { rope_scaling: { type: 'su' } }, 'rope_scaling.short_factor: expected a list of numbers above 0'],
    [
      'phi3',
      { rope_scaling: { type: 'su', short_factor: [1, 0] } },
      'short_factor: expected a list of numbers above 0',
    ],
    [
      'phi3',
      { original_max_position_embeddings: 0, rope_scaling: { type: 'su', short_factor: [1, 1] } },
      'original_max_position_embeddings: expected a number from 2 to 16777216, got 0',
    ],
    ['llama', { rope_scaling: { type: 'dynamic' } }, 'rope_scaling.factor: expected a number from 1 to 1000000'],
    ['starcoder2', { use_bias: 1 }, 'use_bias: expected true or false, got 1'],
    ['starcoder2', { norm_epsilon: 'x' }, 'norm_epsilon: expected a number from 0 to 0.1, got "x"'],
    ['stablelm', { qk_layernorm: 'yes' }, 'qk_layernorm: expected true or false, got "yes"'],
    ['stablelm', { partial_rotary_factor: 0.3 }, 'rotary embedding of 0.3 of heads of 4 turns 1 elements'],
    ['mistral', { sliding_window: 0 }, 'sliding_window: expected a whole number from 1 to 16777216, got 0'],
    ['mistral', { sliding_window: 1e9 }, 'sliding_window: expected a whole number from 1 to 16777216, got 1000000000'],
    ['qwen2', { use_sliding_window: 'yes' }, 'use_sliding_window: expected true or false, got "yes"'],
    ['qwen2', { use_sliding_window: true, max_window_layers: -1 }, 'max_window_layers: expected a whole number from 0'],
    [
      'olmo3',
      { layer_types: ['full_attention'] },
      'layer_types: expected a list of full_attention and sliding_attention for 3 layers, got ["full_attention"]',
    ],
    ['olmo3', { layer_types: 'full_attention' }, 'layer_types: expected a list of'],
    [
      'olmo3',
      { rope_parameters: { full_attention: [] } },
      'rope_parameters.full_attention: expected an object, got []',
    ],
    [
      'olmo3',
      { rope_parameters: { full_attention: { rope_type: 'linear', factor: 0 } } },
      'rope_parameters.full_attention: rope_parameters.factor: expected a number from 1 to 1000000, got 0',
    ],
    [
      'olmo3',
      { rope_scaling: { rope_type: 'linear', factor: 2 }, rope_parameters: { full_attention: {} } },
      'rope_scaling is given beside rope_parameters of kinds of layers',
    ],
    ['olmo3', { rope_parameters: { full_attention: {}, other: {} } }, 'rope_parameters: expected full_attention and'],
    [
      'smollm3',
      { layer_types: ['full_attention', 'sliding_attention', 'full_attention'] },
      'layer_types names sliding_attention, but use_sliding_window is not true',
    ],
    ['smollm3', { no_rope_layers: [1, 0] }, 'no_rope_layers: expected a list of 0 and 1 for 3 layers, got [1,0]'],
    ['smollm3', { no_rope_layers: [1, 0, 2] }, 'no_rope_layers: expected a list of 0 and 1 for 3 layers'],
    ['smollm3', { no_rope_layer_interval: 0.5 }, 'no_rope_layer_interval: expected a whole number from 1, got 0.5'],
    ['granite', { residual_multiplier: 'x' }, 'residual_multiplier: expected a number from 0.000001 to 1000000'],
    ['qwen3', { attention_bias: 1 }, 'attention_bias: expected true or false, got 1'],
    [
      'gemma2',
      { attn_logit_softcapping: 0 },
      'attn_logit_softcapping: expected a number from 0.000001 to 1000000, got 0',
    ],
    ['gemma2', { final_logit_softcapping: 'x' }, 'final_logit_softcapping: expected a number'],
    ['gemma2', { query_pre_attn_scalar: -1 }, 'query_pre_attn_scalar: expected a number'],
    ['gemma3_text', { sliding_window_pattern: 0 }, 'sliding_window_pattern: expected a number from 1 to 1024, got 0'],
    ['gemma3_text', { layer_types: ['full_attention'] }, 'layer_types: expected a list of'],
    ['gemma3_text', { rope_parameters: { full_attention: 3 } }, 'rope_parameters.full_attention: expected an object'],
    ['cohere2', { logit_scale: null, layer_norm_eps: 'x' }, 'layer_norm_eps: expected a number from 0 to 0.1'],
    ['cohere2', { logit_scale: -1 }, 'logit_scale: expected a number from'],
    ['cohere2', { head_dim: 6, rotary_pct: 0.5 }, 'rotary_pct is 0.5: this family turns whole heads'],
    ['gemma', { hidden_act: 'silu' }, 'hidden_act is "silu": Gemma computes GELU'],
    ['gemma', { hidden_activation: 7 }, 'hidden_activation is 7: supported activations are'],
    ['gemma', { use_bidirectional_attention: true }, 'use_bidirectional_attention is true: tokens see only those'],
    ['gemma', { hidden_act: 'relu2' }, 'hidden_act is "relu2": Gemma computes GELU'],
    ['hunyuan_v1_dense', { rope_scaling: { type: 'dynamic', alpha: 'x' } }, 'rope_scaling.alpha: expected a number'],
    ['hunyuan_v1_dense', { rope_scaling: { type: 'yarn', factor: 2 } }, 'rope type "yarn" is not supported where'],
    ['exaone4', { sliding_window_pattern: 'LLLG' }, 'sliding_window_pattern: expected a whole number from 1 to 1024'],
    ['exaone4', { sliding_window_pattern: 'X', layer_types: [] }, 'sliding_window_pattern: expected L and G, got "X"'],
    ['glm4_moe', { n_group: 3 }, 'n_group is 3: 128 experts are no such groups of two or more'],
    ['glm4_moe', { n_group: 64, topk_group: 1 }, 'num_experts_per_tok is 8, but groups that are kept have 2 experts'],
    ['minimax_m2', { rotary_dim: 7 }, 'turns 7 elements; it turns pairs'],
    ['ministral3', { rope_parameters: { llama_4_scaling_beta: 0.1 } }, 'original_max_position_embeddings: expected'],
    ['apertus', { post_norm: true }, 'post_norm is true, which is not supported'],
    ['olmoe', { clip_qkv: 'x' }, 'clip_qkv: expected a number'],
    ['falcon', { num_ln_in_parallel_attn: 2 }, 'num_ln_in_parallel_attn is 2: it takes new_decoder_architecture'],
    ['falcon', { num_ln_in_parallel_attn: 3 }, 'num_ln_in_parallel_attn: expected a whole number from 1 to 2, got 3'],
    ['gpt2', { scale_attn_by_inverse_layer_idx: 1 }, 'scale_attn_by_inverse_layer_idx: expected true or false'],
    ['gpt2', { n_positions: 1e9 }, 'max_position_embeddings: expected a whole number from 1 to 16777216'],
    ['gpt2', { n_embd: 'x' }, 'hidden_size: expected a whole number'],
    ['opt', { word_embed_proj_dim: 0 }, 'word_embed_proj_dim: expected a whole number from 1'],
    ['seed_oss', { attention_out_bias: 1 }, 'attention_out_bias: expected true or false, got 1'],
    ['gpt_neox', { num_key_value_heads: 1 }, 'num_key_value_heads is 1: this family has none of its own'],
    ['gpt_neox', { rotary_pct: 'all' }, 'rotary_pct: expected a number above 0, at most 1, got "all"'],
    ['gpt_neox', { rotary_pct: 1.5 }, 'rotary_pct: expected a number above 0, at most 1, got 1.5'],
    ['gpt_neox', { rotary_pct: 0.01, head_dim: 16 }, 'turns 0 elements; it turns pairs'],
    ['gpt_neox', { rotary_pct: 0.2, head_dim: 16 }, 'turns 3 elements; it turns pairs'],
    [
      'gpt_neox',
      { rotary_pct: 0.5, rope_parameters: { partial_rotary_factor: 0.25 } },
      'rope_parameters.partial_rotary_factor is 0.25, but config.json: rotary_pct is 0.5',
    ],
    ['gpt_neox', { rotary_emb_base: 5, rope_theta: 6 }, 'values of rope_theta disagree'],
    ['gpt_neox', { layer_norm_eps: 1 }, 'layer_norm_eps: expected a number from 0 to 0.1, got 1'],
    ['gpt_neox', { use_parallel_residual: 'no' }, 'use_parallel_residual: expected true or false, got "no"'],
  ])('%s refuses %j in one line', (type, changes, expected) => {
    const own = type === 'gpt_neox' ? { head_dim: 16 } : { num_key_value_heads: 1 };
    const message = refusal(type, { ...own, ...changes });
    expect(message).toContain(expected);
    expect(message).not.toContain('\n');
  });
});
