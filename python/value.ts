/**
 * Python's values, as dataset rows, YAML files and templates hold them. A whole number is a `number`, or a `bigint`
 * where a `number` would round it. A float is a Float, because Python shows 1.0 and 1 differently. A dictionary is a
 * Map: keys come from files, and no name of a key means anything to JavaScript.
 */
export type Value = null | boolean | number | bigint | string | Float | Shown | readonly Value[] | Dict;
export type Dict = ReadonlyMap<string, Value>;

/** Python's float. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

/** A value that templates show and compare, and do nothing else with: a date, a time, a decimal number, bytes. */
export class Shown {
  /** type(value).__name__ */
  readonly type: string;
  /** bool(value) */
  readonly isTruthy: boolean;
  /** At most so many letters are shown of it. */
  readonly letters: number;
  #text: string | (() => string);
  #code: string | (() => string);

  /** `text` and `code` may be written when they are asked for: most columns never are. */
  constructor(
    type: string,
    text: string | (() => string),
    code: string | (() => string),
    { isTruthy = true, letters = Math.max(text.length, code.length) } = {},
  ) {
    this.type = type;
    this.isTruthy = isTruthy;
    this.letters = letters;
    this.#text = text;
    this.#code = code;
  }

  /** str(value) */
  get text(): string {
    return (this.#text = typeof this.#text === 'string' ? this.#text : this.#text());
  }

  /** repr(value) */
  get code(): string {
    return (this.#code = typeof this.#code === 'string' ? this.#code : this.#code());
  }
}

/** Types of Python that are visited as lists are, and shown or compared in another way. */
export type SequenceType = 'tuple' | 'range' | 'dict_keys' | 'dict_values' | 'dict_items' | 'generator';

/** A sequence that is no list. It is an array, so that whatever reads lists reads it too. */
export class Sequence extends Array<Value> {
  readonly type: SequenceType;
  /** repr() of a range, whose items do not tell where it ends. */
  readonly shown: string;
  #isBegun = false;

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

  /** Whether a generator may be visited: once. */
  begin(): boolean {
    const isFirst = !this.#isBegun;
    this.#isBegun = true;
    return isFirst;
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
  if (value instanceof Shown) return value.type;
  return isList(value) ? 'list' : 'dict';
}

/** bool(value) */
export function isTruthy(value: Value): boolean {
  if (value === null) return false;
  if (typeof value === 'boolean') return value;
  if (isInt(value)) return value !== 0 && value !== 0n;
  if (typeof value === 'string') return value !== '';
  if (value instanceof Float) return value.value !== 0;
  if (value instanceof Sequence && value.type === 'generator') return true;
  if (value instanceof Shown) return value.isTruthy;
  return isList(value) ? value.length > 0 : value.size > 0;
}

/** A bool, int or float as a JavaScript number; undefined for other types. */
export function numeric(value: Value): number | undefined {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (isInt(value)) return Number(value);
  return value instanceof Float ? value.value : undefined;
}

/** Tuples equal no lists; views of values and generators equal only themselves. */
const comparesAs = (value: readonly Value[]): string => (value instanceof Sequence ? value.type : 'list');

/** left == right: 1 == 1.0 == True, lists by item, dictionaries without regard to order. */
export function isEqual(left: Value, right: Value): boolean {
  if (left === right) return true;
  if (typeof left === 'string' || typeof right === 'string' || left === null || right === null) return false;
  const a = numeric(left),
    b = numeric(right);
  if (a !== undefined || b !== undefined) {
    return isInt(left) && isInt(right) ? BigInt(left) === BigInt(right) : a === b;
  }
  if (left instanceof Shown || right instanceof Shown)
    return left instanceof Shown && right instanceof Shown && left.type === right.type && left.text === right.text;
  if (isList(left) && isList(right)) {
    const type = comparesAs(left);
    if (type !== comparesAs(right) || type === 'dict_values' || type === 'generator') return false;
    return left.length === right.length && left.every((item, i) => isEqual(item, right[i]!));
  }
  if (!isDict(left) || !isDict(right) || left.size !== right.size) return false;
  for (const [key, item] of left) {
    const other = right.get(key);
    if (other === undefined || !isEqual(item, other)) return false;
  }
  return true;
}
