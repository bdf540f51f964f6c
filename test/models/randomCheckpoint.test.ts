import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../../models/config.js';
import { describeRandomCheckpoint, fnv1a64 } from '../../models/randomCheckpoint.js';
import { DEMO, SMALL_CONFIG, temporaryFolder, writeJson } from './support.js';

describe('describeRandomCheckpoint', () => {
  it('makes up every tensor from a configuration alone', () => {
    const dir = temporaryFolder();
    const path = writeJson(dir, 'shape.json', SMALL_CONFIG);
    const checkpoint = describeRandomCheckpoint(path, 7);
    expect(checkpoint).toMatchObject({ path: dir, files: [], tokenizerPath: undefined });
    expect([...checkpoint.tensors.keys()]).toEqual(
      describeModel(SMALL_CONFIG, 'config.json').tensors.map(({ name }) => name),
    );
    expect(checkpoint.tensors.get('model.norm.weight')).toEqual({
      kind: 'constant',
      name: 'model.norm.weight',
      format: 'bf16',
      shape: [8],
      value: 1,
    });
    expect(checkpoint.tensors.get('model.embed_tokens.weight')).toEqual({
      kind: 'random',
      name: 'model.embed_tokens.weight',
      format: 'bf16',
      shape: [10, 8],
      seed: fnv1a64('7:model.embed_tokens.weight'),
      scale: 0.02,
    });
    const seeds = [...checkpoint.tensors.values()].flatMap((tensor) => (tensor.kind === 'random' ? [tensor.seed] : []));
    expect(new Set(seeds).size).toBe(1 + 3 * 7);
    expect(describeRandomCheckpoint(path, 7).fingerprint()).toBe(checkpoint.fingerprint());
    expect(describeRandomCheckpoint(path, 8).fingerprint()).not.toBe(checkpoint.fingerprint());
  });

  it('says that weights are made up in floats where the configuration is of quantized ones', () => {
    const scheme = { num_bits: 8, type: 'int', symmetric: true, dynamic: false, strategy: 'channel' };
    const group = {
      targets: ['Linear'],
      weights: scheme,
      input_activations: { ...scheme, dynamic: true, strategy: 'token' },
    };
    const w8a8 = { quant_method: 'compressed-tensors', format: 'int-quantized', config_groups: { group_0: group } };
    const gptq = { quant_method: 'gptq', bits: 4, group_size: 8, sym: true, desc_act: false };
    const warnings = (config: unknown): readonly string[] => {
      const dir = temporaryFolder();
      return describeRandomCheckpoint(
        writeJson(dir, 'config.json', { ...SMALL_CONFIG, quantization_config: config }),
        1,
      ).warnings;
    };
    expect(warnings(w8a8)).toEqual([expect.stringMatching(/made up are bf16; .* add --quantize int8$/)]);
    // Matrices of 4 bits are made up as they are.
    expect(warnings(gptq)).toEqual([]);
  });

  it('accepts a folder, and uses the tokenizer in it', () => {
    expect(describeRandomCheckpoint(DEMO, 1).tokenizerPath).toBe(join(DEMO, 'tokenizer.json'));
  });

  it('hashes as FNV-1a does', () => {
    // Published test vectors of the function.
    expect(fnv1a64('')).toBe(0xcbf29ce484222325n);
    expect(fnv1a64('a')).toBe(0xaf63dc4c8601ec8cn);
    expect(fnv1a64('foobar')).toBe(0x85944171f73967e8n);
  });
});
