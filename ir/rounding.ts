/** Rows as codes of 8 bits with scales: operands of products of bytes. */
import { LARGEST, roundToE4m3, roundToI8 } from './round.js';
import type { CodeFormat } from './storage.js';

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

// Scales of rows of codes: what a row of a matrix is divided by before it is rounded to 8 bits.

/**
 * What the least scale is multiplied by: 2^(i/16), in f32. Twice a scale rounds as well as the scale does, so an octave
 * holds all that differ. More of them would take 1 to 2 % more from errors of rows of 256 columns.
 */
export const SCALE_STEPS: readonly number[] = Array.from({ length: 16 }, (_, i) => Math.fround(2 ** (i / 16)));
/** Errors are counted in whole 2^-12, so that their sum depends on no order. */
export const ERROR_STEPS = 4096;

/**
 * The scale of a row of codes; 1 of a row of zeros. A code is the nearest to value / scale. Divisions are rounded to
 * f32.
 * - i8: the largest magnitude becomes the largest code.
 * - e4m3: that scale times the one of SCALE_STEPS with the least sum of squared errors, the first of equal ones. A
 *   float's error is relative, and largest just above a power of two: it matters where the large numbers of a row lie.
 */
export function rowScale(row: Float64Array, format: CodeFormat): number {
  const largest = row.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const scale = Math.fround(Math.fround(largest) / LARGEST[format]);
  if (scale === 0) return 1;
  if (format === 'i8' || !Number.isFinite(scale)) return scale;
  const scales = SCALE_STEPS.map((step) => Math.fround(scale * step));
  const costs = scales.map((each) => errorOf(row, each) * (each * each));
  return scales[costs.indexOf(Math.min(...costs))]!;
}

/** Sum of squared errors of codes of E4M3, in units of ERROR_STEPS² of codes. Exact for rows below 2^20 columns. */
function errorOf(row: Float64Array, scale: number): number {
  let sum = 0;
  for (const value of row) {
    const code = Math.fround(Math.fround(value) / scale);
    const error = Math.trunc((code - roundToE4m3(code)) * ERROR_STEPS);
    sum += error * error;
  }
  return sum;
}
