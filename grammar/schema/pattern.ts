/**
 * Regular expressions of ECMAScript, as `pattern` has them: read into a tree, without their meaning. What is no regular
 * language (references to groups), and lookbehind, are refused.
 */
import { GrammarError } from '../grammar.js';
import { ALL_CHARACTERS, type CharacterSet, MAX_CODE_POINT, characterSet, complementOf } from './characters.js';

export type Pattern =
  | { readonly kind: 'set'; readonly set: CharacterSet }
  | { readonly kind: 'sequence' | 'choice'; readonly of: readonly Pattern[] }
  | { readonly kind: 'repeat'; readonly of: Pattern; readonly min: number; readonly max: number }
  | { readonly kind: 'start' | 'end' }
  | { readonly kind: 'ahead'; readonly of: Pattern; readonly isNegative: boolean };

const MAX_DEPTH = 100;
const MAX_LENGTH = 50_000;

const set = (...ranges: CharacterSet): CharacterSet => characterSet(ranges);

const DIGITS = set([0x30, 0x39]);
const WORD = set([0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]);
const SPACES = set(
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
);
const LINE_ENDS = set([0x0a, 0x0a], [0x0d, 0x0d], [0x2028, 0x2029]);
const NO_LINE_END = complementOf(LINE_ENDS);

const CLASSES: ReadonlyMap<string, CharacterSet> = new Map([
  ['d', DIGITS],
  ['w', WORD],
  ['s', SPACES],
]);
const CONTROLS: ReadonlyMap<string, number> = new Map([
  ['t', 9],
  ['n', 10],
  ['v', 11],
  ['f', 12],
  ['r', 13],
  ['0', 0],
]);

const properties = new Map<string, CharacterSet>();
const MAX_PROPERTIES = 64;

/** The characters of a property of Unicode, as `L` or `Script=Greek`: those that this JavaScript knows. */
function propertySet(name: string, fail: (message: string) => never): CharacterSet {
  const known = properties.get(name);
  if (known !== undefined) return known;
  if (!/^[\w=]{1,60}$/u.test(name) || properties.size >= MAX_PROPERTIES) return fail(`unknown property \\p{${name}}`);
  let test: RegExp;
  try {
    test = new RegExp(`^\\p{${name}}$`, 'u');
  } catch {
    return fail(`unknown property \\p{${name}}`);
  }
  const ranges: [number, number][] = [];
  for (const [first, last] of ALL_CHARACTERS)
    for (let code = first; code <= last; code++) {
      if (!test.test(String.fromCodePoint(code))) continue;
      const previous = ranges.at(-1);
      if (previous !== undefined && previous[1] === code - 1) previous[1] = code;
      else ranges.push([code, code]);
    }
  const found = characterSet(ranges);
  properties.set(name, found);
  return found;
}

export interface Dialect {
  /** Groups named by `(?P<name>`, `\A` and `\Z` are read too. */
  readonly isPython: boolean;
  /** Adds characters that count as the same as others. */
  readonly fold: (set: CharacterSet) => CharacterSet;
}

const ECMA: Dialect = { isPython: false, fold: (found) => found };

/** Throws GrammarError, whose message says what is wrong at which character. */
export function parsePattern(source: string, dialect: Dialect = ECMA): Pattern {
  if (source.length > MAX_LENGTH) throw new GrammarError(`A pattern has more than ${MAX_LENGTH} characters.`);
  return new PatternReader(source, dialect).read();
}

class PatternReader {
  readonly #text: readonly string[];
  #at = 0;
  #depth = 0;
  readonly #dialect: Dialect;

  constructor(source: string, dialect: Dialect) {
    this.#text = Array.from(source);
    this.#dialect = dialect;
  }

  read(): Pattern {
    const pattern = this.#choice();
    if (this.#at < this.#text.length) this.#fail('a group is closed that is not open');
    return pattern;
  }

  #fail(message: string): never {
    throw new GrammarError(`The pattern cannot be used: ${message} (at character ${this.#at + 1}).`);
  }

