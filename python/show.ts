/** How Python shows a value: str(), repr() and json.dumps(). Prompts and the hashes of documents depend on it. */
import { Float, isDict, isInt, isList, Sequence, Thing, type Value } from './value.js';

/** repr(float): the shortest digits, with an exponent below 1e-4 and from 1e16 on. */
export function showFloat(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  if (value === 0) return '0.0';
  const [digits = '', exponentText = '0'] = value.toExponential().split('e');
  const exponent = Number(exponentText);
  if (exponent < -4 || exponent >= 16) {
    return `${digits}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  const plain =
    exponent >= 0 ? value.toString() : value.toFixed(Math.max(0, digits.replace(/[-.]/g, '').length - 1 - exponent));
  return plain.includes('.') ? plain : `${plain}.0`;
}

const SHORT: ReadonlyMap<string, string> = new Map([
  ['\\', '\\\\'],
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

/** What str.isprintable() refuses, and the backslash. */
const ESCAPED = /[\p{C}\p{Zl}\p{Zp}\\]|(?! )\p{Zs}/gu;

function escapeLetter(letter: string): string {
  const short = SHORT.get(letter);
  if (short !== undefined) return short;
  const code = letter.codePointAt(0) ?? 0;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, '0')}` : `\\U${code.toString(16).padStart(8, '0')}`;
}

/** repr(str): in single quotes, unless the text has those and no double ones. */
export function reprText(text: string): string {
  const escaped = text.replace(ESCAPED, escapeLetter);
  if (!text.includes("'")) return `'${escaped}'`;
  return text.includes('"') ? `'${escaped.replaceAll("'", "\\'")}'` : `"${escaped}"`;
}

function reprSequence(value: Sequence): string {
  if (value.shown !== '') return value.shown;
  const items = value.map(repr).join(', ');
  if (value.type === 'tuple') return value.length === 1 ? `(${items},)` : `(${items})`;
  return `${value.type}([${items}])`;
}

/** repr(value). Values come from bounded readers, so that they do not nest deeply. */
export function repr(value: Value): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (isInt(value)) return String(value);
  if (typeof value === 'string') return reprText(value);
  if (value instanceof Float) return showFloat(value.value);
  if (value instanceof Sequence) return reprSequence(value);
  if (value instanceof Thing) return value.code;
  if (isList(value)) return `[${value.map(repr).join(', ')}]`;
  return reprDict(value);
}

/** repr(dict) of keys and items. */
export const reprDict = (entries: Iterable<readonly [Value, Value]>): string =>
  `{${Array.from(entries, ([key, item]) => `${repr(key)}: ${repr(item)}`).join(', ')}}`;

/** str(value) */
export const str = (value: Value): string =>
  typeof value === 'string' ? value : value instanceof Thing ? value.text : repr(value);

const JSON_SHORT: ReadonlyMap<string, string> = new Map([
  ['"', '\\"'],
  ['\\', '\\\\'],
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
  ['\f', '\\f'],
  ['\b', '\\b'],
]);

const escapeJson = (letter: string): string =>
  JSON_SHORT.get(letter) ?? `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`;
export const jsonText = (text: string): string => `"${text.replace(/["\\\u0000-\u001f]/g, escapeJson)}"`;

export function jsonFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  return Number.isFinite(value) ? showFloat(value) : value > 0 ? 'Infinity' : '-Infinity';
}

/**
 * json.dumps(value, indent=2, ensure_ascii=False, default=str), from which the harness takes the hash of a document.
 */
export function dumpJson(value: Value, indent = ''): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean' || isInt(value)) return String(value);
  if (typeof value === 'string') return jsonText(value);
  if (value instanceof Float) return jsonFloat(value.value);
  if (value instanceof Thing) return jsonText(value.text);
  const inner = `${indent}  `;
  const items = isDict(value)
    ? [...value].map(([key, item]) => `${jsonText(key)}: ${dumpJson(item, inner)}`)
    : value.map((item) => dumpJson(item, inner));
  const [open, close] = isDict(value) ? '{}' : '[]';
  if (items.length === 0) return `${open}${close}`;
  return `${open}\n${items.map((item) => `${inner}${item}`).join(',\n')}\n${indent}${close}`;
}

/** json.dumps(value, ensure_ascii=False): on one line. */
export function compactJson(value: Value): string {
  if (isDict(value)) return `{${[...value].map(([key, item]) => `${jsonText(key)}: ${compactJson(item)}`).join(', ')}}`;
  return isList(value) ? `[${value.map(compactJson).join(', ')}]` : dumpJson(value);
}
