/** Reads the rows of a Parquet file as Python's values. */
import {
  asyncBufferFromFile,
  parquetMetadataAsync,
  parquetReadObjects,
  parquetSchema,
  type SchemaTree,
} from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { fileSize } from '../../system/read.js';
import { Float, toInt, type Dict, type Value } from '../python/value.js';

const MAX_FILE = 2 ** 31;
const MAX_PAGE = 1 << 28;
const MAX_ROWS = 5_000_000;

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
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
  if (Array.isArray(value)) return value.map((item) => convert(item, itemOf(node)) ?? null);
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

/** Refuses pages whose header asks for more memory than a page of a data set has. */
const bounded = Object.fromEntries(
  Object.entries(compressors).map(([codec, inflate]) => [
    codec,
    (input: Uint8Array, size: number): Uint8Array => {
      if (size < 0 || size > MAX_PAGE) throw new Error(`a page of ${size} bytes is more than the limit of ${MAX_PAGE}`);
      return inflate(input, size);
    },
  ]),
);

/** Throws UserError for a file that is cut off, damaged or too large. */
export async function readParquet(path: string): Promise<Dict[]> {
  const size = fileSize(path);
  if (size === undefined) throw new UserError(`${path}: no such file`);
  if (size > MAX_FILE)
    throw new UserError(`${path}: ${size} bytes, more than the limit of ${MAX_FILE} for such a file`);
  try {
    const file = await asyncBufferFromFile(path);
    const metadata = await parquetMetadataAsync(file);
    const count = Number(metadata.num_rows);
    if (!(count >= 0 && count <= MAX_ROWS)) throw new Error(`${count} rows, more than the limit of ${MAX_ROWS}`);
    const parsers = { stringFromBytes: (bytes: Uint8Array | undefined) => bytes && decoder.decode(bytes) };
    const records = await parquetReadObjects({ file, metadata, compressors: bounded, parsers });
    const schema = parquetSchema(metadata);
    if (records.length !== count) throw new Error(`it has ${records.length} of ${count} rows`);
    return records.map((record) => rowOf(record, schema));
  } catch (error) {
    if (error instanceof UserError) throw error;
    const reason = quote(error instanceof Error ? error.message : String(error), 120).slice(1, -1);
    throw new UserError(`${path}: not a readable Parquet file: ${reason}`, 'Download the file again', { cause: error });
  }
}
