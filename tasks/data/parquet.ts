/** Reads the rows of a Parquet file as Python's values, one row group after another. */
import { closeSync, openSync } from 'node:fs';
import {
  parquetMetadataAsync,
  parquetReadObjects,
  parquetSchema,
  type AsyncBuffer,
  type Compressors,
  type FileMetaData,
  type RowGroup,
  type SchemaTree,
} from 'hyparquet';
import { getTreePath } from 'hyparquet/src/schema.js';
import { UserError } from '../../errors.js';
import { CHECK } from './noRows.js';
import { quote } from '../../system/json.js';
import { fileSize, readRange } from '../../system/read.js';
import type { Dict } from '../../python/value.js';
import { castOfRecords, named } from './casts.js';
import { labelsOfMetadata, withLabels, type ClassLabels } from './classLabels.js';
import type { RecordType } from './columnTypes.js';
import { bounded, keepingPages } from './inflate.js';
import { checkColumn, Unsupported } from './parquetCheck.js';
import { columnsOf } from './parquetColumns.js';
import { checkZones, parsers, plainTypes, rowOf } from './parquetValues.js';

const MAX_FILE = 2 ** 34;
const MAX_GROUP = 2 ** 30;
const MAX_FOOTER = 64 << 20;
const MAX_ROWS = 5_000_000;
const MAX_COLUMNS = 100_000;
const MAX_DEPTH = 100;
/** So many rows of a group are read first: whoever takes a few need not wait for all. */
const FIRST_ROWS = 256;

/** A file whose parts are read when they are asked for, and never past its end. */
function bufferOf(fd: number, byteLength: number): AsyncBuffer {
  const slice = (from: number, to = byteLength): ArrayBuffer => {
    const start = from < 0 ? byteLength + from : from;
    if (!(start >= 0 && to >= start && to <= byteLength)) throw new Error(`bytes ${from} to ${to} are not in the file`);
    if (to - start > MAX_GROUP) throw new Error(`a part of ${to - start} bytes is more than the limit of ${MAX_GROUP}`);
    const bytes = readRange(fd, start, to - start);
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  };
  return { byteLength, slice: (from, to) => Promise.resolve().then(() => slice(from, to)) };
}

/** Throws Error for sizes that do not fit together or into memory. */
async function checkGroup(
  file: AsyncBuffer,
  group: RowGroup,
  schema: SchemaTree,
  compressors: Compressors,
): Promise<void> {
  const rows = Number(group.num_rows);
  const bytes = group.columns.reduce((sum, { meta_data: column }) => sum + Number(column?.total_uncompressed_size), 0);
  if (!(bytes >= 0 && bytes <= MAX_GROUP)) throw new Error(`a row group of ${bytes} bytes is more than ${MAX_GROUP}`);
  for (const { meta_data: column } of group.columns) {
    if (column === undefined) throw new Error('a column without its description');
    const start = Number(column.dictionary_page_offset ?? 0) || Number(column.data_page_offset);
    const chunk = new Uint8Array(await file.slice(start, start + Number(column.total_compressed_size)));
    const path = getTreePath(schema, column.path_in_schema);
    checkColumn(chunk, column, path, rows, compressors);
  }
}

/** Throws Error unless the elements make one tree, of bounded depth, with a name for each. */
function checkSchema(schema: FileMetaData['schema']): void {
  if (schema.length === 0 || schema.length > MAX_COLUMNS) throw new Error(`a schema of ${schema.length} elements`);
  /** How many children are still to come, from the outermost group to the innermost. */
  const open = [1];
  for (const { name, num_children: children = 0 } of schema) {
    while (open.at(-1) === 0) open.pop();
    if (open.length === 0 || typeof name !== 'string') throw new Error('its schema does not fit together');
    open[open.length - 1]! -= 1;
    if (!(children >= 0)) throw new Error(`a group of ${children} columns`);
    if (children > 0) open.push(children);
    if (open.length > MAX_DEPTH) throw new Error(`columns are nested more than ${MAX_DEPTH} deep`);
  }
  if (open.some((left) => left > 0)) throw new Error('its schema is cut off');
}

interface Description {
  /** With the types that are stored. */
  readonly metadata: FileMetaData;
  /** With the types that the file names. */
  readonly schema: SchemaTree;
}

