/** Rows of comma- or tab-separated values, with types found as pandas finds them for `datasets`. */
import { gunzipSync } from 'node:zlib';
import { UserError } from '../../errors.js';
import { type Dict, Float, toInt, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { castOfRecords, named } from './casts.js';
import { type ClassLabels, type ColumnType, INT64, intOf, type RecordType, withLabels } from './columnTypes.js';
import { CHECK } from './read.js';

// Numbers in texts as pandas reads them: whole ones of 64 bits, and floats of 17 digits.

const WHOLE = /^\s*([-+]?)([0-9]+)\s*$/;
const NUMBER_PARTS = /^\s*([-+]?)(?:inf(?:inity)?|([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]+))?)\s*$/i;
const MAX_DIGITS = 17;
const UINT64 = intOf(64, false);

/** Undefined: no whole number, or one of more digits than 64 bits have. */
function wholeOf(text: string): bigint | undefined {
  const [, sign, written = ''] = WHOLE.exec(text) ?? [];
  const digits = written.replace(/^0+/, '');
  if (sign === undefined || digits.length > 20) return undefined;
  return sign === '-' ? -BigInt(digits) : BigInt(digits);
}

const MAX_POWER = 308;
const power = (exponent: number): number => Number(`1e${exponent}`);

/** One product or division: of more than 15 digits the last is not always the nearest. */
function scaled(number: number, exponent: number): number {
  if (exponent > MAX_POWER) return Infinity;
  if (exponent > 0) return number * power(exponent);
  if (exponent >= -MAX_POWER) return number / power(-exponent);
  return exponent < -2 * MAX_POWER ? 0 : number / power(-MAX_POWER - exponent) / power(MAX_POWER);
}

/** The text is a number. Zeros in front count as digits; those past the 17th are cut off. */
function pandasFloat(text: string): Float {
  const [, sign, whole, fraction = '', exponent = '0'] = NUMBER_PARTS.exec(text) ?? [];
  const negative = sign === '-' ? -1 : 1;
  if (whole === undefined) return new Float(negative * Infinity);
  const kept = whole.slice(0, MAX_DIGITS);
  const places = fraction.slice(0, MAX_DIGITS - kept.length);
  let number = 0;
  for (const digit of kept + places) number = number * 10 + Number(digit);
  return new Float(negative * scaled(number, Number(exponent) + whole.length - kept.length - places.length));
}

/** How texts of a column are read, and what comes of it. */
export interface CsvColumn {
  readonly type: ColumnType;
  readonly read: (text: string) => PyValue;
}

const FLOATS: CsvColumn = { type: { kind: 'float' }, read: pandasFloat };

/**
 * How a column whose texts are all numbers is read; undefined: as texts. `hasGaps`: some are missing. Throws RangeError
 * for whole numbers that `datasets` has no type for.
 */
export function numberColumn(texts: readonly string[], hasGaps: boolean): CsvColumn | undefined {
  const areWhole = texts.map((text) => WHOLE.test(text));
  const wholes = texts.filter((_, i) => areWhole[i]).map(wholeOf);
  const isBeyond = (value: bigint | undefined): boolean =>
    value === undefined || value < INT64.least || value > UINT64.most;
  if (wholes.some(isBeyond)) throw new RangeError('a whole number of more than 64 bits');
  const isUnsigned = wholes.some((value) => value! > INT64.most);
  if (wholes.length < texts.length) return FLOATS;
  if (isUnsigned && hasGaps) throw new RangeError('a whole number of 64 bits in a column with missing values');
  if (isUnsigned && wholes.some((value) => value! < 0n)) return undefined;
  if (hasGaps) return FLOATS;
  return { type: isUnsigned ? UINT64 : INT64, read: (text) => toInt(wholeOf(text)!) };
}

// Reads rows of comma- or tab-separated values, with types found as pandas finds them for the `datasets` library.

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

interface CsvLine {
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
function* linesOf(text: string, separator: ',' | '\t'): Generator<CsvLine> {
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

const TEXT: CsvColumn = { type: { kind: 'text' }, read: (text) => text };

/** How a column's texts become values. Throws RangeError for numbers that have no type. */
function columnOf(texts: readonly (string | undefined)[], declared: ColumnType | undefined): CsvColumn {
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
        const texts = lines.map(({ fields }) => fields[column]);
        return { name, ...columnOf(texts, declared?.fields.get(name)) };
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new UserError(`${path}: ${quote(name)}: ${error.message} has no type`, 'Write it as text', {
          cause: error,
        });
      }
    });
    const found = new Map(columns.map(({ name, type }) => [name, type]));
    const cast = declared && named(() => castOfRecords({ kind: 'record', fields: found }, declared), path);
    return lines.map(({ number, fields }) => {
      const row = new Map(
        columns.map(({ name, read }, column): [string, PyValue] => {
          const text = fields[column];
          return [name, text === undefined || MISSING.has(text) ? null : read(text)];
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
