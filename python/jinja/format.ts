/** Python's format specifications, and the exact decimal digits of floats. */
import { repr, showFloat } from '../show.js';
import { asInt, codePointLength, codePoints, Float, numeric, typeName, type PyValue } from '../value.js';
import { textOf, Undefined } from './objects.js';
import { Failure, typeError, valueError, type TemplateWork } from './work.js';

// Decimal digits of floats, rounded once from the exact value, halves to the even digit: as Python writes them.

/** A finite float that is not negative, as numerator / denominator. */
function fraction(value: number): { numerator: bigint; denominator: bigint } {
  if (value === 0) return { numerator: 0n, denominator: 1n };
  let exponent = 0,
    scaled = value;
  for (; !Number.isInteger(scaled); exponent++) scaled *= 2;
  return { numerator: BigInt(scaled), denominator: 1n << BigInt(exponent) };
}

/** numerator / denominator to the nearest whole number. */
function rounded(numerator: bigint, denominator: bigint): bigint {
  const whole = numerator / denominator;
  const twice = 2n * (numerator - whole * denominator);
  const isUp = twice > denominator || (twice === denominator && whole % 2n === 1n);
  return isUp ? whole + 1n : whole;
}

const tenTo = (exponent: number): bigint => 10n ** BigInt(exponent);

/** value × 10^places to the nearest whole number; `value` is finite and not negative. */
function scaled(value: number, places: number): bigint {
  const { numerator, denominator } = fraction(value);
  return places >= 0
    ? rounded(numerator * tenTo(places), denominator)
    : rounded(numerator, denominator * tenTo(-places));
}