/** Throws Error for a description that does not fit together. */
async function describe(file: AsyncBuffer): Promise<Description> {
  if (file.byteLength < 12) throw new Error('it is too short');
  const end = new DataView(await file.slice(file.byteLength - 8));
  const footer = end.getUint32(0, true);
  if (end.getUint32(4, true) !== 0x31524150) throw new Error('it does not end as such a file does: it may be cut off');
  if (footer > Math.min(MAX_FOOTER, file.byteLength - 8))
    throw new Error(`its description of ${footer} bytes is more than it can be`);
  const metadata = await parquetMetadataAsync(file, { geoparquet: false });
  const count = Number(metadata.num_rows);
  if (!(count >= 0 && count <= MAX_ROWS)) throw new Error(`${count} rows, more than the limit of ${MAX_ROWS}`);
  const inGroups = metadata.row_groups.reduce((sum, group) => sum + Number(group.num_rows), 0);
  if (inGroups !== count || metadata.row_groups.some((group) => group.num_rows < 0))
    throw new Error(`it has ${inGroups} of ${count} rows`);
  checkSchema(metadata.schema);
  checkZones(metadata);
  return { metadata: plainTypes(metadata), schema: parquetSchema(metadata) };
}

/**
 * Rows in order; at most one row group is in memory. `labels`: class labels that a README knows of, where the file has
 * no features of its own. Throws UserError for a file that is cut off, damaged or too large.
 */
export async function* parquetRows(
  path: string,
  labels: ClassLabels = new Map(),
  declared?: RecordType,
): AsyncGenerator<Dict> {
  const size = fileSize(path);
  if (size === undefined) throw new UserError(`${path}: no such file`);
  if (size > MAX_FILE)
    throw new UserError(`${path}: ${size} bytes, more than the limit of ${MAX_FILE} for such a file`);
  const fd = openSync(path, 'r');
  const file = bufferOf(fd, size);
  try {
    const { metadata, schema } = await readable(path, () => describe(file));
    const own = labelsOfMetadata(metadata.key_value_metadata ?? []);
    const known = own.size > 0 ? own : labels;
    const cast = declared && named(() => castOfRecords(columnsOf(schema), declared), path);
    let start = 0;
    for (const group of metadata.row_groups) {
      const end = start + Number(group.num_rows);
      const compressors = keepingPages(bounded);
      await readable(path, () => checkGroup(file, group, schema, compressors));
      const first = Math.min(end, start + FIRST_ROWS);
      for (const [rowStart, rowEnd] of [
        [start, first],
        [first, end],
      ] as const) {
        if (rowStart === rowEnd) continue;
        const options = {
          file,
          metadata,
          compressors,
          parsers,
          utf8: false,
          geoparquet: false,
          rowStart,
          rowEnd,
        };
        const records = await readable(path, () => parquetReadObjects(options));
        if (records.length !== rowEnd - rowStart)
          throw new UserError(`${path}: rows ${rowStart} to ${rowEnd} are not all there`, CHECK);
        for (const [i, record] of records.entries()) {
          const where = `${path}, row ${rowStart + i}`;
          const row = converted(where, record, schema);
          const typed = cast === undefined ? row : named(() => cast(row) as Dict, where);
          yield withLabels(typed, known, () => where);
        }
      }
      start = end;
    }
  } finally {
    closeSync(fd);
  }
}

function problem(path: string, error: unknown, what: string): UserError {
  if (error instanceof UserError) return error;
  const reason = quote(error instanceof Error ? error.message : String(error), 120).slice(1, -1);
  return error instanceof Unsupported
    ? new UserError(`${path}: ${reason} are not read`, 'Write the file again without them, or as JSON lines')
    : new UserError(`${path}: ${what}: ${reason}`, CHECK, { cause: error });
}

async function readable<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    // Parts of the description that are missing, or lead out of the file. The library prints what is missing, too.
    const isDamaged =
      error instanceof TypeError ||
      error instanceof RangeError ||
      (error instanceof Error && /\b(undefined|NaN)\b/.test(error.message));
    const reason = isDamaged ? new Error('its parts do not fit together', { cause: error }) : error;
    throw problem(path, reason, 'not a readable Parquet file');
  }
}

function converted(where: string, record: object, schema: SchemaTree): Dict {
  try {
    return rowOf(record, schema);
  } catch (error) {
    throw problem(where, error, 'cannot be shown');
  }
}
