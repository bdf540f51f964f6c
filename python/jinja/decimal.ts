/** Decimal digits of floats, rounded once from the exact value, halves to the even digit: as Python writes them. */

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
