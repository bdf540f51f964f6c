/**
 * Python's values, as dataset rows, YAML files and templates hold them. A whole number is a `number`, or a `bigint`
 * where a `number` would round it. A float is a Float, because Python shows 1.0 and 1 differently. A dictionary is a
 * Map: keys come from files, and no name of a key means anything to JavaScript.
 */
export type Value = null | boolean | number | bigint | string | Float | Thing | readonly Value[] | Dict;
export type Dict = ReadonlyMap<string, Value>;

/** Python's float. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

/** An object of another type: it says itself how it is shown, whether it counts as true and what it equals. */
export abstract class Thing {
  /** type(value).__name__ */
  abstract readonly type: string;
  /** bool(value) */
  abstract readonly isTruthy: boolean;
  /** str(value) */
  abstract readonly text: string;
  /** repr(value) */
  abstract readonly code: string;

  /** At most so many letters are shown of it, its parts left out. */
  get letters(): number {
    return 64;
  }

  /** The values that it holds and shows. */
  get parts(): readonly Value[] {
    return [];
  }

  equals(other: Value): boolean {
    return this === other;
  }
}

/** A value that is shown and compared, and nothing else: a date, a time, a decimal number, bytes. */
export class Shown extends Thing {
  readonly type: string;
  readonly isTruthy: boolean;
  readonly #letters: number;
  #text: string | (() => string);
  #code: string | (() => string);

  /** `text` and `code` may be written when they are asked for: most columns never are. */
  constructor(
    type: string,
    text: string | (() => string),
    code: string | (() => string),
    { isTruthy = true, letters = Math.max(text.length, code.length) } = {},
  ) {
    super();
    this.type = type;
    this.isTruthy = isTruthy;
    this.#letters = letters;
    this.#text = text;
    this.#code = code;
  }

  get text(): string {
    return (this.#text = typeof this.#text === 'string' ? this.#text : this.#text());
  }

  get code(): string {
    return (this.#code = typeof this.#code === 'string' ? this.#code : this.#code());
  }

  override get letters(): number {
    return this.#letters;
  }

  override equals(other: Value): boolean {
    return other instanceof Shown && this.type === other.type && this.text === other.text;
  }
}

/** Types of Python that are visited as lists are, and shown or compared in another way. */
export type SequenceType = 'tuple' | 'range' | 'dict_keys' | 'dict_values' | 'dict_items';

/** A sequence that is no list. It is an array, so that whatever reads lists reads it too. */
export class Sequence extends Array<Value> {
  readonly type: SequenceType;
  /** repr() of a range, whose items do not tell where it ends. */
  readonly shown: string;

  constructor(type: SequenceType, items: readonly Value[], shown = '') {
    super();
    for (const item of items) this.push(item);
    this.type = type;
    this.shown = shown;
  }

  /** What array methods make of it is a plain array. */
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

export const isList = (value: unknown): value is readonly Value[] => Array.isArray(value);
export const isDict = (value: unknown): value is Dict => value instanceof Map;
/** Python's isinstance(value, int) without bool. */
export const isInt = (value: unknown): value is number | bigint =>
  typeof value === 'number' || typeof value === 'bigint';

/** A value for which Python's isinstance(value, int) holds, as the number that it is: a bool is 0 or 1. */
export function asInt(value: unknown): number | bigint | undefined {
  if (typeof value === 'boolean') return value ? 1 : 0;
  return isInt(value) ? value : undefined;
}

/** A whole number in the form that Value asks for. */
export function toInt(value: bigint): number | bigint {
  const rounded = Number(value);
  return Number.isSafeInteger(rounded) ? rounded : value;
}

/** type(value).__name__ */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (isInt(value)) return 'int';
  if (typeof value === 'string') return 'str';
  if (value instanceof Float) return 'float';
  if (value instanceof Sequence) return value.type;
  if (value instanceof Thing) return value.type;
  return isList(value) ? 'list' : 'dict';
}

/** bool(value) */
export function isTruthy(value: Value): boolean {
  if (value === null) return false;
  if (typeof value === 'boolean') return value;
  if (isInt(value)) return value !== 0 && value !== 0n;
  if (typeof value === 'string') return value !== '';
  if (value instanceof Float) return value.value !== 0;
  if (value instanceof Thing) return value.isTruthy;
  return isList(value) ? value.length > 0 : value.size > 0;
}

/** A bool, int or float as a JavaScript number; undefined for other types. */
export function numeric(value: Value): number | undefined {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (isInt(value)) return Number(value);
  return value instanceof Float ? value.value : undefined;
}

/** Tuples equal no lists; what lists the values of a dictionary equals only itself. */
const comparesAs = (value: readonly Value[]): string => (value instanceof Sequence ? value.type : 'list');

/** left == right: 1 == 1.0 == True, lists by item, dictionaries without regard to order. */
export function isEqual(left: Value, right: Value): boolean {
  if (left instanceof Thing) return left.equals(right);
  if (right instanceof Thing) return right.equals(left);
  if (left === right) return true;
  if (typeof left === 'string' || typeof right === 'string' || left === null || right === null) return false;
  const a = numeric(left),
    b = numeric(right);
  if (a !== undefined || b !== undefined) return a !== undefined && b !== undefined && areEqual(left, right, a, b);
  if (isList(left) && isList(right)) {
    const type = comparesAs(left);
    if (type !== comparesAs(right) || type === 'dict_values' || left.length !== right.length) return false;
    if (type === 'dict_keys' || type === 'dict_items') {
      const all = new Set(right);
      return left.every((item) => all.has(item) || right.some((other) => isEqual(item, other)));
    }
    return left.every((item, i) => item === right[i] || isEqual(item, right[i]!));
  }
  if (!isDict(left) || !isDict(right) || left.size !== right.size) return false;
  for (const [key, item] of left) {
    const other = right.get(key);
    if (other === undefined || (item !== other && !isEqual(item, other))) return false;
  }
  return true;
}

/** Whole numbers that a float would round are compared as they are. */
function areEqual(left: Value, right: Value, a: number, b: number): boolean {
  if (typeof left !== 'bigint' && typeof right !== 'bigint') return a === b;
  const whole = (value: Value, number: number): bigint | undefined =>
    typeof value === 'bigint' ? value : Number.isInteger(number) ? BigInt(number) : undefined;
  return whole(left, a) === whole(right, b);
}
