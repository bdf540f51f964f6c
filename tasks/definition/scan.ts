/** Finds the names in a task file without parsing all of it: folders of task files hold thousands. */
import { UserError } from '../../errors.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { listOf, MAX_NESTING, type SettingsReader } from './settings.js';
import { plainScalar } from './scalars.js';
import { MAX_YAML_BYTES, parseYaml, type Yaml, type YamlMap } from './yaml.js';

/** The keys that say what a file defines. */
export type Names = ReadonlyMap<string, Yaml>;

const KEYS: ReadonlySet<string> = new Set(['task', 'group', 'tag', 'include', 'class']);
/** A key of the file's top level, up to the next one. */
const SEGMENT = /^(?:"([\w]+)"|'([\w]+)'|([\w]+))[ \t]*:(?=[ \t\r\n]|$)/gm;
const SIMPLE = /^[ \t]*(?:"([\w./:-]+)"|'([\w./:-]+)'|([\w./-]+))[ \t]*(?:[ \t]#[^\n]*)?\s*$/;

function valueOf(key: string, segment: string, path: string): Yaml {
  const [, double, single, plain] = SIMPLE.exec(segment) ?? [];
  if (plain !== undefined) return plainScalar(plain);
  return double ?? single ?? parseYaml(`${key}:${segment}`, path).values.get(key) ?? null;
}

/** What the top level says by itself. */
function scanText(text: string, path: string): Names {
  const starts = [...text.matchAll(SEGMENT)];
  const wanted = starts.map(([all, double, single, plain], i) => ({
    key: double ?? single ?? plain ?? '',
    from: starts[i]!.index + all.length,
    to: starts[i + 1]?.index ?? text.length,
  }));
  const names = new Map<string, Yaml>();
  try {
    for (const { key, from, to } of wanted) if (KEYS.has(key)) names.set(key, valueOf(key, text.slice(from, to), path));
  } catch (error) {
    // An anchor elsewhere in the file, or a line of a long text that looks like a key: the whole file decides.
    if (!(error instanceof UserError)) throw error;
    return wholeFile(text, path);
  }
  return names.size === 0 ? wholeFile(text, path) : names;
}

function wholeFile(text: string, path: string): YamlMap {
  return new Map([...parseYaml(text, path).values].filter(([key]) => KEYS.has(key)));
}

/** Scans the files of one folder; those that others include are scanned once. */
export class Scanner {
  readonly #reader: SettingsReader;
  readonly #scanned = new Map<string, Names>();
  readonly #active = new Set<string>();

  constructor(reader: SettingsReader) {
    this.#reader = reader;
  }

  /** Task, group and tags of a file, with those it includes. Throws UserError for a file that is no YAML. */
  scan(path: string, depth = 0): Names {
    const known = this.#scanned.get(path);
    if (known !== undefined) return known;
    const own = scanText(decodeUtf8(readBounded(path, MAX_YAML_BYTES), path), path);
    if (!own.has('include')) return depth > 0 ? this.#keep(path, own) : own;
    if (depth > MAX_NESTING || this.#active.has(path)) throw new UserError(`${path}: files include each other`);
    this.#active.add(path);
    const names = new Map<string, Yaml>();
    try {
      for (const each of listOf(own.get('include'))) {
        const included = this.scan(this.#reader.included(each, path, `${path}: include`), depth + 1);
        for (const [key, value] of included) names.set(key, value);
      }
    } finally {
      this.#active.delete(path);
    }
    for (const [key, value] of own) names.set(key, value);
    return depth > 0 ? this.#keep(path, names) : names;
  }

  #keep(path: string, names: Names): Names {
    this.#scanned.set(path, names);
    return names;
  }
}
