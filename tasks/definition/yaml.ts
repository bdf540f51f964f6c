/** Reads YAML as PyYAML does: version 1.1, with the tag `!function`. Sizes, depth and aliases are bounded. */
import { isAlias, isMap, isPair, isScalar, isSeq, LineCounter, parseDocument, Scalar } from 'yaml';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { Float, toInt } from '../python/value.js';

/** `!function module.name`: a Python function. */
export class Hook {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

export type Yaml = null | boolean | number | bigint | string | Float | Hook | readonly Yaml[] | YamlMap;
export type YamlMap = ReadonlyMap<string, Yaml>;

export interface YamlFile {
  readonly path: string;
  readonly values: YamlMap;
  /** Line of each key of the file's top level, from 1. */
  readonly lines: ReadonlyMap<string, number>;
}

const MAX_BYTES = 4 << 20;
const MAX_DEPTH = 40;
const MAX_NODES = 500_000;
const HINT = 'Task files are those of lm-evaluation-harness';

const BOOLEAN = /^(?:(yes|Yes|YES|true|True|TRUE|on|On|ON)|no|No|NO|false|False|FALSE|off|Off|OFF)$/;
const NULL = /^(?:~|null|Null|NULL|)$/;
const INTEGER = /^([-+]?)(?:0b([01_]+)|0x([0-9a-fA-F_]+)|0([0-7_]+)|(0|[1-9][0-9_]*))$/;
const FLOAT = /^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?)$/;
const SPECIAL = /^([-+]?)\.(?:(inf|Inf|INF)|nan|NaN|NAN)$/;

/** The value of a scalar without quotes, by PyYAML's rules. */
export function plainScalar(text: string): Yaml {
  if (NULL.test(text)) return null;
  const bool = BOOLEAN.exec(text);
  if (bool !== null) return bool[1] !== undefined;
  const whole = INTEGER.exec(text);
  if (whole !== null && text.length < 1000) {
    const [, sign, binary, hex, octal, decimal] = whole;
    const digits = (prefix: string, part: string | undefined): string | undefined =>
      part === undefined ? undefined : prefix + part.replaceAll('_', '');
    const value = digits('0b', binary) ?? digits('0x', hex) ?? digits('0o', octal) ?? digits('', decimal) ?? '';
    if (!/^0[box]$/.test(value)) return toInt(sign === '-' ? -BigInt(value) : BigInt(value));
  }
  if (FLOAT.test(text)) return new Float(Number(text.replaceAll('_', '')));
  const special = SPECIAL.exec(text);
  if (special === null) return text;
  return new Float(special[2] === undefined ? Number.NaN : special[1] === '-' ? -Infinity : Infinity);
}

class Converter {
  readonly #where: (node: unknown) => string;
  #nodes = 0;

  constructor(where: (node: unknown) => string) {
    this.#where = where;
  }

  convert(node: unknown, depth: number): Yaml {
    const refuse = (what: string): never => {
      throw new UserError(`${this.#where(node)}: ${what}`, HINT);
    };
    if (depth > MAX_DEPTH) refuse(`nested more than ${MAX_DEPTH} deep`);
    if (++this.#nodes > MAX_NODES) refuse(`more than ${MAX_NODES} values`);
    if (node === null || node === undefined) return null;
    if (isAlias(node)) return refuse('aliases are not supported');
    if (isSeq(node)) return node.items.map((item) => this.convert(item, depth + 1));
    if (isMap(node)) {
      const entries = new Map<string, Yaml>();
      for (const { key, value } of node.items) {
        const name = this.convert(key, depth + 1);
        if (name === '<<') refuse('merge keys are not supported');
        entries.set(
          typeof name === 'string' ? name : quote(isScalar(key) ? key.source : key),
          this.convert(value, depth + 1),
        );
      }
      return entries;
    }
    if (!isScalar(node)) return refuse('cannot be read');
    const text = String(node.value ?? '');
    if (node.tag === '!function') return new Hook(text);
    if (node.tag !== undefined && node.tag !== 'tag:yaml.org,2002:str')
      refuse(`the tag ${quote(node.tag)} is not supported`);
    return node.type === Scalar.PLAIN && node.tag === undefined ? plainScalar(text) : text;
  }
}

/** Throws UserError with file and line. */
export function readYaml(path: string): YamlFile {
  const text = decodeUtf8(readBounded(path, MAX_BYTES, HINT), path, HINT);
  return parseYaml(text, path);
}

export function parseYaml(text: string, path: string): YamlFile {
  const counter = new LineCounter();
  // `failsafe` leaves every scalar as text, whose meaning is PyYAML's.
  const document = parseDocument(text, {
    version: '1.1',
    schema: 'failsafe',
    lineCounter: counter,
    uniqueKeys: false,
    logLevel: 'silent',
  });
  const [error] = document.errors;
  if (error !== undefined) {
    const line = counter.linePos(error.pos[0]).line;
    throw new UserError(
      `${path}:${line}: not valid YAML: ${error.message.split('\n')[0]?.replace(/ at line.*/, '') ?? ''}`,
      HINT,
    );
  }
  const lineOf = (node: unknown): number => {
    const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
    return range === undefined || range === null ? 1 : counter.linePos(range[0]).line;
  };
  const values = new Converter((node) => `${path}:${lineOf(node)}`).convert(document.contents, 0);
  if (!(values instanceof Map)) throw new UserError(`${path}: expected keys and values`, HINT);
  const lines = new Map<string, number>();
  if (isMap(document.contents))
    for (const pair of document.contents.items)
      if (isPair(pair) && isScalar(pair.key)) lines.set(String(pair.key.value), lineOf(pair.key));
  return { path, values: values as YamlMap, lines };
}
