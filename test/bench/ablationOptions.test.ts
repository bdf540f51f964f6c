/** The command line of the benchmark of techniques, and its comparison of bits. */
import { describe, expect, it } from 'vitest';
import { parseAblationOptions, USAGE } from '../../bench/ablationOptions.js';
import { differences, scoreAll } from '../../bench/ablationPass.js';
import { UserError } from '../../errors.js';

describe('npm run bench:ablation', () => {
  it('reads every option that its usage names', () => {
    const given = {
      model: 'mine',
      target: 'cuda',
      threads: '3',
      questions: '7',
      rounds: '2',
      'batch-tokens': '256',
      sequences: '8',
      prefill: '64',
      data: 'q.jsonl',
      tokenizer: 'words',
    };
    expect([...USAGE.matchAll(/^ {2}--([a-z-]+)/gm)].map(([, name]) => name)).toEqual(Object.keys(given));
    expect(parseAblationOptions(Object.entries(given).flatMap(([name, value]) => [`--${name}`, value]))).toEqual({
      model: 'mine',
      target: 'cuda',
      threads: 3,
      questions: 7,
      rounds: 2,
      batchTokens: 256,
      sequences: 8,
      prefillTokens: 64,
      data: 'q.jsonl',
      tokenizer: 'words',
    });
    expect(parseAblationOptions(['--help'])).toBeUndefined();
  });

  it.each([
    ['--target', 'tpu', 'expected cpu or cuda'],
    ['--sequences', '0', 'expected a whole number from 1 to 4096'],
    ['--fast', 'yes', "Unknown option '--fast'"],
  ])('refuses %s %j', (flag, value, message) => {
    const parse = (): unknown => parseAblationOptions([flag, value]);
    expect(parse).toThrow(UserError);
    expect(parse).toThrow(message);
  });
});

describe('a pass of a technique', () => {
  const questions = [
    { docId: 0, context: Int32Array.of(1), continuations: [Int32Array.of(2, 3), Int32Array.of(4)] },
    { docId: 1, context: Int32Array.of(5), continuations: [Int32Array.of(6)] },
  ];

  it('puts log-probabilities in the order of the questions, whatever the order of calls', async () => {
    const rows = [
      [-4, 1, 0, 0],
      [-2, 0, 0, 1],
      [-3, 0, 1, 0],
      [-1, 0, 0, 0],
    ] as const;
    const calls = rows.map(([logProb, question, choice, index]) => ({
      tokens: 10,
      scored: [{ row: 0, question, choice, index }],
      score: () => Promise.resolve({ logProb: Float32Array.of(logProb), isArgmax: Int32Array.of(0) }),
    }));
    const pass = await scoreAll({ name: 'any', questions, calls: () => calls }, 2);
    expect(pass).toMatchObject({ tokens: 40, calls: 4, logProbs: Float32Array.of(-1, -2, -3, -4) });
    const missing = await scoreAll({ name: 'any', questions, calls: () => calls.slice(1) }, 2);
    expect(differences(pass.logProbs, missing.logProbs)).toBe(1);
  });

  it('compares bits', () => {
    const a = Float32Array.of(-1, -2, 0);
    expect(differences(a, a.slice())).toBe(0);
    expect(differences(a, Float32Array.of(-1, -2.0000002, -0))).toBe(2);
    expect(differences(Float32Array.of(NaN), Float32Array.of(NaN))).toBe(1);
  });
});
