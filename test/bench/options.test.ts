/** The command line of the CPU benchmark. */
import { describe, expect, it } from 'vitest';
import { parseBenchOptions, USAGE } from '../../bench/options.js';
import { UserError } from '../../errors.js';

describe('npm run bench', () => {
  it('has defaults', () => {
    expect(parseBenchOptions([])).toEqual({
      models: ['llama-110m', 'llama-1.1b'],
      precisions: ['auto', 'f32'],
      isa: undefined,
      threads: 2,
      seconds: 15,
      questions: 400,
      tuneSeconds: 0,
      batchTokens: 1024,
      data: undefined,
      tokenizer: undefined,
    });
  });

  it('reads every option that its usage names', () => {
    const given = {
      model: 'mine',
      precision: 'f32',
      isa: 'avx2',
      threads: '3',
      seconds: '0.5',
      questions: '7',
      tune: '20',
      'batch-tokens': '256',
      data: 'q.jsonl',
      tokenizer: 'words',
    };
    const named = [...USAGE.matchAll(/^ {2}--([a-z-]+)/gm)].map(([, name]) => name);
    expect(named).toEqual(Object.keys(given));
    expect(parseBenchOptions(Object.entries(given).flatMap(([name, value]) => [`--${name}`, value]))).toEqual({
      models: ['mine'],
      precisions: ['f32'],
      isa: 'avx2',
      threads: 3,
      seconds: 0.5,
      questions: 7,
      tuneSeconds: 20,
      batchTokens: 256,
      data: 'q.jsonl',
      tokenizer: 'words',
    });
    expect(parseBenchOptions(['--help'])).toBeUndefined();
  });

  it.each([
    ['--threads', '0', 'expected a whole number from 1 to 1024'],
    ['--threads', '1.5', 'expected a whole number from 1 to 1024'],
    ['--seconds', 'NaN', 'expected a number from 0.1 to 86400'],
    ['--seconds', '', 'expected a number from 0.1 to 86400'],
    ['--questions', '1e9', 'expected a whole number from 1 to 1000000'],
    ['--tune', 'Infinity', 'expected a number from 0 to 86400'],
    ['--batch-tokens', '31', 'expected a whole number from 32 to 32768'],
    ['--precision', 'bf16', 'expected auto or f32'],
    ['--isa', 'sse', 'expected portable or avx2 or avx512 or amx'],
    ['--fast', 'yes', "Unknown option '--fast'"],
  ])('refuses %s %j', (flag, value, message) => {
    const parse = (): unknown => parseBenchOptions([flag, value]);
    expect(parse).toThrow(UserError);
    expect(parse).toThrow(message);
    expect(parse).toThrow(expect.objectContaining({ hint: 'look at the options: npm run bench -- --help' }) as Error);
  });
});
