/** Rows of Parquet files, with values as pyarrow gives them to Python. */
import { at } from '../../system/at.js';
import { closeSync, openSync } from 'node:fs';
import {
  type AsyncBuffer,
  type Compressors,
  type FileMetaData,
  parquetMetadataAsync,
  type ParquetParsers,
  parquetReadObjects,
  parquetSchema,
  type RowGroup,
  type SchemaElement,
  type SchemaTree,
} from 'hyparquet';
import { getTreePath } from 'hyparquet/src/schema.js';
import { UserError } from '../../errors.js';
import { parseJsonValue } from '../../python/literal.js';
import { bytesOf, dateOf, dateTimeOf, decimalOf, timeOf, type TimeUnit } from '../../python/show.js';
import { type Dict, Float, type Shown, toInt, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { fileSize, readRange } from '../../system/read.js';
import { castOfRecords, named } from './casts.js';
import {
  type ClassLabels,
  type ColumnType,
  INT64,
  intOf,
  labelsOfMetadata,
  type RecordType,
  withLabels,
} from './columnTypes.js';
import { checkColumn, Unsupported } from './parquetCheck.js';
import { bounded, CHECK, keepingPages } from './read.js';

// Values of Parquet columns as pyarrow gives them to Python: dates, times, decimal numbers and bytes included.

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
/** How hyparquet makes texts and, of 12 bytes, nanoseconds; all else is converted here. */
export const parsers: Partial<ParquetParsers> = {
  stringFromBytes: (bytes: Uint8Array | undefined) => bytes && decoder.decode(bytes),
  timestampFromNanoseconds: (nanoseconds: bigint) => nanoseconds,
};

const UNITS: Readonly<Record<string, TimeUnit>> = { MILLIS: 'ms', MICROS: 'us', NANOS: 'ns' };
/** What hyparquet would round, or make of another type than Python has. */
const LOGICAL: ReadonlySet<string> = new Set(
  'DATE TIME TIMESTAMP DECIMAL UUID GEOMETRY GEOGRAPHY JSON BSON INTERVAL ENUM'.split(' '),
);
const CONVERTED = /^(?:DATE|TIME_.*|TIMESTAMP_.*|DECIMAL|JSON|BSON|INTERVAL|ENUM)$/;

const isJson = ({ converted_type: converted, logical_type: logical }: SchemaElement): boolean =>
  converted === 'JSON' || logical?.type === 'JSON';

function plainElement(element: SchemaElement): SchemaElement {
  const { converted_type: converted, logical_type: logical, ...plain } = element;
  if (isJson(element)) return { ...plain, converted_type: 'UTF8' };
  if (logical?.type === 'VARIANT') throw new Unsupported(`${element.name}: values of any type`);
  return {
    ...plain,
    ...(converted === undefined || CONVERTED.test(converted) ? {} : { converted_type: converted }),
    ...(logical === undefined || LOGICAL.has(logical.type) ? {} : { logical_type: logical }),
  };
}

/** The metadata of the same file with the types that are stored, where `rowOf` converts them. */
export const plainTypes = (metadata: FileMetaData): FileMetaData => ({
  ...metadata,
  schema: metadata.schema.map(plainElement),
});

/** Throws Unsupported where times have a zone other than UTC: only the schema of Arrow names it. */
export function checkZones(metadata: FileMetaData): void {
  const arrow = metadata.key_value_metadata?.find(({ key }) => key === 'ARROW:schema')?.value;
  if (arrow === undefined || /UTC|\+00:00/.test(Buffer.from(arrow, 'base64').toString('latin1'))) return;
  const zoned = metadata.schema.find(
    ({ logical_type: logical }) => logical?.type === 'TIMESTAMP' && logical.isAdjustedToUTC,
  );
  if (zoned !== undefined) throw new Unsupported(`${zoned.name}: times of a zone other than UTC`);
}

/** Below the wrappers of a list: the type of its items. */
export function itemOf(node: SchemaTree): SchemaTree {
  const [group] = node.children;
  if (node.element.repetition_type === 'REPEATED' || group === undefined) return node;
  return group.children.length === 1 ? at(group.children, 0) : group;
}

function unscaled(value: unknown): bigint {
  if (typeof value === 'bigint') return value;
  if (typeof value === 'number') return BigInt(value);
  if (!(value instanceof Uint8Array) || value.length > 64) throw new Error('a decimal number of no known type');
  const hex = Buffer.from(value).toString('hex');
  return hex === '' ? 0n : BigInt.asIntN(value.length * 8, BigInt(`0x${hex}`));
}

/** A date, a time or a decimal number; undefined: the column is of another type. */
function special(value: unknown, element: SchemaElement): Shown | undefined {
  const { converted_type: converted, logical_type: logical } = element;
  const whole = (): bigint => {
    if (typeof value === 'bigint' || typeof value === 'number') return BigInt(value);
    throw new Error(`${element.name}: a time of no known type`);
  };
  if (logical?.type === 'DECIMAL' || converted === 'DECIMAL') {
    const scale = (logical?.type === 'DECIMAL' ? logical.scale : undefined) ?? element.scale ?? 0;
    if (!(scale >= 0 && scale <= 76)) throw new Error(`${element.name}: decimal numbers of ${scale} places`);
    return decimalOf(unscaled(value), scale);
  }
  if (logical?.type === 'DATE' || converted === 'DATE') return dateOf(whole());
  if (element.type === 'INT96') return dateTimeOf(BigInt.asIntN(64, whole()), 'ns');
  if (logical?.type === 'TIMESTAMP' || logical?.type === 'TIME') {
    const unit = UNITS[logical.unit];
    if (unit === undefined) throw new Error(`${element.name}: times of no known unit`);
    return logical.type === 'TIME' ? timeOf(whole(), unit) : dateTimeOf(whole(), unit, logical.isAdjustedToUTC);
  }
  const [, kind, unit] = /^(TIME|TIMESTAMP)_(MILLIS|MICROS)$/.exec(converted ?? '') ?? [];
  const scale = unit === undefined ? undefined : UNITS[unit];
  if (scale === undefined) return undefined;
  return kind === 'TIME' ? timeOf(whole(), scale) : dateTimeOf(whole(), scale);
}

const isFloat = ({ type, logical_type: logical }: SchemaElement): boolean =>
  type === 'FLOAT' || type === 'DOUBLE' || logical?.type === 'FLOAT16';

function convert(value: unknown, node: SchemaTree): PyValue {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) {
    const item = itemOf(node);
    return value.map((each) => convert(each, item));
  }
  const { element } = node;
  if (node.children.length === 0) {
    const shown = special(value, element);
    if (shown !== undefined) return shown;
  }
  if (typeof value === 'string') return isJson(element) ? parseJsonValue(value) : value;
  if (typeof value === 'boolean') return value;
  if (typeof value === 'bigint') return toInt(value);
  if (typeof value === 'number') return isFloat(element) || !Number.isSafeInteger(value) ? new Float(value) : value;
  if (value instanceof Uint8Array) return bytesOf(value);
  if (typeof value !== 'object') throw new Error(`${element.name}: a value of no known type`);
  return element.converted_type === 'MAP' ? mapOf(value, node) : rowOf(value, node);
}

