/** Rounds doubles to storage types, as a store to memory does. */
import { roundToBf16 } from './scalar.js';
import type { BufferDType } from './types.js';

const SCRATCH_F64 = new Float64Array(1);
const SCRATCH_U32 = new Uint32Array(SCRATCH_F64.buffer);
/** Adding and subtracting 1.5·2^52 rounds a small double to an integer, ties to even. */
const ROUNDER = 1.5 * 2 ** 52;

/**
 * Round-to-nearest-even of a double to IEEE binary16 (through f32, as a store of an f32 register does), as a double.
 */
export function roundToF16(value: number): number {
  const single = Math.fround(value);
  if (single === 0 || !Number.isFinite(single)) return single;
  SCRATCH_F64[0] = single;
  const exponent = Math.max(((SCRATCH_U32[1]! >>> 20) & 0x7ff) - 1023, -14);
  const quantum = 2 ** (exponent - 10);
  const rounded = (single / quantum + ROUNDER - ROUNDER) * quantum;
  if (Math.abs(rounded) > 65504) return rounded > 0 ? Infinity : -Infinity;
  return rounded === 0 && single < 0 ? -0 : rounded;
}

/** The largest magnitudes of types that have no room for what is larger. */
export const LARGEST = { e4m3: 448, i8: 127 } as const;

/** Round-to-nearest-even of a double to E4M3 (through f32), as a double. What is too large becomes ±448. */
export function roundToE4m3(value: number): number {
  const single = Math.max(-LARGEST.e4m3, Math.min(LARGEST.e4m3, Math.fround(value)));
  if (single === 0 || Number.isNaN(single)) return single;
  SCRATCH_F64[0] = single;
  const exponent = Math.max(((SCRATCH_U32[1]! >>> 20) & 0x7ff) - 1023, -6);
  const quantum = 2 ** (exponent - 3);
  const rounded = (Math.abs(single) / quantum + ROUNDER - ROUNDER) * quantum;
  return single < 0 ? -rounded : rounded;
}

/** Round-to-nearest-even of a double to −127 … 127 (through f32). NaN becomes 0. */
export function roundToI8(value: number): number {
  const single = Math.fround(value);
  if (Number.isNaN(single)) return 0;
  const inside = Math.max(-LARGEST.i8, Math.min(LARGEST.i8, single));
  return inside + ROUNDER - ROUNDER;
}

/**
 * `value` as it reads back after a store to a buffer of `dtype`. i32 truncates towards zero; bool is 0 or 1; a byte
 * must be given as a whole number from 0 to 255.
 */
export function roundToDType(value: number, dtype: BufferDType): number {
  switch (dtype) {
    case 'f32':
      return Math.fround(value);
    case 'bf16':
      return roundToBf16(value);
    case 'f16':
      return roundToF16(value);
    case 'e4m3':
      return roundToE4m3(value);
    case 'i8':
      return roundToI8(value);
    case 'i32':
    case 'u8':
      return Math.trunc(value);
    case 'bool':
      return value === 0 ? 0 : 1;
    default:
      return dtype satisfies never;
  }
}
