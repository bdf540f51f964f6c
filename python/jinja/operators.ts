/** Operators of expressions, as Python has them. */
import { asInt, Float, isEqual, isInt, isList, numeric, Sequence, toInt, typeName, type PyValue } from '../value.js';
import { entryOf, escapeHtml, isDictionary, Lazy, Markup, textOf, Undefined } from './objects.js';
import { percentFormat } from './percent.js';
import type { Arithmetic, Comparison } from './syntax.js';
import { Failure, searchFor, typeError, type TemplateWork } from './work.js';

// Python's "**". Floats are rounded once: the engine's own power is off in the last digit at times.

/** Digits of whole numbers, as bits. */
const MAX_BITS = 1 << 14;
/** Largest whole exponent of floats that is computed exactly. */
const MAX_EXPONENT = 64n;

/** A whole number, as which Python also takes a bool. */
export const asBig = (value: PyValue): bigint | undefined =>
  typeof value === 'boolean' ? BigInt(value) : isInt(value) ? BigInt(value) : undefined;

/** Digits of a whole number, as bits. */
export const bitsOf = (value: bigint): number => (value < 0n ? -value : value).toString(16).length * 4;

/** Before a whole number of so many bits is made. */
export function checkBits(bits: number): void {
  if (bits > MAX_BITS) throw new Failure('limit', 'a number is too large');
}

