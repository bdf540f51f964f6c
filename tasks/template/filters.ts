/** Jinja's filters that templates use. */
import { str } from '../python/show.js';
import { codePointLength, codePoints, strip, stripCharacters } from '../python/text.js';
import { Float, isDict, isInt, isList, toInt, typeName, type Value } from '../python/value.js';
import { Failure } from './failure.js';
import { replaceText } from './methods.js';

export type Filter = (of: Value, args: readonly Value[], named: ReadonlyMap<string, Value>) => Value;

/** The items that a loop over a value visits. */
export function itemsOf(value: Value): readonly Value[] {
  if (isList(value)) return value;
  if (typeof value === 'string') return codePoints(value);
  if (isDict(value)) return [...value.keys()];
  throw new Failure(`${typeName(value)} is no list`);
}

function lengthOf(value: Value): number {
  if (typeof value === 'string') return codePointLength(value);
  if (isList(value)) return value.length;
  if (isDict(value)) return value.size;
  throw new Failure(`${typeName(value)} has no length`);
}

/** Python's int(value); undefined where it raises an error. */
function wholeNumber(value: Value): number | bigint | undefined {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (isInt(value)) return value;
  if (value instanceof Float) return Number.isFinite(value.value) ? toInt(BigInt(Math.trunc(value.value))) : undefined;
  if (typeof value !== 'string') return undefined;
  const text = strip(value);
  if (/^[-+]?\d+(_\d+)*$/.test(text) && text.length <= 1000)
    return toInt(BigInt(text.replaceAll('_', '').replace(/^\+/, '')));
  return /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text) ? wholeNumber(new Float(Number(text))) : undefined;
}

/** The field of each item that `map(attribute=…)` takes. */
function fieldOf(item: Value, path: string): Value {
  let value = item;
  for (const name of path.split('.')) {
    const next = isDict(value)
      ? value.get(name)
      : isList(value) && /^\d+$/.test(name)
        ? value[Number(name)]
        : undefined;
    if (next === undefined) throw new Failure(`an item of the list has no field ${JSON.stringify(name)}`);
    value = next;
  }
  return value;
}

const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ['string', (of) => str(of)],
  ['length', lengthOf],
  ['list', (of) => [...itemsOf(of)]],
  ['lower', (of) => str(of).toLowerCase()],
  ['upper', (of) => str(of).toUpperCase()],
  ['int', (of, [otherwise]) => wholeNumber(of) ?? otherwise ?? 0],
  [
    'join',
    (of, [separator]) =>
      itemsOf(of)
        .map(str)
        .join(separator === undefined ? '' : str(separator)),
  ],
  [
    'trim',
    (of, [characters]) =>
      characters === undefined || characters === null
        ? strip(str(of))
        : stripCharacters(str(of), str(characters), { left: true, right: true }),
  ],
  [
    'replace',
    (of, [old, by, count]) => {
      if (old === undefined || by === undefined) throw new Failure('replace needs the old and the new text');
      return replaceText(str(of), str(old), str(by), isInt(count) ? Number(count) : -1);
    },
  ],
  [
    'map',
    (of, args, named) => {
      const path = named.get('attribute');
      if (args.length > 0 || typeof path !== 'string') throw new Failure('map is supported with attribute="…" only');
      return itemsOf(of).map((item) => fieldOf(item, path));
    },
  ],
]);

/** Names that `filter` takes beside its places. */
const NAMED: ReadonlyMap<string, ReadonlySet<string>> = new Map([['map', new Set(['attribute'])]]);

/** Throws Failure for a filter or a named argument that is not supported. */
export function filterNamed(name: string, named: Iterable<string>): Filter {
  const filter = FILTERS.get(name);
  if (filter === undefined)
    throw new Failure(`the filter "${name}" is not supported; there are ${[...FILTERS.keys()].join(', ')}`);
  for (const argument of named)
    if (NAMED.get(name)?.has(argument) !== true)
      throw new Failure(`the filter "${name}" has no argument "${argument}" here`);
  return filter;
}
