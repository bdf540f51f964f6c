/** Reads the rows of a Parquet file as Python's values, one row group after another. */
import { closeSync, openSync } from 'node:fs';
import {
  parquetMetadataAsync,
  parquetReadObjects,
  parquetSchema,
  type AsyncBuffer,
  type FileMetaData,
  type RowGroup,
  type SchemaTree,
} from 'hyparquet';
import { getTreePath } from 'hyparquet/src/schema.js';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { fileSize, readRange } from '../../system/read.js';
import { Float, toInt, type Dict, type Value } from '../python/value.js';
import { labelsOfMetadata, withLabels, type ClassLabels } from './classLabels.js';
import { bounded } from './inflate.js';
import { checkColumn } from './parquetCheck.js';

const MAX_FILE = 2 ** 34;
const MAX_GROUP = 2 ** 30;
const MAX_FOOTER = 64 << 20;
const MAX_ROWS = 5_000_000;
/** So many rows of a group are read first: whoever takes a few need not wait for all. */
const FIRST_ROWS = 256;

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const parsers = { stringFromBytes: (bytes: Uint8Array | undefined) => bytes && decoder.decode(bytes) };
const isFloat = (node: SchemaTree | undefined): boolean =>
  node?.element.type === 'FLOAT' || node?.element.type === 'DOUBLE';

/** Below the wrappers of a list: the type of its items. */
const itemOf = (node: SchemaTree | undefined): SchemaTree | undefined =>
  node?.children[0]?.children[0] ?? node?.children[0] ?? node;

/** Undefined for a type that no template can show, such as bytes. */
function convert(value: unknown, node: SchemaTree | undefined): Value | undefined {
  if (value === null || value === undefined) return null;
  if (typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'bigint') return toInt(value);
  if (typeof value === 'number') return isFloat(node) || !Number.isSafeInteger(value) ? new Float(value) : value;
  if (value instanceof Date || ArrayBuffer.isView(value)) return undefined;
  if (Array.isArray(value)) {
    const item = itemOf(node);
    return value.map((each) => convert(each, item) ?? null);
  }
  if (typeof value !== 'object') return undefined;
  return rowOf(value, node);
}

function rowOf(record: object, node: SchemaTree | undefined): Dict {
  const row = new Map<string, Value>();
  for (const [name, field] of Object.entries(record)) {
    const value = convert(
      field,
      node?.children.find((child) => child.element.name === name),
    );
    if (value !== undefined) row.set(name, value);
  }
  return row;
}

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
async function checkGroup(file: AsyncBuffer, group: RowGroup, schema: SchemaTree): Promise<void> {
  const rows = Number(group.num_rows);
  const bytes = group.columns.reduce((sum, { meta_data: column }) => sum + Number(column?.total_uncompressed_size), 0);
  if (!(bytes >= 0 && bytes <= MAX_GROUP)) throw new Error(`a row group of ${bytes} bytes is more than ${MAX_GROUP}`);
  for (const { meta_data: column } of group.columns) {
    if (column === undefined) throw new Error('a column without its description');
    const start = Number(column.dictionary_page_offset ?? 0) || Number(column.data_page_offset);
    const chunk = new Uint8Array(await file.slice(start, start + Number(column.total_compressed_size)));
    const path = getTreePath(schema, column.path_in_schema);
    checkColumn(chunk, column, path, rows, bounded);
  }
}

async function openMetadata(file: AsyncBuffer): Promise<FileMetaData> {
  if (file.byteLength < 12) throw new Error('it is too short');
  const end = new DataView(await file.slice(file.byteLength - 8));
  const footer = end.getUint32(0, true);
  if (end.getUint32(4, true) !== 0x31524150) throw new Error('it does not end as such a file does: it may be cut off');
  if (footer > Math.min(MAX_FOOTER, file.byteLength - 8))
    throw new Error(`its description of ${footer} bytes is more than it can be`);
  const metadata = await parquetMetadataAsync(file);
  const count = Number(metadata.num_rows);
  if (!(count >= 0 && count <= MAX_ROWS)) throw new Error(`${count} rows, more than the limit of ${MAX_ROWS}`);
  const inGroups = metadata.row_groups.reduce((sum, group) => sum + Number(group.num_rows), 0);
  if (inGroups !== count || metadata.row_groups.some((group) => group.num_rows < 0))
    throw new Error(`it has ${inGroups} of ${count} rows`);
  return metadata;
}

/**
 * Rows in order; at most one row group is in memory. `labels`: class labels that a README knows of, where the file has
 * no features of its own. Throws UserError for a file that is cut off, damaged or too large.
 */
export async function* parquetRows(path: string, labels: ClassLabels = new Map()): AsyncGenerator<Dict> {
  const size = fileSize(path);
  if (size === undefined) throw new UserError(`${path}: no such file`);
  if (size > MAX_FILE)
    throw new UserError(`${path}: ${size} bytes, more than the limit of ${MAX_FILE} for such a file`);
  const fd = openSync(path, 'r');
  const file = bufferOf(fd, size);
  try {
    const metadata = await readable(path, () => openMetadata(file));
    const schema = parquetSchema(metadata);
    const own = labelsOfMetadata(metadata.key_value_metadata ?? []);
    const known = own.size > 0 ? own : labels;
    let start = 0;
    for (const group of metadata.row_groups) {
      const end = start + Number(group.num_rows);
      await readable(path, () => checkGroup(file, group, schema));
      const first = Math.min(end, start + FIRST_ROWS);
      for (const [rowStart, rowEnd] of [
        [start, first],
        [first, end],
      ] as const) {
        if (rowStart === rowEnd) continue;
        const options = { file, metadata, compressors: bounded, parsers, rowStart, rowEnd };
        const records = await readable(path, () => parquetReadObjects(options));
        if (records.length !== rowEnd - rowStart)
          throw new UserError(`${path}: rows ${rowStart} to ${rowEnd} are not all there`, 'Download the file again');
        for (const [i, record] of records.entries())
          yield withLabels(rowOf(record, schema), known, () => `${path}, row ${rowStart + i}`);
      }
      start = end;
    }
  } finally {
    closeSync(fd);
  }
}

async function readable<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof UserError) throw error;
    const reason = quote(error instanceof Error ? error.message : String(error), 120).slice(1, -1);
    throw new UserError(`${path}: not a readable Parquet file: ${reason}`, 'Download the file again', { cause: error });
  }
}
