/** What the front matter of a data set's README.md says: configurations, files of splits, class labels. */
import { existsSync } from 'node:fs';
import { join, posix } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { parseYaml, type Yaml, type YamlMap } from '../definition/yaml.js';
import { type ClassLabels, declaredColumns, labelsOfReadme, type RecordType } from './columnTypes.js';

export interface Configuration {
  readonly name: string;
  /** Patterns of files by split; undefined: names of files tell. */
  readonly patterns: ReadonlyMap<string, readonly string[]> | undefined;
  /** The folder whose files these are; empty for all. */
  readonly folder: string;
  readonly labels: ClassLabels;
  /** Columns with types, where it declares them. */
  readonly columns: RecordType | undefined;
}

const MAX_README = 16 << 20;

const isMap = (value: Yaml | undefined): value is YamlMap => value instanceof Map;
const listOf = (value: Yaml | undefined): readonly Yaml[] =>
  Array.isArray(value) ? (value as readonly Yaml[]) : value === undefined || value === null ? [] : [value];
const textsOf = (value: Yaml | undefined): string[] =>
  listOf(value).filter((one): one is string => typeof one === 'string');
const nameOf = (config: YamlMap): string => {
  const name = config.get('config_name') ?? 'default';
  return typeof name === 'string' ? name : String(name as number);
};

/** Keys and values before the text of a folder's README.md; none where it has no such file. Throws UserError. */
export function frontMatter(folder: string): YamlMap {
  const path = join(folder, 'README.md');
  if (!existsSync(path)) return new Map();
  const text = decodeUtf8(readBounded(path, MAX_README), path).replace(/^\ufeff/, '');
  const front = /^---[ \t]*\r?\n([^]*?\n)---[ \t]*(?:\r?\n|$)/.exec(text)?.[1];
  // The first line of the file is the dashes.
  return front === undefined ? new Map() : parseYaml(`\n${front}`, path).values;
}

/** `data_files`: patterns of `train`, or of each split by a list or by keys. */
function patternsOf(given: Yaml, under: string): Map<string, string[]> {
  const patterns = new Map<string, string[]>();
  const add = (split: string, paths: readonly string[]): void => {
    patterns.set(split, [...(patterns.get(split) ?? []), ...paths.map((path) => posix.join(under, path))]);
  };
  if (isMap(given)) for (const [split, paths] of given) add(split, textsOf(paths));
  else
    for (const item of listOf(given)) {
      if (isMap(item)) add(String(item.get('split') ?? 'train'), textsOf(item.get('path')));
      else add('train', textsOf(item));
    }
  return patterns;
}

const declaredBy = (info: YamlMap | undefined): Pick<Configuration, 'labels' | 'columns'> => ({
  labels: labelsOfReadme(info),
  columns: declaredColumns(info),
});

/**
 * The configuration of this name, or the default one, by the front matter of the folder's README.md. Throws UserError
 * if there is none. `download`: the command that gets the whole data set, of which this may be a part.
 */
export function configurationOf(
  folder: string,
  values: YamlMap,
  config: string | undefined,
  download?: string,
): Configuration {
  const configs = listOf(values.get('configs')).filter(isMap);
  const infos = listOf(values.get('dataset_info')).filter(isMap);
  const infoOf = (name: string): YamlMap | undefined => infos.find((info) => nameOf(info) === name);
  const path = join(folder, 'README.md');
  if (configs.length === 0) {
    // Nothing says what there is: a configuration is a folder, as in conversions to Parquet.
    const name = config ?? 'default';
    const own = config !== undefined && existsSync(join(folder, config)) ? config : '';
    if (own === '' && name !== 'default')
      throw new UserError(`${folder}: no configuration ${quote(name)}: there is no such folder, nor ${path}`, download);
    return { name, patterns: undefined, folder: own, ...declaredBy(infoOf(name)) };
  }
  const chosen =
    config === undefined
      ? (configs.find((each) => each.get('default') === true) ??
        configs.find((each) => nameOf(each) === 'default') ??
        (configs.length === 1 ? configs[0] : undefined))
      : configs.find((each) => nameOf(each) === config);
  if (chosen === undefined)
    throw new UserError(
      `${path}: no ${config === undefined ? 'default configuration' : `configuration ${quote(config)}`}; there are ` +
        configs.map(nameOf).join(', ').slice(0, 300),
      config === undefined || download === undefined ? 'Write one as dataset_name' : download,
    );
  const name = nameOf(chosen);
  const under = textsOf(chosen.get('data_dir'))[0] ?? '';
  const files = chosen.get('data_files') ?? null;
  const patterns = files === null ? undefined : patternsOf(files, under);
  return { name, patterns, folder: under, ...declaredBy(infoOf(name)) };
}
