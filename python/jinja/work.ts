/** Bounds on the work of a template: its errors, what it may still do, and searches that keep to that. */
import { repr, str } from '../show.js';
import {
  codePointLength,
  codePoints,
  isDict,
  isList,
  leftStrip,
  PYTHON_SPACE,
  rightStrip,
  Thing,
  type PyValue,
} from '../value.js';

// What goes wrong in a template.

/** Jinja's and Python's kinds of errors; `limit` for what would take too much. */
export type FailureKind =
  | 'TemplateSyntaxError'
  | 'TemplateAssertionError'
  | 'TemplateRuntimeError'
  | 'TemplateError'
  | 'UndefinedError'
  | 'SecurityError'
  | 'FilterArgumentError'
  | 'AttributeError'
  | 'IndexError'
  | 'KeyError'
  | 'OverflowError'
  | 'TypeError'
  | 'ValueError'
  | 'ZeroDivisionError'
  | 'limit';

export class Failure extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** What a template cannot be read or rendered for, and the line of the template. */
export class TemplateProblem extends Error {
  readonly kind: FailureKind;
  readonly line: number;

  constructor(kind: FailureKind, message: string, line: number) {
    super(kind === 'limit' || kind === 'TemplateError' ? message : `${kind}: ${message}`);
    this.kind = kind;
    this.line = line;
  }
}

export const typeError = (message: string): Failure => new Failure('TypeError', message);
export const valueError = (message: string): Failure => new Failure('ValueError', message);

// The bounds within which one template is evaluated. Each value's size is checked before the value is made.

/** Deepest nesting of values, so that walks through them fit on the stack. */
const MAX_NESTING = 250;
/** Milliseconds that all regular expressions of one evaluation may take. */
const MAX_MATCHING = 2000;
/** Longest text that a template may make, in UTF-16 units. */
export const MAX_TEXT = 1 << 24;
/** Longest list that a template may make. */
const MAX_ITEMS = 1 << 20;
/** Deepest nesting of expressions, calls and blocks that are being evaluated. */
const MAX_DEPTH = 400;

export class TemplateWork {
  readonly #maxSteps: number;
  #steps = 0;
  #matching = 0;
  #depth = 0;

  constructor(maxSteps: number) {
    this.#maxSteps = maxSteps;
  }

