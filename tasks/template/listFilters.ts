/** Jinja's filters of lists. What Python makes of them piece by piece is a generator, which can be visited once. */
import { isDict, isInt, isTruthy, numeric, Sequence, typeName, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { onItems, onValue, type NamedFilter } from './filter.js';
import { arithmetic, order } from './operators.js';
import { join } from './pieces.js';
import { itemsOf, lengthOf, partThere } from './sequences.js';
import { Undefined } from './undefined.js';
import type { Work } from './work.js';

export const generator = (items: readonly Value[]): Sequence => new Sequence('generator', items);

const given = (value: Value | undefined): Value | undefined => (value === null ? undefined : value);

/** What items are compared by: a part of each, texts without regard to case unless asked. */
function keys(items: readonly Value[], path: Value | undefined, isCased: Value | undefined, work: Work): Value[] {
  const ignoresCase = isCased === undefined || !isTruthy(isCased);
  work.items(items.length);
  return items.map((item) => {
    const key = given(path) === undefined ? item : partThere(item, path ?? null);
    if (typeof key === 'string' && ignoresCase) work.text(key.length);
    return typeof key === 'string' && ignoresCase ? key.toLowerCase() : key;
  });
}

function sorted(
  items: readonly Value[],
  by: readonly Value[],
  isReversed: Value | undefined,
  work: Work,
): readonly Value[] {
  const letters = by.reduce<number>((sum, key) => sum + work.walk(key), 0);
  // Each comparison may read both texts to their ends.
  work.spend((Math.log2(items.length + 1) * (letters + 4 * items.length)) / 64);
  const sign = isReversed !== undefined && isTruthy(isReversed) ? -1 : 1;
  return items
    .map((item, i) => [item, by[i] ?? null] as const)
    .toSorted(([, left], [, right]) => sign * order('<', left, right))
    .map(([item]) => item);
}

/** The same for values that Python takes for the same key of a dictionary. */
function hashed(value: Value): string {
  if (typeof value === 'string') return `s${value}`;
  if (value === null) return 'none';
  const number = numeric(value);
  if (number !== undefined) return `n${isInt(value) ? String(value) : String(number)}`;
  if (value instanceof Sequence && value.type === 'tuple')
    return `t${value
      .map(hashed)
      .map((item) => `${item.length}:${item}`)
      .join('')}`;
  throw new Failure(`${typeName(value)} cannot be told apart by unique`);
}

function unique(items: readonly Value[], by: readonly Value[], work: Work): Value {
  const seen = new Set<string>();
  return generator(
    items.filter((_item, i) => {
      work.walk(by[i] ?? null);
      const key = hashed(by[i] ?? null);
      const isNew = !seen.has(key);
      seen.add(key);
      return isNew;
    }),
  );
}

function reverse(of: Value, work: Work): Value {
  if (typeof of === 'string') {
    const letters = itemsOf(of, work).map(String);
    return letters.toReversed().join('');
  }
  const items = itemsOf(of, work);
  work.items(items.length);
  return generator(items.toReversed());
}

/** max and min: the first of the items that no other is beyond. */
function extreme(sign: 1 | -1) {
  return (items: readonly Value[], [isCased, path]: readonly (Value | undefined)[], work: Work): Value | Undefined => {
    const by = keys(items, path, isCased, work);
    let best = 0;
    for (const [i, key] of by.entries()) {
      work.walk(key);
      if (i > 0 && sign * order('<', key, by[best]!) > 0) best = i;
    }
    return items[best] ?? new Undefined('an item of an empty list');
  };
}

function sum(items: readonly Value[], path: Value | undefined, start: Value, work: Work): Value {
  if (numeric(start) === undefined) throw new Failure('sum starts from a number');
  return items.reduce<Value>((total, item) => {
    const value = given(path) === undefined ? item : partThere(item, path ?? null);
    if (numeric(value) === undefined) throw new Failure(`${typeName(value)} cannot be summed`);
    work.spend(0.25);
    return arithmetic('+', total, value, work);
  }, start);
}

export const LIST_FILTERS: readonly NamedFilter[] = [
  ...['length', 'count'].map((name) => onValue(name, '', lengthOf)),
  onItems('list', '', (items, _args, work) => {
    work.items(items.length);
    return [...items];
  }),
  onItems('join', 'd attribute', (items, [separator, path], work) => {
    const parts = given(path) === undefined ? items : items.map((item) => partThere(item, path ?? null));
    const texts: string[] = [];
    work.items(items.length);
    for (const part of parts) texts.push(work.str(part));
    return join(texts, separator === undefined ? '' : work.str(separator), work);
  }),
  onItems(
    'first',
    '',
    ([first]) => first ?? (first === null ? null : new Undefined('the first item of an empty list')),
  ),
  onValue('last', '', (of, _args, work) => {
    if (lengthOf(of) === 0) return new Undefined('the last item of an empty list');
    return itemsOf(of, work).at(-1) ?? null;
  }),
  onItems('sort', 'reverse case_sensitive attribute', (items, [isReversed, isCased, path], work) => {
    if (typeof path === 'string' && path.includes(','))
      throw new Failure('sort by several attributes is not supported');
    return sorted(items, keys(items, path, isCased, work), isReversed, work);
  }),
  onItems('unique', 'case_sensitive attribute', (items, [isCased, path], work) =>
    unique(items, keys(items, path, isCased, work), work),
  ),
  onValue('reverse', '', (of, _args, work) => reverse(of, work)),
  onItems('max', 'case_sensitive attribute', extreme(1)),
  onItems('min', 'case_sensitive attribute', extreme(-1)),
  onItems('sum', 'attribute start', (items, [path, start], work) => sum(items, path, start ?? 0, work)),
  onValue('items', '', (of, _args, work) => {
    if (!isDict(of)) throw new Failure(`${typeName(of)} has no items`);
    work.items(of.size);
    return generator([...of].map((entry) => new Sequence('tuple', entry)));
  }),
];
