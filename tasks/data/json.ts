/** Rows of JSON files, with types as `datasets` finds them. */
import { UserError } from '../../errors.js';
import { parseJsonValue, parseJsonValues } from '../../python/literal.js';
import { type Dict, isDict, isList, typeName, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { fileSize } from '../../system/read.js';
import { named, rowCast } from './casts.js';
import { type ClassLabels, type RecordType, typeOfRows, withLabels } from './columnTypes.js';
import { CHECK, linesOf } from './read.js';

// Rows of a file of JSON in the batches in which `datasets` reads them, before their columns have types.

/** A batch ends with the line that goes past so many bytes. */
const BATCH = 10 << 20;
const MAX_ROWS = 5_000_000;

export interface RecordBatch {
  readonly rows: readonly Dict[];
  /** File and line of a row, or its place in an array. */
  readonly where: (index: number) => string;
  /** Nothing but an object a line. */
  readonly isLines: boolean;
  /** An array, which `datasets` writes as lines first. */
  readonly isArray: boolean;
}

interface Pending {
  readonly texts: string[];
  readonly values: PyValue[];
  readonly numbers: number[];
  start: number;
  hasBlank: boolean;
}
const nothing = (start = 0): Pending => ({ texts: [], values: [], numbers: [], start, hasBlank: false });

function parsed(line: string, where: string): PyValue {
  try {
    return parseJsonValue(line);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new UserError(`${where}: not valid JSON: ${quote(error.message, 100).slice(1, -1)}`, CHECK, { cause: error });
  }
}

/** Values that take several lines, or share one; undefined if they are no JSON either. */
function together(texts: readonly string[]): PyValue[] | undefined {
  try {
    return parseJsonValues(texts.join('\n'));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

function recordsOf(values: readonly PyValue[], where: (index: number) => string): Dict[] {
  return values.map((value, index) => {
    if (isDict(value)) return value;
    throw new UserError(`${where(index)}: expected an object, found ${typeName(value)}`, CHECK);
  });
}

/** Items that are no objects are rows with one column. */
function ofArray(items: readonly PyValue[], path: string): RecordBatch {
  const where = (index: number): string => `${path}, item ${index}`;
  const rows = isDict(items[0] ?? null) ? recordsOf(items, where) : items.map((item) => new Map([['text', item]]));
  return { rows, where, isLines: true, isArray: true };
}

function ofLines(path: string, { values, numbers, hasBlank }: Pending): RecordBatch {
  const where = (index: number): string => `${path}:${numbers[index]}`;
  return { rows: recordsOf(values, where), where, isLines: !hasBlank, isArray: false };
}

/**
 * The file as one batch of objects that are not one a line. Throws `problem`, which tells of the first line that is no
 * JSON, if they are none either.
 */
async function ofObjects(
  path: string,
  lines: AsyncIterator<{ readonly text: string }>,
  { texts }: Pending,
  problem: UserError,
): Promise<RecordBatch> {
  let length = texts.reduce((sum, text) => sum + text.length, 0);
  for (let next = await lines.next(); next.done !== true; next = await lines.next()) {
    length += next.value.text.length;
    if (length > BATCH) throw problem;
    texts.push(next.value.text);
  }
  const values = together(texts);
  if (values === undefined) throw problem;
  const where = (index: number): string => `${path}, object ${index}`;
  return { rows: recordsOf(values, where), where, isLines: false, isArray: false };
}

/** Throws UserError with file and line. */
export async function* batchesOf(path: string): AsyncGenerator<RecordBatch> {
  let number = 0,
    rows = 0;
  let pending = nothing();
  const counted = (batch: RecordBatch): RecordBatch => {
    rows += batch.rows.length;
    if (rows > MAX_ROWS) throw new UserError(`${path}: more than ${MAX_ROWS} rows`);
    return batch;
  };
  const lines = linesOf(path);
  try {
    for await (const { text, start } of { [Symbol.asyncIterator]: () => lines }) {
      number++;
      if (start > pending.start + BATCH) {
        yield counted(ofLines(path, pending));
        pending = nothing(start);
      }
      pending.texts.push(text);
      if (text.trim() === '') {
        pending.hasBlank = true;
        continue;
      }
      let value: PyValue;
      try {
        value = parsed(text, `${path}:${number}`);
      } catch (error) {
        if (!(error instanceof UserError) || pending.start > 0) throw error;
        yield counted(await ofObjects(path, lines, pending, error));
        return;
      }
      if (isList(value) && pending.values.length === 0 && pending.start === 0) {
        yield counted(ofArray(value, path));
        continue;
      }
      pending.values.push(value);
      pending.numbers.push(number);
    }
    if (pending.values.length > 0) yield counted(ofLines(path, pending));
  } catch (error) {
    if (error instanceof UserError || !(error instanceof Error)) throw error;
    const reason = quote(error.message, 120).slice(1, -1);
    throw new UserError(`${path}:${number + 1}: cannot be read: ${reason}`, CHECK, { cause: error });
  }
}

// Reads rows of JSON as `datasets` does: one type a column, null where a row lacks one, columns in one order.

/** The columns of a split: those that are declared, else those of the first rows. */
export interface Columns {
  type: RecordType | undefined;
}

const typeOf = ({ rows, where, isLines }: RecordBatch, known: RecordType | undefined): RecordType =>
  named(() => typeOfRows(rows, known === undefined && isLines, known), where(0));

function* rowsOf(batch: RecordBatch, columns: Columns, labels: ClassLabels): Generator<Dict> {
  const { rows, where } = batch;
  const found = typeOf(batch, columns.type);
  const cast = named(() => rowCast(found, columns.type, batch.isArray), where(0));
  columns.type ??= found;
  for (const [index, row] of rows.entries()) {
    const typed = named(() => cast(row), where(index));
    yield withLabels(typed, labels, () => where(index));
  }
}

/** The type of the first rows of a file; undefined if it has none. Throws UserError with file and line. */
export async function firstColumns(path: string): Promise<RecordType | undefined> {
  for await (const batch of batchesOf(path)) if (batch.rows.length > 0) return typeOf(batch, undefined);
  return undefined;
}

/**
 * Rows in order, read in batches of about 10 MB: the first gives `columns` their types, unless they have some, and rows
 * of later ones are cast to these. A column of values of several kinds, and records with different keys, stay as they
 * are written. Throws UserError with file and line, and the column that does not fit.
 */
export async function* jsonRows(
  path: string,
  labels: ClassLabels = new Map(),
  columns: Columns = { type: undefined },
): AsyncGenerator<Dict> {
  if (fileSize(path) === undefined) throw new UserError(`${path}: no such file`, CHECK);
  for await (const batch of batchesOf(path)) if (batch.rows.length > 0) yield* rowsOf(batch, columns, labels);
}
