/** json.dumps() for the filter tojson: as transformers has it, and as Jinja's own with what means something in HTML. */
import { jsonFloat, jsonText } from '../show.js';
import { asInt, Float, isInt, isList, isTruthy, Sequence, typeName, type Value } from '../value.js';
import { typeError } from './failure.js';
import { entriesOf, isDictionary, Markup, textOf, Undefined } from './objects.js';
import { compareText, order } from './operators.js';
import type { Work } from './work.js';

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
  readonly #work: Work;

  constructor(style: JsonStyle, work: Work) {
    this.#style = style;
    this.#work = work;
  }

  value(value: Value, depth: number): string {
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

  #dict(entries: readonly (readonly [Value, Value])[], depth: number): string {
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

const keyOrder = (a: Value, b: Value): number =>
  typeof a === 'string' && typeof b === 'string' ? compareText(a, b) : order('<', a, b);

function keyText(key: Value): string {
  const text = textOf(key);
  if (text !== undefined) return text;
  if (key === null) return 'null';
  if (typeof key === 'boolean' || isInt(key)) return String(key);
  if (key instanceof Float) return jsonFloat(key.value);
  throw typeError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

export function dumps(value: Value, style: JsonStyle, work: Work): string {
  work.walk(value, 1);
  return new Writer(style, work).value(value, 0);
}

/** `indent` of json.dumps(): a number of spaces, or a text. */
function indentOf(value: Value | undefined, work: Work): string | undefined {
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
  value: Value,
  [ascii = false, indent, separators, sorted = false]: readonly (Value | undefined)[],
  work: Work,
): string {
  const spaces = indentOf(indent, work);
  const [betweenItems, behindKeys] = separatorsOf(separators) ?? [spaces === undefined ? ', ' : ',', ': '];
  const style = { isAscii: isTruthy(ascii), isSorted: isTruthy(sorted), indent: spaces, betweenItems, behindKeys };
  return dumps(value, style, work);
}

function separatorsOf(value: Value | undefined): readonly [string, string] | undefined {
  if (value === undefined || value === null) return undefined;
  if (value instanceof Undefined) return value.fail();
  const [items, keys, ...rest] = isList(value) ? value.map((item) => textOf(item)) : [];
  if (items === undefined || keys === undefined || rest.length > 0) throw typeError('separators are two texts');
  return [items, keys];
}

/** Jinja's own filter: keys are sorted, and it can stand in HTML. */
export function htmlJson(value: Value, indent: Value | undefined, work: Work): Markup {
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
