/** The noise that tokens are drawn with: its bits, its distribution, and the frequencies of what it draws. */
import { describe, expect, it } from 'vitest';
import { drawScore, gumbel, hash32, noiseKey, uniform } from '../../ir/gumbel.js';
import { chiSquare } from '../support/chiSquare.js';

describe('noise', () => {
  it('has the bits that generated code has', () => {
    // Computed by hand from the definition, with unsigned arithmetic of unlimited width.
    const wide = (a: bigint, b: bigint): bigint => {
      const word = (x: bigint): bigint => BigInt.asUintN(32, x);
      let x = word(a ^ (b * 0x9e3779b9n + 0x7f4a7c15n));
      x = word((x ^ (x >> 16n)) * 0x7feb352dn);
      x = word((x ^ (x >> 15n)) * 0x846ca68bn);
      return BigInt.asIntN(32, x ^ (x >> 16n));
    };
    for (const [a, b] of [
      [0, 0],
      [1, 0],
      [0, 1],
      [-1, 7],
      [128_255, -2_000_000_001],
    ] as const)
      expect(hash32(a, b)).toBe(Number(wide(BigInt.asUintN(32, BigInt(a)), BigInt.asUintN(32, BigInt(b)))));
  });

  it('differs between seeds, positions and tokens, and uses all 64 bits of a seed', () => {
    const bits = [0n, 1n, 1n << 32n, 1n << 63n, -1n].flatMap((seed) =>
      [0, 1, 2].flatMap((position) => [0, 1, 2].map((token) => uniform(noiseKey(seed, position), token))),
    );
    expect(new Set(bits).size).toBe(bits.length);
  });

  it('is uniform before the logarithms, over tokens, positions and seeds', () => {
    const count = 40_000;
    const byAxis = [
      (i: number) => uniform(noiseKey(5n, 9), i),
      (i: number) => uniform(noiseKey(5n, i), 9),
      (i: number) => uniform(noiseKey(BigInt(i), 5), 9),
    ];
    for (const axis of byAxis) {
      const found = new Array<number>(64).fill(0);
      for (let i = 0; i < count; i++) found[Math.floor(axis(i) * 64)]!++;
      expect(chiSquare(found, new Array<number>(64).fill(count / 64))).toBeLessThan(3.5);
    }
  });

  it('is finite where u is as small or as large as it can be', () => {
    for (let token = 0; token < 100_000; token++) expect(Math.abs(gumbel(noiseKey(3n, 4), token))).toBeLessThan(24);
  });
});

describe('draws', () => {
  const z = [0, 1.5, -2, 0.3, 4, 1.5, -Infinity, 2];

  it.each([0.3, 1, 2.5])('come as often as softmax(z / %d) says', (temperature) => {
    const weights = z.map((value) => Math.exp(value / temperature));
    const total = weights.reduce((a, b) => a + b);
    const draws = 20_000;
    const found = z.map(() => 0);
    for (let position = 0; position < draws; position++) {
      const scores = z.map((value, token) => drawScore(value, 1 / temperature, noiseKey(11n, position), token));
      found[scores.indexOf(Math.max(...scores))]!++;
    }
    expect(
      chiSquare(
        found,
        weights.map((weight) => (draws * weight) / total),
      ),
    ).toBeLessThan(3.5);
  });

  it('take the largest at an inverse temperature of 0', () => {
    const scores = z.map((value, token) => drawScore(value, 0, noiseKey(11n, 1), token));
    expect(scores).toEqual(z);
  });
});
