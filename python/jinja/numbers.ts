/** Jinja's filters of numbers. */
import { strip } from '../text.js';
import { asInt, Float, numeric, toInt, typeName, type Value } from '../value.js';
import { roundFloat, roundInteger } from './decimal.js';
import { Failure, typeError, valueError } from './failure.js';
import { textOf, Undefined } from './objects.js';
import { arithmetic } from './operators.js';
import type { Work } from './work.js';

const MAX_DIGITS = 4300;
const PREFIXES: ReadonlyMap<string, number> = new Map([
  ['0b', 2],
  ['0o', 8],
  ['0x', 16],
]);

/** The text of a number as int() and float() read it: digits of all scripts count. */
const digitsOf = (text: string): string =>
  strip(text.slice(0, 1 << 16)).replace(/(?![0-9])\p{Nd}/gu, (digit) => String(decimalOf(digit)));

/** The value of a digit: the ten of a script follow each other. */
function decimalOf(digit: string): number {
  const code = digit.codePointAt(0) ?? 0;
  let first = code;
  while (code - first < 9 && /^\p{Nd}$/u.test(String.fromCodePoint(first - 1))) first--;
  return (code - first) % 10;
}

/** Python's float(text); undefined where it raises an error. */
function readFloat(text: string): number | undefined {
  const number = digitsOf(text);
  if (/^[-+]?(\d+(_\d+)*\.?|(\d+(_\d+)*)?\.\d+(_\d+)*)([eE][-+]?\d+(_\d+)*)?$/.test(number))
    return Number(number.replaceAll('_', ''));
  const [, sign, name] = /^([-+]?)(inf|infinity|nan)$/i.exec(number) ?? [];
  if (name === undefined) return undefined;
  return name.toLowerCase() === 'nan' ? NaN : sign === '-' ? -Infinity : Infinity;
}

function readInt(text: string, base: number): number | bigint | undefined {
  if (base !== 0 && (base < 2 || base > 36)) return undefined;
  const number = digitsOf(text).toLowerCase();
  const sign = number.startsWith('-') ? '-' : '';
  const unsigned = number.replace(/^[-+]/, '');
  const prefix = /^0[box]/.exec(unsigned)?.[0] ?? '';
  const prefixed = PREFIXES.get(prefix);
  const isPrefixed = prefixed !== undefined && (base === 0 || base === prefixed);
  const radix = isPrefixed ? prefixed : base === 0 ? 10 : base;
  const digits = isPrefixed ? unsigned.slice(2).replace(/^_/, '') : unsigned;
  if (!/^[0-9a-z]+(_[0-9a-z]+)*$/.test(digits) || digits.length > MAX_DIGITS) return undefined;
  if (base === 0 && !isPrefixed && /^0[0_]*[1-9]/.test(digits)) return undefined;
  let value = 0n;
  for (const letter of digits.replaceAll('_', '')) {
    const digit = Number.parseInt(letter, 36);
    if (digit >= radix) return undefined;
    value = value * BigInt(radix) + BigInt(digit);
  }
  return toInt(sign === '-' ? -value : value);
}

/** int(float) */
export function truncated(value: number): number | bigint {
  if (Number.isNaN(value)) throw valueError('cannot convert float NaN to integer');
  if (!Number.isFinite(value)) throw new Failure('OverflowError', 'cannot convert float infinity to integer');
  return toInt(BigInt(Math.trunc(value)));
}

/** The filter int: text in `base`, then as a float; undefined for what is no number. */
export function wholeNumber(value: Value, base: number): number | bigint | undefined {
  if (value instanceof Undefined) value.fail();
  const whole = asInt(value);
  if (whole !== undefined) return whole;
  if (value instanceof Float) return Number.isNaN(value.value) ? undefined : truncated(value.value);
  const text = textOf(value);
  if (text === undefined) return undefined;
  const read = readInt(text, base);
  if (read !== undefined) return read;
  const float = readFloat(text);
  return float === undefined || !Number.isFinite(float) ? undefined : truncated(float);
}

/** float(value); undefined for what is no number. */
export function floatNumber(value: Value): Float | undefined {
  if (value instanceof Undefined) value.fail();
  const text = textOf(value);
  const number = text === undefined ? toFloat(value) : readFloat(text);
  return number === undefined ? undefined : new Float(number);
}

/** A number as a float. Throws Failure for a whole number that is too large. */
export function toFloat(value: Value): number | undefined {
  const number = numeric(value);
  if (typeof value === 'bigint' && !Number.isFinite(number))
    throw new Failure('OverflowError', 'int too large to convert to float');
  return number;
}

/** The filter round. */
export function round(value: Value, precision: Value, method: Value, work: Work): Value {
  if (method !== 'common' && method !== 'ceil' && method !== 'floor')
    throw new Failure('FilterArgumentError', 'method must be common, ceil or floor');
  if (value instanceof Undefined) value.fail();
  if (numeric(value) === undefined) throw typeError(`type ${typeName(value)} doesn't define __round__ method`);
  if (precision === null && method === 'common')
    return value instanceof Float ? truncated(roundFloat(value.value, 0)) : (asInt(value) ?? 0);
  const places = asInt(precision);
  if (places === undefined) throw typeError(`'${typeName(precision)}' object cannot be interpreted as an integer`);
  if (method === 'common') {
    if (value instanceof Float) {
      const result = roundFloat(value.value, Number(places));
      if (!Number.isFinite(result) && Number.isFinite(value.value))
        throw new Failure('OverflowError', 'rounded value too large to represent');
      return new Float(result);
    }
    const whole = asInt(value) ?? 0;
    return places >= 0 ? whole : toInt(roundInteger(BigInt(whole), Number(places)));
  }
  const unit = arithmetic('**', 10, places, work);
  const scaled = arithmetic('*', value, unit, work);
  const whole = scaled instanceof Float ? towards(scaled.value, method) : scaled;
  return arithmetic('/', whole, unit, work);
}

function towards(value: number, method: 'ceil' | 'floor'): number | bigint {
  return truncated(Number.isFinite(value) ? (method === 'ceil' ? Math.ceil(value) : Math.floor(value)) : value);
}

/** The filter abs. */
export function absolute(value: Value): Value {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Float) return new Float(Math.abs(value.value));
  const whole = asInt(value);
  if (whole === undefined) throw typeError(`bad operand type for abs(): '${typeName(value)}'`);
  return typeof whole === 'bigint' ? (whole < 0n ? -whole : whole) : Math.abs(whole);
}
