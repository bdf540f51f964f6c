/** Rows as codes of 8 bits with scales, the operands of products of bytes. */
import { LARGEST, roundToI8 } from './round.js';

/** Magnitudes below it count as zero. */
const LEAST = 2 ** -100;

/**
 * `values` as they are multiplied: for each `columns` neighbours, codes of 8 bits times a scale, the largest magnitude
 * / 127. Where a magnitude is infinite or NaN, all of them become NaN.
 */
export function roundToCodes(values: Float64Array, columns: number): Float64Array {
  const out = new Float64Array(values.length);
  for (let first = 0; first < values.length; first += columns) {
    const own = values.subarray(first, first + columns);
    const largest = own.reduce(
      (most, value) => (Math.abs(value) <= most || Number.isNaN(most) ? most : Math.abs(value)),
      0,
    );
    const scale = largest / LARGEST.i8;
    own.forEach((value, i) => {
      const code = largest < LEAST ? 0 : roundToI8(value / scale);
      out[first + i] = Number.isFinite(largest) ? code * scale : NaN;
    });
  }
  return out;
}
