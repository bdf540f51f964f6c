/** Types of columns: those that a README declares, class labels included, and those that rows have. */
import { at } from '../../system/at.js';
import { UserError } from '../../errors.js';
import type { TimeUnit } from '../../python/show.js';
import { type Dict, Float, isDict, isInt, isList, isoSeconds, type PyValue } from '../../python/value.js';
import { isRecord, parseJson, quote } from '../../system/json.js';
import type { Yaml, YamlMap } from '../definition/yaml.js';
import { CHECK } from './read.js';

// Class labels: columns of whole numbers with a name for each, as the features of a data set declare them.

/** Names of the classes of each column that has them. */
export type ClassLabels = ReadonlyMap<string, readonly string[]>;

const MAX_CLASSES = 1_000_000;
const NONE: ClassLabels = new Map();

/** From the features that `datasets` writes into a Parquet file. Those that cannot be read say nothing. */
export function labelsOfMetadata(pairs: readonly { readonly key: string; readonly value?: string }[]): ClassLabels {
  const text = pairs.find(({ key }) => key === 'huggingface')?.value;
  if (text === undefined) return NONE;
  let parsed: unknown;
  try {
    parsed = parseJson(text, 'features');
  } catch {
    return NONE;
  }
  const features = isRecord(parsed) && isRecord(parsed['info']) ? parsed['info']['features'] : undefined;
  const labels = new Map<string, readonly string[]>();
  for (const [column, feature] of Object.entries(isRecord(features) ? features : {})) {
    const names = isRecord(feature) && feature['_type'] === 'ClassLabel' ? feature['names'] : undefined;
    if (Array.isArray(names) && names.every((name): name is string => typeof name === 'string'))
      labels.set(column, names);
  }
  return labels;
}

const isMap = (value: Yaml | undefined): value is YamlMap => value instanceof Map;

/** Names of classes, in a list or by their numbers; undefined where there are none. */
export function namesOfClasses(given: Yaml): readonly string[] | undefined {
  const names = isMap(given) ? given.get('names') : undefined;
  const listed = names instanceof Map ? [...(names as YamlMap).values()] : names;
  return Array.isArray(listed) && listed.length <= MAX_CLASSES ? listed.map(String) : undefined;
}

/** From `dataset_info` of a README: `{name, dtype: {class_label: {names: {'0': …}}}}` a feature. */
export function labelsOfReadme(info: Yaml | undefined): ClassLabels {
  const features = isMap(info) ? info.get('features') : undefined;
  const labels = new Map<string, readonly string[]>();
  for (const feature of Array.isArray(features) ? (features as readonly Yaml[]) : []) {
    if (!isMap(feature)) continue;
    const column = feature.get('name');
    const type = feature.get('dtype');
    const classes = isMap(type) ? type.get('class_label') : undefined;
    const names = classes === undefined ? undefined : namesOfClasses(classes);
    if (typeof column === 'string' && names !== undefined) labels.set(column, names);
  }
  return labels;
}

/**
 * The row with its labels as numbers: files of text may name them. -1 stands for no label. Throws UserError for a label
 * that its column does not have.
 */
export function withLabels(row: Dict, labels: ClassLabels, where: () => string): Dict {
  let changed: Map<string, PyValue> | undefined;
  for (const [column, names] of labels) {
    const value = row.get(column);
    if (value === undefined || value === null) continue;
    const named = typeof value === 'string' ? names.indexOf(value) : -1;
    const isNumber = isInt(value) || (typeof value === 'string' && /^-?[0-9]{1,9}$/.test(value));
    const index = named >= 0 ? named : isNumber ? Number(value) : NaN;
    const isThere = index >= -1 && index < names.length;
    if (!isThere)
      throw new UserError(
        `${where()}: ${column}: no class ${quote(typeof value === 'object' ? column : value)}; ` +
          `there are ${names.length}: ${names.slice(0, 8).join(', ')}`.slice(0, 200),
        CHECK,
      );
    if (typeof value === 'string') (changed ??= new Map(row)).set(column, index);
  }
  return changed ?? row;
}

// Types of columns of JSON as pyarrow finds them over many rows: numbers become floats where one of them is.

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
const isInt64 = (value: PyValue): boolean =>
  typeof value === 'number' || (typeof value === 'bigint' && value >= INT64.least && value <= INT64.most);

