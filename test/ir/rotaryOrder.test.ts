/** The order of rows that brings pairs half a head apart. */
import { describe, expect, it } from 'vitest';
import { OPS } from '../../ir/ops/index.js';
import { orderProblem, storedRow, type RotaryOrder } from '../../ir/rotaryOrder.js';

const rowsOf = (order: RotaryOrder, rows: number): number[] =>
  Array.from({ length: rows }, (_, row) => storedRow(order, row));

describe('the order of rotated heads', () => {
  it('keeps heads whose pairs are half a head apart', () => {
    expect(rowsOf({ headDim: 6, rotated: 6, interleaved: false }, 12)).toEqual([...Array(12).keys()]);
  });

  it('brings neighbours half a head apart', () => {
    expect(rowsOf({ headDim: 6, rotated: 6, interleaved: true }, 12)).toEqual([0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
  });

  it('puts elements that are not turned behind those that are, in both halves', () => {
    expect(rowsOf({ headDim: 8, rotated: 4, interleaved: false }, 8)).toEqual([0, 1, 4, 5, 2, 3, 6, 7]);
    expect(rowsOf({ headDim: 8, rotated: 4, interleaved: true }, 8)).toEqual([0, 2, 4, 5, 1, 3, 6, 7]);
  });

  it('is an order: every row once', () => {
    for (const rotated of [2, 4, 10, 16])
      for (const interleaved of [false, true])
        expect(rowsOf({ headDim: 16, rotated, interleaved }, 48).sort((a, b) => a - b)).toEqual([...Array(48).keys()]);
  });

  it('moves whole rows of a matrix', () => {
    const matrix = { shape: [4, 2], data: Float64Array.of(1, 10, 2, 20, 3, 30, 4, 40) };
    const attributes = { headDim: 4, rotated: 4, interleaved: true };
    expect([...OPS.pair_halves.evaluate({ x: matrix }, attributes, [4, 2]).data]).toEqual([1, 10, 3, 30, 2, 20, 4, 40]);
  });

  it.each([
    [{ headDim: 7, rotated: 2, interleaved: false }, 14],
    [{ headDim: 8, rotated: 3, interleaved: false }, 16],
    [{ headDim: 8, rotated: 10, interleaved: false }, 16],
    [{ headDim: 8, rotated: 4, interleaved: false }, 12],
  ])('is refused: %j of %i rows', (order, rows) => {
    expect(orderProblem(order, rows)).toMatch(/both are even|whole heads/);
  });
});
