/** Splits of a data set in a clone of its hub repository, found by the front matter of its README.md. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { parseYaml, type Yaml, type YamlMap } from '../definition/yaml.js';
import type { Dict } from '../python/value.js';
import { readParquet } from './parquet.js';

const isMap = (value: Yaml | undefined): value is YamlMap => value instanceof Map;
const listOf = (value: Yaml | undefined): readonly Yaml[] =>
  Array.isArray(value) ? (value as readonly Yaml[]) : value === undefined || value === null ? [] : [value];

/** Whether `name` matches a pattern in which `*` stands for anything but a slash. Linear in both for each star. */
function matches(pattern: string, name: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  if (rest.length === 0) return pattern === name;
  if (!name.startsWith(first)) return false;
  let at = first.length;
  const last = rest.pop() ?? '';
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return name.length - last.length >= at && name.endsWith(last) && !name.slice(first.length).includes('/');
}

/** Patterns of a split's files; undefined where the README does not say. */
function patternsOf(folder: string, config: string | undefined, split: string): string[] | undefined {
  const path = join(folder, 'README.md');
  if (!existsSync(path)) return undefined;
  const text = decodeUtf8(readBounded(path, 4 << 20), path);
  const front = /^---\n([^]*?\n)---\n/.exec(text)?.[1];
  if (front === undefined) return undefined;
  const configs = listOf(parseYaml(front, path).values.get('configs')).filter(isMap);
  if (configs.length === 0) return undefined;
  const names = configs.map((each) => each.get('config_name') ?? 'default');
  const chosen =
    configs.find((_, i) => names[i] === (config ?? 'default')) ??
    (config === undefined && configs.length === 1 ? configs[0] : undefined);
  if (chosen === undefined)
    throw new UserError(
      `${path}: no configuration ${quote(config ?? 'default')}; there are ${names.join(', ').slice(0, 300)}`,
    );
  return listOf(chosen.get('data_files'))
    .filter(isMap)
    .flatMap((each) =>
      each.get('split') === split
        ? listOf(each.get('path')).filter((one): one is string => typeof one === 'string')
        : [],
    );
}

/** The rows of a split. `root` holds clones as `owner/name`. Throws UserError with the command that downloads it. */
export async function readSplit(
  root: string,
  dataset: string,
  config: string | undefined,
  split: string,
): Promise<Dict[]> {
  if (!/^[\w.-]{1,100}(\/[\w.-]{1,100})?$/.test(dataset) || dataset.split('/').includes('..'))
    throw new UserError(`${quote(dataset)} is no name of a data set`);
  const folder = join(root, dataset);
  const fetch = `Try: hf download --repo-type dataset ${dataset} --local-dir ${folder}`;
  if (!existsSync(folder)) throw new UserError(`the data set ${dataset} is not in ${root}`, fetch);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.parquet'))
    .sort();
  const patterns = patternsOf(folder, config, split) ?? [`${config ?? 'data'}/${split}-*`];
  const found = files.filter((name) => patterns.some((pattern) => matches(pattern, name)));
  if (found.length === 0)
    throw new UserError(`${folder}: no Parquet file of ${config ?? 'the default'}, split ${split}`, fetch);
  const rows: Dict[] = [];
  for (const name of found) for (const row of await readParquet(join(folder, name))) rows.push(row);
  return rows;
}
