/** The command that rebuilds an artifact: what a hint prints must work when it is pasted. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readManifest, rebuild, rebuildFor } from '../../driver/artifact/manifest.js';

const model = { path: '/models/small llama', init: { kind: 'checkpoint' } } as const;

describe('the command that rebuilds an artifact', () => {
  test.each([
    [{}, 'tilewright compile <checkpoint> -o m.tw'],
    [{ model }, "tilewright compile '/models/small llama' -o m.tw"],
    [{ model, target: 'cpu' }, "tilewright compile '/models/small llama' --target cpu -o m.tw"],
    [
      { model, target: 'cpu', arithmetic: 'f32' },
      "tilewright compile '/models/small llama' --target cpu --precision f32 -o m.tw",
    ],
    [
      { model, target: 'cuda:sm_90a', arithmetic: 'bf16' },
      "tilewright compile '/models/small llama' --target cuda:sm_90a --precision bf16 -o m.tw",
    ],
    [
      { model: { path: 'config.json', init: { kind: 'random', seed: 7 } }, target: 'cpu' },
      'tilewright compile config.json --init random:7 --target cpu -o m.tw',
    ],
  ] as const)('for %j', (known, expected) => {
    expect(rebuild('m.tw', known)).toBe(expected);
  });

  test('leaves it to a CPU whether it computes in bf16: only those with AMX can', () => {
    expect(rebuild('m.tw', { target: 'cpu', arithmetic: 'bf16' })).not.toContain('--precision');
    expect(rebuildFor('m.tw', model, { arithmetic: 'bf16' })('cpu')).toMatch(/ --target cpu -o m\.tw$/);
    expect(rebuildFor('m.tw', model, { arithmetic: 'f16' })('cuda:sm_80')).toMatch(
      / --target cuda:sm_80 --precision f16 -o m\.tw$/,
    );
  });

  test.each([
    ['cpu', ' --target cpu'],
    ['cuda', ' --target cuda'],
    ['cpu; rm -rf ~', ''],
  ])('of another version for target kind %j names known targets only', (kind, expected) => {
    const dir = mkdtempSync(join(tmpdir(), 'tilewright-rebuild-'));
    try {
      writeFileSync(
        join(dir, 'manifest.json'),
        JSON.stringify({ version: 2, target: { kind }, model: { path: '/models/old' } }),
      );
      expect(() => readManifest(dir)).toThrow(
        expect.objectContaining({ hint: `tilewright compile /models/old${expected} -o ${dir}` }),
      );
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});
