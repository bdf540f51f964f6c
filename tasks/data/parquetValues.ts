/** Values of Parquet columns as pyarrow gives them to Python: dates, times, decimal numbers and bytes included. */
import type { FileMetaData, ParquetParsers, SchemaElement, SchemaTree } from 'hyparquet';
import { bytesOf, dateOf, dateTimeOf, decimalOf, timeOf, type TimeUnit } from '../../python/shown.js';
import { Float, toInt, type Dict, type Shown, type Value } from '../../python/value.js';
import { parseJsonValue } from '../../python/jsonValue.js';
import { Unsupported } from './parquetCheck.js';

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
  return group.children.length === 1 ? group.children[0]! : group;
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
  if (unit === undefined) return undefined;
  return kind === 'TIME' ? timeOf(whole(), UNITS[unit]!) : dateTimeOf(whole(), UNITS[unit]!);
}

const isFloat = ({ type, logical_type: logical }: SchemaElement): boolean =>
  type === 'FLOAT' || type === 'DOUBLE' || logical?.type === 'FLOAT16';

function convert(value: unknown, node: SchemaTree): Value {
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
  const row = new Map<string, Value>();
  for (const child of node.children) {
    const { name } = child.element;
    if (Object.hasOwn(fields, name)) row.set(name, convert(fields[name], child));
  }
  return row;
}
