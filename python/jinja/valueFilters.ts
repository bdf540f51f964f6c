/** Jinja's filters of numbers, of JSON, and by regular expressions. */
import { SHARED_ESCAPES } from '../literal.js';
import { FileRegex } from '../regex.js';
import { jsonFloat, jsonText } from '../show.js';
import {
  asInt,
  Float,
  isInt,
  isList,
  isTruthy,
  numeric,
  Sequence,
  strip,
  toInt,
  typeName,
  type PyValue,
  westernDigits,
} from '../value.js';
import { roundFloat, roundInteger } from './format.js';
import { entriesOf, isDictionary, Markup, textOf, Undefined } from './objects.js';
import { arithmetic, compareText, order } from './operators.js';
import { Failure, MAX_TEXT, typeError, valueError, type TemplateWork } from './work.js';

// Jinja's filters of numbers.

const MAX_DIGITS = 4300;
const PREFIXES: ReadonlyMap<string, number> = new Map([
  ['0b', 2],
  ['0o', 8],
  ['0x', 16],
]);

/** The text of a number as int() and float() read it: digits of all scripts count. */
const digitsOf = (text: string): string => westernDigits(strip(text.slice(0, 1 << 16)));

/** Python's float(text); undefined where it raises an error. */
function readFloat(text: string): number | undefined {
  const number = digitsOf(text);
  if (/^[-+]?(\d+(_\d+)*\.?|(\d+(_\d+)*)?\.\d+(_\d+)*)([eE][-+]?\d+(_\d+)*)?$/.test(number))
    return Number(number.replaceAll('_', ''));
  const [, sign, name] = /^([-+]?)(inf|infinity|nan)$/i.exec(number) ?? [];
  if (name === undefined) return undefined;
  return name.toLowerCase() === 'nan' ? NaN : sign === '-' ? -Infinity : Infinity;
}

function readInt(text: string, base: number): number | bigint | undefined {
  if (base !== 0 && (base < 2 || base > 36)) return undefined;
  const number = digitsOf(text).toLowerCase();
  const sign = number.startsWith('-') ? '-' : '';
  const unsigned = number.replace(/^[-+]/, '');
  const prefix = /^0[box]/.exec(unsigned)?.[0] ?? '';
  const prefixed = PREFIXES.get(prefix);
  const isPrefixed = prefixed !== undefined && (base === 0 || base === prefixed);
  const radix = isPrefixed ? prefixed : base === 0 ? 10 : base;
  const digits = isPrefixed ? unsigned.slice(2).replace(/^_/, '') : unsigned;
  if (!/^[0-9a-z]+(_[0-9a-z]+)*$/.test(digits) || digits.length > MAX_DIGITS) return undefined;
  if (base === 0 && !isPrefixed && /^0[0_]*[1-9]/.test(digits)) return undefined;
  let value = 0n;
  for (const letter of digits.replaceAll('_', '')) {
    const digit = Number.parseInt(letter, 36);
    if (digit >= radix) return undefined;
    value = value * BigInt(radix) + BigInt(digit);
  }
  return toInt(sign === '-' ? -value : value);
}

/** int(float) */
export function truncated(value: number): number | bigint {
  if (Number.isNaN(value)) throw valueError('cannot convert float NaN to integer');
  if (!Number.isFinite(value)) throw new Failure('OverflowError', 'cannot convert float infinity to integer');
  return toInt(BigInt(Math.trunc(value)));
}

/** The filter int: text in `base`, then as a float; undefined for what is no number. */
export function wholeNumber(value: PyValue, base: number): number | bigint | undefined {
  if (value instanceof Undefined) value.fail();
  const whole = asInt(value);
  if (whole !== undefined) return whole;
  if (value instanceof Float) return Number.isNaN(value.value) ? undefined : truncated(value.value);
  const text = textOf(value);
  if (text === undefined) return undefined;
  const read = readInt(text, base);
  if (read !== undefined) return read;
  const float = readFloat(text);
  return float === undefined || !Number.isFinite(float) ? undefined : truncated(float);
}

/** float(value); undefined for what is no number. */
export function floatNumber(value: PyValue): Float | undefined {
  if (value instanceof Undefined) value.fail();
  const text = textOf(value);
  const number = text === undefined ? toFloat(value) : readFloat(text);
  return number === undefined ? undefined : new Float(number);
}

/** A number as a float. Throws Failure for a whole number that is too large. */
export function toFloat(value: PyValue): number | undefined {
  const number = numeric(value);
  if (typeof value === 'bigint' && !Number.isFinite(number))
    throw new Failure('OverflowError', 'int too large to convert to float');
  return number;
}

