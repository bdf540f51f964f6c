/** JSON as Python's values and back. */
import { Float, isDict, isList, type PyValue } from '../../python/value.js';

export function toValue(json: unknown): PyValue {
  if (Array.isArray(json)) return json.map(toValue);
  if (typeof json === 'object' && json !== null)
    return new Map(Object.entries(json).map(([key, item]) => [key, toValue(item)]));
  if (typeof json === 'number' && !Number.isInteger(json)) return new Float(json);
  return json as PyValue;
}

export function toPlain(value: PyValue): unknown {
  if (isList(value)) return value.map(toPlain);
  if (isDict(value)) return Object.fromEntries([...value].map(([key, item]) => [key, toPlain(item)]));
  return value instanceof Float ? value.value : value;
}
