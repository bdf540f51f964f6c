/** JSON as Python's json module reads it: 1.0 is a float and 1 is not, and whole numbers have any size. */
import { isDeeperThan, MAX_JSON_DEPTH } from '../system/json.js';
import { Float, toInt, type Value } from './value.js';

/** Of a whole number. */
const MAX_DIGITS = 4300;
/** A number that JavaScript would not tell from a whole one, or would round. It may be inside of a text. */
const SPECIAL = /(?:^|[:[,])\s*-?(?:\d+[.eE]|\d{16})|NaN|Infinity/;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y;
const WORDS: readonly (readonly [string, Value])[] = [
  ['true', true],
  ['false', false],
  ['null', null],
  ['NaN', new Float(NaN)],
  ['Infinity', new Float(Infinity)],
  ['-Infinity', new Float(-Infinity)],
];

/** A plain value of JavaScript as Python's: a whole number is an int. Functions and the like are left out. */
export function valueOf(value: unknown): Value {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : new Float(value);
  if (typeof value === 'string' || typeof value === 'boolean' || typeof value === 'bigint') return value;
  if (Array.isArray(value)) return value.map(valueOf);
  if (typeof value !== 'object' || value === null) return null;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return new Map(entries.map(([key, item]) => [key, valueOf(item)]));
}

function fromPlain(value: unknown): Value {
  if (Array.isArray(value)) return value.map(fromPlain);
  if (typeof value !== 'object' || value === null) return value as Value;
  return new Map(Object.entries(value).map(([key, item]) => [key, fromPlain(item)]));
}

/** Throws SyntaxError for text that is no JSON, or nests too deep. */
export function parseJsonValue(text: string): Value {
  if (isDeeperThan(text, MAX_JSON_DEPTH)) throw new SyntaxError(`nested more than ${MAX_JSON_DEPTH} deep`);
  // A record with a key "__proto__", or keys that look like numbers and would change places, takes the slow way too.
  if (!SPECIAL.test(text) && !/"(?:__proto__|\d+)"\s*:/.test(text)) return fromPlain(JSON.parse(text));
  const reader = new Reader(text);
  const value = reader.value();
  reader.end();
  return value;
}

/** Values that follow each other, with spaces or ends of lines between them. Throws SyntaxError as parseJsonValue. */
export function parseJsonValues(text: string): Value[] {
  if (isDeeperThan(text, MAX_JSON_DEPTH)) throw new SyntaxError(`nested more than ${MAX_JSON_DEPTH} deep`);
  const reader = new Reader(text);
  const values: Value[] = [];
  while (!reader.isAtEnd()) values.push(reader.value());
  return values;
}

class Reader {
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

  value(): Value {
    const mark = this.#skip();
    if (mark === '"') return this.#string();
    if (mark === '[') return this.#list();
    if (mark === '{') return this.#dict();
    for (const [word, value] of WORDS) {
      if (!this.#text.startsWith(word, this.#at)) continue;
      this.#at += word.length;
      return value;
    }
    NUMBER.lastIndex = this.#at;
    const [whole, fraction, exponent] = NUMBER.exec(this.#text) ?? this.#fail();
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

  #list(): Value {
    const items: Value[] = [];
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

  #dict(): Value {
    const entries = new Map<string, Value>();
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
