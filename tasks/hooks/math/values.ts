/** Expressions and their values, in exact fractions and in complex numbers. */

// Fractions of whole numbers of any size, within a limit of digits.

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

// Complex numbers and the functions that answers use, at principal values.

export interface Complex {
  readonly re: number;
  readonly im: number;
}

export const real = (re: number): Complex => ({ re, im: 0 });
export const add = (a: Complex, b: Complex): Complex => ({ re: a.re + b.re, im: a.im + b.im });
export const multiply = (a: Complex, b: Complex): Complex =>
  a.im === 0 && b.im === 0 ? real(a.re * b.re) : { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re };
export const negative = ({ re, im }: Complex): Complex => ({ re: -re, im: im === 0 ? 0 : -im });
export const size = ({ re, im }: Complex): number => Math.hypot(re, im);

export function divide(a: Complex, b: Complex): Complex {
  if (a.im === 0 && b.im === 0) return real(a.re / b.re);
  const norm = b.re * b.re + b.im * b.im;
  const { re, im } = multiply(a, { re: b.re, im: -b.im });
  return { re: re / norm, im: im / norm };
}

export const exponential = ({ re, im }: Complex): Complex =>
  im === 0 ? real(Math.exp(re)) : { re: Math.exp(re) * Math.cos(im), im: Math.exp(re) * Math.sin(im) };
export const logarithm = (z: Complex): Complex =>
  z.im === 0 && z.re > 0 ? real(Math.log(z.re)) : { re: Math.log(size(z)), im: Math.atan2(z.im, z.re) };

export function raise(base: Complex, exponent: Complex): Complex {
  if (exponent.im === 0 && base.im === 0 && (base.re >= 0 || Number.isInteger(exponent.re)))
    return real(base.re ** exponent.re);
  if (exponent.im === 0 && Number.isInteger(exponent.re) && Math.abs(exponent.re) <= 64) {
    let product = real(1);
    for (let i = 0; i < Math.abs(exponent.re); i++) product = multiply(product, base);
    return exponent.re < 0 ? divide(real(1), product) : product;
  }
  if (size(base) === 0) return real(exponent.re > 0 ? 0 : NaN);
  return exponential(multiply(exponent, logarithm(base)));
}

const ofReal =
  (run: (value: number) => number) =>
  (z: Complex): Complex =>
    z.im === 0 ? real(run(z.re)) : real(NaN);

function sine({ re, im }: Complex): Complex {
  return im === 0 ? real(Math.sin(re)) : { re: Math.sin(re) * Math.cosh(im), im: Math.cos(re) * Math.sinh(im) };
}
function cosine({ re, im }: Complex): Complex {
  return im === 0 ? real(Math.cos(re)) : { re: Math.cos(re) * Math.cosh(im), im: -Math.sin(re) * Math.sinh(im) };
}

/** By their commands in LaTeX. */
export const FUNCTIONS: Readonly<Record<string, (z: Complex) => Complex>> = {
  sin: sine,
  cos: cosine,
  tan: (z) => divide(sine(z), cosine(z)),
  cot: (z) => divide(cosine(z), sine(z)),
  sec: (z) => divide(real(1), cosine(z)),
  csc: (z) => divide(real(1), sine(z)),
  arcsin: ofReal(Math.asin),
  arccos: ofReal(Math.acos),
  arctan: ofReal(Math.atan),
  sinh: ofReal(Math.sinh),
  cosh: ofReal(Math.cosh),
  tanh: ofReal(Math.tanh),
  exp: exponential,
  ln: logarithm,
  log: logarithm,
  abs: (z) => real(size(z)),
  floor: ofReal(Math.floor),
  ceil: ofReal(Math.ceil),
};

// The value of an expression: exactly where it is rational, else as a complex number for values of its symbols.

/** A value that is exact; undefined where the expression has symbols or is not rational. */
export function exactly(expression: MathExpression): Rational | undefined {
  if (expression.kind === 'number') return expression.value;
  if (expression.kind !== 'apply') return undefined;
  const [a, b] = expression.of.map(exactly);
  if (a === undefined || (expression.of.length > 1 && b === undefined)) return undefined;
  switch (expression.op) {
    case '+':
      return plus(a, b!);
    case '*':
      return times(a, b!);
    case '/':
      return divided(a, b!);
    case '^':
      return power(a, b!);
    case 'factorial':
      return factorial(a);
    case 'binomial':
      return choose(a, b!);
    case 'root':
    case 'logarithm':
    case 'call':
      return undefined;
    default:
      return expression.op satisfies never;
  }
}

function choose(of: Rational, taken: Rational): Rational | undefined {
  if (of.over !== 1n || taken.over !== 1n || taken.top < 0n || taken.top > 300n || of.top < 0n) return undefined;
  let result = 1n;
  for (let i = 0n; i < taken.top; i++) result = (result * (of.top - i)) / (i + 1n);
  return { top: result, over: 1n };
}

export type Values = (symbol: string) => Complex;

const NOTHING = real(NaN);

