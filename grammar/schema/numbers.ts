/**
 * Sets of numbers, and the texts of those in a set. Bounds are doubles, and compared as the exact decimals that print
 * them; an exclusive bound is the next double, so that no text rounds onto it when it is read.
 *
 * Texts: an integer or a decimal with at most 40 digits before the point and 40 behind it; other numbers also with an
 * exponent, where one digit that is not 0 stands before the point, from e-300 to e300. Integers have no point.
 */
import type { Regular } from '../grammar.js';
import { EPSILON, NOTHING, both, byteSet, choice, digits, literal, optional, repeat, sequence } from './regular.js';

const MAX_DIGITS = 40;
const MAX_EXPONENT = 300;
const DIGIT = digits(0, 9);
const DIGITS = repeat(DIGIT, 0, MAX_DIGITS);
const EXPONENT_MARK = byteSet([0x45, 0x45], [0x65, 0x65]);

/** The next double above. */
export function nextUp(value: number): number {
  if (!Number.isFinite(value)) return value;
  if (value === 0) return Number.MIN_VALUE;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigInt64(0, view.getBigInt64(0) + (value > 0 ? 1n : -1n));
  return view.getFloat64(0);
}

export const nextDown = (value: number): number => -nextUp(-value);

/** An unsigned decimal: digits before the point, without leading zeros, and digits behind it, without trailing ones. */
interface Decimal {
  readonly whole: string;
  readonly fraction: string;
}

const trimmed = (text: string): string => text.replace(/0+$/u, '');

/** The shortest decimal that reads as this double. Not negative. */
function decimalOf(value: number): Decimal {
  if (Number.isInteger(value)) return { whole: BigInt(value).toString(), fraction: '' };
  const [mantissa = '', exponent = '0'] = value.toExponential().split('e');
  const all = mantissa.replace('.', '');
  const point = Number(exponent) + 1;
  if (point <= 0) return { whole: '0', fraction: trimmed('0'.repeat(-point) + all) };
  return { whole: all.slice(0, point).padEnd(point, '0'), fraction: trimmed(all.slice(point)) };
}

/** At most MAX_DIGITS digits behind the point: up, so that nothing below passes, or down. */
function shortened({ whole, fraction }: Decimal, isUp: boolean): Decimal {
  if (fraction.length <= MAX_DIGITS) return { whole, fraction };
  const kept = fraction.slice(0, MAX_DIGITS);
  if (!isUp) return { whole, fraction: trimmed(kept) };
  const scaled = (BigInt(whole + kept) + 1n).toString().padStart(MAX_DIGITS + 1, '0');
  return { whole: scaled.slice(0, -MAX_DIGITS), fraction: trimmed(scaled.slice(-MAX_DIGITS)) };
}

const digitOf = (text: string, at: number): number => text.charCodeAt(at) - 0x30;

/** Texts of digits of the length of the bounds, which is the same, between them. */
function between(low: string, high: string, at = 0): Regular {
  const left = low.length - at;
  if (low.endsWith('0'.repeat(left)) && high.endsWith('9'.repeat(left))) return repeat(DIGIT, left, left);
  const [a, b] = [digitOf(low, at), digitOf(high, at)];
  if (a === b) return sequence(digits(a, a), between(low, high, at + 1));
  const inner = a + 1 > b - 1 ? NOTHING : sequence(digits(a + 1, b - 1), repeat(DIGIT, left - 1, left - 1));
  return choice(
    sequence(digits(a, a), between(low, '9'.repeat(high.length), at + 1)),
    inner,
    sequence(digits(b, b), between('0'.repeat(low.length), high, at + 1)),
  );
}

/** Unsigned integers from one to another, without leading zeros. */
function wholeNumbers(low: bigint, high: bigint | undefined): Regular {
  const parts: Regular[] = [];
  const first = low.toString();
  const last = high?.toString();
  const longest = Math.min(last?.length ?? MAX_DIGITS, MAX_DIGITS);
  for (let length = first.length; length <= longest; length++) {
    if (length > first.length && (last === undefined || length < last.length)) {
      // Every number of these lengths.
      const most = last === undefined ? longest : Math.min(longest, last.length - 1);
      parts.push(sequence(digits(1, 9), repeat(DIGIT, length - 1, most - 1)));
      length = most;
      continue;
    }
    const a = length === first.length ? first : `1${'0'.repeat(length - 1)}`;
    const b = length === last?.length ? last : '9'.repeat(length);
    if (BigInt(a) <= BigInt(b)) parts.push(between(a, b));
  }
  return choice(...parts);
}

