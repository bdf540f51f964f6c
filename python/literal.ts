/** Values written as Python's literals or as JSON. */
import { at } from '../system/at.js';
import { isDeeperThan, MAX_JSON_DEPTH } from '../system/json.js';
import { Float, toInt, type PyValue } from './value.js';

// ast.literal_eval for the literals that task files and data sets hold: text, numbers, lists, tuples, dictionaries.

const MAX_DEPTH = 50;
/** Escapes that literals and the new texts of re.sub() share. */
export const SHARED_ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\\', '\\'],
  ['a', '\x07'],
  ['b', '\b'],
  ['f', '\f'],
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
  ['v', '\v'],
]);
const SIMPLE_ESCAPES: ReadonlyMap<string, string> = new Map([...SHARED_ESCAPES, ['\n', ''], ["'", "'"], ['"', '"']]);
const ESCAPE = /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|([^]))/gu;

/** The text between the quotes of a literal, with its escapes replaced. Throws SyntaxError for a bad code point. */
export function unescapeText(body: string): string {
  return body.replace(ESCAPE, (whole, hex?: string, u?: string, long?: string, octal?: string, letter?: string) => {
    if (octal !== undefined) return String.fromCharCode(Number.parseInt(octal, 8));
    const code = hex ?? u ?? long;
    if (code === undefined) {
      if (letter === 'x' || letter === 'u' || letter === 'U' || letter === 'N')
        throw new SyntaxError(`the escape \\${letter} is not complete or not supported`);
      return SIMPLE_ESCAPES.get(letter ?? '') ?? whole;
    }
    const point = Number.parseInt(code, 16);
    if (point > 0x10ffff) throw new SyntaxError(`no character has the code ${code}`);
    return String.fromCodePoint(point);
  });
}

