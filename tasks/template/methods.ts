/** Python's methods of text, lists and dictionaries that templates call. */
import {
  capitalize,
  codePointLength,
  leftStrip,
  rightStrip,
  strip,
  stripCharacters,
  title,
} from '../../python/text.js';
import { isDict, isEqual, isInt, isList, isTruthy, Sequence, typeName, type Value } from '../../python/value.js';
import { bound, type Args } from './arguments.js';
import { Failure } from './failure.js';
import { format } from './format.js';
import { countOf, join, replaceText, split, splitAtSpaces, splitFromRight, splitLines } from './pieces.js';
import { itemsOf } from './sequences.js';
import type { Work } from './work.js';

interface Method {
  /** Names of the arguments. */
  readonly parameters: readonly string[];
  /** Whether arguments may be given by name. */
  readonly isKeyword: boolean;
  readonly run: (of: Value, args: Args, work: Work) => Value;
}

const textOf = (value: Value | undefined, what: string): string => {
  if (typeof value === 'string') return value;
  throw new Failure(`${what} must be text, not ${value === undefined ? 'nothing' : typeName(value)}`);
};

function receiver(of: Value, name: string): string {
  if (typeof of === 'string') return of;
  throw new Failure(`${typeName(of)} has no method ${name}()`);
}

function wholeOf(value: Value | undefined, what: string): number {
  if (value === undefined) return -1;
  if (!isInt(value)) throw new Failure(`${what} must be a whole number, not ${typeName(value)}`);
  return Number(value);
}

const method = (parameters: string, run: Method['run'], isKeyword = false): Method => ({
  parameters: parameters === '' ? [] : parameters.split(' '),
  isKeyword,
  run,
});

/** A method of text without arguments, whose result is up to three times as long. */
const plain = (name: string, run: (text: string) => string, stepsOfLetter = 0): [string, Method] => [
  name,
  method('', (of, _args, work) => {
    const text = receiver(of, name);
    work.text(text.length);
    work.spend(text.length * stepsOfLetter);
    const made = run(text);
    work.text(made.length);
    return made;
  }),
];

const stripper = (
  name: string,
  whole: (text: string) => string,
  sides: { left: boolean; right: boolean },
): [string, Method] => [
  name,
  method('characters', (of, [characters]) => {
    const text = receiver(of, name);
    return characters === undefined || characters === null
      ? whole(text)
      : stripCharacters(text, textOf(characters, 'the characters to strip'), sides);
  }),
];

const splitter = (
  name: string,
  atText: typeof split,
  atSpaces: (text: string, count: number, work: Work) => string[],
): [string, Method] => [
  name,
  method(
    'sep maxsplit',
    (of, [separator, most], work) => {
      const text = receiver(of, name);
      const count = wholeOf(most, 'the count');
      if (separator === undefined || separator === null) return atSpaces(text, count, work);
      const at = textOf(separator, 'the separator');
      if (at === '') throw new Failure(`${name}(): the separator is empty`);
      return atText(text, at, count, work);
    },
    true,
  ),
];

/** startswith() and endswith(), with one text or a tuple of them. */
const edge = (name: string, test: (text: string, part: string) => boolean): [string, Method] => [
  name,
  method('part', (of, [part]) => {
    const text = receiver(of, name);
    const parts = part instanceof Sequence && part.type === 'tuple' ? [...part] : [part];
    return parts.some((each) => test(text, textOf(each, `what ${name}() looks for`)));
  }),
];

/** find(), rfind() and index() of text, as a place in code points. */
function place(name: string, of: string, part: Value | undefined, start: Value | undefined): number {
  const wanted = textOf(part, `what ${name}() looks for`);
  const from = start === undefined ? 0 : wholeOf(start, 'the start');
  if (from === 0) {
    const at = name === 'rfind' ? of.lastIndexOf(wanted) : of.indexOf(wanted);
    return at < 0 ? -1 : codePointLength(of.slice(0, at));
  }
  if (from < 0 || name === 'rfind') throw new Failure(`${name}() with this start is not supported`);
  let units = 0;
  for (let letters = 0; letters < from; letters++) {
    if (units >= of.length) return from === letters && wanted === '' ? from : -1;
    units += (of.codePointAt(units) ?? 0) > 0xffff ? 2 : 1;
  }
  const at = of.indexOf(wanted, units);
  return at < 0 ? -1 : from + codePointLength(of.slice(units, at));
}

function index(of: Value, [wanted, start]: Args, work: Work): Value {
  if (wanted === undefined) throw new Failure('index() needs what to look for');
  if (typeof of === 'string') {
    const at = place('index', of, wanted, start);
    if (at < 0) throw new Failure('index(): the text is not found');
    return at;
  }
  if (!isList(of)) throw new Failure(`${typeName(of)} has no method index()`);
  if (start !== undefined) throw new Failure('index() of a list with a start is not supported');
  work.walk(of);
  const at = of.findIndex((item) => isEqual(item, wanted));
  if (at < 0)
    throw new Failure(
      `index(): ${typeof wanted === 'string' ? JSON.stringify(wanted) : 'the value'} is not in the list`,
    );
  return at;
}