/** The filter round. */
export function round(value: PyValue, precision: PyValue, method: PyValue, work: TemplateWork): PyValue {
  if (method !== 'common' && method !== 'ceil' && method !== 'floor')
    throw new Failure('FilterArgumentError', 'method must be common, ceil or floor');
  if (value instanceof Undefined) value.fail();
  if (numeric(value) === undefined) throw typeError(`type ${typeName(value)} doesn't define __round__ method`);
  if (precision === null && method === 'common')
    return value instanceof Float ? truncated(roundFloat(value.value, 0)) : (asInt(value) ?? 0);
  const places = asInt(precision);
  if (places === undefined) throw typeError(`'${typeName(precision)}' object cannot be interpreted as an integer`);
  if (method === 'common') {
    if (value instanceof Float) {
      const result = roundFloat(value.value, Number(places));
      if (!Number.isFinite(result) && Number.isFinite(value.value))
        throw new Failure('OverflowError', 'rounded value too large to represent');
      return new Float(result);
    }
    const whole = asInt(value) ?? 0;
    return places >= 0 ? whole : toInt(roundInteger(BigInt(whole), Number(places)));
  }
  const unit = arithmetic('**', 10, places, work);
  const scaled = arithmetic('*', value, unit, work);
  const whole = scaled instanceof Float ? towards(scaled.value, method) : scaled;
  return arithmetic('/', whole, unit, work);
}

function towards(value: number, method: 'ceil' | 'floor'): number | bigint {
  return truncated(Number.isFinite(value) ? (method === 'ceil' ? Math.ceil(value) : Math.floor(value)) : value);
}

/** The filter abs. */
export function absolute(value: PyValue): PyValue {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Float) return new Float(Math.abs(value.value));
  const whole = asInt(value);
  if (whole === undefined) throw typeError(`bad operand type for abs(): '${typeName(value)}'`);
  return typeof whole === 'bigint' ? (whole < 0n ? -whole : whole) : Math.abs(whole);
}

// json.dumps() for the filter tojson: as transformers has it, and as Jinja's own with what means something in HTML.

export interface JsonStyle {
  readonly isAscii: boolean;
  readonly isSorted: boolean;
  /** Of one level; undefined for one line. */
  readonly indent: string | undefined;
  readonly betweenItems: string;
  readonly behindKeys: string;
}

const escape = (letter: string): string => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`;

class Writer {
  readonly #style: JsonStyle;
  readonly #work: TemplateWork;

  constructor(style: JsonStyle, work: TemplateWork) {
    this.#style = style;
    this.#work = work;
  }

  value(value: PyValue, depth: number): string {
    this.#work.spend(0.25);
    if (value === null) return 'null';
    if (typeof value === 'boolean' || isInt(value)) return String(value);
    if (value instanceof Float) return jsonFloat(value.value);
    const text = textOf(value);
    if (text !== undefined) return this.#text(text);
    if (isDictionary(value)) return this.#dict([...entriesOf(value)], depth);
    if (isList(value) && (!(value instanceof Sequence) || value.type === 'tuple'))
      return this.#parts(
        '[',
        value.map((item) => this.value(item, depth + 1)),
        ']',
        depth,
      );
    throw typeError(`Object of type ${typeName(value)} is not JSON serializable`);
  }

  #text(text: string): string {
    const written = jsonText(text);
    return this.#style.isAscii ? written.replace(/[\u007f-\uffff]/g, escape) : written;
  }

  #dict(entries: readonly (readonly [PyValue, PyValue])[], depth: number): string {
    const sorted = this.#style.isSorted ? entries.toSorted(([a], [b]) => keyOrder(a, b)) : entries;
    const written = sorted.map(
      ([key, item]) => `${this.#text(keyText(key))}${this.#style.behindKeys}${this.value(item, depth + 1)}`,
    );
    return this.#parts('{', written, '}', depth);
  }

  #parts(open: string, parts: readonly string[], close: string, depth: number): string {
    if (parts.length === 0) return open + close;
    const { indent, betweenItems } = this.#style;
    const line = (level: number): string => (indent === undefined ? '' : `\n${indent.repeat(level)}`);
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    this.#work.text(length + parts.length * (betweenItems.length + (depth + 1) * (indent?.length ?? 0)));
    return `${open}${line(depth + 1)}${parts.join(betweenItems + line(depth + 1))}${line(depth)}${close}`;
  }
}

const keyOrder = (a: PyValue, b: PyValue): number =>
  typeof a === 'string' && typeof b === 'string' ? compareText(a, b) : order('<', a, b);