type ColumnKind = 'bool' | 'number' | 'text' | 'list' | 'record';
function kindOf(value: PyValue): ColumnKind {
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
interface TypeSearch {
  /** Records with other keys than the first one's are `json`; else all have the fields of all. */
  readonly isStrict: boolean;
  /** NaN counts as nothing: so it is where values are written once more. */
  readonly skipsNaN: boolean;
}

/**
 * Fields in the order in which they appear. A field of several kinds is added to the first record, if it is not there,
 * ahead of what other records add.
 */
function fieldsOf(
  records: readonly Dict[],
  search: TypeSearch,
  known: RecordType | undefined,
): Map<string, ColumnType> {
  const found = new Map<string, ColumnType>();
  const columns = new Map<string, PyValue[]>();
  for (const record of records)
    for (const [name, value] of record) {
      const column = columns.get(name);
      if (column === undefined) columns.set(name, [value]);
      else column.push(value);
    }
  if (columns.size > MAX_FIELDS || columns.size * records.length > MAX_CELLS)
    throw new RangeError(`${records.length} records with ${columns.size} keys are too many`);
  for (const [name, values] of columns) found.set(name, typeOf(values, search, known?.fields.get(name)));
  const isFirst = (name: string): boolean => at(records, 0).has(name);
  const rank = ([name, type]: readonly [string, ColumnType]): number => (isFirst(name) ? 0 : hasJson(type) ? 1 : 2);
  return new Map([...found].sort((a, b) => rank(a) - rank(b)));
}

const haveSameKeys = ([first, ...rest]: readonly Dict[]): boolean =>
  first !== undefined &&
  first.size > 0 &&
  rest.every((record) => record.size === first.size && [...record.keys()].every((key) => first.has(key)));

/** Flattens lists without a limit on how many there are. */
function itemsOf(lists: readonly (readonly PyValue[])[]): PyValue[] {
  const items: PyValue[] = [];
  for (const list of lists) for (const item of list) items.push(item);
  return items;
}

function typeOf(values: readonly PyValue[], search: TypeSearch, known: ColumnType | undefined): ColumnType {
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

// Types of columns that the README of a data set declares, as `datasets` reads its front matter.

const SIMPLE: ReadonlyMap<string, ColumnType> = new Map<string, ColumnType>([
  ['null', { kind: 'null' }],
  ['bool', { kind: 'bool' }],
  ...[8, 16, 32, 64].flatMap((bits): [string, ColumnType][] => [
    [`int${bits}`, intOf(bits, true)],
    [`uint${bits}`, intOf(bits, false)],
  ]),
  ['float32', { kind: 'float32' }],
  ['float', { kind: 'float32' }],
  ['float64', { kind: 'float' }],
  ['double', { kind: 'float' }],
  ['string', { kind: 'text' }],
  ['large_string', { kind: 'text' }],
  ['string_view', { kind: 'text' }],
  ['date32', { kind: 'date' }],
  ...(['s', 'ms', 'us', 'ns'] satisfies TimeUnit[]).map((unit): [string, ColumnType] => [
    `timestamp[${unit}]`,
    { kind: 'time', unit },
  ]),
]);
/** Types of Arrow that no value of JSON or CSV is made into here. */
const UNREAD = /^(?:float16|halffloat|(?:large_)?binary|date64|(?:time|timestamp|duration|decimal)\S*[[(].*)$/;
const ANY: ColumnType = { kind: 'any' };
const LISTS = ['list', 'large_list', 'sequence'] as const;

/** What follows `dtype:` or `list:`: a name, or a type spelled out. */
function declaredType(given: Yaml | undefined): ColumnType {
  if (given === null) return { kind: 'null' };
  if (typeof given === 'string') return SIMPLE.get(given) ?? (UNREAD.test(given) ? { kind: 'unread' } : ANY);
  if (Array.isArray(given)) return recordOf(given as readonly Yaml[]) ?? ANY;
  return isMap(given) ? featureOf(given) : ANY;
}

/** A feature: `dtype`, `list`, `sequence`, `struct` or `class_label`; any other is taken as it comes. */
function featureOf(feature: YamlMap): ColumnType {
  const classes = feature.get('class_label');
  if (classes !== undefined) return { kind: 'label', names: namesOfClasses(classes) ?? [] };
  if (feature.has('dtype')) return declaredType(feature.get('dtype'));
  if (feature.has('struct')) return declaredType(feature.get('struct'));
  const key = LISTS.find((each) => feature.has(each));
  if (key === undefined) return ANY;
  const item = declaredType(feature.get(key));
  const length = feature.get('length');
  const sized = typeof length === 'number' && length >= 0 ? { length } : {};
  // A sequence of named fields is a record of lists.
  if (key !== 'sequence' || !Array.isArray(feature.get(key))) return { kind: 'list', item, ...sized };
  if (item.kind !== 'record') return ANY;
  const lists = [...item.fields].map(([name, of]): [string, ColumnType] => [
    name,
    { kind: 'list', item: of, ...sized },
  ]);
  return { kind: 'record', fields: new Map(lists) };
}

function recordOf(features: readonly Yaml[]): RecordType | undefined {
  const fields = new Map<string, ColumnType>();
  for (const feature of features) {
    const name = isMap(feature) ? feature.get('name') : undefined;
    if (!isMap(feature) || typeof name !== 'string') return undefined;
    fields.set(name, featureOf(feature));
  }
  return { kind: 'record', fields };
}

/** From `dataset_info` of a README; undefined: it declares none, or some without a name. */
export function declaredColumns(info: Yaml | undefined): RecordType | undefined {
  const features = isMap(info) ? info.get('features') : undefined;
  return Array.isArray(features) && features.length > 0 ? recordOf(features as readonly Yaml[]) : undefined;
}