function count(of: Value, [wanted]: Args, work: Work): Value {
  if (wanted === undefined) throw new Failure('count() needs what to look for');
  if (typeof of === 'string') {
    const part = textOf(wanted, 'what count() looks for');
    return part === '' ? codePointLength(of) + 1 : countOf(of, part, Infinity, work);
  }
  if (!isList(of)) throw new Failure(`${typeName(of)} has no method count()`);
  work.walk(of);
  return of.filter((item) => isEqual(item, wanted)).length;
}

function get(of: Value, [key, otherwise]: Args): Value {
  if (!isDict(of)) throw new Failure(`${typeName(of)} has no method get()`);
  if (key === undefined) throw new Failure('get() needs a key');
  return (typeof key === 'string' ? of.get(key) : undefined) ?? otherwise ?? null;
}

function joined(of: Value, [items]: Args, work: Work): Value {
  const separator = receiver(of, 'join');
  if (items === undefined) throw new Failure('join() needs a list');
  const texts = itemsOf(items, work).map((item) => textOf(item, 'each item that join() joins'));
  return join(texts, separator, work);
}

const view = (
  name: 'keys' | 'values' | 'items',
  items: (of: ReadonlyMap<string, Value>) => Value[],
): [string, Method] => [
  name,
  method('', (of, _args, work) => {
    if (!isDict(of)) throw new Failure(`${typeName(of)} has no method ${name}()`);
    work.items(of.size);
    return new Sequence(`dict_${name}`, items(of));
  }),
];

export const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  stripper('strip', strip, { left: true, right: true }),
  stripper('lstrip', leftStrip, { left: true, right: false }),
  stripper('rstrip', rightStrip, { left: false, right: true }),
  plain('capitalize', capitalize),
  plain('title', title, 1 / 8),
  plain('lower', (text) => text.toLowerCase()),
  plain('upper', (text) => text.toUpperCase()),
  ['index', method('value start', index)],
  ['count', method('value', count)],
  ['find', method('part start', (of, [part, start]) => place('find', receiver(of, 'find'), part, start))],
  ['rfind', method('part', (of, [part]) => place('rfind', receiver(of, 'rfind'), part, undefined))],
  edge('startswith', (text, part) => text.startsWith(part)),
  edge('endswith', (text, part) => text.endsWith(part)),
  [
    'removeprefix',
    method('prefix', (of, [prefix]) => {
      const text = receiver(of, 'removeprefix');
      const start = textOf(prefix, 'the prefix');
      return text.startsWith(start) ? text.slice(start.length) : text;
    }),
  ],
  [
    'removesuffix',
    method('suffix', (of, [suffix]) => {
      const text = receiver(of, 'removesuffix');
      const end = textOf(suffix, 'the suffix');
      return end !== '' && text.endsWith(end) ? text.slice(0, -end.length) : text;
    }),
  ],
  [
    'replace',
    method('old new count', (of, [old, by, most], work) => {
      const text = receiver(of, 'replace');
      return replaceText(text, textOf(old, 'the old text'), textOf(by, 'the new text'), wholeOf(most, 'a count'), work);
    }),
  ],
  splitter('split', split, splitAtSpaces),
  splitter('rsplit', splitFromRight, (text, most, work) => {
    if (most >= 0) throw new Failure('rsplit() with a count needs a separator');
    return splitAtSpaces(text, most, work);
  }),
  [
    'splitlines',
    method(
      'keepends',
      (of, [keeps], work) => splitLines(receiver(of, 'splitlines'), keeps !== undefined && isTruthy(keeps), work),
      true,
    ),
  ],
  ['join', method('items', joined)],
  ['get', method('key default', get)],
  view('keys', (of) => [...of.keys()]),
  view('values', (of) => [...of.values()]),
  view('items', (of) => [...of].map((entry) => new Sequence('tuple', entry))),
]);

/** of.name(args). Throws Failure for what is not supported. */
export function callMethod(
  of: Value,
  name: string,
  args: readonly Value[],
  named: ReadonlyMap<string, Value>,
  work: Work,
): Value {
  if (name === 'format') return format(receiver(of, name), args, named, work);
  const found = METHODS.get(name);
  if (found === undefined)
    throw new Failure(`the method .${name}() is not supported; there are ${[...METHODS.keys(), 'format'].join(', ')}`);
  const { parameters, isKeyword, run } = found;
  return run(of, bound(`.${name}()`, parameters, isKeyword ? parameters : [], args, named), work);
}
