/**
 * Sets of characters, and how JSON writes them inside a string. Languages of strings are regular languages over what
 * stands between the quotes. All of them write characters the same way, so that intersections and complements of texts
 * are those of the values: a character as itself in UTF-8; `"`, `\` and controls escaped; `/` both ways; and a control
 * also as \u00XX.
 */
import type { Regular } from '../grammar.js';
import { EPSILON, byteSet, choice, literal, repeat, sequence } from './regular.js';

/** Ranges of code points, from the first to the last, in order and apart. Surrogates are no characters. */
export type CharacterSet = readonly (readonly [number, number])[];

export const MAX_CODE_POINT = 0x10ffff;
const SURROGATES = [0xd800, 0xdfff] as const;

export const ALL_CHARACTERS: CharacterSet = [
  [0, SURROGATES[0] - 1],
  [SURROGATES[1] + 1, MAX_CODE_POINT],
];

/** In order, without overlaps, and without surrogates. */
export function characterSet(ranges: CharacterSet): CharacterSet {
  const merged: [number, number][] = [];
  for (const [first, last] of [...ranges].sort(([a], [b]) => a - b)) {
    const previous = merged.at(-1);
    if (previous !== undefined && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else merged.push([first, last]);
  }
  return merged.flatMap(([first, last]): CharacterSet => {
    if (last < SURROGATES[0] || first > SURROGATES[1]) return [[first, last]];
    const below: CharacterSet = first < SURROGATES[0] ? [[first, SURROGATES[0] - 1]] : [];
    return last > SURROGATES[1] ? [...below, [SURROGATES[1] + 1, last]] : below;
  });
}

export function complementOf(set: CharacterSet): CharacterSet {
  const gaps: [number, number][] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (first > next) gaps.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= MAX_CODE_POINT) gaps.push([next, MAX_CODE_POINT]);
  return characterSet(gaps);
}

/** The part of a set from `first` to `last`. */
const within = (set: CharacterSet, first: number, last: number): CharacterSet =>
  set.flatMap(([a, b]): CharacterSet => (b < first || a > last ? [] : [[Math.max(a, first), Math.min(b, last)]]));

const continuation = (first: number, last: number): Regular => byteSet([first, last]);

/** The UTF-8 bytes of a range whose code points all have `count` bytes. */
function utf8(first: number, last: number, count: number): Regular[] {
  if (count === 1) return [byteSet([first, last])];
  return tails(first, last, count - 1, (lead) => (count === 2 ? 0xc0 : count === 3 ? 0xe0 : 0xf0) | lead);
}

/** Ranges of numbers written as a leading part, and `count` continuation bytes of 6 bits. */
function tails(first: number, last: number, count: number, leading: (bits: number) => number): Regular[] {
  const size = 64 ** count;
  const [low, high] = [Math.floor(first / size), Math.floor(last / size)];
  const lead = (a: number, b: number): Regular => byteSet([leading(a), leading(b)]);
  if (count === 0) return [lead(first, last)];
  const rest = (a: number, b: number): Regular => choice(...tails(a, b, count - 1, (bits) => 0x80 | bits));
  const [a, b] = [first % size, last % size];
  if (low === high) return [sequence(lead(low, low), rest(a, b))];
  const parts: Regular[] = [];
  const from = a === 0 ? low : low + 1;
  const to = b === size - 1 ? high : high - 1;
  if (from > low) parts.push(sequence(lead(low, low), rest(a, size - 1)));
  const whole = Array.from({ length: count }, () => continuation(0x80, 0xbf));
  if (from <= to) parts.push(sequence(lead(from, to), ...whole));
  if (to < high) parts.push(sequence(lead(high, high), rest(0, b)));
  return parts;
}

const LENGTHS = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xffff],
  [0x10000, MAX_CODE_POINT],
] as const;

