/** Fractions of whole numbers of any size, within a limit of digits. */

/** `over` is positive; the fraction is in lowest terms. */
export interface Rational {
  readonly top: bigint;
  readonly over: bigint;
}

/** Bits of a numerator or denominator; beyond them a value is a floating-point number. */
const MAX_BITS = 4096;
const LIMIT = 1n << BigInt(MAX_BITS);
const MAX_FACTORIAL = 300n;

const magnitude = (value: bigint): bigint => (value < 0n ? -value : value);

function gcd(left: bigint, right: bigint): bigint {
  let [a, b] = [magnitude(left), magnitude(right)];
  while (b !== 0n) [a, b] = [b, a % b];
  return a;
}

/** Undefined for a division by zero, and for numbers that are too large. */
export function ratio(top: bigint, over: bigint): Rational | undefined {
  if (over === 0n || magnitude(top) > LIMIT || magnitude(over) > LIMIT) return undefined;
  const divisor = gcd(top, over) * (over < 0n ? -1n : 1n);
  return divisor === 0n ? undefined : { top: top / divisor, over: over / divisor };
}

export const plus = (a: Rational, b: Rational): Rational | undefined =>
  ratio(a.top * b.over + b.top * a.over, a.over * b.over);
export const times = (a: Rational, b: Rational): Rational | undefined => ratio(a.top * b.top, a.over * b.over);
export const divided = (a: Rational, b: Rational): Rational | undefined => ratio(a.top * b.over, a.over * b.top);
export const isSame = (a: Rational, b: Rational): boolean => a.top === b.top && a.over === b.over;

/** Of a whole exponent. */
export function power(base: Rational, exponent: Rational): Rational | undefined {
  if (exponent.over !== 1n) return undefined;
  const times = magnitude(exponent.top);
  const bits = BigInt(Math.max(base.top.toString(2).length, base.over.toString(2).length));
  if (bits * times > BigInt(MAX_BITS)) return undefined;
  const [top, over] = [base.top ** times, base.over ** times];
  return exponent.top < 0n ? ratio(over, top) : ratio(top, over);
}

export function factorial({ top, over }: Rational): Rational | undefined {
  if (over !== 1n || top < 0n || top > MAX_FACTORIAL) return undefined;
  let product = 1n;
  for (let i = 2n; i <= top; i++) product *= i;
  return { top: product, over: 1n };
}

/** A decimal number as it is written. Undefined if it has too many digits. */
export function ofDigits(text: string): Rational | undefined {
  const [whole = '', after = ''] = text.split('.');
  if (text.length > 1000) return undefined;
  return ratio(BigInt(`${whole}${after}` || '0'), 10n ** BigInt(after.length));
}

/** The nearest floating-point number. */
export function toNumber({ top, over }: Rational): number {
  const [a, b] = [Number(top), Number(over)];
  if (Number.isFinite(a) && Number.isFinite(b)) return a / b;
  const shift = BigInt(Math.max(0, over.toString(2).length - 900));
  return Number(top >> shift) / Number(over >> shift);
}
