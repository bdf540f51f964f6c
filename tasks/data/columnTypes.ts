/** Types of columns of JSON as pyarrow finds them over many rows: numbers become floats where one of them is. */
import { isoSeconds } from '../../python/isoTime.js';
import type { TimeUnit } from '../../python/shown.js';
import { Float, isDict, isInt, isList, type Dict, type Value } from '../../python/value.js';

/**
 * `json`: values of several kinds, which stay as they are written. `any`: whatever is found, where the type is not
 * known here. `unread`: a type that is declared and that no text or number is made into.
 */
export type ColumnType =
  | { readonly kind: 'null' | 'bool' | 'float' | 'float32' | 'date' | 'text' | 'json' | 'any' | 'unread' }
  | IntType
  | { readonly kind: 'time'; readonly unit: TimeUnit }
  | { readonly kind: 'label'; readonly names: readonly string[] }
  | { readonly kind: 'list'; readonly item: ColumnType; readonly length?: number }
  | RecordType;

/** Whole numbers from `least` to `most`. */
export interface IntType {
  readonly kind: 'int';
  readonly least: bigint;
  readonly most: bigint;
}

/** Whole numbers of so many bits. */
export const intOf = (bits: number, isSigned: boolean): IntType =>
  isSigned
    ? { kind: 'int', least: -(1n << BigInt(bits - 1)), most: (1n << BigInt(bits - 1)) - 1n }
    : { kind: 'int', least: 0n, most: (1n << BigInt(bits)) - 1n };

export const INT64 = intOf(64, true);

/** Fields in their order. */
export interface RecordType {
  readonly kind: 'record';
  readonly fields: ReadonlyMap<string, ColumnType>;
}

const MAX_FIELDS = 10_000;
/** Of all rows that are read together. */
const MAX_CELLS = 100_000_000;
const isInt64 = (value: Value): boolean =>
  typeof value === 'number' || (typeof value === 'bigint' && value >= INT64.least && value <= INT64.most);

type Kind = 'bool' | 'number' | 'text' | 'list' | 'record';
function kindOf(value: Value): Kind {
  if (typeof value === 'boolean') return 'bool';
  if (isInt(value) || value instanceof Float) return 'number';
  if (typeof value === 'string') return 'text';
  return isList(value) ? 'list' : 'record';
}

/** Whether a value of several kinds is in it. */
export function hasJson(type: ColumnType): boolean {
  if (type.kind === 'list') return hasJson(type.item);
  return type.kind === 'record' ? [...type.fields.values()].some(hasJson) : type.kind === 'json';
}

/** How a type is found. */
interface Search {
  /** Records with other keys than the first one's are `json`; else all have the fields of all. */
  readonly isStrict: boolean;
  /** NaN counts as nothing: so it is where values are written once more. */
  readonly skipsNaN: boolean;
}

/**
 * Fields in the order in which they appear. A field of several kinds is added to the first record, if it is not there,
 * ahead of what other records add.
 */
function fieldsOf(records: readonly Dict[], search: Search, known: RecordType | undefined): Map<string, ColumnType> {
  const found = new Map<string, ColumnType>();
  const columns = new Map<string, Value[]>();
  for (const record of records)
    for (const [name, value] of record) {
      const column = columns.get(name);
      if (column === undefined) columns.set(name, [value]);
      else column.push(value);
    }
  if (columns.size > MAX_FIELDS || columns.size * records.length > MAX_CELLS)
    throw new RangeError(`${records.length} records with ${columns.size} keys are too many`);
  for (const [name, values] of columns) found.set(name, typeOf(values, search, known?.fields.get(name)));
  const isFirst = (name: string): boolean => records[0]!.has(name);
  const rank = ([name, type]: readonly [string, ColumnType]): number => (isFirst(name) ? 0 : hasJson(type) ? 1 : 2);
  return new Map([...found].sort((a, b) => rank(a) - rank(b)));
}

const haveSameKeys = ([first, ...rest]: readonly Dict[]): boolean =>
  first !== undefined &&
  first.size > 0 &&
  rest.every((record) => record.size === first.size && [...record.keys()].every((key) => first.has(key)));

/** Flattens lists without a limit on how many there are. */
function itemsOf(lists: readonly (readonly Value[])[]): Value[] {
  const items: Value[] = [];
  for (const list of lists) for (const item of list) items.push(item);
  return items;
}

function typeOf(values: readonly Value[], search: Search, known: ColumnType | undefined): ColumnType {
  if (known?.kind === 'json') return known;
  const there = values.filter(
    (value) => value !== null && !(search.skipsNaN && value instanceof Float && Number.isNaN(value.value)),
  );
  const [first] = there;
  if (first === undefined) return { kind: 'null' };
  const kind = kindOf(first);
  if (there.some((value) => kindOf(value) !== kind)) return { kind: 'json' };
  if (kind === 'bool') return { kind };
  if (kind === 'number') return there.every(isInt64) ? INT64 : { kind: 'float' };
  if (kind === 'text')
    return there.every((value) => isoSeconds(value as string) !== undefined)
      ? { kind: 'time', unit: 's' }
      : { kind: 'text' };
  if (kind === 'list') {
    const item = known?.kind === 'list' ? known.item : undefined;
    return { kind, item: typeOf(itemsOf(there.filter(isList)), search, item) };
  }
  const records = there.filter(isDict);
  if (search.isStrict && !haveSameKeys(records)) return { kind: 'json' };
  return { kind, fields: fieldsOf(records, search, known?.kind === 'record' ? known : undefined) };
}

/**
 * The type of rows that are read together. `known`: of rows before; its columns of several kinds stay such.
 * `isStrict`: records within rows whose keys differ stay as they are written. Throws RangeError for too many keys.
 */
export function typeOfRows(rows: readonly Dict[], isStrict: boolean, known?: RecordType): RecordType {
  const found = (skipsNaN: boolean): RecordType => ({
    kind: 'record',
    fields: rows.length === 0 ? new Map<string, ColumnType>() : fieldsOf(rows, { isStrict, skipsNaN }, known),
  });
  const plain = found(false);
  return hasJson(plain) ? found(true) : plain;
}
