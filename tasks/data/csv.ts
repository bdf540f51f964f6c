/** Reads rows of comma- or tab-separated values, with types found as pandas finds them for the `datasets` library. */
import { gunzipSync } from 'node:zlib';
import { UserError } from '../../errors.js';
import { CHECK } from './noRows.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import type { Dict, Value } from '../../python/value.js';
import { withLabels, type ClassLabels } from './classLabels.js';
import { castOfRecords, named } from './casts.js';
import type { ColumnType, RecordType } from './columnTypes.js';
import { numberColumn, type Column } from './csvNumbers.js';

/** The type of a column follows from all of its values, so a file is read as a whole. */
const MAX_BYTES = 256 << 20;
const MAX_FIELDS = 20_000_000;

/** What pandas takes for a missing value. */
const MISSING: ReadonlySet<string> = new Set([
  '',
  ...'#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null'.split('|'),
]);
const NUMBER = /^\s*[-+]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|inf|infinity)\s*$/i;
const BOOLEAN = /^(?:true|True|TRUE|false|False|FALSE)$/;

interface Line {
  readonly number: number;
  readonly fields: readonly string[];
}

/** The text after an opening quote, up to the one that closes it; a doubled quote is one. */
function quoted(text: string, from: number): { readonly inner: string; readonly end: number } {
  let to = text.indexOf('"', from);
  while (to >= 0 && text.charAt(to + 1) === '"') to = text.indexOf('"', to + 2);
  if (to < 0) throw new SyntaxError('a quote that does not end');
  return { inner: text.slice(from, to), end: to + 1 };
}

/** Throws SyntaxError that says on which line. Empty lines are left out. */
function* linesOf(text: string, separator: ',' | '\t'): Generator<Line> {
  const plain = separator === ',' ? /[^,\r\n]*/y : /[^\t\r\n]*/y;
  let at = 0,
    number = 1,
    total = 0;
  const rest = (): string => {
    plain.lastIndex = at;
    const found = plain.exec(text)![0];
    at += found.length;
    return found;
  };
  const field = (): string => {
    if (text.charAt(at) !== '"') return rest();
    const { inner, end } = quoted(text, at + 1);
    number += inner.split('\n').length - 1;
    at = end;
    return inner.replaceAll('""', '"') + rest();
  };
  while (at < text.length) {
    const first = number;
    const fields: string[] = [];
    try {
      for (;;) {
        fields.push(field());
        if (++total > MAX_FIELDS) throw new SyntaxError(`more than ${MAX_FIELDS} fields`);
        if (text.charAt(at) !== separator) break;
        at++;
      }
    } catch (error) {
      if (error instanceof SyntaxError) throw new SyntaxError(`${first}: ${error.message}`);
      throw error;
    }
    if (text.charAt(at) === '\r') at++;
    if (text.charAt(at) === '\n') at++;
    number++;
    if (fields.length > 1 || fields[0] !== '') yield { number: first, fields };
  }
}

const TEXT: Column = { type: { kind: 'text' }, read: (text) => text };

/** How a column's texts become values. Throws RangeError for numbers that have no type. */
function columnOf(texts: readonly (string | undefined)[], declared: ColumnType | undefined): Column {
  // A text stays as it is written: no number is made of it and back.
  if (declared?.kind === 'text') return TEXT;
  const there = texts.filter((text): text is string => text !== undefined && !MISSING.has(text));
  if (there.length === 0) return { type: { kind: 'null' }, read: () => null };
  const numbers = there.every((text) => NUMBER.test(text))
    ? numberColumn(there, there.length < texts.length)
    : undefined;
  if (numbers !== undefined) return numbers;
  if (there.every((text) => BOOLEAN.test(text)))
    return { type: { kind: 'bool' }, read: (text) => text.toLowerCase() === 'true' };
  return TEXT;
}

/** Names of columns: an empty one by its place, one that is there already with a number. */
function namesOf(header: readonly string[]): string[] {
  const names = new Set<string>();
  for (const [i, given] of header.entries()) {
    const name = given === '' ? `Unnamed: ${i}` : given;
    let free = name;
    for (let copy = 1; names.has(free); copy++) free = `${name}.${copy}`;
    names.add(free);
  }
  return [...names];
}

function textOf(path: string): string {
  const bytes = readBounded(path, MAX_BYTES, CHECK);
  const whole = path.endsWith('.gz') ? gunzipSync(bytes, { maxOutputLength: MAX_BYTES }) : bytes;
  return decodeUtf8(whole, path, CHECK).replace(/^\ufeff/, '');
}

/** Rows in order, with the types that are declared, else those that are found. Throws UserError with file and line. */
export function csvRows(path: string, labels: ClassLabels = new Map(), declared?: RecordType): Dict[] {
  try {
    const [header, ...lines] = linesOf(textOf(path), /\.tsv(?:\.gz)?$/.test(path) ? '\t' : ',');
    if (header === undefined) throw new UserError(`${path}: there is no line in it`, CHECK);
    const names = namesOf(header.fields);
    const long = lines.find(({ fields }) => fields.length > names.length);
    if (long !== undefined)
      throw new UserError(
        `${path}:${long.number}: ${long.fields.length} fields, and ${names.length} columns have names`,
        CHECK,
      );
    const columns = names.map((name, column) => {
      try {
        return columnOf(
          lines.map(({ fields }) => fields[column]),
          declared?.fields.get(name),
        );
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new UserError(`${path}: ${quote(name)}: ${error.message} has no type`, 'Write it as text', {
          cause: error,
        });
      }
    });
    const found = new Map(names.map((name, i) => [name, columns[i]!.type]));
    const cast = declared && named(() => castOfRecords({ kind: 'record', fields: found }, declared), path);
    return lines.map(({ number, fields }) => {
      const row = new Map(
        names.map((name, column): [string, Value] => {
          const text = fields[column];
          return [name, text === undefined || MISSING.has(text) ? null : columns[column]!.read(text)];
        }),
      );
      const where = `${path}:${number}`;
      const typed = cast === undefined ? row : named(() => cast(row) as Dict, where);
      return withLabels(typed, labels, () => where);
    });
  } catch (error) {
    if (error instanceof UserError || !(error instanceof Error)) throw error;
    const problem = quote(error.message, 120).slice(1, -1);
    throw new UserError(`${path}${error instanceof SyntaxError ? ':' : ': cannot be read: '}${problem}`, CHECK, {
      cause: error,
    });
  }
}
