/** How Python shows a value: str(), repr() and json.dumps(). Prompts and the hashes of documents depend on it. */
import { Float, isDict, isInt, isList, Sequence, Shown, Thing, type PyValue } from './value.js';

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
export function repr(value: PyValue): string {
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
export const reprDict = (entries: Iterable<readonly [PyValue, PyValue]>): string =>
  `{${Array.from(entries, ([key, item]) => `${repr(key)}: ${repr(item)}`).join(', ')}}`;

/** str(value) */
export const str = (value: PyValue): string =>
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
export function dumpJson(value: PyValue, indent = ''): string {
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
export function compactJson(value: PyValue): string {
  if (isDict(value)) return `{${[...value].map(([key, item]) => `${jsonText(key)}: ${compactJson(item)}`).join(', ')}}`;
  return isList(value) ? `[${value.map(compactJson).join(', ')}]` : dumpJson(value);
}

// Dates, times, decimal numbers and bytes as Python's str() and repr() show them.

export type TimeUnit = 's' | 'ms' | 'us' | 'ns';

const PER_SECOND: Readonly<Record<TimeUnit, bigint>> = { s: 1n, ms: 1000n, us: 1_000_000n, ns: 1_000_000_000n };
const DAY = 86_400n;
/** Days from 0001-01-01 to 1970-01-01, and from there to 9999-12-31. */
const FIRST_DAY = -719_162n;
const LAST_DAY = 2_932_896n;

const padded = (value: number | bigint, width = 2): string => String(value).padStart(width, '0');

/** Rounds to minus infinity. */
function divided(value: bigint, by: bigint): { readonly whole: bigint; readonly rest: bigint } {
  const rest = ((value % by) + by) % by;
  return { whole: (value - rest) / by, rest };
}

/** Throws RangeError for a year that Python does not have. */
function calendar(days: bigint): readonly [year: number, month: number, day: number] {
  if (days < FIRST_DAY || days > LAST_DAY) throw new RangeError(`a date ${days} days from 1970 is out of range`);
  const date = new Date(Number(days) * 86_400_000);
  return [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate()];
}

const isoDate = ([year, month, day]: readonly [number, number, number]): string =>
  `${padded(year, 4)}-${padded(month)}-${padded(day)}`;

interface Clock {
  readonly text: string;
  /** As arguments: hours and minutes, with what follows unless it is zero. */
  readonly parts: readonly string[];
  readonly nanoseconds: bigint;
}

/** `seconds` of a day and the part of one, in nanoseconds. */
function clockOf(seconds: bigint, nanoseconds: bigint): Clock {
  const [hour, minute, second] = [seconds / 3600n, (seconds / 60n) % 60n, seconds % 60n];
  const micros = nanoseconds / 1000n;
  const fraction =
    nanoseconds % 1000n !== 0n ? `.${padded(nanoseconds, 9)}` : micros === 0n ? '' : `.${padded(micros, 6)}`;
  const parts = [hour, minute, second, micros].map(String);
  while (parts.length > 2 && parts.at(-1) === '0') parts.pop();
  return { text: `${padded(hour)}:${padded(minute)}:${padded(second)}${fraction}`, parts, nanoseconds };
}

/** datetime.date; `days` from 1970-01-01. Throws RangeError outside of the years 1 to 9999. */
export function dateOf(days: bigint): Shown {
  const parts = calendar(days);
  return new Shown('date', isoDate(parts), `datetime.date(${parts.join(', ')})`);
}

/**
 * datetime.datetime, or pandas.Timestamp where the unit is nanoseconds; `units` since 1970-01-01. `isUtc`: it knows
 * that its time zone is UTC. Throws RangeError outside of the years 1 to 9999.
 */
export function dateTimeOf(units: bigint, unit: TimeUnit, isUtc = false): Shown {
  const { whole, rest } = divided(units, PER_SECOND[unit]);
  const { whole: days, rest: seconds } = divided(whole, DAY);
  const date = calendar(days);
  const clock = clockOf(seconds, rest * (PER_SECOND.ns / PER_SECOND[unit]));
  const text = `${isoDate(date)} ${clock.text}`;
  if (unit === 'ns') {
    const code = isUtc ? `Timestamp('${text}+0000', tz='UTC')` : `Timestamp('${text}')`;
    return new Shown('Timestamp', `${text}${isUtc ? '+00:00' : ''}`, code);
  }
  const zone = isUtc ? ["tzinfo=zoneinfo.ZoneInfo(key='UTC')"] : [];
  const code = `datetime.datetime(${[...date, ...clock.parts, ...zone].join(', ')})`;
  return new Shown('datetime', `${text}${isUtc ? '+00:00' : ''}`, code);
}

/** datetime.time; `units` since midnight. Throws RangeError past the day, and for parts of a microsecond. */
export function timeOf(units: bigint, unit: TimeUnit): Shown {
  const { whole, rest } = divided(units, PER_SECOND[unit]);
  const nanoseconds = rest * (PER_SECOND.ns / PER_SECOND[unit]);
  if (whole < 0n || whole >= DAY || nanoseconds % 1000n !== 0n)
    throw new RangeError(`a time of ${units} ${unit} is out of range`);
  const clock = clockOf(whole, nanoseconds);
  return new Shown('time', clock.text, `datetime.time(${clock.parts.join(', ')})`);
}

/** decimal.Decimal of value / 10^scale, with as many digits after the point as the scale says. */
export function decimalOf(value: bigint, scale: number): Shown {
  const sign = value < 0n ? '-' : '';
  const digits = String(value < 0n ? -value : value);
  const exponent = digits.length - scale - 1;
  let text: string;
  if (scale >= 0 && exponent >= -6) {
    const long = digits.padStart(scale + 1, '0');
    text = scale === 0 ? long : `${long.slice(0, -scale)}.${long.slice(-scale)}`;
  } else {
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : '';
    text = `${digits.charAt(0)}${rest}E${exponent < 0 ? '' : '+'}${exponent}`;
  }
  return new Shown('Decimal', `${sign}${text}`, `Decimal('${sign}${text}')`, { isTruthy: value !== 0n });
}

const ESCAPES: Readonly<Record<number, string>> = { 0x5c: '\\\\', 0x0a: '\\n', 0x0d: '\\r', 0x09: '\\t' };

/** bytes */
export function bytesOf(bytes: Uint8Array): Shown {
  const write = (): string => bytesCode(bytes);
  return new Shown('bytes', write, write, { isTruthy: bytes.length > 0, letters: 4 * bytes.length + 3 });
}

function bytesCode(bytes: Uint8Array): string {
  const quote = bytes.includes(0x27) && !bytes.includes(0x22) ? '"' : "'";
  const written = Array.from(bytes, (byte) => {
    const letter = String.fromCharCode(byte);
    if (letter === quote) return `\\${quote}`;
    return ESCAPES[byte] ?? (byte < 0x20 || byte > 0x7e ? `\\x${byte.toString(16).padStart(2, '0')}` : letter);
  });
  return `b${quote}${written.join('')}${quote}`;
}
