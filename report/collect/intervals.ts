/** Intervals of single figures; those of differences are in evaluate/compare. */
import type { Interval } from '../document/results.js';

/** 97.5 % of the normal distribution. */
const Z = 1.959963984540054;

/** 95 % interval of a share, `right` of `n`, by Wilson's score: it stays within 0 and 1, and has a width at both. */
export function wilson(right: number, n: number): Interval {
  if (n === 0) return [0, 1];
  const share = right / n;
  const middle = (share + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt((share * (1 - share)) / n + Z ** 2 / (4 * n ** 2));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** 95 % interval by a standard error. */
export const byError = (value: number, error: number): Interval => [value - Z * error, value + Z * error];
