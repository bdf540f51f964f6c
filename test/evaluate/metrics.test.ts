import { describe, expect, it } from 'vitest';
import { argmax, meanAndError, measure } from '../../evaluate/metrics.js';
import type { Question } from '../../evaluate/question.js';

const question = (choices: string[], gold: number): Question => ({
  docId: 0,
  doc: {},
  context: 'c',
  choices,
  gold,
  delimiter: ' ',
});
const scores = (...ll: number[]): { docId: number; ll: number[]; greedy: boolean[] } => ({
  docId: 0,
  ll,
  greedy: ll.map(() => false),
});

describe('measure', () => {
  it('takes the first of equal maxima', () => {
    expect(argmax([-3, -1, -1])).toBe(1);
    expect(measure(question(['ab', 'ab'], 1), scores(-2, -2)).acc).toBe(0);
    expect(measure(question(['ab', 'ab'], 0), scores(-2, -2)).acc).toBe(1);
  });

  it('divides by characters, not bytes, for acc_norm', () => {
    // −3 over 2 characters is worse than −4 over 4; over 8 bytes it would be better.
    const emoji = question(['😀😀', 'four'], 1);
    expect(measure(emoji, scores(-3, -4))).toEqual({ acc: 0, accNorm: 1 });
  });
});

describe('meanAndError', () => {
  it('is the mean and its standard error from the sample', () => {
    const { mean, stderr } = meanAndError([1, 0, 0, 1, 1]);
    expect(mean).toBe(0.6);
    // sqrt((3·0.16 + 2·0.36) / 4) / sqrt(5)
    expect(stderr).toBeCloseTo(Math.sqrt(0.3) / Math.sqrt(5), 15);
    expect(meanAndError([1])).toEqual({ mean: 1, stderr: null });
    expect(meanAndError([])).toEqual({ mean: 0, stderr: null });
  });

  it('gives the summary of 10,042 questions with 2,891 correct answers', () => {
    const values = Array.from({ length: 10_042 }, (_, i) => (i < 2891 ? 1 : 0));
    expect(meanAndError(values)).toEqual({
      mean: 0.2878908583947421,
      stderr: expect.closeTo(0.004518546274738873, 12) as number,
    });
  });
});
