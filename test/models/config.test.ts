import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeModel, loadModel } from '../../models/config.js';
import type { DecoderConfig } from '../../models/decoder/config.js';
import { ropeInverseFrequencies } from '../../models/decoder/rope.js';
import { LLAMA_FAMILIES } from '../../models/families/llama.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { DEMO, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';

const parse = (changes: Record<string, unknown>): DecoderConfig =>
  LLAMA_FAMILIES[0].describe({ ...SMALL_CONFIG, ...changes }, 'config.json', 'f32').config;
const refusal = (changes: Record<string, unknown>): string =>
  userError(() => describeModel({ ...SMALL_CONFIG, ...changes }, 'config.json')).message;

const LLAMA3 = { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4 } as const;
const LINEAR = { rope_type: 'linear', factor: 2 } as const;

describe('describeModel', () => {
  it('reads the bundled model', () => {
    expect(loadModel(DEMO).config).toEqual({
      architecture: 'LlamaForCausalLM',
      hiddenSize: 256,
      intermediateSize: 704,
      layers: 8,
      heads: 4,
      kvHeads: 4,
      headDim: 64,
      vocabSize: 4096,
      maxPositions: 512,
      rmsNormEps: 1e-5,
      tieWordEmbeddings: true,
      biased: [],
      rope: { theta: 10000, scaling: { type: 'none' } },
      dtype: 'bf16',
      bosTokenId: 1,
      eosTokenIds: [2],
    });
  });

  it.each(['YiForCausalLM', 'LLaMAForCausalLM', 'LlamaModel'])('goes by model_type beside %s, and says so', (name) => {
    const plain = describeModel(SMALL_CONFIG, 'config.json');
    const model = describeModel({ ...SMALL_CONFIG, architectures: [name] }, 'config.json');
    expect(model.config).toEqual(plain.config);
    expect(model.note).toBe(
      `config.json: architecture "${name}" is not known; read as LlamaForCausalLM, by its model_type`,
    );
    expect(plain.note).toBeUndefined();
    const wrapper = { model_type: 'llava', text_config: { ...SMALL_CONFIG, architectures: [name] } };
    expect(describeModel(wrapper, 'config.json')).toMatchObject({
      isWrapped: true,
      note: model.note!.replace(':', ': text_config:'),
    });
    const dir = temporaryFolder();
    const path = writeJson(dir, 'config.json', { ...SMALL_CONFIG, architectures: [name] });
    expect(describeRandomCheckpoint(path, 1).warnings).toEqual([model.note!.replace('config.json', path)]);
  });

  it('reads swish as silu', () => {
    expect(parse({ hidden_act: 'swish' })).toEqual(parse({ hidden_act: 'silu' }));
  });

  it('fills in what LLaMA files leave out', () => {
    const config = parse({
      num_key_value_heads: undefined,
      head_dim: null,
      torch_dtype: undefined,
      rms_norm_eps: undefined,
      tie_word_embeddings: undefined,
      max_position_embeddings: undefined,
    });
    expect(config).toMatchObject({
      kvHeads: 2,
      headDim: 4,
      dtype: 'f32',
      rmsNormEps: 1e-6,
      tieWordEmbeddings: false,
      maxPositions: 2048,
      rope: { theta: 10000, scaling: { type: 'none' } },
      eosTokenIds: [],
    });
    expect(config).not.toHaveProperty('bosTokenId');
  });

  it('accepts a head_dim that is not hidden/heads', () => {
    expect(parse({ hidden_size: 7, head_dim: 6 })).toMatchObject({ hiddenSize: 7, headDim: 6 });
  });

  it.each([
    [{ torch_dtype: 'float16' }, 'f16'],
    [{ torch_dtype: 'torch.float32' }, 'f32'],
    [{ dtype: 'bfloat16', torch_dtype: null }, 'bf16'],
    [{ dtype: 'float16', torch_dtype: 'float32' }, 'f16'],
  ])('reads the element type of %j', (changes, dtype) => {
    expect(parse(changes).dtype).toBe(dtype);
  });

  it('reads one end token or several, and drops ids that are not tokens', () => {
    expect(parse({ eos_token_id: 2 }).eosTokenIds).toEqual([2]);
    expect(parse({ eos_token_id: [2, 9, 10, -1] }).eosTokenIds).toEqual([2, 9]);
    expect(parse({ bos_token_id: -1 })).not.toHaveProperty('bosTokenId');
  });

  it.each([
    [
      'old keys',
      { rope_theta: 5e5, rope_scaling: { rope_type: 'linear', factor: 4 } },
      { theta: 5e5, scaling: { type: 'linear', factor: 4 } },
    ],
    [
      'old key "type"',
      { rope_scaling: { type: 'linear', factor: 2 } },
      { theta: 1e4, scaling: { type: 'linear', factor: 2 } },
    ],
    [
      'new key',
      { rope_parameters: { rope_type: 'default', rope_theta: 7e4 } },
      { theta: 7e4, scaling: { type: 'none' } },
    ],
    [
      'llama3 in the new key',
      {
        rope_parameters: {
          rope_type: 'llama3',
          rope_theta: 5e5,
          factor: 8,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 64,
        },
      },
      {
        theta: 5e5,
        scaling: { type: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 64 },
      },
    ],
    [
      'llama3 whose context before it is not given',
      { rope_parameters: LLAMA3, max_position_embeddings: 128 },
      {
        theta: 1e4,
        scaling: { type: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 128 },
      },
    ],
    [
      'longrope whose context before it is not given',
      { rope_parameters: { rope_type: 'longrope', short_factor: [1, 2] }, max_position_embeddings: 128 },
      { theta: 1e4, scaling: { type: 'longrope', factors: [1, 2], originalMaxPositions: 128, attentionFactor: 1 } },
    ],
    [
      'a context that is given twice',
      {
        original_max_position_embeddings: 64,
        rope_parameters: { ...LLAMA3, original_max_position_embeddings: 64 },
      },
      {
        theta: 1e4,
        scaling: { type: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 64 },
      },
    ],
    [
      'both keys with one theta at the top',
      { rope_theta: 500, rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { ...LINEAR, rope_theta: 500 } },
      { theta: 500, scaling: { type: 'linear', factor: 2 } },
    ],
    [
      'an empty old key',
      { rope_scaling: {}, rope_parameters: { rope_type: 'default', rope_theta: 500 } },
      { theta: 500, scaling: { type: 'none' } },
    ],
    [
      'yarn, with its defaults',
      { rope_parameters: { rope_type: 'yarn', factor: 4 }, max_position_embeddings: 128 },
      {
        theta: 1e4,
        scaling: {
          type: 'yarn',
          factor: 4,
          originalMaxPositions: 128,
          betaFast: 32,
          betaSlow: 1,
          truncate: true,
          attentionFactor: 0.1 * Math.log(4) + 1,
        },
      },
    ],
    [
      'both keys that agree',
      {
        rope_theta: 3e4,
        rope_scaling: { type: 'linear', factor: 2 },
        rope_parameters: { rope_theta: 3e4, rope_type: 'linear', factor: 2 },
      },
      { theta: 3e4, scaling: { type: 'linear', factor: 2 } },
    ],
    ['null', { rope_scaling: null, rope_theta: null }, { theta: 1e4, scaling: { type: 'none' } }],
  ])('reads rotary settings: %s', (_, changes, rope) => {
    expect(parse(changes).rope).toEqual(rope);
  });

  it.each([
    [
      'another architecture',
      { architectures: ['MambaForCausalLM'], model_type: 'mamba' },
      '"MambaForCausalLM" is not supported: it is a model whose layers keep a recurrent state',
    ],
    ['another model type', { architectures: undefined, model_type: 'gptj' }, 'model_type "gptj" is not supported'],
    [
      'an architecture that is no text',
      { architectures: [7], model_type: undefined },
      'architecture 7 is not supported',
    ],
    [
      'an architecture of another family',
      { architectures: ['MistralForCausalLM'] },
      'model_type "llama" does not belong to MistralForCausalLM',
    ],
    [
      'a model type of another family',
      { model_type: 'qwen2' },
      'model_type "qwen2" does not belong to LlamaForCausalLM, whose model_type is "llama"',
    ],
    ['no architecture', { architectures: undefined, model_type: undefined }, 'neither architectures nor model_type'],
    ['attention bias', { attention_bias: 1 }, 'attention_bias: expected true or false, got 1'],
    ['mlp bias', { mlp_bias: 'yes' }, 'mlp_bias: expected true or false, got "yes"'],
    ['another activation', { hidden_act: 'tanh' }, 'hidden_act is "tanh": supported activations are silu, swish, gelu'],
    ['no activation', { hidden_act: ['silu'] }, 'hidden_act is ["silu"]: supported activations'],
    ['partial rotary', { partial_rotary_factor: 0.5 }, 'partial_rotary_factor is 0.5'],
    [
      'heads and kvHeads',
      { num_attention_heads: 4, num_key_value_heads: 3 },
      'num_attention_heads 4 is not a multiple of num_key_value_heads 3',
    ],
    ['no even split', { hidden_size: 9 }, 'hidden_size 9 is not a multiple of num_attention_heads 2'],
    ['odd head', { head_dim: 5 }, 'head_dim 5 is odd'],
    ['huge derived head', { hidden_size: 65536, num_attention_heads: 2 }, 'head_dim 32768'],
    [
      'absurd size',
      { vocab_size: 1e15 },
      'vocab_size: expected a whole number from 2 to 2097152, got 1000000000000000',
    ],
    ['no layers', { num_hidden_layers: 0 }, 'num_hidden_layers: expected a whole number from 1 to 1024, got 0'],
    ['a size that is text', { hidden_size: '8' }, 'hidden_size: expected a whole number from 1 to 65536, got "8"'],
    [
      'a missing size',
      { intermediate_size: undefined },
      'intermediate_size: expected a whole number from 1 to 524288, got ',
    ],
    ['epsilon', { rms_norm_eps: -1 }, 'rms_norm_eps: expected a number from 0 to 0.1, got -1'],
    [
      'element type',
      { torch_dtype: 'float8_e4m3fn' },
      'torch_dtype "float8_e4m3fn" is not supported; supported: float32, float16, bfloat16',
    ],
    [
      'rope type',
      { rope_scaling: { rope_type: 'mrope', factor: 4 } },
      'config.json: rope_scaling: rope type "mrope" is not supported; supported: default, linear, dynamic, llama3',
    ],
    [
      'rope factor',
      { rope_scaling: { type: 'linear', factor: 0 } },
      'rope_scaling.factor: expected a number from 1 to 1000000, got 0',
    ],
    [
      'rope order',
      {
        rope_scaling: {
          rope_type: 'llama3',
          factor: 8,
          low_freq_factor: 5,
          high_freq_factor: 4,
          original_max_position_embeddings: 64,
        },
      },
      'high_freq_factor 4 must be at least low_freq_factor 5',
    ],
    [
      'rope part missing',
      { rope_scaling: { rope_type: 'llama3', factor: 8, high_freq_factor: 4 } },
      'low_freq_factor: expected a number from 0.000001 to 1000000',
    ],
    ...(['llama3', 'yarn', 'longrope'] as const).map((rope_type): [string, Record<string, unknown>, string] => [
      `two contexts of ${rope_type}`,
      {
        original_max_position_embeddings: 32,
        rope_parameters: { ...LLAMA3, rope_type, short_factor: [1, 1], original_max_position_embeddings: 16 },
      },
      'rope_parameters.original_max_position_embeddings 16 and that outside of it, 32, disagree',
    ]),
    [
      'a theta that rope_scaling leaves out',
      { rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { ...LINEAR, rope_theta: 500 } },
      'values of rope_theta disagree: rope_parameters.rope_theta 500, default of rope_scaling 10000',
    ],
    [
      'rope names',
      { rope_scaling: { rope_type: 'linear', type: 'llama3', factor: 8 } },
      'rope_type "linear" and type "llama3" disagree',
    ],
    [
      'rope thetas',
      { rope_theta: 1e4, rope_parameters: { rope_theta: 2e4 } },
      'values of rope_theta disagree: rope_theta 10000, rope_parameters.rope_theta 20000',
    ],
    [
      'rope scalings',
      { rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { rope_type: 'default' } },
      'rope_parameters and rope_scaling disagree',
    ],
    ['rope theta', { rope_theta: 'big' }, 'rope_theta: expected a number'],
    ['rope not an object', { rope_parameters: [] }, 'rope_parameters: expected an object, got []'],
  ])('refuses %s in one line', (_, changes, expected) => {
    const message = refusal(changes);
    expect(message).toContain(expected);
    expect(message).not.toContain('\n');
  });

  it('never prints control characters of a file', () => {
    expect(refusal({ architectures: ['\u001b[2J\u009b\u202e'], model_type: undefined })).toMatch(/^[ -~]*$/);
  });
});

