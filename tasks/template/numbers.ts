/** Jinja's filters of numbers. */
import { strip } from '../../python/text.js';
import { Float, isInt, numeric, toInt, typeName, type Value } from '../../python/value.js';
import { Failure } from './failure.js';

const MAX_DIGITS = 1000;
const PREFIXES: ReadonlyMap<number, string> = new Map([
  [2, '0b'],
  [8, '0o'],
  [16, '0x'],
]);

/** The text of a number as int() and float() read it. Other scripts' digits are refused: Python reads them. */
function digitsOf(text: string): string {
  const stripped = strip(text.slice(0, 1 << 16));
  if (/(?![0-9])\p{Nd}/u.test(stripped)) throw new Failure('digits other than 0 to 9 are not supported in numbers');
  return stripped;
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
  if (base !== 10 && !PREFIXES.has(base)) throw new Failure(`int() to the base ${base} is not supported`);
  const number = digitsOf(text).toLowerCase();
  const sign = number.startsWith('-') ? '-' : '';
  const unsigned = number.replace(/^[-+]/, '');
  const prefix = PREFIXES.get(base) ?? '';
  const digits = prefix !== '' && unsigned.startsWith(prefix) ? unsigned.slice(2).replace(/^_/, '') : unsigned;
  const letters = base === 16 ? '[0-9a-f]' : base === 8 ? '[0-7]' : base === 2 ? '[01]' : '\\d';
  if (!new RegExp(`^${letters}+(_${letters}+)*$`).test(digits) || digits.length > MAX_DIGITS) return undefined;
  const value = BigInt(prefix + digits.replaceAll('_', ''));
  return toInt(sign === '-' ? -value : value);
}

const truncated = (value: number): number | bigint | undefined =>
  Number.isFinite(value) ? toInt(BigInt(Math.trunc(value))) : undefined;

/** The filter int: text in `base`, then as a float; undefined for what is no number. */
export function wholeNumber(value: Value, base = 10): number | bigint | undefined {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (isInt(value)) return value;
  if (value instanceof Float) {
    if (!Number.isFinite(value.value)) throw new Failure('a float that is not finite has no whole number');
    return truncated(value.value);
  }
  if (typeof value !== 'string') return undefined;
  const whole = readInt(value, base);
  if (whole !== undefined) return whole;
  const float = readFloat(value);
  return float === undefined ? undefined : truncated(float);
}

/** The filter float; undefined for what is no number. */
export function floatNumber(value: Value): Float | undefined {
  const number = typeof value === 'string' ? readFloat(value) : numeric(value);
  if (number === undefined) return undefined;
  if (isInt(value) && !Number.isFinite(number)) throw new Failure('a number is too large for a float');
  return new Float(number);
}

/** round(value, places): the digits of the float decide, not those it is shown with; halves go to the even one. */
function roundFloat(value: number, places: number): number {
  if (!Number.isFinite(value) || Math.abs(value) >= 2 ** 52) return value;
  const exact = value.toFixed(Math.min(places + 60, 100));
  const behind = exact.slice(exact.indexOf('.') + 1 + places);
  const rounded = value.toFixed(places);
  if (!/^50*$/.test(behind)) return Number(rounded);
  const below = exact.slice(0, exact.length - behind.length).replace(/\.$/, '');
  // toFixed() takes the larger neighbour.
  const isEven = /[02468]$/.test(below);
  return Number(isEven ? below : rounded === below ? away(below, places) : rounded);
}

/** The next number away from zero with as many places. */
function away(text: string, places: number): string {
  const next = Number(text) + (text.startsWith('-') ? -1 : 1) / 10 ** places;
  return next.toFixed(places);
}

/** The filter round. */
export function round(value: Value, precision: Value, method: Value): Value {
  if (!isInt(precision) || precision < 0 || precision > 30)
    throw new Failure('round takes 0 to 30 places, as a whole number');
  if (method !== 'common' && method !== 'ceil' && method !== 'floor')
    throw new Failure('the method of round must be common, ceil or floor');
  const number = numeric(value);
  if (number === undefined) throw new Failure(`${typeName(value)} cannot be rounded`);
  const places = Number(precision);
  if (method === 'common') {
    if (value instanceof Float) return new Float(roundFloat(number, places));
    return typeof value === 'boolean' ? Number(value) : value;
  }
  const scaled = number * 10 ** places;
  if (!Number.isFinite(scaled)) throw new Failure('a number is too large to round');
  // Whole numbers have no negative zero.
  const whole = (method === 'ceil' ? Math.ceil(scaled) : Math.floor(scaled)) + 0;
  return new Float(whole / 10 ** places);
}

/** The filter abs. */
export function absolute(value: Value): Value {
  if (value instanceof Float) return new Float(Math.abs(value.value));
  if (typeof value === 'boolean') return Number(value);
  if (typeof value === 'bigint') return value < 0n ? -value : value;
  if (typeof value === 'number') return Math.abs(value);
  throw new Failure(`${typeName(value)} has no absolute value`);
}