function keyText(key: PyValue): string {
  const text = textOf(key);
  if (text !== undefined) return text;
  if (key === null) return 'null';
  if (typeof key === 'boolean' || isInt(key)) return String(key);
  if (key instanceof Float) return jsonFloat(key.value);
  throw typeError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

export function dumps(value: PyValue, style: JsonStyle, work: TemplateWork): string {
  work.walk(value, 1);
  return new Writer(style, work).value(value, 0);
}

/** `indent` of json.dumps(): a number of spaces, or a text. */
function indentOf(value: PyValue | undefined, work: TemplateWork): string | undefined {
  if (value === undefined || value === null) return undefined;
  const text = textOf(value);
  if (text !== undefined) return text;
  const whole = asInt(value);
  if (whole === undefined) throw typeError(`can't multiply sequence by non-int of type '${typeName(value)}'`);
  work.text(Math.max(0, Number(whole)));
  return ' '.repeat(Math.max(0, Number(whole)));
}

/** The filter of transformers. */
export function plainJson(
  value: PyValue,
  [ascii = false, indent, separators, sorted = false]: readonly (PyValue | undefined)[],
  work: TemplateWork,
): string {
  const spaces = indentOf(indent, work);
  const [betweenItems, behindKeys] = separatorsOf(separators) ?? [spaces === undefined ? ', ' : ',', ': '];
  const style = { isAscii: isTruthy(ascii), isSorted: isTruthy(sorted), indent: spaces, betweenItems, behindKeys };
  return dumps(value, style, work);
}

function separatorsOf(value: PyValue | undefined): readonly [string, string] | undefined {
  if (value === undefined || value === null) return undefined;
  if (value instanceof Undefined) return value.fail();
  const [items, keys, ...rest] = isList(value) ? value.map((item) => textOf(item)) : [];
  if (items === undefined || keys === undefined || rest.length > 0) throw typeError('separators are two texts');
  return [items, keys];
}

/** Jinja's own filter: keys are sorted, and it can stand in HTML. */
export function htmlJson(value: PyValue, indent: PyValue | undefined, work: TemplateWork): Markup {
  const spaces = indentOf(indent, work);
  const style = {
    isAscii: true,
    isSorted: true,
    indent: spaces,
    betweenItems: spaces === undefined ? ', ' : ',',
    behindKeys: ': ',
  };
  const text = dumps(value, style, work);
  work.text(text.length);
  return new Markup(text.replace(/[<>&']/g, escape));
}

// The filter regex_replace, which the harness adds to Jinja's: Python's re.sub().

/** Groups and texts between them of a new text; groups that all matches take. */
const MAX_PARTS = 256;
const MAX_TAKEN = 1 << 22;
const PIECE = /\\(?:g<(\w+)>|(0[0-7]{0,2}|[1-3][0-7]{2})|([1-9]\d?)|([^]?))|[^\\]+/gu;

/** What stands for a match: texts, and groups by number or name. */
type ReplacementPart = string | { readonly group: number | string };

/** Parts of the text that replaces matches, with Python's escapes. */
function partsOf(by: string, regex: FileRegex): ReplacementPart[] {
  const { count, names } = regex.groups();
  const group = (reference: string): ReplacementPart => {
    const isNumber = /^\d+$/.test(reference);
    if (isNumber ? Number(reference) > count : !names.has(reference))
      throw valueError(`regex_replace has no group ${reference}`);
    return { group: isNumber ? Number(reference) : reference };
  };
  return Array.from(by.matchAll(PIECE), ([piece, named, octal, numbered, letter]) => {
    if (named !== undefined) return group(named);
    if (octal !== undefined) return String.fromCharCode(Number.parseInt(octal, 8));
    if (numbered !== undefined) return group(numbered);
    if (letter === undefined) return piece;
    const control = SHARED_ESCAPES.get(letter);
    if (control === undefined && (letter === '' || /[a-zA-Z]/.test(letter)))
      throw valueError(`regex_replace cannot read "${piece}" in the new text`);
    return control ?? piece;
  });
}

/** The parts, with texts next to each other in one. */
function joined(parts: readonly ReplacementPart[]): ReplacementPart[] {
  const all: ReplacementPart[] = [];
  for (const part of parts) {
    const last = all.at(-1);
    if (typeof part === 'string' && typeof last === 'string') all[all.length - 1] = last + part;
    else all.push(part);
  }
  return all;
}

/** re.sub(pattern, by, text, count) */
export function regexReplace(
  value: PyValue,
  patternGiven: PyValue,
  byGiven: PyValue,
  count: number,
  work: TemplateWork,
): string {
  const [text, pattern, by] = [value, patternGiven, byGiven].map((given) => {
    if (given instanceof Undefined) given.fail();
    const found = textOf(given);
    if (found === undefined) throw typeError(`regex_replace takes texts, not ${typeName(given)}`);
    return found;
  }) as [string, string, string];
  return work.matching(() => {
    const regex = new FileRegex(pattern, (problem) => valueError(`regex_replace ${problem}`));
    const parts = joined(partsOf(by, regex));
    if (parts.length > MAX_PARTS) throw valueError(`regex_replace takes a new text of at most ${MAX_PARTS} parts`);
    let taken = 0;
    // Errors are those of the expression, so too much work ends as a text that is too long.
    const written = (match: RegExpMatchArray): string => {
      taken += parts.length;
      if (taken > MAX_TAKEN) return ' '.repeat(MAX_TEXT + 1);
      return parts
        .map((part) => {
          if (typeof part === 'string') return part;
          const found = typeof part.group === 'number' ? match[part.group] : match.groups?.[part.group];
          return found ?? '';
        })
        .join('');
    };
    const result = count < 0 ? text : regex.replaced(text, written, count, MAX_TEXT);
    work.text(result?.length ?? MAX_TEXT + 1);
    return result ?? '';
  });
}