/** The characters in UTF-8, nothing escaped. */
export const encoded = (set: CharacterSet): Regular =>
  choice(...LENGTHS.flatMap(([first, last], i) => within(set, first, last).flatMap(([a, b]) => utf8(a, b, i + 1))));

const SHORT_ESCAPES = new Map([
  [0x08, 'b'],
  [0x09, 't'],
  [0x0a, 'n'],
  [0x0c, 'f'],
  [0x0d, 'r'],
  [0x22, '"'],
  [0x2f, '/'],
  [0x5c, '\\'],
]);

const hexDigits = (values: readonly number[]): Regular =>
  byteSet(
    ...values.flatMap((value): (readonly [number, number])[] =>
      value < 10
        ? [[0x30 + value, 0x30 + value]]
        : [
            [0x57 + value, 0x57 + value],
            [0x37 + value, 0x37 + value],
          ],
    ),
  );

const singles = new Map<number, Regular>();
const MAX_SINGLES = 4_096;

/** One character. */
function single(code: number): Regular {
  const known = singles.get(code);
  if (known !== undefined) return known;
  const made = character([[code, code]]);
  if (singles.size < MAX_SINGLES) singles.set(code, made);
  return made;
}

const regulars = new WeakMap<CharacterSet, Regular>();

/** One character of a set, as JSON writes it. */
export function character(set: CharacterSet): Regular {
  const known = regulars.get(set);
  if (known !== undefined) return known;
  const plain = [...within(set, 0x20, 0x21), ...within(set, 0x23, 0x5b), ...within(set, 0x5d, MAX_CODE_POINT)];
  const escapes: Regular[] = [];
  const has = (code: number): boolean => within(set, code, code).length > 0;
  const short = [...SHORT_ESCAPES].filter(([code]) => has(code));
  if (short.length > 0)
    escapes.push(
      sequence(
        literal('\\'),
        byteSet(...short.map(([, letter]): [number, number] => [letter.charCodeAt(0), letter.charCodeAt(0)])),
      ),
    );
  for (const high of [0, 1]) {
    const low = Array.from({ length: 16 }, (_, i) => i).filter((i) => has(16 * high + i));
    if (low.length > 0) escapes.push(sequence(literal(`\\u00${high}`), hexDigits(low)));
  }
  const regular = choice(encoded(plain), ...escapes);
  regulars.set(set, regular);
  return regular;
}

/** Any character, as JSON writes it. */
export const ANY_CHARACTER = character(ALL_CHARACTERS);
/** The texts that every language of strings is a part of. */
export const ANY_TEXT = repeat(ANY_CHARACTER, 0);

interface Branch {
  isEnd: boolean;
  readonly next: Map<number, Branch>;
}

/** One of these values. They share what they begin with, so that a byte of hundreds is found quickly. */
export function oneOfTexts(values: Iterable<string>): Regular {
  const root: Branch = { isEnd: false, next: new Map() };
  for (const value of values) {
    let branch = root;
    for (const letter of value) {
      const code = letter.codePointAt(0) ?? 0;
      let next = branch.next.get(code);
      if (next === undefined) branch.next.set(code, (next = { isEnd: false, next: new Map() }));
      branch = next;
    }
    branch.isEnd = true;
  }
  return regularOf(root);
}

function regularOf(root: Branch): Regular {
  // Runs without a fork become one sequence; the depth of the recursion is the number of forks on a path.
  const parts: Regular[] = [];
  let branch = root;
  while (branch.next.size === 1 && !branch.isEnd)
    for (const [code, next] of branch.next) {
      parts.push(single(code));
      branch = next;
    }
  const forks = [...branch.next].map(([code, next]) => sequence(single(code), regularOf(next)));
  if (branch.isEnd) forks.push(EPSILON);
  return sequence(...parts, choice(...forks));
}

/** Strings that JSON can write and every reader takes: no half of a surrogate pair. */
export const isWellFormed = (text: string): boolean => !/[\uD800-\uDFFF]/u.test(text);
