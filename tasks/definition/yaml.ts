/** YAML of task files, as PyYAML reads it. */
import {
  type Document,
  isAlias,
  isMap,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  parseDocument,
  Scalar,
  visit,
  type YAMLMap,
} from 'yaml';
import { UserError } from '../../errors.js';
import { dateOf, dateTimeOf } from '../../python/show.js';
import { Float, isoSeconds, Shown, toInt } from '../../python/value.js';
import { quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';

// Quoted scalars of several lines. YAML demands that the further lines are indented; PyYAML does not look, and task
// files rely on that. Spaces at the beginning of such a line have no meaning, so they may be added.

/** Columns by which a line may be moved. */
const MAX_COLUMNS = 200;
/** Scalars of one file that are mended. */
const MAX_SCALARS = 100;
/** Ends a document, also in quotes. */
const MARKER = /\n(?:---|\.\.\.)(?:\s|$)/;

/** Where the quoted scalar at `start` ends, behind its quote; undefined where it does not. */
function endOf(text: string, start: number): number | undefined {
  const isDouble = text[start] === '"';
  const mark = isDouble ? /["\\]/g : /'/g;
  for (let at = start + 1; ;) {
    mark.lastIndex = at;
    const found = mark.exec(text)?.index;
    if (found === undefined) return undefined;
    if (isDouble ? text[found] === '"' : text[found + 1] !== "'") return found + 1;
    at = found + 2;
  }
}

/** The first quoted scalar that the parser ended before its quote. */
function cutScalar(document: Document.Parsed, text: string): { start: number; end: number } | undefined {
  let cut: { start: number; end: number } | undefined;
  visit(document, {
    Scalar(_, { type, range }) {
      if ((type !== Scalar.QUOTE_DOUBLE && type !== Scalar.QUOTE_SINGLE) || !range) return undefined;
      const [start, parsed] = range;
      const end = endOf(text, start);
      if (end === undefined || end === parsed) return undefined;
      cut = { start, end };
      return visit.BREAK;
    },
  });
  return cut;
}

/** The text with every line of a scalar indented; undefined where that would change what it means. */
function indented(text: string, { start, end }: { start: number; end: number }): string | undefined {
  const column = start - (text.lastIndexOf('\n', start) + 1);
  const scalar = text.slice(start, end);
  if (column > MAX_COLUMNS || MARKER.test(scalar)) return undefined;
  return text.slice(0, start) + scalar.replaceAll('\n', `\n${' '.repeat(column + 1)}`) + text.slice(end);
}

/** Parses, and again with such scalars mended. Lines keep their numbers. */
export function parseQuoted(text: string, parse: (text: string) => Document.Parsed): Document.Parsed {
  let current = text;
  let document = parse(current);
  for (let i = 0; i < MAX_SCALARS && document.errors.length > 0; i++) {
    const cut = cutScalar(document, current);
    const mended = cut && indented(current, cut);
    if (mended === undefined) break;
    current = mended;
    document = parse(current);
  }
  return document;
}

// Scalars without quotes as PyYAML's SafeLoader resolves them (YAML 1.1, resolver.py and constructor.py): `yes` is
// true, 017 is 15, 1:30 is 90, 1e3 is a text and 1.0e+3 a float, 2001-12-14 is a date.

export type PlainScalar = null | boolean | number | bigint | string | Float | Shown;

const BOOLEAN = /^(?:(yes|Yes|YES|true|True|TRUE|on|On|ON)|no|No|NO|false|False|FALSE|off|Off|OFF)$/;
const NULL = /^(?:~|null|Null|NULL|)$/;
const INTEGER = /^([-+]?)(?:0b([01_]+)|0x([0-9a-fA-F_]+)|0([0-7_]+)|(0|[1-9][0-9_]*))$/;
const SIXTIES = /^([-+]?)([1-9][0-9_]*(?::[0-5]?[0-9])+)$/;
const FLOAT = /^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?)$/;
const FLOAT_SIXTIES = /^([-+]?)([0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$/;
const SPECIAL = /^(?:([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;
const DATE = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/;
const TIME = new RegExp(
  '^([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[Tt]|[ \\t]+)([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\\.([0-9]*))?' +
    '(?:[ \\t]*(?:(Z)|([-+])([0-9]{1,2})(?::([0-9]{2}))?))?$',
);
/** Python's int() reads no more. */
const MAX_DIGITS = 4300;

const bare = (text: string): string => text.replaceAll('_', '');

/** Throws UserError where PyYAML fails: its message is without a place. */
export function plainScalar(text: string): PlainScalar {
  if (NULL.test(text)) return null;
  const bool = BOOLEAN.exec(text);
  if (bool !== null) return bool[1] !== undefined;
  if (text === '=' || text === '<<') throw new UserError(`${quote(text)} is no value in YAML: write it in quotes`);
  return wholeOf(text) ?? floatOf(text) ?? timeOf(text) ?? text;
}

function wholeOf(text: string): number | bigint | undefined {
  const [, sign, binary, hex, octal, decimal] = INTEGER.exec(text) ?? [];
  const [, sixtiesSign, sixties] = SIXTIES.exec(text) ?? [];
  if (sign === undefined && sixties === undefined) return undefined;
  const unreadable = (): never => {
    throw new UserError(`${quote(text)}: not a whole number that Python reads: write it in quotes`);
  };
  if (text.length > MAX_DIGITS) return unreadable();
  const digits = (prefix: string, part: string): bigint =>
    bare(part) === '' ? unreadable() : BigInt(prefix + bare(part));
  const value =
    binary !== undefined
      ? digits('0b', binary)
      : hex !== undefined
        ? digits('0x', hex)
        : octal !== undefined
          ? // Only the zero of `0_` is left.
            digits('0o', `0${octal}`)
          : decimal !== undefined
            ? digits('', decimal)
            : bare(sixties ?? '')
                .split(':')
                .reduce((sum, part) => sum * 60n + BigInt(part), 0n);
  return toInt((sign ?? sixtiesSign) === '-' ? -value : value);
}

function floatOf(text: string): Float | undefined {
  if (FLOAT.test(text)) return new Float(Number(bare(text)));
  const special = SPECIAL.exec(text);
  if (special !== null)
    return new Float(special[1] === undefined ? Number.NaN : special[1] === '-' ? -Infinity : Infinity);
  const [, sign, sixties] = FLOAT_SIXTIES.exec(text) ?? [];
  if (sixties === undefined) return undefined;
  // From the last part on, as PyYAML adds.
  let value = 0,
    unit = 1;
  for (const part of bare(sixties).split(':').reverse()) {
    value += Number(part) * unit;
    unit *= 60;
  }
  return new Float(sign === '-' ? -value : value);
}

const MICROSECONDS = 1_000_000n;
const FRACTION_DIGITS = 6;
const DAY_SECONDS = 86_400;

/** A date or a time. */
function timeOf(text: string): Shown | undefined {
  const isDate = DATE.test(text);
  const parts = isDate ? undefined : (TIME.exec(text) ?? undefined);
  if (!isDate && parts === undefined) return undefined;
  const [, year = '', month = '', day = '', hour = '', minute = '', second = '', fraction = ''] = parts ?? [];
  const two = (part: string): string => part.padStart(2, '0');
  const seconds = isoSeconds(isDate ? text : `${year}-${two(month)}-${two(day)}T${two(hour)}:${minute}:${second}`);
  try {
    if (seconds === undefined) throw new RangeError('no such time');
    if (parts === undefined) return dateOf(BigInt(seconds / DAY_SECONDS));
    const micros = BigInt(fraction.slice(0, FRACTION_DIGITS).padEnd(FRACTION_DIGITS, '0'));
    return withZone(dateTimeOf(BigInt(seconds) * MICROSECONDS + micros, 'us'), parts);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new UserError(`${quote(text)}: there is no such date or time: write a text in quotes`, undefined, {
      cause: error,
    });
  }
}

/** datetime.datetime with the offset that TIME found. */
function withZone(local: Shown, [, , , , , , , , utc, sign, hours = '', minutes = '0']: RegExpExecArray): Shown {
  if (utc === undefined && sign === undefined) return local;
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60;
  const days = Math.floor(offset / DAY_SECONDS);
  if (Math.abs(offset) >= DAY_SECONDS) throw new RangeError('an offset of a day or more');
  const delta = [...(days === 0 ? [] : [`days=${days}`]), `seconds=${offset - days * DAY_SECONDS}`].join(', ');
  const zone = offset === 0 ? 'datetime.timezone.utc' : `datetime.timezone(datetime.timedelta(${delta}))`;
  const at = Math.abs(offset) / 60;
  const shown = [Math.floor(at / 60), at % 60].map((each) => String(each).padStart(2, '0')).join(':');
  return new Shown(
    local.type,
    `${local.text}${offset < 0 ? '-' : '+'}${shown}`,
    `${local.code.slice(0, -1)}, tzinfo=${zone})`,
  );
}

// Reads YAML as PyYAML does: version 1.1, with the tag `!function`. Sizes, depth and aliases are bounded.

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
