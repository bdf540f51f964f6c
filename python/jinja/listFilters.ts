/** What a filter is, and Jinja's filters of lists. */
import { at } from '../../system/at.js';
import { isList, isTruthy, typeName, type PyValue } from '../value.js';
import { itemOf } from './attributes.js';
import { type Args, iterate, lengthOf, listOf, slice, wholeOf } from './items.js';
import {
  entriesOf,
  GroupOfItems,
  isDictionary,
  keyOf,
  Lazy,
  Markup,
  type Named,
  textOf,
  tupleOf,
  Undefined,
} from './objects.js';
import { areSame, arithmetic, order } from './operators.js';
import type { FieldAccess } from './percent.js';
import { Failure, join, typeError, valueError } from './work.js';

// What a filter is: a function of a value, with arguments that have names.

/** What filters and tests see of the template that uses them. */
export interface FilterContext extends FieldAccess {
  readonly filter: (name: string, value: PyValue, args: readonly PyValue[], named: Named) => PyValue;
  readonly test: (name: string, value: PyValue, args: readonly PyValue[], named: Named) => boolean;
  readonly isKnown: (kind: 'filter' | 'test', name: string) => boolean;
}

export interface JinjaFilter {
  /** Undefined for a filter that binds its arguments itself. Names that end in "?" may be left out. */
  readonly parameters: readonly string[] | undefined;
  readonly run: (value: PyValue, args: Args, context: FilterContext, named: Named) => PyValue;
}

export type NamedFilter = readonly [string, JinjaFilter];

export const filter = (names: string, parameters: string, run: JinjaFilter['run']): NamedFilter[] =>
  names.split(' ').map((name) => [name, { parameters: parameters === '' ? [] : parameters.split(' '), run }] as const);

/** A filter that takes any arguments. */
export const freeFilter = (name: string, run: JinjaFilter['run']): NamedFilter[] => [
  [name, { parameters: undefined, run }],
];

/** A value as text: Markup stays what it is. */
export const softText = (value: PyValue, { work }: FilterContext): string | Markup =>
  value instanceof Markup ? value : work.str(value);

/** str(value) */
export const plainText = (value: PyValue, { work }: FilterContext): string => textOf(value) ?? work.str(value);

export const items = (value: PyValue, { work }: FilterContext): readonly PyValue[] => listOf(value, work);

/** Parts of the longest path. */
const MAX_PATH = 256;

/** What takes the part of an item that `attribute="a.b.0"` names; all of it without a path. */
export function partsBy(
  path: PyValue | undefined,
  context: FilterContext,
  otherwise?: PyValue,
): (item: PyValue) => PyValue {
  if (path === undefined || path === null) return (item) => item;
  const text = textOf(path);
  if (text !== undefined && text.length > MAX_PATH) throw valueError(`a path of more than ${MAX_PATH} letters`);
  const parts: readonly PyValue[] =
    text === undefined ? [path] : text.split('.').map((part) => (/^\p{Nd}+$/u.test(part) ? Number(part) : part));
  return (item) => {
    let value = item;
    for (const part of parts) {
      context.work.spend(1 / 4);
      value = itemOf(value, part, context);
      if (otherwise !== undefined && otherwise !== null && value instanceof Undefined) value = otherwise;
    }
    return value;
  };
}

// Jinja's filters of lists and dictionaries. What Python makes of them piece by piece can be visited once.

const isSet = (value: PyValue | undefined): boolean => value !== undefined && isTruthy(value);

/** Texts without regard to case, unless that is asked for. */
const folded =
  (isCased: PyValue | undefined, part: (item: PyValue) => PyValue, { work }: FilterContext) =>
  (item: PyValue): PyValue => {
    const key = part(item);
    const text = isSet(isCased) ? undefined : textOf(key);
    if (text !== undefined) work.text(text.length);
    return text === undefined ? key : text.toLowerCase();
  };

/** Items in the order of their keys. Equal ones stay as they are. */
function sortedBy(
  all: readonly PyValue[],
  keys: (item: PyValue) => PyValue,
  isReversed: PyValue | undefined,
  { work }: FilterContext,
): PyValue[] {
  work.items(all.length);
  const keyed = all.map((item) => [item, keys(item)] as const);
  const letters = keyed.reduce((sum, [, key]) => sum + work.walk(key), 0);
  // Each comparison may read both texts to their ends.
  work.spend((Math.log2(all.length + 1) * (letters + 4 * all.length)) / 64);
  const sign = isSet(isReversed) ? -1 : 1;
  return keyed.toSorted(([, left], [, right]) => sign * order('<', left, right)).map(([item]) => item);
}

const lazily = (items: () => Generator<PyValue>): Lazy => new Lazy(items());