  /** A step is about the time that 64 letters take. */
  spend(steps = 1): void {
    this.#steps += steps;
    if (this.#steps > this.#maxSteps) throw new Failure('limit', `more than ${this.#maxSteps} steps`);
  }

  /** Around everything that a template can nest. */
  nested<T>(action: () => T): T {
    if (++this.#depth > MAX_DEPTH) throw new Failure('limit', `the template nests more than ${MAX_DEPTH} deep`);
    const value = action();
    this.#depth--;
    return value;
  }

  /** Before a text of `length` is made. */
  text(length: number): void {
    if (length > MAX_TEXT) throw new Failure('limit', `a result is longer than ${MAX_TEXT} characters`);
    this.spend(length / 128);
  }

  /** Before a list of `count` items is made. */
  items(count: number): void {
    if (count > MAX_ITEMS) throw new Failure('limit', `a result has more than ${MAX_ITEMS} items`);
    this.spend(count / 8);
  }

  /** Runs something that matches regular expressions. */
  matching<T>(match: () => T): T {
    this.spend(64);
    const start = performance.now();
    const found = match();
    this.#matching += performance.now() - start;
    if (this.#matching > MAX_MATCHING)
      throw new Failure('limit', `regular expressions take more than ${MAX_MATCHING / 1000} s`);
    return found;
  }

  /**
   * Before something visits all parts of a value, each as often as it occurs: values can share parts, so that small
   * ones are seen as huge. Returns about the number of letters that str() makes of it, escapes left out.
   */
  walk(value: PyValue, depth = 0): number {
    this.spend(0.25);
    if (typeof value === 'string') {
      // Within other values, letters are looked at one by one.
      this.spend(value.length / (depth > 0 ? 16 : 64));
      return value.length + (depth > 0 ? 2 : 0);
    }
    if (typeof value === 'bigint') {
      const digits = value.toString(16).length;
      this.spend(digits / 8);
      return digits;
    }
    if (depth >= MAX_NESTING) throw new Failure('limit', `a value nests more than ${MAX_NESTING} deep`);
    let letters = 2;
    if (value instanceof Thing) {
      this.spend(value.letters / 16);
      letters = value.letters;
      for (const part of value.parts) letters += this.walk(part, depth + 1) + 3;
    } else if (isList(value)) for (const item of value) letters += this.walk(item, depth + 1) + 2;
    else if (isDict(value)) for (const [key, item] of value) letters += key.length + this.walk(item, depth + 1) + 6;
    return letters;
  }

  /** str(value) */
  str(value: PyValue): string {
    if (typeof value === 'string') return value;
    this.text(this.walk(value));
    const text = str(value);
    this.text(text.length);
    return text;
  }

  /** repr(value) */
  repr(value: PyValue): string {
    this.text(this.walk(value));
    const text = repr(value);
    this.text(text.length);
    return text;
  }
}

// Where a text holds another one. The engine's own search takes as many steps as both lengths multiplied, and nothing
// can stop it on the way: longer parts are looked for as Knuth, Morris and Pratt do, in time of both lengths added.

/** Parts of up to so many letters are left to the engine. */
const SHORT = 16;

/** The first place of the part at `from` or behind it; -1 where there is none. */
export type TextSearch = (text: string, from?: number) => number;

/** At each place of the part, the length of its longest beginning that ends there and is shorter. */
function borders(length: number, unit: (at: number) => number): Int32Array {
  const made = new Int32Array(length);
  for (let at = 1, matched = 0; at < length; at++) {
    while (matched > 0 && unit(at) !== unit(matched)) matched = made[matched - 1]!;
    if (unit(at) === unit(matched)) matched++;
    made[at] = matched;
  }
  return made;
}

/** What finds `part`, which is not empty. */
export function searchFor(part: string, work: TemplateWork): TextSearch {
  if (part.length <= SHORT)
    return (text, from = 0) => {
      const at = text.indexOf(part, from);
      work.spend(((at < 0 ? text.length : at) - from) / 64);
      return at;
    };
  work.spend(part.length / 8);
  const longest = borders(part.length, (at) => part.charCodeAt(at));
  return (text, from = 0) => {
    if (text.length - from < part.length) return -1;
    work.spend((text.length - from) / 64);
    // Most texts do not hold even the beginning.
    const first = text.indexOf(part.slice(0, SHORT), from);
    if (first < 0) return -1;
    let matched = 0;
    for (let at = first; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      while (matched > 0 && unit !== part.charCodeAt(matched)) matched = longest[matched - 1]!;
      if (unit === part.charCodeAt(matched)) matched++;
      if (matched === part.length) {
        work.spend((at - first) / 16);
        return at + 1 - part.length;
      }
    }
    work.spend((text.length - first) / 16);
    return -1;
  };
}

/** What finds the last place of `part`, which is not empty, that ends at `to` or before. */
export function searchBackFor(part: string, work: TemplateWork): (text: string, to?: number) => number {
  if (part.length <= SHORT)
    return (text, to = text.length) => {
      const at = to < part.length ? -1 : text.lastIndexOf(part, to - part.length);
      work.spend((to - Math.max(0, at)) / 64);
      return at;
    };
  work.spend(part.length / 8);
  const last = part.length - 1;
  const longest = borders(part.length, (at) => part.charCodeAt(last - at));
  return (text, to = text.length) => {
    let matched = 0;
    for (let at = to - 1; at >= 0; at--) {
      const unit = text.charCodeAt(at);
      while (matched > 0 && unit !== part.charCodeAt(last - matched)) matched = longest[matched - 1]!;
      if (unit === part.charCodeAt(last - matched)) matched++;
      if (matched === part.length) {
        work.spend((to - at) / 16);
        return at;
      }
    }
    work.spend(Math.max(0, to) / 16);
    return -1;
  };
}

// Cuts texts and puts them together. The size of each result is known before it is made.

/** separator.join(texts) */
export function join(texts: readonly string[], separator: string, work: TemplateWork): string {
  let length = Math.max(0, texts.length - 1) * separator.length;
  for (const text of texts) length += text.length;
  work.items(texts.length);
  work.text(length);
  return texts.join(separator);
}

/** The number of places where `part` is, which do not overlap; at most `most`. */
export function countOf(text: string, part: string, most: number, work: TemplateWork): number {
  const search = searchFor(part, work);
  let count = 0;
  for (let at = search(text); at >= 0 && count < most; at = search(text, at + part.length)) {
    work.spend(1 / 8);
    count++;
  }
  return count;
}

/** str.split(separator, count), where `separator` is not empty and a negative count means all. */
export function split(text: string, separator: string, count: number, work: TemplateWork): string[] {
  work.items(1 + countOf(text, separator, count < 0 ? Infinity : count, work));
  const search = searchFor(separator, work);
  const pieces: string[] = [];
  let from = 0;
  while (count < 0 || pieces.length < count) {
    const at = search(text, from);
    if (at < 0) break;
    pieces.push(text.slice(from, at));
    from = at + separator.length;
  }
  pieces.push(text.slice(from));
  return pieces;
}

/** str.rsplit(separator, count) */
export function splitFromRight(text: string, separator: string, count: number, work: TemplateWork): string[] {
  if (count < 0) return split(text, separator, count, work);
  work.items(1 + countOf(text, separator, count, work));
  const search = searchBackFor(separator, work);
  const pieces: string[] = [];
  let to = text.length;
  while (pieces.length < count) {
    const at = search(text, to);
    if (at < 0) break;
    pieces.push(text.slice(at + separator.length, to));
    to = at;
  }
  pieces.push(text.slice(0, to));
  return pieces.toReversed();
}

/** str.split(None, count): at runs of white space, without empty parts. */
export function splitAtSpaces(text: string, count: number, work: TemplateWork): string[] {
  const pieces: string[] = [];
  const space = new RegExp(`[${PYTHON_SPACE}]+`, 'g');
  const stripped = leftStrip(text);
  work.spend(text.length / 64);
  let from = 0;
  while (count < 0 || pieces.length < count) {
    const found = space.exec(stripped);
    if (found === null) break;
    if (found.index + found[0].length === stripped.length) break;
    work.spend(1 / 8);
    work.items(pieces.length % 1024 === 0 ? pieces.length : 0);
    pieces.push(stripped.slice(from, found.index));
    from = space.lastIndex;
  }
  // The last piece keeps its white space where the count ended the work.
  const isEnded = count >= 0 && pieces.length === count;
  const last = isEnded ? stripped.slice(from) : rightStrip(stripped.slice(from));
  if (last !== '') pieces.push(last);
  return pieces;
}

/** str.rsplit(None, count) */
export function splitAtSpacesFromRight(text: string, count: number, work: TemplateWork): string[] {
  const all = splitAtSpaces(text, -1, work);
  if (count < 0 || all.length <= count) return all;
  // Words are whole, so each of the last ones is where it was found last.
  let rest = rightStrip(text);
  const last = count === 0 ? [] : all.slice(-count);
  for (const word of last.toReversed()) rest = rightStrip(rest.slice(0, rest.length - word.length));
  work.spend((count * text.length) / 64);
  return rest === '' ? last : [rest, ...last];
}

/** str.splitlines(keepends) */
export function splitLines(text: string, keepsEnds: boolean, work: TemplateWork): string[] {
  const lines: string[] = [];
  const end = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;
  work.spend(text.length / 64);
  let from = 0;
  for (let found = end.exec(text); found !== null; found = end.exec(text)) {
    work.items(lines.length % 1024 === 0 ? lines.length : 0);
    work.spend(1 / 8);
    lines.push(text.slice(from, keepsEnds ? end.lastIndex : found.index));
    from = end.lastIndex;
  }
  if (from < text.length) lines.push(text.slice(from));
  return lines;
}

/** str.replace(old, new, count); a negative count means all. */
export function replaceText(text: string, old: string, by: string, count: number, work: TemplateWork): string {
  const most = count < 0 ? Infinity : count;
  if (old !== '') {
    const places = countOf(text, old, most, work);
    work.text(text.length + places * (by.length - old.length));
    return split(text, old, places, work).join(by);
  }
  // Python puts the new text before every character and at the end.
  const length = codePointLength(text);
  const places = Math.min(most, length + 1);
  work.items(length);
  work.text(text.length + places * by.length);
  const letters = codePoints(text).map((letter, i) => (i < places ? by + letter : letter));
  return letters.join('') + (places > length ? by : '');
}
