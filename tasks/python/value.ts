/**
 * Python's values, as dataset rows, YAML files and templates hold them. A whole number is a `number`, or a `bigint`
 * where a `number` would round it. A float is a Float, because Python shows 1.0 and 1 differently. A dictionary is a
 * Map: keys come from files, and no name of a key means anything to JavaScript.
 */
export type Value = null | boolean | number | bigint | string | Float | readonly Value[] | Dict;
export type Dict = ReadonlyMap<string, Value>;

/** Python's float. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
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
  return isList(value) ? 'list' : 'dict';
}

/** bool(value) */
export function isTruthy(value: Value): boolean {
  if (value === null) return false;
  if (typeof value === 'boolean') return value;
  if (isInt(value)) return value !== 0 && value !== 0n;
  if (typeof value === 'string') return value !== '';
  if (value instanceof Float) return value.value !== 0;
  return isList(value) ? value.length > 0 : value.size > 0;
}

/** A bool, int or float as a JavaScript number; undefined for other types. */
export function numeric(value: Value): number | undefined {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (isInt(value)) return Number(value);
  return value instanceof Float ? value.value : undefined;
}

/** left == right: 1 == 1.0 == True, lists by item, dictionaries without regard to order. */
export function isEqual(left: Value, right: Value): boolean {
  if (left === right) return true;
  if (typeof left === 'string' || typeof right === 'string' || left === null || right === null) return false;
  const a = numeric(left),
    b = numeric(right);
  if (a !== undefined || b !== undefined) {
    return isInt(left) && isInt(right) ? BigInt(left) === BigInt(right) : a === b;
  }
  if (isList(left) && isList(right))
    return left.length === right.length && left.every((item, i) => isEqual(item, right[i]!));
  if (!isDict(left) || !isDict(right) || left.size !== right.size) return false;
  for (const [key, item] of left) {
    const other = right.get(key);
    if (other === undefined || !isEqual(item, other)) return false;
  }
  return true;
}
