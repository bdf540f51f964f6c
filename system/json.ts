/** Reads untrusted JSON: its depth is bounded before it is parsed, and values are quoted safely in messages. */
import { randomUUID } from 'node:crypto';
import { UserError } from '../errors.js';

/** Real files nest about 12 deep. Far deeper values cost gigabytes to parse and overflow the stack when printed. */
export const MAX_JSON_DEPTH = 200;

/**
 * JSON as Python's json module writes it: NaN and infinities are words, where JSON.stringify would write null. Throws
 * RangeError for a value that nests too deep.
 */
export const printPythonJson = (value: unknown, indent?: number): string =>
  JSON.stringify(
    value,
    (_, each: unknown) => (typeof each === 'number' && !Number.isFinite(each) ? `\u0001${each}\u0001` : each),
    indent,
  ).replaceAll(/"\\u0001(-?Infinity|NaN)\\u0001"/g, '$1');

/** JSON.stringify is recursive and JSON.parse is not: a deep value from a hostile file must not overflow the stack. */
function stringify(value: unknown): string {
  try {
    return printPythonJson(value);
  } catch (error) {
    if (error instanceof RangeError) return '(nested too deeply to show)';
    throw error;
  }
}

/**
 * A value from a file, safe to show in a message: quoted, clipped, without terminal control characters. A value that is
 * not there is "nothing".
 */
export function quote(value: unknown, limit = 60): string {
  if (value === undefined) return 'nothing';
  const text = typeof value === 'string' || typeof value === 'object' ? stringify(value) : String(value);
  const clipped = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return clipped.replace(
    /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

const MAX_MESSAGE = 400;
/** A message, cut where it is long: names and values in it may be those of files. */
export const clipped = (message: string): string =>
  message.length > MAX_MESSAGE ? `${message.slice(0, MAX_MESSAGE)}…` : message;

/** Whether a key is present and not null. JSON files use both absence and null for "no value". */
export const isGiven = <T>(value: T): value is NonNullable<T> => value !== null && value !== undefined;

export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_I = 0x49;
const LETTER_N = 0x4e;

/** Index of the quote that ends the string which starts at `start`; the text's length if it does not end. */
function endOfString(text: string, start: number): number {
  for (let i = start + 1; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) return i;
    if (code === BACKSLASH) i++;
  }
  return text.length;
}

/**
 * Whether arrays and objects nest deeper than `maxDepth`. Takes one pass and constant memory. The text need not be
 * valid.
 */
export function isDeeperThan(text: string, maxDepth: number): boolean {
  if (text.length <= maxDepth) return false;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case QUOTE:
        i = endOfString(text, i);
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > maxDepth) return true;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
      default:
        break;
    }
  }
  return false;
}

/** Throws UserError, naming `where`, for text that is not JSON or nests deeper than MAX_JSON_DEPTH. */
export function parseJson(text: string, where: string, hint?: string): unknown {
  if (isDeeperThan(text, MAX_JSON_DEPTH))
    throw new UserError(`${where}: nested more than ${MAX_JSON_DEPTH} deep`, hint);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    const detail = error instanceof Error ? quote(error.message, 160).slice(1, -1).replaceAll('\\"', '"') : '';
    throw new UserError(`${where}: not valid JSON: ${detail}`, hint, { cause: error });
  }
}

/** What stands for NaN while a text is parsed, and in no text: no number of JSON is NaN. */
const NAN_MARK = `NaN ${randomUUID()}`;
/** A number that is Infinity. */
const INFINITE = '1e999';
/** Each word takes more room while a text is parsed than it has in the file. Real files have a few. */
const MAX_WORDS = 1 << 20;

const isInWord = (text: string, at: number): boolean => /[\w.+]/.test(text.charAt(at));

/** Throws SyntaxError where the word was a key. */
function reviveNaN(key: string, value: unknown): unknown {
  if (key === NAN_MARK) throw new SyntaxError('NaN is no key');
  return value === NAN_MARK ? NaN : value;
}

/** Places of the words NaN and Infinity outside of strings. */
function wordsIn(text: string): readonly { readonly at: number; readonly word: string }[] {
  const words: { readonly at: number; readonly word: string }[] = [];
  for (let i = 0; i < text.length && words.length <= MAX_WORDS; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = endOfString(text, i);
      continue;
    }
    if (code !== LETTER_N && code !== LETTER_I) continue;
    const word = text.startsWith('NaN', i) ? 'NaN' : text.startsWith('Infinity', i) ? 'Infinity' : undefined;
    if (word === undefined || isInWord(text, i - 1) || isInWord(text, i + word.length)) continue;
    words.push({ at: i, word });
    i += word.length - 1;
  }
  return words;
}

/**
 * JSON as Python's json module writes it: also with the words NaN, Infinity and -Infinity, which become these numbers.
 * Where a key is there twice, the last one counts, as in Python. Throws UserError as parseJson does.
 */
export function parsePythonJson(text: string, where: string, hint?: string): unknown {
  const words = /NaN|Infinity/.test(text) && !isDeeperThan(text, MAX_JSON_DEPTH) ? wordsIn(text) : [];
  if (words.length === 0) return parseJson(text, where, hint);
  if (words.length > MAX_WORDS) throw new UserError(`${where}: NaN or Infinity more than ${MAX_WORDS} times`, hint);
  /** The text as JSON knows it. */
  const withNaN = (nan: string): string => {
    const parts: string[] = [];
    let from = 0;
    for (const { at, word } of words) {
      parts.push(text.slice(from, at), word === 'NaN' ? nan : INFINITE);
      from = at + word.length;
    }
    return parts.join('') + text.slice(from);
  };
  try {
    return JSON.parse(withNaN(JSON.stringify(NAN_MARK)), reviveNaN) as unknown;
  } catch {
    // Fails as well, and says where.
    return parseJson(withNaN('null'), where, hint);
  }
}
