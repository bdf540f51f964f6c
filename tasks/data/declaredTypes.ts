/** Types of columns that the README of a data set declares, as `datasets` reads its front matter. */
import type { TimeUnit } from '../../python/shown.js';
import type { Yaml, YamlMap } from '../definition/yaml.js';
import { namesOfClasses } from './classLabels.js';
import { intOf, type ColumnType, type RecordType } from './columnTypes.js';

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

const isMap = (value: Yaml | undefined): value is YamlMap => value instanceof Map;

/** What follows `dtype:` or `list:`: a name, or a type spelled out. */
function typeOf(given: Yaml | undefined): ColumnType {
  if (given === null) return { kind: 'null' };
  if (typeof given === 'string') return SIMPLE.get(given) ?? (UNREAD.test(given) ? { kind: 'unread' } : ANY);
  if (Array.isArray(given)) return recordOf(given as readonly Yaml[]) ?? ANY;
  return isMap(given) ? featureOf(given) : ANY;
}

/** A feature: `dtype`, `list`, `sequence`, `struct` or `class_label`; any other is taken as it comes. */
function featureOf(feature: YamlMap): ColumnType {
  const classes = feature.get('class_label');
  if (classes !== undefined) return { kind: 'label', names: namesOfClasses(classes) ?? [] };
  if (feature.has('dtype')) return typeOf(feature.get('dtype'));
  if (feature.has('struct')) return typeOf(feature.get('struct'));
  const key = LISTS.find((each) => feature.has(each));
  if (key === undefined) return ANY;
  const item = typeOf(feature.get(key));
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