describe('loadConfig', () => {
  it('says what a folder lacks', () => {
    const dir = temporaryFolder();
    const missing = userError(() => loadModel(dir));
    expect(missing.message).toBe(`${join(dir, 'config.json')}: no such file`);
    expect(missing.hint).toContain('Hugging Face');
  });

  it.each([
    ['no JSON', '{"a": ', 'not valid JSON'],
    ['a list', '[]', 'expected a JSON object, got []'],
    ['bad UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), 'not valid UTF-8'],
    ['too large', ' '.repeat((1 << 20) + 1), 'more than the limit of 1048576'],
  ])('refuses %s', (_, content, expected) => {
    const dir = temporaryFolder();
    writeFileSync(join(dir, 'config.json'), content);
    expect(userError(() => loadModel(dir)).message).toContain(expected);
  });

  it('refuses a folder in place of the file', () => {
    expect(userError(() => loadModel('/dev/null')).message).toContain('/dev/null');
  });
});

describe('ropeInverseFrequencies', () => {
  const llama3 = (lowFreqFactor: number, highFreqFactor: number): Float64Array =>
    ropeInverseFrequencies({
      headDim: 4,
      rope: {
        theta: 10000,
        scaling: { type: 'llama3', factor: 8, lowFreqFactor, highFreqFactor, originalMaxPositions: 64 },
      },
    });

  it('are a geometric series, divided by the factor if linear', () => {
    expect([...ropeInverseFrequencies({ headDim: 8, rope: { theta: 10000, scaling: { type: 'none' } } })]).toEqual(
      [1, 0.1, 0.01, 0.001].map((x) => expect.closeTo(x, 14) as unknown),
    );
    expect([
      ...ropeInverseFrequencies({ headDim: 4, rope: { theta: 10000, scaling: { type: 'linear', factor: 4 } } }),
    ]).toEqual([0.25, 0.0025]);
  });

  it('keep short wavelengths, stretch long ones and blend between them', () => {
    // 64 positions are 10.186 turns of frequency 1 and 0.10186 turns of frequency 0.01.
    expect([...llama3(1, 4)]).toEqual([1, 0.00125]);
    const kept = (0.64 / (2 * Math.PI) - 0.05) / 0.1;
    expect(llama3(0.05, 0.15)[1]).toBeCloseTo(0.01 * (kept + (1 - kept) / 8), 14);
    expect([...llama3(0.01, 0.02)]).toEqual([1, 0.01]);
  });
});
