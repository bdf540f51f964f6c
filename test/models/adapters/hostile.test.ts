/** Files of adapters that are wrong or hostile: each is refused in one line that names what is wrong. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseAdapterConfig } from '../../../models/adapters/config.js';
import { openAdapter } from '../../../models/adapters/open.js';
import { UserError } from '../../../errors.js';
import type { Json } from '../../../models/model/model.js';
import { llama, newFolder, open, tensor, type Tensor, writeAdapter } from './world.js';

const of = llama();
const good = (): Record<string, Tensor> =>
  Object.assign(
    {},
    ...[0, 1].map((layer) => ({
      [`model.layers.${layer}.self_attn.q_proj.lora_A.weight`]: tensor(2, 8),
      [`model.layers.${layer}.self_attn.q_proj.lora_B.weight`]: tensor(8, 2),
    })),
  ) as Record<string, Tensor>;
const Q = 'model.layers.0.self_attn.q_proj';
const without = (name: string): Record<string, Tensor> =>
  Object.fromEntries(Object.entries(good()).filter(([key]) => key !== name));

describe('adapters that do not fit', () => {
  const CASES: readonly (readonly [string, Record<string, Tensor>, Json?])[] = [
    ['the model has no such module', { ...good(), 'model.layers.9.self_attn.q_proj.lora_A.weight': tensor(2, 8) }],
    ['the model has no such module', { ...good(), '../../etc/passwd.lora_A.weight': tensor(2, 8) }],
    ['none that an adapter is known to have', { ...good(), 'model.foo': tensor(2) }],
    ['require \\[2, 8\\]', { ...good(), [`${Q}.lora_A.weight`]: tensor(3, 8) }],
    ['require \\[8, 2\\]', { ...good(), [`${Q}.lora_B.weight`]: tensor(2, 8) }],
    ['has the shape \\[2, 0\\]', { ...good(), [`${Q}.lora_A.weight`]: tensor(2, 0) }],
    ['holds NaN', { ...good(), [`${Q}.lora_A.weight`]: { shape: [2, 8], data: new Float32Array(16).fill(NaN) } }],
    ['one of A and B only', without(`${Q}.lora_B.weight`)],
    ['a second one of its module', { ...good(), [`_orig_mod.${Q}.lora_A.weight`]: tensor(2, 8) }],
    ['use_dora is not set', { ...good(), [`${Q}.lora_magnitude_vector`]: tensor(8) }],
    ['modules_to_save does not name', { ...good(), 'model.norm.weight': tensor(8) }],
    ['the config does not target', good(), { target_modules: ['k_proj'] }],
    ['no tensors of "model.layers.0.self_attn.k_proj"', good(), { target_modules: ['q_proj', 'k_proj'] }],
    ['target_modules: the model has no "qkv"', good(), { target_modules: ['q_proj', 'qkv'] }],
    ['modules_to_save: the model has no "nrm"', good(), { modules_to_save: ['nrm'] }],
    ['r: expected a whole number', good(), { r: 1e9 }],
    ['"use_magic" is true: not known', good(), { use_magic: true }],
    ['init_lora_weights is "pissa"', good(), { init_lora_weights: 'pissa' }],
    ['layer_replication is', good(), { layer_replication: [[0, 2]] }],
    ['peft_type is "IA3"', good(), { peft_type: 'IA3' }],
    ['a bracket is not closed', good(), { target_modules: '(q_proj' }],
  ];
  it.each(CASES.map(([message, tensors, config = {}]) => ({ message, tensors, config })))(
    '$message',
    ({ message, tensors, config }) => {
      const run = (): unknown => open(of, { target_modules: ['q_proj'], ...config }, tensors);
      expect(run).toThrow(UserError);
      expect(run).toThrow(new RegExp(message));
    },
  );

  it('gives up patterns that would take forever', () => {
    const target_modules = `${'(a*)*'.repeat(1)}(${'(.*)*'.repeat(40)}x)*q_proj`;
    expect(() => open(of, { target_modules }, good())).toThrow(UserError);
  });

  it('does not read what changes after it was opened, and hashes values alone', () => {
    const tensors = good();
    const dir = writeAdapter({ target_modules: ['q_proj'] }, tensors);
    const adapter = openAdapter(dir, of);
    expect(openAdapter(writeAdapter({ target_modules: ['q_proj'], lora_dropout: 0.5 }, tensors), of).hash).toBe(
      adapter.hash,
    );
    expect(openAdapter(writeAdapter({ target_modules: ['q_proj'], lora_alpha: 7 }, tensors), of).hash).not.toBe(
      adapter.hash,
    );
    writeAdapter({ target_modules: ['q_proj'] }, good(), dir);
    expect(() => [...adapter.products.values()][0]!.read()).toThrow('the file has changed');
  });

  it('refuses pickles that name anything but tensors', () => {
    const dir = newFolder();
    writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify({ peft_type: 'LORA', target_modules: ['q_proj'] }));
    expect(() => openAdapter(dir, of)).toThrow('neither adapter_model.safetensors nor adapter_model.bin');
    writeFileSync(join(dir, 'adapter_model.bin'), Buffer.from('cos\nsystem\n(S"ls"\ntR.'));
    expect(() => openAdapter(dir, of)).toThrow(UserError);
  });

  it('takes null for nothing said', () => {
    const config = parseAdapterConfig(
      { peft_type: 'LORA', use_magic: null, target_modules: [], rank_pattern: null },
      'x',
    );
    expect(config).toMatchObject({ rank: 8, alpha: 8, biases: 'none' });
  });
});