const MARK = /([\[\](){},:])/;
const QUOTED = /([rRuU]?)('(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*")/;
const NUMBER = /([-+]?(?:\d[\d_]*)?(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])/;
const TOKEN = new RegExp(`\\s*(?:${MARK.source}|${QUOTED.source}|${NUMBER.source}|(\\w+))`, 'y');

class LiteralReader {
  readonly #text: string;
  #at = 0;
  #match: RegExpExecArray | undefined;

  constructor(text: string) {
    this.#text = text.trimEnd();
  }

  #peek(): RegExpExecArray | undefined {
    if (this.#match !== undefined) return this.#match;
    TOKEN.lastIndex = this.#at;
    const match = TOKEN.exec(this.#text);
    if (match === null || match[0].trim() === '') return undefined;
    this.#match = match;
    return match;
  }

  #take(): RegExpExecArray {
    const match = this.#peek();
    if (match === undefined) {
      const rest = this.#text.slice(this.#at, this.#at + 20);
      throw new SyntaxError(
        rest.trim() === '' ? 'the literal ends too early' : `${JSON.stringify(rest)} is no literal`,
      );
    }
    this.#at += match[0].length;
    this.#match = undefined;
    return match;
  }

  #takeIf(mark: string): boolean {
    if (this.#peek()?.[1] !== mark) return false;
    this.#take();
    return true;
  }

  whole(): PyValue {
    const value = this.#value(0);
    if (this.#at < this.#text.length)
      throw new SyntaxError(`${JSON.stringify(this.#text.slice(this.#at, this.#at + 20))} follows the literal`);
    return value;
  }

  #value(depth: number): PyValue {
    if (depth > MAX_DEPTH) throw new SyntaxError(`the literal nests more than ${MAX_DEPTH} deep`);
    const [, mark, , quoted, number, word] = this.#peek() ?? [];
    if (quoted !== undefined) return this.#string();
    this.#take();
    if (mark === '[') return this.#items(']', depth).values;
    if (mark === '(') {
      const { values, hasComma } = this.#items(')', depth);
      return values.length === 1 && !hasComma ? at(values, 0) : values;
    }
    if (mark === '{') return this.#dict(depth);
    if (number !== undefined && number !== '') return readNumber(number);
    if (word === 'None') return null;
    if (word === 'True' || word === 'False') return word === 'True';
    throw new SyntaxError(`${JSON.stringify(mark ?? word ?? '')} is no literal`);
  }

  /** Neighbouring literals are one text. */
  #string(): string {
    let text = '';
    while (this.#peek()?.[3] !== undefined) {
      const [, , prefix = '', quoted = ''] = this.#take();
      const body = quoted.slice(1, -1);
      text += prefix.toLowerCase() === 'r' ? body : unescapeText(body);
    }
    return text;
  }

  #items(close: string, depth: number): { values: PyValue[]; hasComma: boolean } {
    const values: PyValue[] = [];
    let hasComma = false;
    while (!this.#takeIf(close)) {
      values.push(this.#value(depth + 1));
      if (this.#takeIf(',')) hasComma = true;
      else if (this.#peek()?.[1] !== close) throw new SyntaxError(`"${close}" is missing`);
    }
    return { values, hasComma };
  }

  #dict(depth: number): PyValue {
    const entries = new Map<string, PyValue>();
    while (!this.#takeIf('}')) {
      const key = this.#value(depth + 1);
      if (typeof key !== 'string') throw new SyntaxError('a key of a dictionary is not text');
      if (!this.#takeIf(':')) throw new SyntaxError('":" is missing');
      entries.set(key, this.#value(depth + 1));
      if (!this.#takeIf(',') && this.#peek()?.[1] !== '}') throw new SyntaxError('"}" is missing');
    }
    return entries;
  }
}

function readNumber(text: string): PyValue {
  if (!/\d/.test(text)) throw new SyntaxError(`${JSON.stringify(text)} is no number`);
  const plain = text.replaceAll('_', '');
  if (!/^[-+]?\d+$/.test(plain)) return new Float(Number(plain));
  if (/^[-+]?0+[1-9]/.test(plain)) throw new SyntaxError(`${text}: a number does not start with 0`);
  if (plain.length > 1000) throw new SyntaxError('a number has more than 1,000 digits');
  return toInt(BigInt(plain.replace(/^\+/, '')));
}

/** Throws SyntaxError that says what is wrong. */
export const literalEval = (text: string): PyValue => new LiteralReader(text).whole();

// JSON as Python's json module reads it: 1.0 is a float and 1 is not, and whole numbers have any size.

/** Of a whole number. */
const MAX_DIGITS = 4300;
/** A number that JavaScript would not tell from a whole one, or would round. It may be inside of a text. */
const SPECIAL = /(?:^|[:[,])\s*-?(?:\d+[.eE]|\d{16})|NaN|Infinity/;
const JSON_NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y;
const WORDS: readonly (readonly [string, PyValue])[] = [
  ['true', true],
  ['false', false],
  ['null', null],
  ['NaN', new Float(NaN)],
  ['Infinity', new Float(Infinity)],
  ['-Infinity', new Float(-Infinity)],
];

/**
 * A plain value of JavaScript as Python's: a whole number is an int. What is Python's already stays so. Functions and
 * the like are left out.
 */
export function valueOf(value: unknown): PyValue {
  if (value instanceof Float || value instanceof Map) return value as PyValue;
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : new Float(value);
  if (typeof value === 'string' || typeof value === 'boolean' || typeof value === 'bigint') return value;
  if (Array.isArray(value)) return value.map(valueOf);
  if (typeof value !== 'object' || value === null) return null;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return new Map(entries.map(([key, item]) => [key, valueOf(item)]));
}

function fromPlain(value: unknown): PyValue {
  if (Array.isArray(value)) return value.map(fromPlain);
  if (typeof value !== 'object' || value === null) return value as PyValue;
  return new Map(Object.entries(value).map(([key, item]) => [key, fromPlain(item)]));
}

/** Throws SyntaxError for text that is no JSON, or nests too deep. */
export function parseJsonValue(text: string): PyValue {
  if (isDeeperThan(text, MAX_JSON_DEPTH)) throw new SyntaxError(`nested more than ${MAX_JSON_DEPTH} deep`);
  // A record with a key "__proto__", or keys that look like numbers and would change places, takes the slow way too.
  if (!SPECIAL.test(text) && !/"(?:__proto__|\d+)"\s*:/.test(text)) return fromPlain(JSON.parse(text));
  const reader = new JsonReader(text);
  const value = reader.value();
  reader.end();
  return value;
}

/** Values that follow each other, with spaces or ends of lines between them. Throws SyntaxError as parseJsonValue. */
export function parseJsonValues(text: string): PyValue[] {
  if (isDeeperThan(text, MAX_JSON_DEPTH)) throw new SyntaxError(`nested more than ${MAX_JSON_DEPTH} deep`);
  const reader = new JsonReader(text);
  const values: PyValue[] = [];
  while (!reader.isAtEnd()) values.push(reader.value());
  return values;
}

class JsonReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  #fail(): never {
    throw new SyntaxError(`unexpected ${this.#at < this.#text.length ? 'character' : 'end'} at column ${this.#at + 1}`);
  }

  #skip(): string {
    while (' \t\n\r'.includes(this.#text.charAt(this.#at)) && this.#at < this.#text.length) this.#at++;
    return this.#text.charAt(this.#at);
  }

  #expect(mark: string): void {
    if (this.#skip() !== mark) this.#fail();
    this.#at++;
  }

  isAtEnd(): boolean {
    return this.#skip() === '';
  }

  end(): void {
    if (!this.isAtEnd()) this.#fail();
  }

  value(): PyValue {
    const mark = this.#skip();
    if (mark === '"') return this.#string();
    if (mark === '[') return this.#list();
    if (mark === '{') return this.#dict();
    for (const [word, value] of WORDS) {
      if (!this.#text.startsWith(word, this.#at)) continue;
      this.#at += word.length;
      return value;
    }
    JSON_NUMBER.lastIndex = this.#at;
    const [whole, fraction, exponent] = JSON_NUMBER.exec(this.#text) ?? this.#fail();
    this.#at += whole.length;
    if (fraction !== undefined || exponent !== undefined) return new Float(Number(whole));
    // Python's int() reads no more digits either.
    if (whole.length > MAX_DIGITS) this.#fail();
    return toInt(BigInt(whole));
  }

  #string(): string {
    const from = this.#at++;
    for (let code = 0; (code = this.#text.charCodeAt(this.#at)) !== 0x22; this.#at++) {
      if (Number.isNaN(code)) this.#fail();
      if (code === 0x5c) this.#at++;
    }
    this.#at++;
    return JSON.parse(this.#text.slice(from, this.#at)) as string;
  }

  #list(): PyValue {
    const items: PyValue[] = [];
    this.#at++;
    if (this.#skip() === ']') {
      this.#at++;
      return items;
    }
    for (;;) {
      items.push(this.value());
      if (this.#skip() === ',') this.#at++;
      else break;
    }
    this.#expect(']');
    return items;
  }

  #dict(): PyValue {
    const entries = new Map<string, PyValue>();
    this.#at++;
    if (this.#skip() === '}') {
      this.#at++;
      return entries;
    }
    for (;;) {
      if (this.#skip() !== '"') this.#fail();
      const key = this.#string();
      this.#expect(':');
      entries.set(key, this.value());
      if (this.#skip() === ',') this.#at++;
      else break;
    }
    this.#expect('}');
    return entries;
  }
}