/** max and min: the first of the items that no other is beyond. */
const extreme = (name: string, op: '<' | '>') =>
  filter(name, 'case_sensitive? attribute?', (value, [isCased, path], context) => {
    const all = items(value, context);
    if (all.length === 0) return new Undefined('No aggregated item, sequence was empty.', context.isStrict);
    const keys = all.map(folded(isCased, partsBy(path, context), context));
    let best = 0;
    for (const [i, key] of keys.entries()) {
      context.work.walk(key);
      if (i === 0) continue;
      const found = order(op, key, at(keys, best));
      if (op === '<' ? found < 0 : found > 0) best = i;
    }
    return at(all, best);
  });

/** map: a part of each item, or what a filter makes of each. */
function mapped(args: readonly PyValue[], named: Named, context: FilterContext): (item: PyValue) => PyValue {
  if (args.length === 0 && named.has('attribute')) {
    for (const name of named.keys())
      if (name !== 'attribute' && name !== 'default')
        throw new Failure('FilterArgumentError', `Unexpected keyword argument '${name}'`);
    return partsBy(named.get('attribute'), context, named.get('default'));
  }
  const [name, ...rest] = args;
  if (name === undefined) throw new Failure('FilterArgumentError', 'map requires a filter argument');
  const text = nameOf(name);
  return (item) => context.filter(text, item, rest, named);
}

function nameOf(name: PyValue): string {
  const text = textOf(name);
  if (text === undefined)
    throw new Failure('TemplateRuntimeError', `No filter or test named '${typeName(name)}' found.`);
  return text;
}

/** select and reject, and by a part of each item selectattr and rejectattr. */
const selecting = (name: string, isKept: boolean, byPart: boolean) =>
  freeFilter(name, (value, given, context, named) =>
    lazily(function* () {
      if (!isTruthy(value)) return;
      const args = given.map((arg) => arg ?? null);
      if (byPart && args.length === 0) throw new Failure('FilterArgumentError', 'Missing parameter for attribute name');
      const part = byPart ? partsBy(args[0], context) : (item: PyValue): PyValue => item;
      const [test, ...rest] = byPart ? args.slice(1) : args;
      const text = test === undefined ? undefined : nameOf(test);
      const all = iterate(value, context.work);
      for (let next = all.next(); next.done !== true; next = all.next()) {
        context.work.spend(1 / 4);
        const item = part(next.value);
        const holds = text === undefined ? isTruthy(item) : context.test(text, item, rest, named);
        if (holds === isKept) yield next.value;
      }
    }),
  );

function reversed(value: PyValue, context: FilterContext): PyValue {
  if (textOf(value) !== undefined) return slice(value, null, null, -1, context.work);
  if (value instanceof Lazy) return items(value, context).toReversed();
  if (isList(value) || isDictionary(value) || value instanceof Undefined) {
    const all = items(value, context).toReversed();
    context.work.items(all.length);
    return new Lazy(all.values(), 'list_reverseiterator');
  }
  throw new Failure('FilterArgumentError', 'argument must be iterable');
}

function grouped(
  value: PyValue,
  by: (item: PyValue) => PyValue,
  real: (item: PyValue) => PyValue,
  context: FilterContext,
): PyValue {
  const groups: { key: PyValue; list: PyValue[] }[] = [];
  for (const item of sortedBy(items(value, context), by, undefined, context)) {
    const key = by(item);
    const last = groups.at(-1);
    if (last !== undefined && areSame(last.key, key, context.work)) last.list.push(item);
    else groups.push({ key, list: [item] });
  }
  return groups.map(({ list }) => new GroupOfItems(real(at(list, 0)), list));
}

function sliced(value: PyValue, count: number, fill: PyValue | undefined, context: FilterContext): PyValue {
  return lazily(function* () {
    const all = items(value, context);
    if (count === 0) throw new Failure('ZeroDivisionError', 'integer division or modulo by zero');
    context.work.items(Math.max(0, count));
    const size = Math.floor(all.length / count),
      longer = all.length - size * count;
    let from = 0;
    for (let i = 0; i < count; i++) {
      const to = from + size + (i < longer ? 1 : 0);
      const isFilled = fill !== undefined && fill !== null && i >= longer;
      yield [...all.slice(from, to), ...(isFilled ? [fill] : [])];
      from = to;
    }
  });
}

function batched(value: PyValue, count: number, fill: PyValue | undefined, context: FilterContext): PyValue {
  return lazily(function* () {
    let batch: PyValue[] = [];
    for (const item of items(value, context)) {
      if (batch.length === count) {
        yield batch;
        batch = [];
      }
      batch.push(item);
    }
    if (batch.length === 0) return;
    context.work.items(fill === undefined || fill === null ? 0 : count - batch.length);
    if (fill !== undefined && fill !== null) while (batch.length < count) batch.push(fill);
    yield batch;
  });
}

