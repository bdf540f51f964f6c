/** What a filter is: a function of a value of some type, with arguments that have names. */
import type { Value } from '../../python/value.js';
import type { Args } from './arguments.js';
import type { Undefined } from './undefined.js';
import type { Work } from './work.js';

type Result = Value | Undefined;

export type Filter =
  | { readonly on: 'text'; readonly parameters: readonly string[]; readonly run: OnText }
  | { readonly on: 'items'; readonly parameters: readonly string[]; readonly run: OnItems }
  | { readonly on: 'value'; readonly parameters: readonly string[]; readonly run: OnValue };

type OnText = (text: string, args: Args, work: Work) => Value;
type OnItems = (items: readonly Value[], args: Args, work: Work) => Result;
type OnValue = (value: Value, args: Args, work: Work) => Result;

export type NamedFilter = readonly [string, Filter];

const names = (parameters: string): readonly string[] => (parameters === '' ? [] : parameters.split(' '));

/** A filter of str(value). */
export const onText = (name: string, parameters: string, run: OnText): NamedFilter => [
  name,
  { on: 'text', parameters: names(parameters), run },
];
/** A filter of what a loop over the value visits. */
export const onItems = (name: string, parameters: string, run: OnItems): NamedFilter => [
  name,
  { on: 'items', parameters: names(parameters), run },
];
export const onValue = (name: string, parameters: string, run: OnValue): NamedFilter => [
  name,
  { on: 'value', parameters: names(parameters), run },
];
