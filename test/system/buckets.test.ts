import { describe, expect, it } from 'vitest';
import { Buckets, countOf } from '../../system/buckets.js';

describe('buckets', () => {
  it('count a value at its bound, above the one before, and above all', () => {
    const buckets = new Buckets([1, 2, 5]);
    for (const value of [0, 1, 1.5, 2, 5, 5.1, 100]) buckets.add(value);
    expect([...buckets.counts]).toEqual([2, 2, 1, 2]);
    expect(buckets.sum).toBeCloseTo(114.6);
    buckets.add(3, 10);
    expect([...buckets.counts]).toEqual([2, 2, 11, 2]);
    expect(countOf(buckets)).toBe(17);
  });

  it('give copies that later values do not change', () => {
    const buckets = new Buckets([1]);
    const before = buckets.tally();
    buckets.add(1);
    expect(countOf(before)).toBe(0);
    expect(structuredClone(buckets.tally())).toEqual({ bounds: [1], counts: Float64Array.of(1, 0), sum: 1 });
  });
});
