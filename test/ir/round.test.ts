import { describe, expect, it } from 'vitest';
import { roundToDType, roundToF16 } from '../../ir/round.js';

describe('roundToF16', () => {
  it.each([
    [1, 1],
    [-0, -0],
    [1 + 2 ** -11, 1],
    [1 + 3 * 2 ** -11, 1 + 2 ** -9],
    [-(1 + 3 * 2 ** -11), -(1 + 2 ** -9)],
    [0.1, 0.0999755859375],
    [65504, 65504],
    [65519, 65504],
    [65520, Infinity],
    [-1e9, -Infinity],
    [2 ** -24, 2 ** -24],
    [2 ** -25, 0],
    [1.5 * 2 ** -25, 2 ** -24],
    [-(2 ** -26), -0],
    [2047.5, 2048],
    [NaN, NaN],
  ])('%d becomes %d', (value, rounded) => expect(roundToF16(value)).toBe(rounded));
});

describe('roundToDType', () => {
  it('rounds ties to even in bf16, truncates to i32, and keeps f32 values', () => {
    expect(roundToDType(1 + 2 ** -8, 'bf16')).toBe(1);
    expect(roundToDType(1 + 3 * 2 ** -8, 'bf16')).toBe(1 + 2 ** -6);
    expect(roundToDType(-2.9, 'i32')).toBe(-2);
    expect(roundToDType(1 + 2 ** -30, 'f32')).toBe(1);
    expect(roundToDType(0.5, 'bool')).toBe(1);
  });
});
