/** Jinja's filters that templates use, by name. */
import { isInt, isTruthy, Float, type Value } from '../../python/value.js';
import { bound } from './arguments.js';
import { runCheck } from './checks.js';
import { defaulted, DEFAULTS } from './default.js';
import { Failure } from './failure.js';
import { onValue, type Filter } from './filter.js';
import { toJson } from './json.js';
import { generator, LIST_FILTERS } from './listFilters.js';
import { absolute, floatNumber, round, wholeNumber } from './numbers.js';
import { itemsOf, partOf, partThere } from './sequences.js';
import { TEXT_FILTERS } from './textFilters.js';
import { Undefined } from './undefined.js';
import type { Work } from './work.js';

type Named = ReadonlyMap<string, Value>;

function base(value: Value | undefined): number {
  if (value === undefined) return 10;
  if (!isInt(value)) throw new Failure('the base of int must be a whole number');
  return Number(value);
}

function indentOf(value: Value | undefined): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (isInt(value) && value >= 0 && value <= 16) return Number(value);
  throw new Failure('the indent of tojson must be a whole number up to 16');
}

const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ...TEXT_FILTERS,
  ...LIST_FILTERS,
  onValue('int', 'default base', (of, [otherwise, to]) => wholeNumber(of, base(to)) ?? otherwise ?? 0),
  onValue('float', 'default', (of, [otherwise]) => floatNumber(of) ?? otherwise ?? new Float(0)),
  onValue('abs', '', absolute),
  onValue('round', 'precision method', (of, [precision, method]) => round(of, precision ?? 0, method ?? 'common')),
  onValue('tojson', 'indent', (of, [indent], work) => toJson(of, indentOf(indent), work)),
]);

type Special = (of: Value, args: readonly Value[], named: Named, work: Work) => Value;

const textOf = (value: Value | undefined, what: string): string => {
  if (typeof value === 'string') return value;
  throw new Failure(`${what} must be text`);
};

/** What map and select visit: nothing of whatever counts as false. */
function visited(of: Value, work: Work): readonly Value[] {
  const items = isTruthy(of) ? itemsOf(of, work) : [];
  work.items(items.length);
  return items;
}

/** map: a part of each item, or what a filter makes of each. */
function mapped(of: Value, args: readonly Value[], named: Named, work: Work): Value {
  const items = visited(of, work);
  const path = named.get('attribute');
  const [name, ...rest] = args;
  if (path !== undefined) {
    bound('the filter "map"', ['attribute', 'default'], ['attribute', 'default'], args, named);
    const otherwise = named.get('default');
    return generator(
      items.map((item) => (otherwise === undefined ? partThere(item, path) : (partOf(item, path) ?? otherwise))),
    );
  }
  const filter = textOf(name, 'what map() applies');
  return generator(
    items.map((item) => {
      if (typeof item === 'string') work.spend(item.length / 16);
      const result = applyFilter(filter, item, rest, named, work);
      if (result instanceof Undefined) throw new Failure(`${result.what} is not defined`);
      return result;
    }),
  );
}

/** select and reject, and by a part of each item selectattr and rejectattr. */
function selecting(isKept: boolean, byPart: boolean): Special {
  return (of, args, named, work) => {
    if (named.size > 0) throw new Failure('select and reject take no named arguments');
    const items = itemsOf(of, work);
    work.items(items.length);
    const [path, [test, ...rest]] = byPart ? [args[0] ?? null, args.slice(1)] : [null, args];
    return generator(
      items.filter((item) => {
        const value = byPart ? (partOf(item, path) ?? new Undefined('a field of an item')) : item;
        if (test !== undefined) return runCheck(textOf(test, 'the name of a test'), value, rest, work) === isKept;
        if (value instanceof Undefined) throw new Failure(`${value.what} is not defined`);
        return isTruthy(value) === isKept;
      }),
    );
  };
}

/** Filters that apply others, or tests, with arguments that are theirs. */
const APPLYING: ReadonlyMap<string, Special> = new Map<string, Special>([
  ['map', mapped],
  ['select', selecting(true, false)],
  ['reject', selecting(false, false)],
  ['selectattr', selecting(true, true)],
  ['rejectattr', selecting(false, true)],
]);

/** of|name(args). Throws Failure for what is not supported. */
export function applyFilter(
  name: string,
  of: Value | Undefined,
  args: readonly Value[],
  named: Named,
  work: Work,
): Value | Undefined {
  if (DEFAULTS.has(name)) return defaulted(of, args, named);
  const applying = APPLYING.get(name);
  const filter = FILTERS.get(name);
  if (applying === undefined && filter === undefined) {
    const known = [...FILTERS.keys(), ...APPLYING.keys(), ...DEFAULTS].join(', ');
    throw new Failure(`the filter "${name}" is not supported; there are ${known}`);
  }
  let value: Value;
  if (!(of instanceof Undefined)) value = of;
  else if (of.isLenient && filter?.on === 'text') value = '';
  else if (of.isLenient && (filter?.on !== 'value' || name === 'length' || name === 'count')) value = [];
  else throw new Failure(`${of.what} is not defined`);
  if (applying !== undefined) return applying(value, args, named, work);
  if (filter === undefined) return value;
  const values = bound(`the filter "${name}"`, filter.parameters, filter.parameters, args, named);
  switch (filter.on) {
    case 'text':
      return filter.run(work.str(value), values, work);
    case 'items':
      return filter.run(itemsOf(value, work), values, work);
    case 'value':
      return filter.run(value, values, work);
    default:
      return filter satisfies never;
  }
}
