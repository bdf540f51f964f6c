/** Types of columns that the README of a data set declares. */
import type { Yaml, YamlMap } from '../definition/yaml.js';
import type { ColumnType, RecordType } from './columnTypes.js';

const SIMPLE: ReadonlyMap<string, ColumnType> = new Map<string, ColumnType>([
  ['null', { kind: 'null' }],
  ['bool', { kind: 'bool' }],
  ...['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64'].map((name): [string, ColumnType] => [
    name,
    { kind: 'int' },
  ]),
  ['float32', { kind: 'float32' }],
  ['float64', { kind: 'float' }],
  ['string', { kind: 'text' }],
  ['large_string', { kind: 'text' }],
  ['timestamp[s]', { kind: 'time' }],
]);
const ANY: ColumnType = { kind: 'any' };

const isMap = (value: Yaml | undefined): value is YamlMap => value instanceof Map;

/** What follows `dtype:` or `list:`: a name, or a type spelled out. */
function typeOf(given: Yaml | undefined): ColumnType {
  if (typeof given === 'string') return SIMPLE.get(given) ?? ANY;
  if (Array.isArray(given)) return recordOf(given as readonly Yaml[]) ?? ANY;
  return isMap(given) ? featureOf(given) : ANY;
}

/** A feature: `dtype`, `list`, `sequence` of a simple type, or `struct`; any other is taken as it comes. */
function featureOf(feature: YamlMap): ColumnType {
  if (feature.has('class_label')) return { kind: 'label' };
  if (feature.has('dtype')) return typeOf(feature.get('dtype'));
  if (feature.has('list')) return { kind: 'list', item: typeOf(feature.get('list')) };
  if (feature.has('struct')) return typeOf(feature.get('struct'));
  const items = feature.get('sequence');
  // A sequence of records is a record of lists.
  return typeof items === 'string' ? { kind: 'list', item: typeOf(items) } : ANY;
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
