/** The command line of the benchmark of generation. */
import { describe, expect, it } from 'vitest';
import { parseGenerateOptions, USAGE } from '../../bench/generateOptions.js';
import { UserError } from '../../errors.js';

describe('npm run bench:generate', () => {
  it('reads every option that its usage names', () => {
    const given = {
      model: 'mine',
      target: 'cuda',
      batch: '1,4',
      prompt: '32',
      new: '8',
      threads: '3',
      isa: 'avx2',
      quantize: 'int4',
      'kv-cache': 'fp8',
      spread: '0.7',
      requests: '5',
      'cache-tokens': '4096',
      'top-p': '0.9',
      'top-k': '50',
      penalty: '1.1',
    };
    const flags = ['wait', 'profile'];
    const named = [...USAGE.matchAll(/^ {2}--([a-z-]+)/gm)].map(([, name]) => name);
    expect(named.sort()).toEqual([...Object.keys(given), ...flags].sort());
    const args = Object.entries(given).flatMap(([name, value]) => [`--${name}`, value]);
    expect(parseGenerateOptions([...args, ...flags.map((name) => `--${name}`)])).toEqual({
      model: 'mine',
      target: 'cuda',
      batches: [1, 4],
      promptTokens: 32,
      newTokens: 8,
      threads: 3,
      isa: 'avx2',
      precision: 'int4',
      kvCache: 'fp8',
      spread: 0.7,
      requests: 5,
      cacheTokens: 4096,
      sampling: { temperature: 1, topP: 0.9, topK: 50, repetitionPenalty: 1.1 },
      feeds: false,
      profiles: true,
    });
  });

  it('refuses an instruction set that there is not, and names those that there are', () => {
    expect(() => parseGenerateOptions(['--isa', 'neon'])).toThrow(UserError);
    expect(() => parseGenerateOptions(['--isa', 'neon'])).toThrow(/"neon": expected portable or avx2 or avx512 or amx/);
  });
});