function mapOf(record: object, node: SchemaTree): Dict {
  const values = node.children[0]?.children[1];
  if (values === undefined) throw new Error(`${node.element.name}: a map without values`);
  return new Map(Object.entries(record).map(([key, value]) => [key, convert(value, values)]));
}

/**
 * A row, or a record in one, with its fields in the order of the schema. `node` has the types that the file names.
 * Throws Error for values that Python does not have, such as a date of the year 10000.
 */
export function rowOf(record: object, node: SchemaTree): Dict {
  const fields = record as Readonly<Record<string, unknown>>;
  const row = new Map<string, PyValue>();
  for (const child of node.children) {
    const { name } = child.element;
    if (Object.hasOwn(fields, name)) row.set(name, convert(fields[name], child));
  }
  return row;
}

// Types of the columns of a Parquet file, for casts to those that a README declares.

const ANY: ColumnType = { kind: 'any' };

/** Of a column without parts. */
function leafType({ type, converted_type: converted, logical_type: logical }: SchemaElement): ColumnType {
  if (logical?.type === 'DATE' || converted === 'DATE') return { kind: 'date' };
  if (logical?.type === 'TIMESTAMP') {
    const unit = UNITS[logical.unit];
    return unit === undefined || logical.isAdjustedToUTC ? ANY : { kind: 'time', unit };
  }
  if (logical?.type === 'STRING' || converted === 'UTF8') return { kind: 'text' };
  if (logical?.type === 'INTEGER') return intOf(logical.bitWidth, logical.isSigned);
  const [, sign, bits] = /^(U?)INT_(8|16|32|64)$/.exec(converted ?? '') ?? [];
  if (bits !== undefined) return intOf(Number(bits), sign === '');
  if (logical !== undefined || converted !== undefined) return ANY;
  if (type === 'INT64') return INT64;
  if (type === 'INT32') return intOf(32, true);
  if (type === 'BOOLEAN') return { kind: 'bool' };
  if (type === 'DOUBLE') return { kind: 'float' };
  return type === 'FLOAT' ? { kind: 'float32' } : ANY;
}

function typeOf(node: SchemaTree): ColumnType {
  const { element, children } = node;
  const isList = element.converted_type === 'LIST' || element.logical_type?.type === 'LIST';
  if (isList) return { kind: 'list', item: typeOf(itemOf(node)) };
  if (element.repetition_type === 'REPEATED' || element.converted_type === 'MAP') return ANY;
  return children.length > 0 ? columnsOf(node) : leafType(element);
}

/** The columns below a node. */
export const columnsOf = ({ children }: SchemaTree): RecordType => ({
  kind: 'record',
  fields: new Map(children.map((child) => [child.element.name, typeOf(child)])),
});

// Reads the rows of a Parquet file as Python's values, one row group after another.

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
