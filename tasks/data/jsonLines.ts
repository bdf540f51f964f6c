/** Reads rows of JSON as `datasets` does: one type a column, null where a row lacks one, columns in one order. */
import { UserError } from '../../errors.js';
import { fileSize } from '../../system/read.js';
import type { Dict } from '../../python/value.js';
import { named, rowCast } from './casts.js';
import { withLabels, type ClassLabels } from './classLabels.js';
import { typeOfRows, type RecordType } from './columnTypes.js';
import { batchesOf, type Batch } from './jsonBatches.js';
import { CHECK } from './noRows.js';

/** The columns of a split: those that are declared, else those of the first rows. */
export interface Columns {
  type: RecordType | undefined;
}

const typeOf = ({ rows, where, isLines }: Batch, known: RecordType | undefined): RecordType =>
  named(() => typeOfRows(rows, known === undefined && isLines, known), where(0));

function* rowsOf(batch: Batch, columns: Columns, labels: ClassLabels): Generator<Dict> {
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