function ofIntegers(base: bigint, exponent: bigint): PyValue {
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
export function power(left: PyValue, right: PyValue): PyValue | undefined {
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

// Python's operators on values.

function refuse(op: string, left: PyValue, right: PyValue): never {
  if (left instanceof Undefined) left.fail();
  if (right instanceof Undefined) right.fail();
  const [a, b] = [typeName(left), typeName(right)];
  if (op === '+' && ['str', 'list', 'tuple'].includes(a))
    throw typeError(`can only concatenate ${a} (not "${b}") to ${a}`);
  throw typeError(`unsupported operand type(s) for ${op}: '${a}' and '${b}'`);
}

/** As a Python type: lists and tuples are not joined with each other. */
const like = (left: readonly PyValue[], items: readonly PyValue[]): readonly PyValue[] =>
  left instanceof Sequence ? new Sequence('tuple', items) : items;

const isAdded = (value: PyValue): value is readonly PyValue[] =>
  isList(value) && (!(value instanceof Sequence) || value.type === 'tuple');

function repeat(of: string | readonly PyValue[], count: bigint, work: TemplateWork): PyValue {
  if (count >= 1n << 63n || count < -1n << 63n)
    throw new Failure('OverflowError', "cannot fit 'int' into an index-sized integer");
  const times = count < 0n ? 0 : Number(count);
  if (typeof of === 'string') {
    work.text(of.length * times);
    return of.repeat(times);
  }
  work.items(of.length * times);
  return like(of, of.length === 0 ? [] : Array.from({ length: times }, () => of).flatMap((items) => [...items]));
}

function onIntegers(op: Exclude<Arithmetic, '/' | '**'>, a: bigint, b: bigint): PyValue {
  switch (op) {
    case '+':
      return toInt(a + b);
    case '-':
      return toInt(a - b);
    case '*':
      checkBits(bitsOf(a) + bitsOf(b));
      return toInt(a * b);
    case '//':
    case '%': {
      if (b === 0n) throw new Failure('ZeroDivisionError', 'division by zero');
      const rest = a % b;
      const isBelow = rest !== 0n && rest < 0n !== b < 0n;
      if (op === '//') return toInt(a / b - (isBelow ? 1n : 0n));
      return toInt(isBelow ? rest + b : rest);
    }
    default:
      return op satisfies never;
  }
}

function onFloats(op: Exclude<Arithmetic, '**'>, a: number, b: number): Float {
  if (op === '+') return new Float(a + b);
  if (op === '-') return new Float(a - b);
  if (op === '*') return new Float(a * b);
  if (b === 0) throw new Failure('ZeroDivisionError', 'division by zero');
  if (op === '/') return new Float(a / b);
  const rest = a % b;
  const isBelow = rest !== 0 && rest < 0 !== b < 0;
  const modulo = isBelow ? rest + b : rest === 0 ? (b < 0 ? -0 : 0) : rest;
  if (op === '%') return new Float(modulo);
  // The quotient of what is left after the remainder is a whole number, but for rounding.
  const quotient = (a - modulo) / b;
  const floor = Math.floor(quotient);
  if (quotient === 0) return new Float(a / b < 0 || Object.is(a / b, -0) ? -0 : 0);
  return new Float(quotient - floor > 0.5 ? floor + 1 : floor);
}

/** left + right of texts; what is no Markup is escaped where the other is. */
function joinTexts(left: PyValue, right: PyValue, work: TemplateWork): PyValue | undefined {
  const a = textOf(left),
    b = textOf(right);
  if (a === undefined || b === undefined) return undefined;
  work.text(a.length + b.length);
  if (typeof left === 'string' && typeof right === 'string') return a + b;
  return new Markup((left instanceof Markup ? a : escapeHtml(a)) + (right instanceof Markup ? b : escapeHtml(b)));
}

export function arithmetic(op: Arithmetic, left: PyValue, right: PyValue, work: TemplateWork): PyValue {
  if (typeof left === 'number' && typeof right === 'number' && (op === '+' || op === '-')) {
    const result = op === '+' ? left + right : left - right;
    if (Number.isSafeInteger(result)) return result;
  }
  // Long numbers take time of their own.
  if (op === '**' || typeof left === 'bigint' || typeof right === 'bigint') work.spend(16);
  const text = textOf(left);
  if (op === '%' && text !== undefined) return percentFormat(left, right, work);
  if (left instanceof Undefined || right instanceof Undefined) return refuse(op, left, right);
  if (op === '**') return power(left, right) ?? refuse(op, left, right);
  if (op === '+') {
    const joined = joinTexts(left, right, work);
    if (joined !== undefined) return joined;
    if (isAdded(left) && isAdded(right) && left instanceof Sequence === right instanceof Sequence) {
      work.items(left.length + right.length);
      return like(left, [...left, ...right]);
    }
  }
  const a = asBig(left),
    b = asBig(right);
  if (op === '*') {
    const repeated = (of: PyValue, count: bigint | undefined): PyValue | undefined => {
      if (count === undefined) return undefined;
      if (of instanceof Markup) return new Markup(String(repeat(of.text, count, work)));
      return typeof of === 'string' || isAdded(of) ? repeat(of, count, work) : undefined;
    };
    const result = repeated(left, b) ?? repeated(right, a);
    if (result !== undefined) return result;
  }
  if (a !== undefined && b !== undefined && op !== '/') return onIntegers(op, a, b);
  if (a !== undefined && b !== undefined && (isLong(a) || isLong(b))) return divideLong(a, b);
  const x = floatOf(left),
    y = floatOf(right);
  return x === undefined || y === undefined ? refuse(op, left, right) : onFloats(op as Exclude<Arithmetic, '**'>, x, y);
}

const isLong = (value: bigint): boolean => !isSafe(value);
const isSafe = (value: bigint): boolean => Number.isSafeInteger(Number(value));

/** a / b of whole numbers that floats would round: the quotient is rounded once. */
function divideLong(a: bigint, b: bigint): Float {
  if (b === 0n) throw new Failure('ZeroDivisionError', 'division by zero');
  const sign = a < 0n !== b < 0n ? -1 : 1;
  const numerator = a < 0n ? -a : a,
    denominator = b < 0n ? -b : b;
  const shift = Math.max(0, 66 + bitsOf(denominator) - bitsOf(numerator));
  const scaled = numerator << BigInt(shift);
  const whole = scaled / denominator;
  const exact = whole * denominator === scaled ? whole : whole | 1n;
  const result = Number(exact) / 2 ** Math.min(shift, 1000) / 2 ** Math.max(0, shift - 1000);
  if (!Number.isFinite(result)) throw new Failure('OverflowError', 'integer division result too large for a float');
  return new Float(sign * result);
}

function floatOf(value: PyValue): number | undefined {
  const number = numeric(value);
  if (typeof value === 'bigint' && !Number.isFinite(number))
    throw new Failure('OverflowError', 'int too large to convert to float');
  return number;
}

export function signed(op: '-' | '+', value: PyValue): PyValue {
  if (value instanceof Undefined) value.fail();
  const whole = asInt(value);
  if (whole !== undefined) return op === '+' ? whole : toInt(-BigInt(whole));
  if (value instanceof Float) return op === '+' ? value : new Float(-value.value);
  throw typeError(`bad operand type for unary ${op}: '${typeName(value)}'`);
}

/** Whether `left` is in `right`: a part of a text, an item of a list, a key of a dictionary. */
function contains(right: PyValue, left: PyValue, work: TemplateWork): boolean {
  const text = textOf(right);
  if (text !== undefined) {
    const part = textOf(left);
    if (part !== undefined) return part === '' || searchFor(part, work)(text) >= 0;
    throw typeError(`'in <string>' requires string as left operand, not ${typeName(left)}`);
  }
  if (isList(right)) return right.some((item) => areSame(item, left, work));
  if (isDictionary(right)) return entryOf(right, left) !== undefined;
  if (right instanceof Lazy) {
    for (let next = right.items.next(); next.done !== true; next = right.items.next())
      if (areSame(next.value, left, work)) return true;
    return false;
  }
  if (right instanceof Undefined) {
    right.look();
    return false;
  }
  throw typeError(`argument of type '${typeName(right)}' is not iterable`);
}

/** Code points in order: those written as two units come behind all others. */
export function compareText(left: string, right: string): number {
  const length = Math.min(left.length, right.length);
  let at = 0;
  while (at < length && left.charCodeAt(at) === right.charCodeAt(at)) at++;
  if (at === length) return left.length - right.length;
  const rank = (unit: number): number => (unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit);
  return rank(left.charCodeAt(at)) - rank(right.charCodeAt(at));
}

/** Negative, zero or positive, or NaN. Texts are ordered by code points, lists by items. */
export function order(op: string, left: PyValue, right: PyValue): number {
  const texts = [textOf(left), textOf(right)] as const;
  if (texts[0] !== undefined && texts[1] !== undefined) return compareText(texts[0], texts[1]);
  if (left instanceof Undefined) left.fail();
  if (right instanceof Undefined) right.fail();
  if (isAdded(left) && isAdded(right) && left instanceof Sequence === right instanceof Sequence) {
    for (const [i, item] of left.entries()) {
      const other = right[i];
      if (other === undefined) return 1;
      if (item !== other && !isEqual(item, other)) return order(op, item, other);
    }
    return left.length - right.length;
  }
  const a = asBig(left),
    b = asBig(right);
  if (a !== undefined && b !== undefined) return a < b ? -1 : a > b ? 1 : 0;
  const x = numeric(left),
    y = numeric(right);
  if (x === undefined || y === undefined)
    throw typeError(`'${op}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`);
  return exactOrder(left, right, x, y);
}

/** A whole number that a float would round is compared with floats as it is. */
function exactOrder(left: PyValue, right: PyValue, x: number, y: number): number {
  if (!Number.isFinite(isInt(left) ? y : x) || (typeof left !== 'bigint' && typeof right !== 'bigint'))
    return x === y ? 0 : x < y ? -1 : x > y ? 1 : NaN;
  const a = typeof left === 'bigint' ? left : BigInt(Math.floor(x)),
    b = typeof right === 'bigint' ? right : BigInt(Math.floor(y));
  if (a !== b) return a < b ? -1 : 1;
  return (typeof left === 'bigint' ? 0 : x - Math.floor(x)) - (typeof right === 'bigint' ? 0 : y - Math.floor(y));
}

/** Whether an item is a value that is looked for: the same one or an equal one. */
export function areSame(item: PyValue, value: PyValue, work: TemplateWork): boolean {
  if (typeof item === 'string' && typeof value === 'string') {
    if (item.length !== value.length) return false;
    work.spend(item.length / 256);
    return item === value;
  }
  if (item === value) return true;
  spendOnComparing(item, value, work);
  return isEqual(item, value);
}

/** Values that are compared part by part may share parts: small ones take as long as huge ones. */
function spendOnComparing(left: PyValue, right: PyValue, work: TemplateWork): void {
  const isObject = (value: PyValue): boolean => typeof value === 'object' && value !== null;
  if (typeof left === 'string') work.spend(left.length / 64);
  if (typeof right === 'string') work.spend(right.length / 64);
  if (isList(right)) work.spend(right.length / 8);
  if (left === right || !isObject(left) || !isObject(right)) return;
  work.walk(left);
  work.walk(right);
}

export function compare(op: Comparison, left: PyValue, right: PyValue, work: TemplateWork): boolean {
  spendOnComparing(left, right, work);
  switch (op) {
    case '==':
      return isEqual(left, right);
    case '!=':
      return !isEqual(left, right);
    case '<':
      return order(op, left, right) < 0;
    case '<=':
      return order(op, left, right) <= 0;
    case '>':
      return order(op, left, right) > 0;
    case '>=':
      return order(op, left, right) >= 0;
    case 'in':
      return contains(right, left, work);
    case 'not in':
      return !contains(right, left, work);
    default:
      return op satisfies never;
  }
}
