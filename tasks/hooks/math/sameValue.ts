/**
 * Whether two expressions have the same value. Rational numbers are compared exactly. Others are evaluated at random
 * points, which are the same each time: expressions that differ agree there with probability 0 (Schwartz, Zippel), and
 * those that are equal differ by rounding alone.
 */
import { add, negative, real, size, type Complex } from './complex.js';
import { exactly, symbolsIn, valueOf } from './evaluate.js';
import type { Expression } from './expression.js';
import { isSame, toNumber } from './rational.js';

const POINTS = 12;
/** Points at which both sides need a value. */
const NEEDED = 4;
const TOLERANCE = 1e-9;
const MAX_SYMBOLS = 30;

/** A number from 0 to 1 of a place and a name, by FNV-1a and a mixing step. */
function noise(seed: number, name: string): number {
  let hash = 0x811c9dc5 ^ seed;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

/** Values of both signs, neither small nor large. */
const at =
  (point: number, isReal = true) =>
  (name: string): Complex => {
    const sign = noise(point + 100, name) < 0.4 ? -1 : 1;
    const re = sign * (0.35 + 2.3 * noise(point, name));
    return isReal ? real(re) : { re, im: 2 * noise(point + 200, name) - 1 };
  };

const isValue = ({ re, im }: Complex): boolean => Number.isFinite(re) && Number.isFinite(im);

/** Values of both sides where both have some; undefined where there are too few of such points. */
export function valuesOf(
  a: Expression,
  b: Expression,
  isReal = true,
): readonly (readonly [Complex, Complex])[] | undefined {
  const symbols = symbolsIn(b, symbolsIn(a));
  if (symbols.size > MAX_SYMBOLS) return undefined;
  const points = symbols.size === 0 ? 1 : POINTS;
  const found = Array.from(
    { length: points },
    (_, i) => [valueOf(a, at(i, isReal)), valueOf(b, at(i, isReal))] as const,
  ).filter(([left, right]) => isValue(left) && isValue(right));
  return found.length < Math.min(points, NEEDED) ? undefined : found;
}

const isNear = (a: Complex, b: Complex): boolean =>
  size(add(a, negative(b))) <= TOLERANCE * Math.max(1e-3, size(a), size(b));

/** `isReal`: symbols stand for real numbers. */
export function hasSameValue(a: Expression, b: Expression, isReal = true): boolean {
  const [left, right] = [exactly(a), exactly(b)];
  if (left !== undefined && right !== undefined) return isSame(left, right);
  return valuesOf(a, b, isReal)?.every(([x, y]) => isNear(x, y)) ?? false;
}

/** Whether one is a multiple of the other by a constant, as both sides of equivalent equations are. */
export function isMultiple(a: Expression, b: Expression, needsPositive: boolean): boolean {
  const values = valuesOf(a, b);
  if (values === undefined) return false;
  const ratios = values
    .filter(([, y]) => size(y) > 1e-6)
    .map(([x, y]) => ({ re: x.re / y.re, isReal: x.im === 0 && y.im === 0 }));
  const [first] = ratios;
  if (first === undefined || ratios.length < Math.min(values.length, NEEDED)) return false;
  if (Math.abs(first.re) < 1e-6 || (needsPositive && first.re < 0)) return false;
  return ratios.every(({ re, isReal }) => isReal && Math.abs(re - first.re) <= TOLERANCE * Math.abs(first.re));
}

/** A real number with a point in it, or a percentage: it is compared after rounding to six decimals. */
function decimalOf(expression: Expression): boolean {
  if (expression.kind === 'number') return expression.isDecimal;
  return expression.kind === 'apply' && expression.op === '/' && decimalOf(expression.of[0]!);
}

const DECIMALS = 1e6;

/** The same value, where a decimal number may stand for one with more digits. */
export function isNumberLike(a: Expression, b: Expression): boolean {
  if (!(decimalOf(a) || decimalOf(b)) || symbolsIn(b, symbolsIn(a)).size > 0) return hasSameValue(a, b);
  const rounded = (each: Expression): number => {
    const exact = exactly(each);
    const value = exact === undefined ? valueOf(each, at(0)) : real(toNumber(exact));
    return value.im === 0 ? Math.round(value.re * DECIMALS) : NaN;
  };
  return rounded(a) === rounded(b);
}