  #peek(text: string): boolean {
    return [...text].every((letter, i) => this.#text[this.#at + i] === letter);
  }

  #take(text: string): boolean {
    const isThere = this.#peek(text);
    if (isThere) this.#at += text.length;
    return isThere;
  }

  #choice(): Pattern {
    if (++this.#depth > MAX_DEPTH) this.#fail('groups are nested too deep');
    const of = [this.#sequence()];
    while (this.#take('|')) of.push(this.#sequence());
    this.#depth--;
    return of.length === 1 && of[0] !== undefined ? of[0] : { kind: 'choice', of };
  }

  #sequence(): Pattern {
    const of: Pattern[] = [];
    while (this.#at < this.#text.length && !this.#peek('|') && !this.#peek(')')) of.push(this.#repeated());
    return of.length === 1 && of[0] !== undefined ? of[0] : { kind: 'sequence', of };
  }

  #repeated(): Pattern {
    const of = this.#atom();
    const range = this.#quantifier();
    if (range === undefined) return of;
    if (of.kind === 'start' || of.kind === 'end' || of.kind === 'ahead') this.#fail('nothing to repeat');
    this.#take('?');
    if (this.#quantifier() !== undefined) this.#fail('nothing to repeat');
    return { kind: 'repeat', of, min: range[0], max: range[1] };
  }

  #quantifier(): readonly [number, number] | undefined {
    if (this.#take('*')) return [0, Infinity];
    if (this.#take('+')) return [1, Infinity];
    if (this.#take('?')) return [0, 1];
    if (!this.#peek('{')) return undefined;
    const end = this.#text.indexOf('}', this.#at);
    const match = /^(\d{1,9})(?:(,)(\d{1,9})?)?$/u.exec(this.#text.slice(this.#at + 1, Math.max(end, 0)).join(''));
    // A brace that is no quantifier stands for itself.
    if (match === null) return undefined;
    this.#at = end + 1;
    const min = Number(match[1]);
    const max = match[2] === undefined ? min : match[3] === undefined ? Infinity : Number(match[3]);
    if (max < min) this.#fail('the numbers of a quantifier are out of order');
    return [min, max];
  }

  #atom(): Pattern {
    if (this.#take('^')) return { kind: 'start' };
    if (this.#take('$')) return { kind: 'end' };
    if (this.#take('.')) return { kind: 'set', set: NO_LINE_END };
    if (this.#take('(')) return this.#group();
    if (this.#take('[')) return { kind: 'set', set: this.#class() };
    if (this.#peek('*') || this.#peek('+') || this.#peek('?')) this.#fail('nothing to repeat');
    if (this.#dialect.isPython && this.#take('\\A')) return { kind: 'start' };
    if (this.#dialect.isPython && (this.#take('\\Z') || this.#take('\\z'))) return { kind: 'end' };
    if (this.#take('\\')) {
      if (this.#peek('b') || this.#peek('B')) this.#fail('borders of words (\\b) are not supported');
      return { kind: 'set', set: this.#dialect.fold(this.#escape()) };
    }
    const code = this.#text[this.#at++]?.codePointAt(0) ?? 0;
    return { kind: 'set', set: this.#dialect.fold([[code, code]]) };
  }

  #group(): Pattern {
    let ahead: boolean | undefined;
    if (this.#take('?=')) ahead = false;
    else if (this.#take('?!')) ahead = true;
    else if (this.#peek('?<=') || this.#peek('?<!')) this.#fail('looking behind is not supported');
    else if (this.#take('?<') || (this.#dialect.isPython && this.#take('?P<'))) {
      const end = this.#text.indexOf('>', this.#at);
      if (end < 0 || !/^[\p{L}_$][\w$]*$/u.test(this.#text.slice(this.#at, end).join('')))
        this.#fail('a bad group name');
      this.#at = end + 1;
    } else if (!this.#take('?:') && this.#peek('?')) this.#fail('an unknown kind of group');
    const of = this.#choice();
    if (!this.#take(')')) this.#fail('a group is not closed');
    return ahead === undefined ? of : { kind: 'ahead', of, isNegative: ahead };
  }

  #class(): CharacterSet {
    const isNegative = this.#take('^');
    const ranges: (readonly [number, number])[] = [];
    while (!this.#take(']')) {
      if (this.#at >= this.#text.length) this.#fail('a class is not closed');
      const first = this.#classAtom();
      const [low] = first;
      const isRange = this.#peek('-') && this.#text[this.#at + 1] !== ']' && this.#at + 1 < this.#text.length;
      if (!isRange || low === undefined || first.length !== 1 || low[0] !== low[1]) {
        ranges.push(...first);
        continue;
      }
      this.#at++;
      const last = this.#classAtom();
      const [high] = last;
      if (high === undefined || last.length !== 1 || high[0] !== high[1]) {
        // `[a-\d]`: the dash stands for itself.
        ranges.push(...first, [0x2d, 0x2d], ...last);
        continue;
      }
      if (high[0] < low[0]) this.#fail('a range is out of order');
      ranges.push([low[0], high[0]]);
    }
    const found = this.#dialect.fold(characterSet(ranges));
    return isNegative ? complementOf(found) : found;
  }

  #classAtom(): CharacterSet {
    if (this.#take('\\')) {
      if (this.#take('b')) return [[8, 8]];
      if (this.#take('-')) return [[0x2d, 0x2d]];
      return this.#escape();
    }
    const code = this.#text[this.#at++]?.codePointAt(0) ?? 0;
    return [[code, code]];
  }

  #escape(): CharacterSet {
    const letter = this.#text[this.#at++];
    if (letter === undefined) return this.#fail('it ends with a backslash');
    const known = CLASSES.get(letter.toLowerCase());
    if (known !== undefined) {
      const folded = this.#dialect.fold(known);
      return letter === letter.toLowerCase() ? folded : complementOf(folded);
    }
    const one = (code: number): CharacterSet => [[code, code]];
    if (letter === '0' && /^\d$/u.test(this.#text[this.#at] ?? '')) this.#fail('octal numbers are not supported');
    const control = CONTROLS.get(letter);
    if (control !== undefined) return one(control);
    if (letter === 'x') return one(this.#hex(2));
    if (letter === 'u') return one(this.#unicode());
    if (letter === 'c' && /^[A-Za-z]$/u.test(this.#text[this.#at] ?? ''))
      return one((this.#text[this.#at++]?.charCodeAt(0) ?? 0) % 32);
    if ((letter === 'p' || letter === 'P') && this.#take('{')) {
      const end = this.#text.indexOf('}', this.#at);
      const found = propertySet(this.#text.slice(this.#at, Math.max(end, 0)).join(''), (message) =>
        this.#fail(message),
      );
      this.#at = end + 1;
      return letter === 'p' ? found : complementOf(found);
    }
    if (/^\d$/u.test(letter)) this.#fail('references to groups are not supported');
    if (/^[A-Za-z]$/u.test(letter)) this.#fail(`\\${letter} is not known`);
    return one(letter.codePointAt(0) ?? 0);
  }

  #hex(count: number): number {
    const text = this.#text.slice(this.#at, this.#at + count).join('');
    if (text.length !== count || !/^[\dA-Fa-f]+$/u.test(text)) this.#fail('hexadecimal digits are missing');
    this.#at += count;
    return Number.parseInt(text, 16);
  }

  #unicode(): number {
    if (this.#take('{')) {
      const end = this.#text.indexOf('}', this.#at);
      const text = this.#text.slice(this.#at, Math.max(end, 0)).join('');
      const code = /^[\dA-Fa-f]{1,8}$/u.test(text) ? Number.parseInt(text, 16) : Infinity;
      if (code > MAX_CODE_POINT) this.#fail('no such character');
      this.#at = end + 1;
      return code;
    }
    const code = this.#hex(4);
    if (code < 0xd800 || code > 0xdbff || !this.#take('\\u')) return code;
    const low = this.#hex(4);
    if (low < 0xdc00 || low > 0xdfff) this.#fail('half of a surrogate pair');
    return 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
  }
}
