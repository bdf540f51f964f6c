/** Python's methods of text and lists that templates call. */
import {
  capitalize,
  codePointLength,
  codePoints,
  leftStrip,
  rightStrip,
  splitAtSpace,
  strip,
  stripCharacters,
} from '../python/text.js';
import { isInt, isList, typeName, isEqual, type Value } from '../python/value.js';
import { Failure } from './failure.js';

export type Method = (of: Value, args: readonly Value[]) => Value;

const textOf = (value: Value | undefined, what: string): string => {
  if (typeof value === 'string') return value;
  throw new Failure(`${what} must be text, not ${value === undefined ? 'nothing' : typeName(value)}`);
};

function receiver(of: Value, name: string): string {
  if (typeof of === 'string') return of;
  throw new Failure(`${typeName(of)} has no method ${name}()`);
}

function countOf(value: Value | undefined): number {
  if (value === undefined) return -1;
  if (!isInt(value)) throw new Failure(`a count must be a whole number, not ${typeName(value)}`);
  return Number(value);
}

const stripper =
  (name: string, whole: (text: string) => string, sides: { left: boolean; right: boolean }): Method =>
  (of, [characters]) => {
    const text = receiver(of, name);
    return characters === undefined || characters === null
      ? whole(text)
      : stripCharacters(text, textOf(characters, 'the characters to strip'), sides);
  };

/** str.split(separator, count) and str.replace(old, new, count): `pieces` holds at most count + 1. */
function cut(text: string, separator: string, count: number): string[] {
  const pieces = text.split(separator);
  if (count < 0 || pieces.length <= count + 1) return pieces;
  return [...pieces.slice(0, count), pieces.slice(count).join(separator)];
}

export function replaceText(text: string, old: string, by: string, count: number): string {
  if (old !== '') return cut(text, old, count).join(by);
  // Python puts the new text before every character and at the end.
  const letters = codePoints(text);
  const places = count < 0 ? letters.length + 1 : Math.min(count, letters.length + 1);
  return letters.map((letter, i) => (i < places ? by + letter : letter)).join('') + (places > letters.length ? by : '');
}

function index(of: Value, [wanted]: readonly Value[]): Value {
  if (wanted === undefined) throw new Failure('index() needs what to look for');
  if (typeof of === 'string') {
    const at = of.indexOf(textOf(wanted, 'what index() looks for'));
    if (at < 0) throw new Failure('index(): the text is not found');
    return codePointLength(of.slice(0, at));
  }
  if (!isList(of)) throw new Failure(`${typeName(of)} has no method index()`);
  const at = of.findIndex((item) => isEqual(item, wanted));
  if (at < 0)
    throw new Failure(
      `index(): ${typeof wanted === 'string' ? JSON.stringify(wanted) : 'the value'} is not in the list`,
    );
  return at;
}

export const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  ['strip', stripper('strip', strip, { left: true, right: true })],
  ['lstrip', stripper('lstrip', leftStrip, { left: true, right: false })],
  ['rstrip', stripper('rstrip', rightStrip, { left: false, right: true })],
  ['capitalize', (of) => capitalize(receiver(of, 'capitalize'))],
  ['lower', (of) => receiver(of, 'lower').toLowerCase()],
  ['upper', (of) => receiver(of, 'upper').toUpperCase()],
  ['index', index],
  ['startswith', (of, [start]) => receiver(of, 'startswith').startsWith(textOf(start, 'what startswith() looks for'))],
  ['endswith', (of, [end]) => receiver(of, 'endswith').endsWith(textOf(end, 'what endswith() looks for'))],
  [
    'replace',
    (of, [old, by, count]) =>
      replaceText(receiver(of, 'replace'), textOf(old, 'the old text'), textOf(by, 'the new text'), countOf(count)),
  ],
  [
    'split',
    (of, [separator, count]) => {
      const text = receiver(of, 'split');
      if (separator === undefined || separator === null) {
        if (count !== undefined) throw new Failure('split() with a count needs a separator');
        return splitAtSpace(text);
      }
      const at = textOf(separator, 'the separator');
      if (at === '') throw new Failure('split(): the separator is empty');
      return cut(text, at, countOf(count));
    },
  ],
  [
    'join',
    (of, [items]) => {
      const separator = receiver(of, 'join');
      if (typeof items === 'string') return codePoints(items).join(separator);
      if (items === undefined || !isList(items)) throw new Failure('join() needs a list');
      return items.map((item) => textOf(item, 'each item that join() joins')).join(separator);
    },
  ],
]);
