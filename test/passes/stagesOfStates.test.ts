/** Rows of states are read and written in one half of a layer, so that a pipeline may be cut between any two halves. */
import { expect, it } from 'vitest';
import { kernelReads, kernelWrites } from '../../ir/kernelAccess.js';
import { findArchitecture } from '../../models/families/registry.js';
import type { Numerics } from '../../passes/numerics.js';
import { halfOf } from '../../passes/placeStages.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
/** Rows of a convolution are as wide as the stream. */
const SIZES: Readonly<Record<keyof typeof RECURRENT_FILES, object>> = {
  'qwen3.5': { num_hidden_layers: 3, full_attention_interval: 3, linear_value_head_dim: 8 },
  lfm2: { num_hidden_layers: 4 },
  mamba2: { num_hidden_layers: 3 },
};

it.each(Object.entries(RECURRENT_FILES))('of %s', (name, file) => {
  const json = { ...file, ...SIZES[name as keyof typeof SIZES], layer_types: undefined };
  const model = findArchitecture(json, 'config.json').family.describe(json, 'config.json', 'f32');
  const step = model.step({ cache: { rows: 64, dtype: 'f32' }, dtypeOf: () => 'f32' });
  const { kernels, states = [] } = lower(optimize(step, F32), F32);
  expect(states.filter(({ name: state }) => /^(?:tail|state)_/.test(state)).length).toBeGreaterThan(1);
  for (const state of states) {
    const users = kernels.filter((kernel) => [...kernelReads(kernel), ...kernelWrites(kernel)].includes(state.name));
    expect(new Set(users.map(({ path }) => halfOf(path))).size, state.name).toBeLessThanOrEqual(1);
  }
});

it('counts kernels that have parts of both halves to the first', () => {
  expect(halfOf('layers.3.attention_q_attention_k_ffn_gate')).toBe('layers.3.attention');
  expect(halfOf('layers.3.ffn.experts.gate_up')).toBe('layers.3.ffn');
  expect(halfOf('draft.layers.0.attention_q_ffn_gate')).toBe('draft.layers.0.attention');
});
