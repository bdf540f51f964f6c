/** Settings of GGUF files: what they mean, and those that are refused by name. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../../models/checkpoint.js';
import { describeModel } from '../../../models/config.js';
import type { DecoderConfig } from '../../../models/decoder/config.js';
import { rotaryTables } from '../../../models/decoder/rope.js';
import type { Json } from '../../../models/model/model.js';
import { ggufFile, ggufPairs, type GgufPairs, type GgufTensor, ggufTensors } from '../../support/gguf.js';
import { SMALL_CONFIG, temporaryFolder, userError } from '../support.js';

const { architectures: _, torch_dtype: __, ...SMALL } = SMALL_CONFIG as Json;

function file(json: Json, pairs: GgufPairs = {}, tensors: readonly GgufTensor[] = [], leftOut?: string): string {
  const path = join(temporaryFolder(), 'model.gguf');
  const plain = describeModel(json, 'config.json').tensors.map(({ name, shape }) => ({
    name,
    shape,
    values: new Float64Array(shape.reduce((a, b) => a * b, 1)),
  }));
  const own = ggufTensors(plain, json, () => 'F32').filter(({ name }) => name !== leftOut);
  writeFileSync(path, ggufFile({ pairs: { ...ggufPairs(json), ...pairs }, tensors: [...own, ...tensors] }));
  return path;
}
const configOf = (...args: Parameters<typeof file>): DecoderConfig =>
  openCheckpoint(file(...args)).config as DecoderConfig;
const refusal = (...args: Parameters<typeof file>): string => userError(() => openCheckpoint(file(...args))).message;
const factors = (name: string, values: readonly number[]): GgufTensor => {
  const single = Float32Array.from(values);
  return { name, shape: [values.length], type: 0, bytes: Buffer.from(single.buffer) };
};

describe('settings of a GGUF file', () => {
  it('are those of config.json, and tokens end texts by their ids', () => {
    const ids = { bos: 1, eos: 2, eot: 3, eom: 2 };
    const pairs = Object.entries(ids).map(([name, id]) => [`tokenizer.ggml.${name}_token_id`, { u32: id }] as const);
    expect(configOf(SMALL, Object.fromEntries(pairs))).toMatchObject({
      ...{ architecture: 'LlamaForCausalLM', hiddenSize: 8, heads: 2, kvHeads: 1, headDim: 4, vocabSize: 10 },
      ...{ rmsNormEps: 1e-5, tieWordEmbeddings: true, bosTokenId: 1, eosTokenIds: [2, 3], dtype: 'f32' },
      rotary: { rotated: 4, interleaved: true },
    });
  });

  it('take frequencies from a tensor', () => {
    const config = configOf(SMALL, {}, [factors('rope_freqs.weight', [1, 4])]);
    expect(config.maxPositions).toBe(32);
    expect([...rotaryTables(config).rotary.inverseFrequencies]).toEqual([1, 0.01 / 4]);
    expect(rotaryTables(config).rotary.factor).toBe(1);
  });

  it('may say the factor that YaRN has anyway, and no other', () => {
    const json = { ...SMALL, rope_scaling: { rope_type: 'yarn', factor: 8, original_max_position_embeddings: 16 } };
    const said = (factor: number): GgufPairs => ({ 'llama.rope.scaling.yarn_attn_factor': { f32: factor } });
    expect(configOf(json, said(Math.fround(0.1 * Math.log(8) + 1)))).toEqual(configOf(json));
    expect(refusal(json, said(1.3))).toContain('YaRN with factors of its own');
  });

  it('leave it to the second norm whether StableLM is parallel', () => {
    const json = { ...SMALL, model_type: 'stablelm', layer_norm_eps: 1e-5, partial_rotary_factor: 0.5 };
    const parallel = { 'stablelm.use_parallel_residual': { flag: true } };
    expect(configOf({ ...json, use_parallel_residual: false }, parallel).parallel).toBeUndefined();
    expect(configOf({ ...json, use_parallel_residual: true }, parallel).parallel).toBe('one norm');
  });

  it.each([
    [[1], 'tensor rope_freqs.weight has 1 numbers, and rotary embedding turns 2 pairs'],
    [[1, 0], 'tensor rope_freqs.weight: number 1 is 0; expected 0.000001 to 1000000'],
    [[Number.NaN, 1], 'tensor rope_freqs.weight: number 0 is NaN'],
  ])('refuse the frequencies %j', (values, wanted) => {
    expect(refusal(SMALL, {}, [factors('rope_freqs.weight', values)])).toContain(wanted);
  });

  it('take the short factors of LongRoPE, with the context that they are for', () => {
    const phi: Json = { ...SMALL, model_type: 'phi3', num_key_value_heads: 2, sliding_window: null };
    const pairs: GgufPairs = {
      'phi3.rope.scaling.original_context_length': { u32: 16 },
      'phi3.rope.scaling.attn_factor': { f32: 1.25 },
    };
    const tensors = [factors('rope_factors_short.weight', [1, 2]), factors('rope_factors_long.weight', [3, 4])];
    const config = configOf(phi, pairs, tensors);
    expect(config.maxPositions).toBe(16);
    expect(rotaryTables(config).rotary).toEqual({ inverseFrequencies: Float64Array.of(1, 0.005), factor: 1.25 });
    expect(refusal(phi, pairs, tensors.slice(1))).toContain('LongRoPE without rope_factors_short.weight');
  });

  it('give the largest models of Gemma a scale of their own', () => {
    const gemma: Json = { ...SMALL, model_type: 'gemma2', head_dim: 8, sliding_window: 4 };
    expect(configOf(gemma).factors?.scores).toBe(1 / Math.sqrt(8));
    expect(configOf({ ...gemma, num_hidden_layers: 46 }).factors?.scores).toBe(1 / 2);
  });

  it.each<[string, GgufPairs, string]>([
    [
      'another architecture',
      { 'general.architecture': { text: 'mamba' } },
      'general.architecture "mamba" is not supported',
    ],
    ['something else', { 'general.type': { text: 'mmproj' } }, 'general.type is "mmproj": not a model'],
    ['old blocks', { 'general.quantization_version': { u32: 1 } }, 'general.quantization_version is 1, which is not'],
    ['an unknown key', { 'llama.attention.clamp_kqv': { f32: 8 } }, '"llama.attention.clamp_kqv" is not known'],
    [
      'no heads',
      { 'llama.attention.head_count': { u32: 0 } },
      'head_count: expected a whole number from 1 to 1024, got 0',
    ],
    ['heads by layer', { 'llama.attention.head_count': { i32s: [2, 1, 2] } }, 'head_count differs from layer to layer'],
    ['text for a number', { 'llama.block_count': { text: '3' } }, 'llama.block_count: expected a whole number'],
    ['unlike values', { 'llama.attention.value_length': { u32: 2 } }, 'heads of 4 elements, and values of 2'],
    ['another vocabulary', { 'llama.vocab_size': { u32: 11 } }, 'vocab_size is 11, and token_embd.weight has 10 rows'],
    ['a part of heads', { 'llama.rope.dimension_count': { u32: 2 } }, 'rope.dimension_count is 2, and heads have 4'],
    [
      'unknown scaling',
      { 'llama.rope.scaling.type': { text: 'su' } },
      'llama.rope.scaling.type is "su", which is not known',
    ],
    ['scaling by nothing', { 'llama.rope.scaling.type': { text: 'linear' } }, 'is linear, and no factor is given'],
    ['tokens that see all', { 'llama.attention.causal': { flag: false } }, 'llama.attention.causal is false'],
  ])('are refused that name %s', (_, pairs, wanted) => {
    const message = refusal(SMALL, pairs);
    expect(message).toContain(wanted);
    expect(message).not.toContain('\n');
  });

  it.each<[string, GgufPairs, string]>([
    [
      'sigmoids',
      { 'llama.expert_gating_func': { u32: 2 } },
      'llama.expert_gating_func is 2: routers take a softmax (1)',
    ],
    ['a scale', { 'llama.expert_weights_scale': { f32: 2.5 } }, 'llama.expert_weights_scale is 2.5'],
    ['other weights', { 'llama.expert_weights_norm': { flag: false } }, 'llama.expert_weights_norm is false'],
  ])('are refused whose routers have %s', (_, pairs, wanted) => {
    const json: Json = { ...SMALL, model_type: 'mixtral', num_local_experts: 3, num_experts_per_tok: 2 };
    expect(refusal(json, pairs)).toContain(wanted);
  });

  it('are refused with the names of tensors that differ, as the file has them', () => {
    expect(refusal(SMALL, {}, [], 'blk.1.ffn_norm.weight')).toMatch(
      /^[^:]+: the weights are not the model that its metadata describes:\n {2}blk\.\{1\}\.ffn_norm\.weight: missing$/,
    );
    expect(refusal(SMALL, {}, [factors('blk.0.attn_sinks.weight', [1, 2])])).toContain(
      'blk.{0}.attn_sinks.weight: not a tensor of this model',
    );
    expect(refusal(SMALL, { 'llama.feed_forward_length': { u32: 16 } })).toContain(
      'blk.{0–2}.ffn_gate.weight: shape [12, 8], but its metadata requires [16, 8]',
    );
  });
});
