/** Reads YAML as PyYAML does: version 1.1, with the tag `!function`. Sizes, depth and aliases are bounded. */
import { isAlias, isMap, isPair, isScalar, isSeq, LineCounter, parseDocument, Scalar, type YAMLMap } from 'yaml';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { parseQuoted } from './quotedLines.js';
import { plainScalar, type PlainScalar } from './scalars.js';

/** `!function module.name`: a Python function, in a module beside the file that names it. */
export class Hook {
  readonly name: string;
  readonly file: string;
  constructor(name: string, file: string) {
    this.name = name;
    this.file = file;
  }
}

export type Yaml = PlainScalar | Hook | readonly Yaml[] | YamlMap;
export type YamlMap = ReadonlyMap<string, Yaml>;

export interface YamlFile {
  readonly path: string;
  readonly values: YamlMap;
  /** Line of each key of the file's top level, from 1. */
  readonly lines: ReadonlyMap<string, number>;
}

export const MAX_YAML_BYTES = 4 << 20;
const STANDARD = 'tag:yaml.org,2002:';
const MAX_DEPTH = 40;
const MAX_NODES = 500_000;
const HINT = 'Task files are those of lm-evaluation-harness';

class Converter {
  readonly #where: (node: unknown) => string;
  readonly #file: string;
  readonly #anchors = new Map<string, unknown>();
  #nodes = 0;
  #aliases = 0;

  constructor(file: string, where: (node: unknown) => string) {
    this.#file = file;
    this.#where = where;
  }

  #refuse(node: unknown, what: string): never {
    throw new UserError(`${this.#where(node)}: ${what}`, HINT);
  }

  /** What an alias repeats is counted again, so that aliases of aliases end at the limit of values. */
  convert(node: unknown, depth: number): Yaml {
    if (depth > MAX_DEPTH) this.#refuse(node, `nested more than ${MAX_DEPTH} deep`);
    if (++this.#nodes > MAX_NODES) this.#refuse(node, `more than ${MAX_NODES} values`);
    if (node === null || node === undefined) return null;
    if (isAlias(node)) {
      const target = this.#anchors.get(node.source);
      if (target === undefined) this.#refuse(node, `there is no anchor ${quote(node.source)} before this alias`);
      this.#aliases++;
      const value = this.convert(target, depth + 1);
      this.#aliases--;
      return value;
    }
    if (!isSeq(node) && !isMap(node) && !isScalar(node)) return this.#refuse(node, 'cannot be read');
    // Inside of an alias, anchors of the same name must not take the place of later ones.
    if (node.anchor !== undefined && this.#aliases === 0) this.#anchors.set(node.anchor, node);
    if (!isScalar(node) && node.tag !== undefined && ![`${STANDARD}seq`, `${STANDARD}map`].includes(node.tag))
      this.#refuse(node, `the tag ${quote(node.tag)} is not supported`);
    if (isSeq(node)) return node.items.map((item) => this.convert(item, depth + 1));
    if (isMap(node)) return this.#entries(node, depth);
    const text = String(node.value ?? '');
    if (node.tag === '!function') return new Hook(text, this.#file);
    if (node.tag === undefined) return node.type === Scalar.PLAIN ? this.#plain(node, text) : text;
    if (node.tag === `${STANDARD}str`) return text;
    if (node.tag === `${STANDARD}null`) return null;
    return this.#refuse(node, `the tag ${quote(node.tag)} is not supported`);
  }

  #plain(node: unknown, text: string): Yaml {
    try {
      return plainScalar(text);
    } catch (error) {
      if (error instanceof UserError) return this.#refuse(node, error.message);
      throw error;
    }
  }

  #entries(node: YAMLMap, depth: number): YamlMap {
    const merged = new Map<string, Yaml>();
    const own = new Map<string, Yaml>();
    for (const { key, value } of node.items) {
      const isMerge = isScalar(key) && key.type === Scalar.PLAIN && key.tag === undefined && key.value === '<<';
      const name = isMerge ? '<<' : this.convert(key, depth + 1);
      const converted = this.convert(value, depth + 1);
      if (isMerge) {
        for (const map of Array.isArray(converted) ? (converted as readonly Yaml[]) : [converted]) {
          if (!(map instanceof Map)) return this.#refuse(key, '"<<" takes keys and values');
          // If several maps have a key, the first one wins.
          for (const [each, item] of map as YamlMap) if (!merged.has(each)) merged.set(each, item);
        }
      } else own.set(typeof name === 'string' ? name : quote(isScalar(key) ? key.source : key), converted);
    }
    return new Map([...merged, ...own]);
  }
}

/** Throws UserError with file and line. */
export function readYaml(path: string): YamlFile {
  const text = decodeUtf8(readBounded(path, MAX_YAML_BYTES, HINT), path, HINT);
  return parseYaml(text, path);
}

export function parseYaml(text: string, path: string): YamlFile {
  const counter = new LineCounter();
  const document = parseQuoted(text, (current) => {
    counter.lineStarts.length = 0;
    // `failsafe` leaves every scalar as text, whose meaning is PyYAML's.
    return parseDocument(current, {
      version: '1.1',
      schema: 'failsafe',
      lineCounter: counter,
      uniqueKeys: false,
      // Not `silent`, by which several documents are the first one.
      logLevel: 'error',
    });
  });
  const [error] = document.errors;
  if (error !== undefined) {
    const line = counter.linePos(error.pos[0]).line;
    if (error.code === 'MULTIPLE_DOCS') throw new UserError(`${path}: more than one document of YAML`, HINT);
    const said = error.message.split('\n')[0]?.replace(/ at line.*/, '') ?? '';
    // The library reads nested values by calling itself.
    const reason = said.startsWith('Maximum call stack') ? 'it is nested too deep' : said;
    throw new UserError(`${path}:${line}: not valid YAML: ${reason}`, HINT);
  }
  const lineOf = (node: unknown): number => {
    const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
    return range === undefined || range === null ? 1 : counter.linePos(range[0]).line;
  };
  const values = new Converter(path, (node) => `${path}:${lineOf(node)}`).convert(document.contents, 0);
  if (!(values instanceof Map)) throw new UserError(`${path}: expected keys and values`, HINT);
  const lines = new Map<string, number>();
  if (isMap(document.contents))
    for (const pair of document.contents.items)
      if (isPair(pair) && isScalar(pair.key)) lines.set(String(pair.key.value), lineOf(pair.key));
  return { path, values: values as YamlMap, lines };
}