function entriesIn(value: PyValue): readonly (readonly [PyValue, PyValue])[] {
  if (value instanceof Undefined) return value.fail();
  if (!isDictionary(value)) throw new Failure('AttributeError', `'${typeName(value)}' object has no attribute 'items'`);
  return [...entriesOf(value)];
}

export const LIST_FILTERS: readonly NamedFilter[] = [
  ...filter('length count', '', (value, _args, { work }) => {
    work.spend((textOf(value)?.length ?? 0) / 128);
    return lengthOf(value);
  }),
  ...filter('list', '', (value, _args, context) => {
    const all = items(value, context);
    context.work.items(all.length);
    return [...all];
  }),
  ...filter('first', '', (value, _args, context) => {
    const next = iterate(value, context.work).next();
    return next.done === true ? new Undefined('No first item, sequence was empty.', context.isStrict) : next.value;
  }),
  ...filter('last', '', (value, _args, context) => {
    if (value instanceof Lazy) throw typeError(`'${value.type}' object is not reversible`);
    const last = listOf(value, context.work).at(-1);
    return last === undefined ? new Undefined('No last item, sequence was empty.', context.isStrict) : last;
  }),
  ...filter('join', 'd? attribute?', (value, [separator = '', path], context) => {
    const part = partsBy(path, context);
    const all = items(value, context);
    context.work.items(all.length);
    return join(
      all.map((item) => plainText(part(item), context)),
      plainText(separator, context),
      context.work,
    );
  }),
  ...filter('sort', 'reverse? case_sensitive? attribute?', (value, [isReversed, isCased, path], context) => {
    const text = textOf(path);
    const paths = text === undefined ? [path] : text.split(',');
    const keys = paths.map((each) => folded(isCased, partsBy(each, context), context));
    return sortedBy(items(value, context), (item) => keys.map((key) => key(item)), isReversed, context);
  }),
  ...filter('dictsort', 'case_sensitive? by? reverse?', (value, [isCased, by = 'key', isReversed], context) => {
    const place = by === 'key' ? 0 : by === 'value' ? 1 : undefined;
    if (place === undefined) throw new Failure('FilterArgumentError', 'You can only sort by either "key" or "value"');
    const key = folded(isCased, (item) => (isList(item) ? (item[place] ?? null) : item), context);
    return sortedBy(entriesIn(value).map(tupleOf), key, isReversed, context);
  }),
  ...filter('unique', 'case_sensitive? attribute?', (value, [isCased, path], context) =>
    lazily(function* () {
      const key = folded(isCased, partsBy(path, context), context);
      const seen = new Set<ReturnType<typeof keyOf>>();
      for (const item of items(value, context)) {
        const found = key(item);
        context.work.walk(found);
        const hash = keyOf(found);
        if (!seen.has(hash)) yield item;
        seen.add(hash);
      }
    }),
  ),
  ...filter('groupby', 'attribute default? case_sensitive?', (value, [path, otherwise, isCased], context) => {
    const part = partsBy(path, context, otherwise);
    return grouped(value, folded(isCased, part, context), part, context);
  }),
  ...filter('reverse', '', (value, _args, context) => reversed(value, context)),
  ...extreme('max', '>'),
  ...extreme('min', '<'),
  ...filter('sum', 'attribute? start?', (value, [path, start = 0], context) => {
    if (textOf(start) !== undefined) throw typeError("sum() can't sum strings [use ''.join(seq) instead]");
    const part = partsBy(path, context);
    let total = start;
    for (const item of items(value, context)) {
      context.work.spend(0.25);
      total = arithmetic('+', total, part(item), context.work);
    }
    return total;
  }),
  ...filter('items', '', (value, _args, context) =>
    lazily(function* () {
      if (value instanceof Undefined) return;
      if (!isDictionary(value)) throw typeError('Can only get item pairs from a mapping.');
      context.work.items(value.size);
      for (const entry of entriesOf(value)) yield tupleOf(entry);
    }),
  ),
  ...filter('slice', 'slices fill_with?', (value, [count, fill], context) =>
    sliced(value, wholeOf(count, 0), fill, context),
  ),
  ...filter('batch', 'linecount fill_with?', (value, [count, fill], context) =>
    batched(value, wholeOf(count, 0), fill, context),
  ),
  ...freeFilter('map', (value, args, context, named) =>
    lazily(function* () {
      if (!isTruthy(value)) return;
      const map = mapped(
        args.map((arg) => arg ?? null),
        named,
        context,
      );
      const all = iterate(value, context.work);
      for (let next = all.next(); next.done !== true; next = all.next()) {
        context.work.spend(1 / 4);
        if (typeof next.value === 'string') context.work.spend(next.value.length / 16);
        yield map(next.value);
      }
    }),
  ),
  ...selecting('select', true, false),
  ...selecting('reject', false, false),
  ...selecting('selectattr', true, true),
  ...selecting('rejectattr', false, true),
];
