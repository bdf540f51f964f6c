/** Lengths of made-up requests: means, bounds, and the same for a seed. */
import { expect, it } from 'vitest';
import { MEAN_LENGTHS, requestLengths } from '../../bench/requestLengths.js';

it('has the wanted means within the bounds of the cut', () => {
  const lengths = requestLengths(1000);
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  expect(mean(lengths.map(({ prompt }) => prompt)) / MEAN_LENGTHS.prompt).toBeCloseTo(1, 1);
  expect(mean(lengths.map(({ answer }) => answer)) / MEAN_LENGTHS.answer).toBeCloseTo(1, 1);
  for (const { prompt, answer } of lengths) {
    expect(Math.min(prompt, answer)).toBeGreaterThanOrEqual(4);
    expect(prompt).toBeLessThanOrEqual(1024);
    expect(prompt + answer).toBeLessThanOrEqual(2048);
  }
});

it('depends on the seed alone', () => {
  expect(requestLengths(20, 1.1, 3)).toEqual(requestLengths(20, 1.1, 3));
  expect(requestLengths(20, 1.1, 3)).not.toEqual(requestLengths(20, 1.1, 4));
});