/** The digits with `places` behind the point, 0 or more; `value` is finite and not negative. */
export function fixedDigits(value: number, places: number): string {
  const digits = scaled(value, places)
    .toString()
    .padStart(places + 1, '0');
  return places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

/** `count` digits, at least 1, and the exponent of the first; `value` is finite and not negative. */
export function leadingDigits(value: number, count: number): { readonly digits: string; readonly exponent: number } {
  if (value === 0) return { digits: '0'.repeat(count), exponent: 0 };
  const exponent = Number(value.toExponential().split('e')[1]);
  const digits = scaled(value, count - 1 - exponent).toString();
  return digits.length > count ? { digits: digits.slice(0, count), exponent: exponent + 1 } : { digits, exponent };
}

/** round(value, places) */
export function roundFloat(value: number, places: number): number {
  if (!Number.isFinite(value) || places > 350) return value;
  if (places < -310) return value * 0;
  const size = Math.abs(value);
  const result = places >= 0 ? Number(fixedDigits(size, places)) : Number(scaled(size, places) * tenTo(-places));
  return value < 0 || Object.is(value, -0) ? -result : result;
}

/** round(value, places) of a whole number, where places is negative. */
export function roundInteger(value: bigint, places: number): bigint {
  const unit = tenTo(Math.min(-places, 10_000));
  const size = rounded(value < 0n ? -value : value, unit) * unit;
  return value < 0n ? -size : size;
}

// Python's format(value, spec): how numbers and texts are written into a width.

/** Most digits behind the point, and the widest field that is not refused before it is made. */
const MAX_PRECISION = 5000;

export interface Spec {
  readonly fill: string;
  readonly align: '' | '<' | '>' | '^' | '=';
  readonly sign: '' | '+' | '-' | ' ';
  readonly isAlternate: boolean;
  readonly width: number;
  readonly grouping: '' | ',' | '_';
  readonly precision: number | undefined;
  readonly type: string;
}

const SPEC = /^(?:([^])?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** Throws Failure for a text that is no format. */
function readSpec(text: string): Spec {
  const match = SPEC.exec(text);
  if (match === null) throw valueError(`Invalid format specifier ${repr(text)}`);
  const [, fill, align, sign, , alternate, zero, width, grouping, precision, type] = match;
  if (precision !== undefined && Number(precision) > MAX_PRECISION)
    throw new Failure('limit', `a format of more than ${MAX_PRECISION} digits`);
  return {
    fill: fill ?? (zero === undefined ? ' ' : '0'),
    align: (align ?? (zero === undefined ? '' : '=')) as Spec['align'],
    sign: (sign ?? '') as Spec['sign'],
    isAlternate: alternate !== undefined,
    width: Number(width ?? 0),
    grouping: (grouping ?? '') as Spec['grouping'],
    precision: precision === undefined ? undefined : Number(precision),
    type: type ?? '',
  };
}

/** format(value, spec). Throws Failure. */
export function formatValue(value: PyValue, spec: string, work: TemplateWork): string {
  if (spec === '') return work.str(value);
  const text = textOf(value);
  const whole = asInt(value);
  if (text === undefined && whole === undefined && !(value instanceof Float))
    throw typeError(`unsupported format string passed to ${typeName(value)}.__format__`);
  const read = readSpec(spec);
  if (text !== undefined) return formatText(text, read, work, spec.includes('=') && read.align === '=');
  return whole !== undefined && !'eEfFgG%'.includes(read.type === '' ? 'd' : read.type)
    ? formatInteger(BigInt(whole), read, work)
    : formatFloat(asFloat(value), read, work);
}

/** float(value) of a number. */
function asFloat(value: PyValue): number {
  const number = numeric(value) ?? NaN;
  if (typeof value === 'bigint' && !Number.isFinite(number))
    throw new Failure('OverflowError', 'int too large to convert to float');
  return number;
}

const unknownType = (type: string, of: string): Failure =>
  valueError(`Unknown format code '${type}' for object of type '${of}'`);

function formatText(text: string, spec: Spec, work: TemplateWork, isEquals: boolean): string {
  if (spec.type !== '' && spec.type !== 's') throw unknownType(spec.type, 'str');
  if (spec.sign !== '') throw valueError('Sign not allowed in string format specifier');
  if (spec.isAlternate) throw valueError('Alternate form (#) not allowed in string format specifier');
  if (isEquals) throw valueError("'=' alignment not allowed in string format specifier");
  if (spec.grouping !== '') throw valueError(`Cannot specify '${spec.grouping}' with 's'.`);
  const cut = spec.precision === undefined ? text : codePoints(text).slice(0, spec.precision).join('');
  return pad('', cut, { ...spec, align: spec.align === '=' ? '<' : spec.align }, '<', work);
}

/** `prefix` and `digits` in the width; with "=", what fills it stands between them. */
export function pad(prefix: string, digits: string, spec: Spec, otherwise: '<' | '>', work: TemplateWork): string {
  const missing = spec.width - codePointLength(prefix) - codePointLength(digits);
  work.text(prefix.length + digits.length + Math.max(0, missing) * spec.fill.length);
  if (missing <= 0) return prefix + digits;
  const align = spec.align === '' ? otherwise : spec.align;
  if (align === '=') return prefix + spec.fill.repeat(missing) + digits;
  const left = align === '<' ? 0 : align === '>' ? missing : Math.floor(missing / 2);
  return spec.fill.repeat(left) + prefix + digits + spec.fill.repeat(missing - left);
}

const signOf = (isNegative: boolean, { sign }: Pick<Spec, 'sign'>): string =>
  isNegative ? '-' : sign === '-' ? '' : sign;

/** Digits with marks between groups; zeros that fill the width are grouped as well. */
function grouped(digits: string, size: number, spec: Spec, taken: number, work: TemplateWork): string {
  if (spec.grouping === '') return digits;
  work.text(digits.length * 2);
  const mark = spec.grouping;
  const rest = new RegExp(`\\B(?=(?:[0-9a-zA-Z]{${size}})+$)`, 'g');
  const marked = digits.replace(rest, mark);
  if (spec.align !== '=' || spec.fill !== '0') return marked;
  const space = spec.width - taken;
  work.text(Math.max(0, space));
  if (marked.length >= space) return marked;
  // As many digits as fill the space; a mark never comes first.
  const count = Math.ceil((space * size) / (size + 1));
  const filled = digits.padStart(Math.max(count, digits.length), '0').replace(rest, mark);
  return filled.length < space ? digits.padStart(count + 1, '0').replace(rest, mark) : filled;
}

const RADIX: Readonly<Record<string, readonly [number, string]>> = {
  b: [2, '0b'],
  o: [8, '0o'],
  x: [16, '0x'],
  X: [16, '0X'],
};

function formatInteger(value: bigint, spec: Spec, work: TemplateWork): string {
  const { type } = spec;
  if (spec.precision !== undefined) throw valueError('Precision not allowed in integer format specifier');
  if (type === 'c') {
    if (spec.sign !== '') throw valueError("Sign not allowed with integer format specifier 'c'");
    return pad('', letterOf(value), spec, '<', work);
  }
  const [radix, mark] = RADIX[type] ?? [10, ''];
  if (radix === 10 && type !== '' && type !== 'd' && type !== 'n') throw unknownType(type, 'int');
  if (spec.grouping === ',' && (radix !== 10 || type === 'n')) throw valueError(`Cannot specify ',' with '${type}'.`);
  const size = (value < 0n ? -value : value).toString(radix);
  const prefix = signOf(value < 0n, spec) + (spec.isAlternate ? mark : '');
  const digits = type === 'X' ? size.toUpperCase() : size;
  return pad(prefix, grouped(digits, radix === 10 ? 3 : 4, spec, prefix.length, work), spec, '>', work);
}

/** chr(value) */
export function letterOf(value: bigint): string {
  if (value < 0n || value > 0x10ffffn) throw new Failure('OverflowError', '%c arg not in range(0x110000)');
  return String.fromCodePoint(Number(value));
}

function formatFloat(value: number, spec: Spec, work: TemplateWork): string {
  const { type } = spec;
  if (type !== '' && !'eEfFgGn%'.includes(type)) throw unknownType(type, 'float');
  const isNegative = value < 0 || Object.is(value, -0);
  const scaled = type === '%' ? Math.abs(value) * 100 : Math.abs(value);
  const text = floatDigits(scaled, type === '%' ? 'f' : type, spec.precision, spec.isAlternate);
  const prefix = signOf(isNegative, spec);
  const end = type === '%' ? '%' : '';
  const whole = /^\d+/.exec(text)?.[0] ?? '';
  const rest = text.slice(whole.length) + end;
  const digits = whole === '' ? '' : grouped(whole, 3, spec, prefix.length + rest.length, work);
  return pad(prefix, digits + rest, spec, '>', work);
}

/** The digits of a float that is not negative, in one of the styles e, f, g, or as repr() where `type` is empty. */
export function floatDigits(value: number, type: string, precision: number | undefined, isAlternate: boolean): string {
  const isUpper = type !== '' && type === type.toUpperCase();
  if (!Number.isFinite(value)) {
    const name = Number.isNaN(value) ? 'nan' : 'inf';
    return isUpper ? name.toUpperCase() : name;
  }
  const style = type.toLowerCase();
  if (style === 'f') {
    const digits = fixedDigits(value, precision ?? 6);
    return isAlternate && precision === 0 ? `${digits}.` : digits;
  }
  let text: string;
  if (style === 'e') {
    const { digits, exponent } = leadingDigits(value, (precision ?? 6) + 1);
    text = withExponent(digits, exponent, isAlternate);
  } else if (style === '' && precision === undefined) text = showFloat(value);
  else {
    const count = Math.max(1, precision ?? 6);
    const { digits, exponent } = leadingDigits(value, count);
    const addsZero = style === '';
    const kept = isAlternate ? digits : digits.replace(/0+$/, '').padEnd(1, '0');
    if (exponent < -4 || exponent >= count - (addsZero ? 1 : 0)) text = withExponent(kept, exponent, isAlternate);
    else {
      const long = exponent < 0 ? '0'.repeat(-exponent) + kept : kept.padEnd(exponent + 1, '0');
      const at = exponent < 0 ? 1 : exponent + 1;
      const behind = long.slice(at);
      text = long.slice(0, at) + (behind !== '' || isAlternate ? `.${behind}` : addsZero ? '.0' : '');
    }
  }
  return isUpper ? text.toUpperCase() : text;
}

function withExponent(digits: string, exponent: number, isAlternate: boolean): string {
  const point = digits.length > 1 || isAlternate ? '.' : '';
  const size = String(Math.abs(exponent)).padStart(2, '0');
  return `${digits.charAt(0)}${point}${digits.slice(1)}e${exponent < 0 ? '-' : '+'}${size}`;
}

/** A whole number for "%d" and the like. Throws Failure. */
export function wholeFor(type: string, value: PyValue): bigint {
  const whole = asInt(value);
  if (whole !== undefined) return BigInt(whole);
  if (value instanceof Undefined) value.fail();
  if (value instanceof Float && 'diu'.includes(type)) {
    if (!Number.isFinite(value.value))
      throw Number.isNaN(value.value)
        ? valueError('cannot convert float NaN to integer')
        : new Failure('OverflowError', 'cannot convert float infinity to integer');
    return BigInt(Math.trunc(value.value));
  }
  const wanted = 'diu'.includes(type) ? 'a real number is required' : 'an integer is required';
  throw typeError(`%${type} format: ${wanted}, not ${typeName(value)}`);
}
