/** Items of lists, texts and dictionaries. */
import { codePointLength, codePoints } from '../../python/text.js';
import { isDict, isInt, isList, numeric, Sequence, typeName, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import type { Work } from './work.js';

const MAX_RANGE = 100_000;

const isGenerator = (value: Value): value is Sequence => value instanceof Sequence && value.type === 'generator';

/** The items that a loop over a value visits. */
export function itemsOf(value: Value, work: Work): readonly Value[] {
  if (isGenerator(value) && !value.begin())
    throw new Failure('what a filter yields can be visited once; add |list where it is kept');
  if (isList(value)) return value;
  if (typeof value === 'string') return textItems(value, work);
  if (isDict(value)) {
    work.items(value.size);
    return [...value.keys()];
  }
  throw new Failure(`${typeName(value)} is no list`);
}

/** len(value) */
export function lengthOf(value: Value): number {
  if (isGenerator(value)) throw new Failure('what a filter yields has no length; add |list');
  if (typeof value === 'string') return codePointLength(value);
  if (isList(value)) return value.length;
  if (isDict(value)) return value.size;
  throw new Failure(`${typeName(value)} has no length`);
}

/** Views of dictionaries and generators have no places. */
export const hasPlaces = (value: Value): value is string | readonly Value[] =>
  typeof value === 'string' ||
  (isList(value) && (!(value instanceof Sequence) || value.type === 'tuple' || value.type === 'range'));

const hasPairs = (text: string): boolean => /[\ud800-\udfff]/.test(text);

/** value[key]; undefined where there is no such item. */
export function itemAt(of: Value, key: Value): Value | undefined {
  if (isDict(of)) return typeof key === 'string' ? of.get(key) : undefined;
  if (!hasPlaces(of) || !isInt(key)) return undefined;
  const at = Number(key);
  const length = typeof of === 'string' ? codePointLength(of) : of.length;
  const place = at < 0 ? at + length : at;
  if (place < 0 || place >= length) return undefined;
  if (typeof of !== 'string') return of[place];
  if (length === of.length) return of[place];
  let seen = 0;
  for (const letter of of) if (seen++ === place) return letter;
  return undefined;
}

/** value[from:to:step] */
export function slice(of: Value, from: Value, to: Value, step: Value, work: Work): Value {
  if (!hasPlaces(of)) throw new Failure(`${typeName(of)} cannot be sliced`);
  if (of instanceof Sequence && of.type === 'range') throw new Failure('range cannot be sliced here; add |list');
  const items: string | readonly Value[] = typeof of === 'string' && hasPairs(of) ? textItems(of, work) : of;
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
  if (by === 1 && typeof items === 'string') return items.slice(start, Math.max(start, end));
  work.items(Math.max(0, Math.ceil((end - start) / by)));
  const taken: Value[] = [];
  for (let i = start; by > 0 ? i < end : i > end; i += by) taken.push(items[i]!);
  if (typeof of === 'string') return taken.join('');
  return of instanceof Sequence ? new Sequence('tuple', taken) : taken;
}

function textItems(text: string, work: Work): readonly string[] {
  work.items(codePointLength(text));
  return codePoints(text);
}

/** It is taken apart for each item. */
const MAX_PATH = 256;

/** The part of an item that `attribute="a.b.0"` takes; undefined where there is none. */
export function partOf(item: Value, path: Value): Value | undefined {
  if (isInt(path)) return itemAt(item, path);
  if (typeof path !== 'string') throw new Failure(`an attribute is named by text, not ${typeName(path)}`);
  if (path.length > MAX_PATH) throw new Failure(`an attribute is named by more than ${MAX_PATH} letters`);
  let value: Value | undefined = item;
  for (const name of path.split('.'))
    value = value === undefined ? undefined : itemAt(value, /^\d+$/.test(name) ? Number(name) : name);
  return value;
}

/** As partOf(). Throws Failure where there is no such part. */
export function partThere(item: Value, path: Value): Value {
  const part = partOf(item, path);
  if (part === undefined)
    throw new Failure(`an item of the list has no field ${JSON.stringify(String(path as string))}`);
  return part;
}

/** range(…) */
export function range(args: readonly Value[]): Value {
  if (args.length < 1 || args.length > 3 || !args.every(isInt)) throw new Failure('range() takes 1 to 3 whole numbers');
  const [from = 0, to = 0, step = 1] = (args.length === 1 ? [0, ...args] : args).map((arg) => numeric(arg) ?? 0);
  if (step === 0) throw new Failure('the step of range() is 0');
  const count = Math.max(0, Math.ceil((to - from) / step));
  if (count > MAX_RANGE) throw new Failure(`range() of ${count} numbers is more than ${MAX_RANGE}`);
  const items = Array.from({ length: count }, (_, i) => from + i * step);
  return new Sequence('range', items, `range(${from}, ${to}${step === 1 ? '' : `, ${step}`})`);
}