/** NaN where there is no value: division by zero, sets, texts. */
export function valueOf(expression: MathExpression, values: Values): Complex {
  switch (expression.kind) {
    case 'number':
      return real(toNumber(expression.value));
    case 'symbol':
      return values(expression.name);
    case 'constant':
      return {
        pi: real(Math.PI),
        e: real(Math.E),
        i: { re: 0, im: 1 },
        infinity: real(Infinity),
      }[expression.name];
    case 'apply':
      return applied(expression, values);
    default:
      return NOTHING;
  }
}

function applied(expression: Extract<MathExpression, { readonly kind: 'apply' }>, values: Values): Complex {
  const exact = exactly(expression);
  if (exact !== undefined) return real(toNumber(exact));
  const [a = NOTHING, b] = expression.of.map((each) => valueOf(each, values));
  switch (expression.op) {
    case '+':
      return add(a, b!);
    case '*':
      return multiply(a, b!);
    case '/':
      return divide(a, b!);
    case '^': {
      // A negative number gets its real value where there is one, as with roots.
      const exponent = a.im === 0 && a.re < 0 ? exactly(expression.of[1]!) : undefined;
      if (exponent === undefined || exponent.over % 2n === 0n) return raise(a, b!);
      return real((exponent.top % 2n === 0n ? 1 : -1) * (-a.re) ** toNumber(exponent));
    }
    case 'root':
      return root(a, b ?? real(2));
    case 'logarithm':
      return divide(logarithm(a), logarithm(b!));
    case 'factorial':
    case 'binomial':
      // A function of symbols that is not known: any fixed one will do, as both sides get the same.
      return real(Math.sin(a.re * 12.9898 + (b?.re ?? 0) * 78.233) * 4.37);
    case 'call':
      return (FUNCTIONS[expression.name ?? ''] ?? (() => NOTHING))(a);
    default:
      return expression.op satisfies never;
  }
}

/** The real root of a negative number where the degree is odd. */
function root(of: Complex, degree: Complex): Complex {
  if (of.im === 0 && of.re < 0 && degree.im === 0 && Math.abs(degree.re) % 2 === 1)
    return real(-((-of.re) ** (1 / degree.re)));
  if (of.im === 0 && of.re >= 0 && degree.re === 2) return real(Math.sqrt(of.re));
  return raise(of, divide(real(1), degree));
}

/** Names of symbols in an expression. */
export function symbolsIn(expression: MathExpression, found = new Set<string>()): Set<string> {
  if (expression.kind === 'symbol') found.add(expression.name);
  if (expression.kind === 'apply') for (const each of expression.of) symbolsIn(each, found);
  return found;
}

// What an answer is made of, once it is read: numbers, symbols, operations, and sets of them.

/** Operations with two operands, and functions. */
export type MathOperation = '+' | '*' | '/' | '^' | 'root' | 'binomial' | 'factorial' | 'logarithm' | 'call';

export type RelationSign = '=' | '<' | '>' | '<=' | '>=' | '!=' | 'in';

export type MathExpression =
  | { readonly kind: 'number'; readonly value: Rational; readonly isDecimal: boolean }
  | { readonly kind: 'symbol'; readonly name: string }
  | { readonly kind: 'constant'; readonly name: 'pi' | 'e' | 'i' | 'infinity' }
  | {
      readonly kind: 'apply';
      readonly op: MathOperation;
      readonly name?: string;
      readonly of: readonly MathExpression[];
    }
  /** `signs` has one entry less than `sides`. */
  | { readonly kind: 'relation'; readonly sides: readonly MathExpression[]; readonly signs: readonly RelationSign[] }
  | { readonly kind: 'set'; readonly items: readonly MathExpression[] }
  | { readonly kind: 'tuple'; readonly items: readonly MathExpression[] }
  /** Two values with brackets around them: an interval, or, where both are open, a point. */
  | {
      readonly kind: 'interval';
      readonly items: readonly [MathExpression, MathExpression];
      readonly isOpen: readonly [boolean, boolean];
    }
  | { readonly kind: 'union'; readonly items: readonly MathExpression[] }
  | { readonly kind: 'matrix'; readonly rows: readonly (readonly MathExpression[])[] }
  | { readonly kind: 'text'; readonly text: string };

export const apply = (op: MathOperation, ...of: readonly MathExpression[]): MathExpression => ({
  kind: 'apply',
  op,
  of,
});
export const call = (name: string, of: MathExpression): MathExpression => ({
  kind: 'apply',
  op: 'call',
  name,
  of: [of],
});
export const whole = (value: bigint): MathExpression => ({
  kind: 'number',
  value: { top: value, over: 1n },
  isDecimal: false,
});
/** A division by 100, which remembers that it was written as a percentage. */
export const percentOf = (of: MathExpression): MathExpression => ({ ...PERCENT, of: [of, whole(100n)] });
const PERCENT = { kind: 'apply', op: '/', name: '%' } as const;
export const isPercent = (of: MathExpression): boolean => of.kind === 'apply' && of.op === '/' && of.name === '%';
export const minus = (of: MathExpression): MathExpression =>
  of.kind === 'number' ? { ...of, value: { top: -of.value.top, over: of.value.over } } : apply('*', whole(-1n), of);
export const difference = (a: MathExpression, b: MathExpression): MathExpression => apply('+', a, minus(b));