/** The point and digits behind it that are at least these. */
function fractionAtLeast(fraction: string): Regular {
  if (fraction === '') return optional(sequence(literal('.'), DIGIT, DIGITS));
  const from = (at: number): Regular => {
    if (at === fraction.length) return DIGITS;
    const digit = digitOf(fraction, at);
    const above = digit < 9 ? sequence(digits(digit + 1, 9), DIGITS) : NOTHING;
    return choice(above, sequence(digits(digit, digit), from(at + 1)));
  };
  return sequence(literal('.'), from(0));
}

function fractionAtMost(fraction: string): Regular {
  const zeros = repeat(digits(0, 0), 0, MAX_DIGITS);
  const from = (at: number): Regular => {
    if (at === fraction.length) return zeros;
    const digit = digitOf(fraction, at);
    const below = digit > 0 ? sequence(digits(0, digit - 1), DIGITS) : NOTHING;
    const end = at > 0 ? EPSILON : NOTHING;
    return choice(below, sequence(digits(digit, digit), from(at + 1)), end);
  };
  const some = fraction === '' ? sequence(digits(0, 0), zeros) : from(0);
  return optional(sequence(literal('.'), some));
}

/** Texts of any decimal: the form that bounds are laid over. */
const DECIMAL = sequence(
  choice(digits(0, 0), sequence(digits(1, 9), repeat(DIGIT, 0, MAX_DIGITS - 1))),
  optional(sequence(literal('.'), repeat(DIGIT, 1, MAX_DIGITS))),
);

/** Unsigned decimals from `low`, which is not negative, to `high`. */
function decimals(low: number, high: number): Regular {
  const least = shortened(decimalOf(low), true);
  const atLeast = choice(
    sequence(wholeNumbers(BigInt(least.whole) + 1n, undefined), fractionAtLeast('')),
    sequence(literal(least.whole), fractionAtLeast(least.fraction)),
  );
  const lower = low === 0 ? DECIMAL : both(DECIMAL, atLeast);
  if (high === Infinity) return lower;
  const most = shortened(decimalOf(high), false);
  const whole = BigInt(most.whole);
  const below = whole === 0n ? NOTHING : sequence(wholeNumbers(0n, whole - 1n), fractionAtLeast(''));
  return both(lower, choice(below, sequence(literal(most.whole), fractionAtMost(most.fraction))));
}

interface Scientific {
  /** Digits behind the point of the mantissa, which has one digit before it. */
  readonly first: number;
  readonly fraction: string;
  readonly exponent: number;
}

function scientificOf(value: number): Scientific {
  const [mantissa = '', exponent = '0'] = value.toExponential().split('e');
  const [first = '0', fraction = ''] = mantissa.split('.');
  return { first: Number(first), fraction: trimmed(fraction), exponent: Number(exponent) };
}

/** Integers with a sign, from one to another, as exponents: one leading zero may stand before a single digit. */
function exponents(low: number, high: number): Regular {
  const plain = (a: number, b: number): Regular =>
    sequence(optional(a <= 9 ? literal('0') : NOTHING), wholeNumbers(BigInt(a), BigInt(b)));
  const padded = (a: number, b: number): Regular =>
    a > 9 ? plain(a, b) : choice(plain(a, Math.min(b, 9)), b > 9 ? plain(10, b) : NOTHING);
  const positive = high < 0 ? NOTHING : sequence(optional(literal('+')), padded(Math.max(low, 0), high));
  const negative = low >= 0 ? NOTHING : sequence(literal('-'), padded(Math.max(-high, 1), -low));
  return choice(positive, negative);
}

