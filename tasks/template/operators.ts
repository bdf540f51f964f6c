/** Python's operators on values. */
import { str } from '../python/show.js';
import { codePointLength, codePoints } from '../python/text.js';
import { Float, isDict, isEqual, isInt, isList, numeric, toInt, typeName, type Value } from '../python/value.js';
import { Failure } from './failure.js';
import type { Arithmetic, Comparison } from './syntax.js';

/** Longest text or list that an operator may make. */
export const MAX_SIZE = 1 << 24;

function refuse(op: string, left: Value, right: Value): never {
  throw new Failure(`${typeName(left)} ${op} ${typeName(right)} is not possible`);
}

const asBig = (value: Value): bigint | undefined =>
  typeof value === 'boolean' ? BigInt(value) : isInt(value) ? BigInt(value) : undefined;

function bounded<T extends { readonly length: number }>(value: T): T {
  if (value.length > MAX_SIZE) throw new Failure(`a result is longer than ${MAX_SIZE}`);
  return value;
}

function repeat(of: string | readonly Value[], count: bigint): Value {
  const times = count < 0n ? 0 : Number(count);
  if (of.length * times > MAX_SIZE) throw new Failure(`a result is longer than ${MAX_SIZE}`);
  return typeof of === 'string' ? of.repeat(times) : Array.from({ length: times }, () => of).flat();
}

function onIntegers(op: Exclude<Arithmetic, '~' | '/'>, a: bigint, b: bigint): Value {
  switch (op) {
    case '+':
      return toInt(a + b);
    case '-':
      return toInt(a - b);
    case '*':
      if (a.toString(16).length + b.toString(16).length > 4096) throw new Failure('a number is too large');
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

function onFloats(op: Exclude<Arithmetic, '~'>, a: number, b: number): Float {
  if (op === '+') return new Float(a + b);
  if (op === '-') return new Float(a - b);
  if (op === '*') return new Float(a * b);
  if (b === 0) throw new Failure('division by zero');
  if (op === '/') return new Float(a / b);
  const rest = a % b;
  const isBelow = rest !== 0 && rest < 0 !== b < 0;
  return new Float(op === '//' ? Math.floor(a / b) : isBelow ? rest + b : rest);
}

export function arithmetic(op: Arithmetic, left: Value, right: Value): Value {
  if (op === '~') return bounded(str(left) + str(right));
  if (op === '+' && typeof left === 'string' && typeof right === 'string') return bounded(left + right);
  if (op === '+' && isList(left) && isList(right)) return bounded([...left, ...right]);
  const a = asBig(left),
    b = asBig(right);
  if (op === '*') {
    if ((typeof left === 'string' || isList(left)) && b !== undefined) return repeat(left, b);
    if ((typeof right === 'string' || isList(right)) && a !== undefined) return repeat(right, a);
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

/** Negative, zero or positive. Texts are ordered by code points, lists by items. */
function order(op: string, left: Value, right: Value): number {
  if (typeof left === 'string' && typeof right === 'string') {
    return left === right ? 0 : Buffer.compare(Buffer.from(left), Buffer.from(right));
  }
  if (isList(left) && isList(right)) {
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

export function compare(op: Comparison, left: Value, right: Value): boolean {
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

/** value[key]; undefined where there is no such item. */
export function itemAt(of: Value, key: Value): Value | undefined {
  if (isDict(of)) return typeof key === 'string' ? of.get(key) : undefined;
  if (!(isList(of) || typeof of === 'string') || !isInt(key)) return undefined;
  const at = Number(key);
  const length = typeof of === 'string' ? codePointLength(of) : of.length;
  const place = at < 0 ? at + length : at;
  if (place < 0 || place >= length) return undefined;
  return typeof of === 'string' ? codePoints(of)[place] : of[place];
}

/** value[from:to:step] */
export function slice(of: Value, from: Value, to: Value, step: Value): Value {
  if (typeof of !== 'string' && !isList(of)) throw new Failure(`${typeName(of)} cannot be sliced`);
  const items: readonly Value[] = typeof of === 'string' ? codePoints(of) : of;
  const whole = (value: Value, otherwise: number): number => {
    if (value === null) return otherwise;
    if (!isInt(value)) throw new Failure(`a place must be a whole number, not ${typeName(value)}`);
    return Number(value);
  };
  const by = whole(step, 1);
  if (by === 0) throw new Failure('the step of a slice is 0');
  const clip = (place: number): number => {
    const counted = place < 0 ? place + items.length : place;
    return by > 0 ? Math.min(Math.max(counted, 0), items.length) : Math.min(Math.max(counted, -1), items.length - 1);
  };
  const start = from === null ? (by > 0 ? 0 : items.length - 1) : clip(whole(from, 0));
  const end = to === null ? (by > 0 ? items.length : -1) : clip(whole(to, 0));
  const taken: Value[] = [];
  for (let i = start; by > 0 ? i < end : i > end; i += by) taken.push(items[i]!);
  return typeof of === 'string' ? taken.map(str).join('') : taken;
}
