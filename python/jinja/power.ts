/** Python's "**". Floats are rounded once: the engine's own power is off in the last digit at times. */
import { Float, isInt, numeric, toInt, type Value } from '../value.js';
import { Failure } from './failure.js';

/** Digits of whole numbers, as bits. */
const MAX_BITS = 1 << 14;
/** Largest whole exponent of floats that is computed exactly. */
const MAX_EXPONENT = 64n;

/** A whole number, as which Python also takes a bool. */
export const asBig = (value: Value): bigint | undefined =>
  typeof value === 'boolean' ? BigInt(value) : isInt(value) ? BigInt(value) : undefined;

/** Digits of a whole number, as bits. */
export const bitsOf = (value: bigint): number => (value < 0n ? -value : value).toString(16).length * 4;

/** Before a whole number of so many bits is made. */
export function checkBits(bits: number): void {
  if (bits > MAX_BITS) throw new Failure('limit', 'a number is too large');
}

function ofIntegers(base: bigint, exponent: bigint): Value {
  // A power of -1, 0 or 1 has one digit, whatever the exponent.
  if (base === 1n || base === 0n) return exponent === 0n ? 1 : Number(base);
  if (base === -1n) return exponent % 2n === 0n ? 1 : -1;
  checkBits(bitsOf(base) * Number(exponent));
  return toInt(base ** exponent);
}

/** A positive finite float as `whole` times two to the power of `shift`. */
function parts(value: number): { whole: bigint; shift: number } {
  let shift = 0,
    scaled = value;
  for (; !Number.isInteger(scaled); shift--) scaled *= 2;
  return { whole: BigInt(scaled), shift };
}

/** numerator / denominator, rounded once; both are positive. */
function quotient(numerator: bigint, denominator: bigint): number {
  // 66 bits or more hold the digits of a float, and in the last one whether there are more.
  const shift = Math.max(0, 66 + bitsOf(denominator) - bitsOf(numerator));
  const scaled = numerator << BigInt(shift);
  const whole = scaled / denominator;
  const exact = whole * denominator === scaled ? whole : whole | 1n;
  const half = 2 ** -Math.floor(shift / 2);
  return Number(exact) * half * 2 ** -(shift - Math.floor(shift / 2));
}

function ofFloats(base: number, exponent: bigint): number {
  const isNegative = base < 0 && exponent % 2n !== 0n;
  const size = exponent < 0n ? -exponent : exponent;
  const { whole, shift } = parts(Math.abs(base));
  if (size > MAX_EXPONENT) return base ** Number(exponent);
  const power = whole ** size;
  const scale = 1n << (BigInt(-shift) * size);
  const result = exponent < 0n ? quotient(scale, power) : quotient(power, scale);
  if (!Number.isFinite(result)) throw new Failure('limit', 'a number is too large');
  return isNegative ? -result : result;
}

/** left ** right; undefined where Python has no such power. Throws Failure. */
export function power(left: Value, right: Value): Value | undefined {
  const a = asBig(left),
    b = asBig(right);
  if (a !== undefined && b !== undefined && b >= 0n) return ofIntegers(a, b);
  const x = numeric(left),
    y = numeric(right);
  if (x === undefined || y === undefined) return undefined;
  if (x === 0 && y < 0) throw new Failure('ZeroDivisionError', '0.0 cannot be raised to a negative power');
  // Python gives 1.0 where JavaScript gives NaN.
  if (x === 1 || (x === -1 && !Number.isFinite(y) && !Number.isNaN(y))) return new Float(1);
  if (!Number.isFinite(x) || !Number.isFinite(y)) return new Float(x ** y);
  if (y === 0.5 && x >= 0) return new Float(Math.sqrt(x));
  if (!Number.isInteger(y)) {
    if (x < 0) throw new Failure('ValueError', 'powers that are complex numbers are not supported');
    return new Float(x ** y);
  }
  if (x === 0) return new Float(y === 0 ? 1 : y % 2 === 0 ? 0 : x);
  const result = ofFloats(x, BigInt(y));
  if (!Number.isFinite(result)) throw new Failure('OverflowError', 'Numerical result out of range');
  return new Float(result);
}
