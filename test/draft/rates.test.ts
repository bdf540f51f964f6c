/** Rates and what noise makes of them, against how often something is right. */
import { describe, expect, it } from 'vitest';
import { chanceOf } from '../../draft/chance.js';
import { LENGTHS, lengthKind, NoiseCorrection, Rates } from '../../draft/rates.js';
import { type Draw, gumbel, noiseKey } from '../../ir/gumbel.js';
import { randomNumbers } from '../support/pathModel.js';

describe('rates', () => {
  it('are what was seen, and follow what changes', () => {
    const random = randomNumbers(3);
    const rates = new Rates([0.5, 0.1]);
    expect([rates.of(0), rates.of(1)]).toEqual([0.5, 0.1]);
    for (let i = 0; i < 20_000; i++) rates.count(0, random() < 0.9);
    expect(Math.abs(rates.of(0) - 0.9)).toBeLessThan(0.03);
    for (let i = 0; i < 20_000; i++) rates.count(0, random() < 0.2);
    expect(Math.abs(rates.of(0) - 0.2)).toBeLessThan(0.05);
    expect(rates.of(1)).toBe(0.1);
  });

  it('have kinds of lengths that do not fall', () => {
    const kinds = Array.from({ length: 100 }, (_, length) => lengthKind(length));
    expect(kinds).toEqual([...kinds].sort((a, b) => a - b));
    expect([kinds[0], kinds[1], kinds.at(-1)]).toEqual([0, 1, LENGTHS - 1]);
  });
});

/** Token 0 is drawn, of a place where it has probability p and one other has the rest. */
const isDrawn = (p: number, draw: Draw): boolean => Math.log(p) + gumbel(draw, 0) > Math.log(1 - p) + gumbel(draw, 1);

/** Of each tenth that was said: how often it was right, less that. */
function errors(places: (i: number) => number, rate: number): readonly number[] {
  const correction = new NoiseCorrection();
  const tenths = Array.from({ length: 10 }, () => ({ count: 0, said: 0, right: 0 }));
  for (let i = 0; i < 16_000; i++) {
    const draw: Draw = { inverseTemperature: 1, ...noiseKey(11n, i) };
    const noisy = chanceOf(rate, 0, draw);
    const chance = correction.of(rate, noisy);
    const isRight = isDrawn(places(i), draw);
    correction.count(rate, noisy, isRight);
    if (i < 6_000) continue;
    const tenth = tenths[Math.min(9, Math.floor(chance * 10))]!;
    tenth.count++;
    tenth.said += chance;
    tenth.right += isRight ? 1 : 0;
  }
  return tenths.filter(({ count }) => count > 200).map(({ count, said, right }) => (right - said) / count);
}

describe('what noise makes of a rate', () => {
  it.each([0.2, 0.5, 0.8])('is right where all places have the probability %d', (p) => {
    const found = errors(() => p, p);
    expect(found.length).toBeGreaterThan(3);
    for (const error of found) expect(Math.abs(error)).toBeLessThan(0.08);
  });

  it('is little where some places are nearly certain and others nearly excluded', () => {
    const random = randomNumbers(8);
    const certain = Array.from({ length: 16_000 }, () => (random() < 0.5 ? 0.98 : 0.02));
    const found = errors((i) => certain[i]!, 0.5);
    for (const error of found) expect(Math.abs(error)).toBeLessThan(0.1);
    expect(found.length).toBeLessThan(6);
  });

  it('is a probability, whatever was seen', () => {
    const correction = new NoiseCorrection();
    for (let i = 0; i < 10_000; i++) correction.count(0.01, 0, true);
    for (const [rate, noisy] of [
      [0, 0],
      [1, 1],
      [0.01, 0.001],
      [0.5, 0],
    ] as const) {
      expect(correction.of(rate, noisy)).toBeGreaterThanOrEqual(0);
      expect(correction.of(rate, noisy)).toBeLessThanOrEqual(1);
    }
  });
});
