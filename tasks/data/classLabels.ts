/** Class labels: columns of whole numbers with a name for each, as the features of a data set declare them. */
import { UserError } from '../../errors.js';
import { CHECK } from './noRows.js';
import { isRecord, parseJson, quote } from '../../system/json.js';
import type { Yaml, YamlMap } from '../definition/yaml.js';
import { isInt, type Dict, type Value } from '../../python/value.js';

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
  let changed: Map<string, Value> | undefined;
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
