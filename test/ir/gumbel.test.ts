/** The noise that tokens are drawn with: its bits, its distribution, and the frequencies of what it draws. */
import { describe, expect, it } from 'vitest';
import { drawScore, gumbel, hash32, noiseKey, type NoiseKey, uniform } from '../../ir/gumbel.js';
import { chiSquare } from '../support/numbers.js';
import { thorough } from '../support/thorough.js';

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

  thorough('is finite where u is as small or as large as it can be', () => {
    for (let token = 0; token < 100_000; token++) expect(Math.abs(gumbel(noiseKey(3n, 4), token))).toBeLessThan(24);
  });
});

const Z = [0, 1.5, -2, 0.3, 4, 1.5, -Infinity, 2];

/** The token drawn under a seed for a position, from Z. */
type Draw = (seed: number, position: number) => number;

/** The draw of a noise, of which tests make wrong ones. */
const drawWith =
  (inverseTemperature: number, noise: (seed: number, position: number, token: number) => number): Draw =>
  (seed, position) => {
    const scores = Z.map((value, token) => value * inverseTemperature + noise(seed, position, token));
    return scores.indexOf(Math.max(...scores));
  };
const keyOf = (seed: number, position: number): NoiseKey => noiseKey(BigInt(seed), position);

/**
 * The largest χ² of what softmax(Z / temperature) says of single draws, and of two draws that must not depend on each
 * other: of neighbouring positions, of neighbouring seeds, and of both at once.
 */
function departure(draw: Draw, temperature: number): number {
  const weights = Z.map((value) => Math.exp(value / temperature));
  const total = weights.reduce((a, b) => a + b);
  const p = weights.map((weight) => weight / total);
  const draws = 20_000;
  const single = Z.map(() => 0);
  const pairs = [0, 1, 2].map(() => Z.flatMap(() => Z.map(() => 0)));
  for (let position = 0; position < draws; position++) {
    const first = draw(11, position);
    single[first]!++;
    const others = [draw(11, position + 1), draw(12, position), draw(10, position + 1)];
    others.forEach((second, i) => pairs[i]![first * Z.length + second]!++);
  }
  return Math.max(
    chiSquare(
      single,
      p.map((x) => draws * x),
    ),
    ...pairs.map((found) =>
      chiSquare(
        found,
        p.flatMap((x) => p.map((y) => draws * x * y)),
      ),
    ),
  );
}

describe('draws', () => {
  const right = (temperature: number): Draw =>
    function (seed, position) {
      const key = keyOf(seed, position);
      const scores = Z.map((value, token) => drawScore(value, 1 / temperature, key, token));
      return scores.indexOf(Math.max(...scores));
    };

  it.each([0.3, 1, 2.5])('come as often as softmax(z / %d) says, and do not depend on each other', (temperature) => {
    expect(departure(right(temperature), temperature)).toBeLessThan(3.5);
  });

  // What the bound above must notice.
  it.each<[string, Draw]>([
    ['no temperature', right(1)],
    ['a temperature in place of its inverse', right(1 / 2.5)],
    ['a temperature that is 10 % off', right(2.5 * 1.1)],
    ['no noise', drawWith(1 / 2.5, () => 0)],
    ['noise of the other sign', drawWith(1 / 2.5, (seed, at, token) => -gumbel(keyOf(seed, at), token))],
    ['uniform noise', drawWith(1 / 2.5, (seed, at, token) => uniform(keyOf(seed, at), token))],
    ['noise that two tokens share', drawWith(1 / 2.5, (seed, at, token) => gumbel(keyOf(seed, at), token >> 1))],
    ['noise of every position', drawWith(1 / 2.5, (seed, _, token) => gumbel(keyOf(seed, 0), token))],
    ['noise of every seed', drawWith(1 / 2.5, (_, at, token) => gumbel(keyOf(0, at), token))],
    ['a key off by one at odd positions', drawWith(1 / 2.5, (seed, at, token) => gumbel(keyOf(seed, at & ~1), token))],
    ['a key that adds seed and position', drawWith(1 / 2.5, (seed, at, token) => gumbel(keyOf(0, seed + at), token))],
    [
      'noise of the token before at the next position',
      drawWith(1 / 2.5, (s, at, token) => gumbel(keyOf(s, 0), at + token)),
    ],
  ])('with %s are noticed', (_what, wrong) => {
    expect(departure(wrong, 2.5)).toBeGreaterThan(10);
  });

  it('take the largest at an inverse temperature of 0', () => {
    const scores = Z.map((value, token) => drawScore(value, 0, noiseKey(11n, 1), token));
    expect(scores).toEqual(Z);
  });
});
