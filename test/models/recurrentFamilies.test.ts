/** Models with recurrent layers: what they refuse, and where their tensors lie. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { findArchitecture } from '../../models/families/registry.js';
import { partShape } from '../../models/model/tensors.js';

const SMALL = {
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  vocab_size: 256,
};
const DELTA = { linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 16, linear_value_head_dim: 8 };
const FILES = {
  'qwen3.5': { architectures: ['Qwen3_5ForCausalLM'], ...SMALL, ...DELTA },
  'qwen3-next': { architectures: ['Qwen3NextForCausalLM'], ...SMALL, ...DELTA, num_experts: 4, num_experts_per_tok: 2 },
  lfm2: { architectures: ['Lfm2ForCausalLM'], ...SMALL, full_attn_idxs: [2] },
  mamba2: { architectures: ['Mamba2ForCausalLM'], ...SMALL, num_heads: 8, n_groups: 2 },
};
const modelOf = (json: Record<string, unknown>) =>
  findArchitecture(json, 'config.json').family.describe(json, 'config.json', 'f32');

describe('models with recurrent layers', () => {
  it.each(Object.entries(FILES))('%s has parts that cover its tensors, and states beside', (_, json) => {
    const model = modelOf(json);
    for (const { name, shape, parts } of model.tensors) {
      if (parts === undefined) continue;
      const count = (of: readonly number[]): number => of.reduce((product, extent) => product * extent, 1);
      expect(
        parts.reduce((sum, part) => sum + count(partShape(part, shape)), 0),
        name,
      ).toBe(count(shape));
    }
    expect(model.states).toMatchObject({ rows: 256, tails: expect.any(Number) });
    const draft = { cache: { rows: 64, dtype: 'f32' }, dtypeOf: () => 'f32' as const, prefix: '' } as const;
    expect(() => model.asDraft!(draft)).toThrow(UserError);
  });

  it.each([
    ['qwen3.5', { linear_num_value_heads: 3 }, 'not a multiple of linear_num_key_heads'],
    ['qwen3.5', { linear_conv_kernel_dim: 1 }, 'linear_conv_kernel_dim'],
    ['qwen3-next', { layer_types: ['linear_attention'] }, 'layer_types'],
    ['lfm2', { full_attn_idxs: 'all' }, 'full_attn_idxs'],
    ['mamba2', { time_step_limit: [1, 0] }, 'time_step_limit'],
    ['mamba2', { expand: 3 }, 'expand'],
    ['mamba2', { n_groups: 3 }, 'n_groups'],
  ] as const)('refuses %s with %o', (name, change, why) => {
    expect(() => modelOf({ ...FILES[name], ...change })).toThrow(why);
  });

  it('read the rule by which LFM2 rounds the width of feed-forward blocks', () => {
    const rounded = modelOf({ ...FILES.lfm2, block_auto_adjust_ff_dim: true, block_multiple_of: 32 });
    expect(rounded.config).toMatchObject({ intermediateSize: 96 });
  });
});
