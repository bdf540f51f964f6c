/** Paired tests and intervals against values computed by hand and by tables. */
import { describe, expect, it } from 'vitest';
import {
  drawnInterval,
  mcNemar,
  meanDifference,
  meanInterval,
  shareInterval,
  signFlips,
  swaps,
} from '../../evaluate/compare/compareMetrics.js';
import { holm } from '../../evaluate/compare/compareRuns.js';

const stratum = (values: readonly number[], weight = 1) => ({ differences: Float64Array.from(values), weight });
const mean = (items: readonly number[]): number => items.reduce((sum, each) => sum + each, 0) / items.length;

describe('exact McNemar', () => {
  it('is the two-sided binomial test of the questions that changed', () => {
    expect(mcNemar(10, 2)).toBeCloseTo((2 * (1 + 12 + 66)) / 4096, 12);
    expect(mcNemar(2, 10)).toBe(mcNemar(10, 2));
    expect(mcNemar(0, 6)).toBeCloseTo(2 / 64, 12);
    expect([mcNemar(0, 0), mcNemar(1, 0), mcNemar(7, 7)]).toEqual([1, 1, 1]);
  });

  it('holds for large numbers, where it nears the normal distribution', () => {
    // z = 2.5 with the correction for continuity: p = 0.0124.
    const [b, c] = [5127, 4876];
    expect(mcNemar(b, c)).toBeCloseTo(0.0124, 3);
    expect(mcNemar(60_000, 40_000)).toBe(0);
  });
});

describe('intervals', () => {
  it('of shares are those of Bonett and Price', () => {
    // (b + 1)/(n + 2) = 0.13, (c + 1)/(n + 2) = 0.03 of n = 98: 0.1 ± 1.96·√((0.16 − 0.01)/100)
    const [from, to] = shareInterval(12, 2, 98);
    expect(from).toBeCloseTo(0.1 - 1.959964 * Math.sqrt(0.0015), 6);
    expect(to).toBeCloseTo(0.1 + 1.959964 * Math.sqrt(0.0015), 6);
    expect(shareInterval(1, 0, 1)[1]).toBe(1);
  });

  it('of means are those of Student', () => {
    const of = (n: number): number => meanInterval([stratum(Array.from({ length: n }, (_, i) => i % 2))])![1];
    // t of 1, 9 and 39 degrees of freedom: 12.7062, 2.2622, 2.0227.
    expect(of(2)).toBeCloseTo(0.5 + 12.7062 * 0.5, 3);
    expect(of(10)).toBeCloseTo(0.5 + 2.2622 * Math.sqrt(2.5 / 9 / 10), 4);
    expect(of(40)).toBeCloseTo(0.5 + 2.0227 * Math.sqrt(10 / 39 / 40), 4);
    expect(meanInterval([stratum([1])])).toBeNull();
  });

  it('of weighted strata add their variances', () => {
    const strata = [stratum([0, 2, 0, 2], 3), stratum([1, 1, 5, 5], 1)];
    expect(meanDifference(strata)).toBeCloseTo(0.75 * 1 + 0.25 * 3, 12);
    const se = Math.sqrt(0.75 ** 2 * (4 / 3 / 4) + 0.25 ** 2 * (16 / 3 / 4));
    expect(meanInterval(strata)![1]).toBeCloseTo(1.5 + 2.4469 * se, 3);
  });

  it('of figures over drawn questions cover the figure', () => {
    const a = Array.from({ length: 80 }, (_, i) => Math.sin(i)),
      b = a.map((value, i) => value + 0.5 + Math.cos(i * 7) / 2);
    const [from, to] = drawnInterval(a, b, mean)!;
    const [least, most] = meanInterval([stratum(b.map((value, i) => value - a[i]!))])!;
    expect(from).toBeCloseTo(least, 1);
    expect(to).toBeCloseTo(most, 1);
  });
});

describe('permutations', () => {
  it('find the share of signs that go as far', () => {
    // Of 32 patterns two go as far as five equal differences.
    expect(signFlips([stratum([1, 1, 1, 1, 1])]).p).toBeCloseTo(2 / 32, 2);
    expect(signFlips([stratum([1, -1, 2, -2])]).p).toBe(1);
    expect(signFlips([stratum([0, 0, 0])])).toEqual({ name: 'sign flips', p: 1 });
  });

  it('agree with swaps, and are the same every time', () => {
    const a = Array.from({ length: 60 }, (_, i) => Math.sin(i)),
      b = a.map((value, i) => value + Math.cos(i * 3) + 0.15);
    const flipped = signFlips([stratum(b.map((value, i) => value - a[i]!))]);
    expect(swaps(a, b, mean).p).toBeCloseTo(flipped.p, 1);
    expect(flipped.p).toBeGreaterThan(0.05);
    expect(signFlips([stratum(b.map((value, i) => value - a[i]!))])).toEqual(flipped);
  });
});

it("Holm's rule multiplies the least by their number, the next by one less, and keeps their order", () => {
  expect(holm([0.04, 0.01, 0.03])).toEqual([0.06, 0.03, 0.06]);
});
