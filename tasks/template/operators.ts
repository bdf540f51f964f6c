/** Python's operators on values. */
import { Float, isDict, isEqual, isList, numeric, Sequence, toInt, typeName, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { asBig, bitsOf, checkBits, power } from './power.js';
import type { Arithmetic, Comparison } from './syntax.js';
import type { Work } from './work.js';

function refuse(op: string, left: Value, right: Value): never {
  throw new Failure(`${typeName(left)} ${op} ${typeName(right)} is not possible`);
}

/** As a Python type: lists and tuples are not joined with each other. */
const like = (left: readonly Value[], items: readonly Value[]): readonly Value[] =>
  left instanceof Sequence ? new Sequence('tuple', items) : items;

const isAdded = (value: Value): value is readonly Value[] =>
  isList(value) && (!(value instanceof Sequence) || value.type === 'tuple');

function repeat(of: string | readonly Value[], count: bigint, work: Work): Value {
  const times = count < 0n ? 0 : Number(count);
  if (typeof of === 'string') {
    work.text(of.length * times);
    return of.repeat(times);
  }
  work.items(of.length * times);
  return like(of, of.length === 0 ? [] : Array.from({ length: times }, () => of).flatMap((items) => [...items]));
}

function onIntegers(op: Exclude<Arithmetic, '~' | '/' | '**'>, a: bigint, b: bigint): Value {
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
      if (b === 0n) throw new Failure('division by zero');
      const rest = a % b;
      const isBelow = rest !== 0n && rest < 0n !== b < 0n;
      if (op === '//') return toInt(a / b - (isBelow ? 1n : 0n));
      return toInt(isBelow ? rest + b : rest);
    }
    default:
      return op satisfies never;
  }
}

function onFloats(op: Exclude<Arithmetic, '~' | '**'>, a: number, b: number): Float {
  if (op === '+') return new Float(a + b);
  if (op === '-') return new Float(a - b);
  if (op === '*') return new Float(a * b);
  if (b === 0) throw new Failure('division by zero');
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

function joined(left: string, right: string, work: Work): string {
  work.text(left.length + right.length);
  return left + right;
}

export function arithmetic(op: Arithmetic, left: Value, right: Value, work: Work): Value {
  if (op === '~') return joined(work.str(left), work.str(right), work);
  // Long numbers take time of their own.
  if (op === '**' || typeof left === 'bigint' || typeof right === 'bigint') work.spend(16);
  if (op === '**') return power(left, right) ?? refuse(op, left, right);
  if (op === '+' && typeof left === 'string' && typeof right === 'string') return joined(left, right, work);
  if (op === '+' && isAdded(left) && isAdded(right) && left instanceof Sequence === right instanceof Sequence) {
    work.items(left.length + right.length);
    return like(left, [...left, ...right]);
  }
  if (op === '%' && typeof left === 'string') throw new Failure('"%" on text is not supported; use ~ or .format()');
  const a = asBig(left),
    b = asBig(right);
  if (op === '*') {
    if ((typeof left === 'string' || isAdded(left)) && b !== undefined) return repeat(left, b, work);
    if ((typeof right === 'string' || isAdded(right)) && a !== undefined) return repeat(right, a, work);
  }
  if (a !== undefined && b !== undefined && op !== '/') return onIntegers(op, a, b);
  const x = numeric(left),
    y = numeric(right);
  return x === undefined || y === undefined ? refuse(op, left, right) : onFloats(op, x, y);
}

export function negative(value: Value): Value {
  const whole = asBig(value);
  if (whole !== undefined) return toInt(-whole);
  if (value instanceof Float) return new Float(-value.value);
  throw new Failure(`-${typeName(value)} is not possible`);
}

/** Whether `left` is in `right`: a part of a text, an item of a list, a key of a dictionary. */
function contains(right: Value, left: Value): boolean {
  if (typeof right === 'string') return typeof left === 'string' ? right.includes(left) : refuse('in', left, right);
  if (isList(right)) return right.some((item) => isEqual(item, left));
  if (isDict(right)) return typeof left === 'string' && right.has(left);
  return refuse('in', left, right);
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

/** Negative, zero or positive. Texts are ordered by code points, lists by items. */
export function order(op: string, left: Value, right: Value): number {
  if (typeof left === 'string' && typeof right === 'string') {
    return compareText(left, right);
  }
  if (isAdded(left) && isAdded(right) && left instanceof Sequence === right instanceof Sequence) {
    for (const [i, item] of left.entries()) {
      const other = right[i];
      if (other === undefined) return 1;
      if (!isEqual(item, other)) return order(op, item, other);
    }
    return left.length - right.length;
  }
  const a = asBig(left),
    b = asBig(right);
  if (a !== undefined && b !== undefined) return a < b ? -1 : a > b ? 1 : 0;
  const x = numeric(left),
    y = numeric(right);
  return x === undefined || y === undefined ? refuse(op, left, right) : x - y;
}

export function compare(op: Comparison, left: Value, right: Value, work: Work): boolean {
  if (left !== right && (isList(left) || isDict(left) || typeof left === 'string')) work.walk(left);
  if (left !== right && (isList(right) || isDict(right) || typeof right === 'string')) work.walk(right);
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
      return contains(right, left);
    case 'not in':
      return !contains(right, left);
    default:
      return op satisfies never;
  }
}