/** Unsigned numbers with an exponent from `low`, which is not negative, to `high`. */
function scientific(low: number, high: number): Regular {
  const least = low === 0 ? { first: 1, fraction: '', exponent: -MAX_EXPONENT } : scientificOf(low);
  const most = high === Infinity ? { first: 9, fraction: '', exponent: MAX_EXPONENT + 1 } : scientificOf(high);
  const power = (mantissa: Regular, from: number, to: number): Regular => {
    const [a, b] = [Math.max(from, -MAX_EXPONENT), Math.min(to, MAX_EXPONENT)];
    return a > b ? NOTHING : sequence(mantissa, EXPONENT_MARK, exponents(a, b));
  };
  const atLeast = (): Regular =>
    choice(
      least.first < 9 ? sequence(digits(least.first + 1, 9), fractionAtLeast('')) : NOTHING,
      sequence(digits(least.first, least.first), fractionAtLeast(least.fraction)),
    );
  const atMost = (): Regular =>
    choice(
      most.first > 1 ? sequence(digits(1, most.first - 1), fractionAtLeast('')) : NOTHING,
      sequence(digits(most.first, most.first), fractionAtMost(most.fraction)),
    );
  if (high === 0 || least.exponent > most.exponent) return NOTHING;
  if (least.exponent === most.exponent) return power(both(atLeast(), atMost()), least.exponent, most.exponent);
  const any = sequence(digits(1, 9), fractionAtLeast(''));
  return choice(
    power(atLeast(), least.exponent, least.exponent),
    power(any, least.exponent + 1, most.exponent - 1),
    power(atMost(), most.exponent, most.exponent),
  );
}

const signed = (min: number, max: number, unsigned: (low: number, high: number) => Regular): Regular =>
  choice(
    max < 0 ? NOTHING : unsigned(Math.max(min, 0), max),
    min >= 0 ? NOTHING : sequence(literal('-'), unsigned(Math.max(-max, 0), -min)),
  );

/** Texts of the integers from `min` to `max`, which may be infinite. */
export function integerTexts(min: number, max: number): Regular {
  const [low, high] = [Math.ceil(min), Math.floor(max)];
  const whole = (a: number, b: number): Regular =>
    a > b ? NOTHING : wholeNumbers(BigInt(a), Number.isFinite(b) ? BigInt(b) : undefined);
  return choice(
    high < 0 ? NOTHING : whole(Math.max(low, 0), high),
    // No minus zero.
    low >= 0 ? NOTHING : sequence(literal('-'), whole(Math.max(-high, 1), -low)),
  );
}

/** Texts of the numbers from `min` to `max`, which may be infinite. */
export const numberTexts = (min: number, max: number): Regular =>
  choice(signed(min, max, decimals), signed(min, max, scientific));

const HAS_FRACTION = sequence(
  optional(literal('-')),
  repeat(DIGIT, 1),
  choice(
    sequence(literal('.'), repeat(DIGIT, 0), digits(1, 9), repeat(DIGIT, 0)),
    sequence(optional(sequence(literal('.'), repeat(DIGIT, 1))), EXPONENT_MARK, literal('-'), repeat(DIGIT, 1)),
  ),
);

/** No more digits than doubles tell apart: others may read as an integer. */
const SHORT = sequence(
  optional(literal('-')),
  repeat(byteSet([0x2b, 0x2e], [0x30, 0x39], [0x45, 0x45], [0x65, 0x65]), 1, 16),
);

/** Texts of the numbers between the bounds that are no integers. At most 15 digits. */
export const fractionTexts = (min: number, max: number): Regular =>
  both(both(numberTexts(min, max), HAS_FRACTION), SHORT);

/** Texts of decimals whose last place is a multiple of `step` · 10^-places; step divides 10^places. */
export function decimalSteps(min: number, max: number, step: number, places: number): Regular {
  const padded = (text: string): Regular => sequence(literal(text), repeat(digits(0, 0), 0, places));
  const count = step === 1 ? 0 : 10 ** places / step;
  const listed = Array.from({ length: count }, (_, i) => trimmed(String(i * step).padStart(places, '0')));
  const some =
    step === 1 ? repeat(DIGIT, 1, places) : choice(...listed.map((text) => padded(text === '' ? '0' : text)));
  const fraction = places === 0 ? EPSILON : optional(sequence(literal('.'), some));
  return both(signed(min, max, decimals), sequence(optional(literal('-')), repeat(DIGIT, 1), fraction));
}

/** Exactly this number. */
export const numberText = (value: number): Regular => literal(Object.is(value, -0) ? '0' : JSON.stringify(value));
