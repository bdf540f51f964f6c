/** Rounds doubles to storage types, as a store to memory does. */
import type { BufferDType } from './types.js';
import { roundToBf16 } from './scalar.js';

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
    case 'i32':
    case 'u8':
      return Math.trunc(value);
    case 'bool':
      return value === 0 ? 0 : 1;
    default:
      return dtype satisfies never;
  }
}
