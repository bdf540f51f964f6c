/** What a filter is: a function of a value, with arguments that have names. */
import type { Value } from '../value.js';
import { listOf, type Args } from './items.js';
import { itemOf } from './attributes.js';
import { valueError } from './failure.js';
import { Markup, textOf, Undefined, type Named } from './objects.js';
import type { Access } from './percent.js';

/** What filters and tests see of the template that uses them. */
export interface Context extends Access {
  readonly filter: (name: string, value: Value, args: readonly Value[], named: Named) => Value;
  readonly test: (name: string, value: Value, args: readonly Value[], named: Named) => boolean;
  readonly isKnown: (kind: 'filter' | 'test', name: string) => boolean;
}

export interface Filter {
  /** Undefined for a filter that binds its arguments itself. Names that end in "?" may be left out. */
  readonly parameters: readonly string[] | undefined;
  readonly run: (value: Value, args: Args, context: Context, named: Named) => Value;
}

export type NamedFilter = readonly [string, Filter];

export const filter = (names: string, parameters: string, run: Filter['run']): NamedFilter[] =>
  names.split(' ').map((name) => [name, { parameters: parameters === '' ? [] : parameters.split(' '), run }] as const);

/** A filter that takes any arguments. */
export const freeFilter = (name: string, run: Filter['run']): NamedFilter[] => [[name, { parameters: undefined, run }]];

/** A value as text: Markup stays what it is. */
export const softText = (value: Value, { work }: Context): string | Markup =>
  value instanceof Markup ? value : work.str(value);

/** str(value) */
export const plainText = (value: Value, { work }: Context): string => textOf(value) ?? work.str(value);

export const items = (value: Value, { work }: Context): readonly Value[] => listOf(value, work);

/** Parts of the longest path. */
const MAX_PATH = 256;

/** What takes the part of an item that `attribute="a.b.0"` names; all of it without a path. */
export function partsBy(path: Value | undefined, context: Context, otherwise?: Value): (item: Value) => Value {
  if (path === undefined || path === null) return (item) => item;
  const text = textOf(path);
  if (text !== undefined && text.length > MAX_PATH) throw valueError(`a path of more than ${MAX_PATH} letters`);
  const parts: readonly Value[] =
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
