/** Cuts a template into text and tags, and tags into tokens, as Jinja does. */
import { unescapeText } from '../literal.js';
import { isSpace, PYTHON_SPACE, rightStrip } from '../text.js';
import { TemplateProblem } from './failure.js';

export interface LexerOptions {
  /** Whether the end of a line behind a block's tag is left out. */
  readonly trimsBlocks: boolean;
  /** Whether spaces from the start of a line to a block's tag are left out. */
  readonly stripsBlocks: boolean;
  /** Whether the end of the last line is kept. */
  readonly keepsLastNewline: boolean;
}

export interface Token {
  /** `print` and `block` open a tag, `end` closes it. */
  readonly kind: 'data' | 'print' | 'block' | 'name' | 'text' | 'int' | 'float' | 'mark' | 'end' | 'eof';
  /** The name, mark or number as written; the value of a text. */
  readonly text: string;
  readonly line: number;
}

const FLOAT = /((?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+))/;
const INT = /(0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*)/;
const QUOTED = /('(?:[^'\\]|\\[^])*'|"(?:[^"\\]|\\[^])*")/;
const MARK = /(\/\/|\*\*|==|!=|<=|>=|[-+*/%~<>=.,:;|()[\]{}])/;
const TOKEN = new RegExp(
  `([${PYTHON_SPACE}]+)|${FLOAT.source}|${INT.source}|([\\p{L}\\p{N}\\p{M}_]+)|${QUOTED.source}|${MARK.source}`,
  'uy',
);
const IDENTIFIER = /^[\p{XID_Start}_][\p{XID_Continue}]*$/u;
const PAIRS: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };
/** As Python's `\s` is. */
const S = `[${PYTHON_SPACE}]`;
const RAW = new RegExp(`\\{%([-+]?)${S}*raw${S}*(?:(-)%\\}${S}*|%\\})`, 'y');
const END_RAW = new RegExp(`\\{%([-+]?)${S}*endraw${S}*([-+]?)%\\}`, 'g');
const SPACES = new RegExp(`${S}*`, 'y');

const linesIn = (text: string): number => text.split('\n').length - 1;

class Lexer {
  readonly #source: string;
  readonly #options: LexerOptions;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** Whether what was read last ends a line. */
  #startsLine = true;

  constructor(source: string, options: LexerOptions) {
    const lines = source.replace(/\r\n?/g, '\n');
    this.#source = options.keepsLastNewline || !lines.endsWith('\n') ? lines : lines.slice(0, -1);
    this.#options = options;
  }

  read(): Token[] {
    const opening = /\{[{%#]/g;
    for (;;) {
      opening.lastIndex = this.#at;
      const open = opening.exec(this.#source);
      if (open === null) {
        if (this.#at < this.#source.length) this.#push('data', this.#source.slice(this.#at));
        this.#tokens.push({ kind: 'eof', text: '', line: this.#line + linesIn(this.#source.slice(this.#at)) });
        return this.#tokens;
      }
      const text = this.#source.slice(this.#at, open.index);
      RAW.lastIndex = open.index;
      const raw = RAW.exec(this.#source);
      const sign = raw?.[1] ?? /[-+]?/.exec(this.#source.charAt(open.index + 2))?.[0] ?? '';
      this.#data(text, sign, open[0] !== '{{');
      this.#startsLine = false;
      if (raw !== null) {
        this.#line += linesIn(raw[0]);
        this.#at = RAW.lastIndex;
        this.#startsLine = raw[0].endsWith('\n');
        this.#raw();
      } else {
        this.#at = open.index + 2 + sign.length;
        if (open[0] === '{#') this.#comment();
        else this.#tag(open[0] === '{{' ? 'print' : 'block', open[0] === '{{' ? '}}' : '%}');
      }
    }
  }

  #push(kind: Token['kind'], text: string): void {
    this.#tokens.push({ kind, text, line: this.#line });
  }

  #fail(message: string): TemplateProblem {
    return new TemplateProblem('TemplateSyntaxError', message, this.#line);
  }

  /** Text before a tag, without what the tag's sign or the options leave out. */
  #data(text: string, sign: string, isBlock: boolean): void {
    let kept = text;
    if (sign === '-') kept = rightStrip(text);
    else if (sign === '' && isBlock && this.#options.stripsBlocks) {
      const start = text.lastIndexOf('\n') + 1;
      if ((start > 0 || this.#startsLine) && isSpace(text.slice(start))) kept = text.slice(0, start);
    }
    if (kept !== '') this.#push('data', kept);
    this.#line += linesIn(text);
  }

  /** Behind the end of a tag. */
  #after(sign: string, isBlock: boolean): void {
    const from = this.#at;
    if (sign === '-') {
      SPACES.lastIndex = from;
      SPACES.exec(this.#source);
      this.#at = SPACES.lastIndex;
    } else if (sign === '' && isBlock && this.#options.trimsBlocks && this.#source[from] === '\n') this.#at++;
    this.#line += linesIn(this.#source.slice(from, this.#at));
    this.#startsLine = this.#at > from && this.#source[this.#at - 1] === '\n';
  }

  #raw(): void {
    END_RAW.lastIndex = this.#at;
    const end = END_RAW.exec(this.#source);
    if (end === null) throw this.#fail('Missing end of raw directive');
    this.#data(this.#source.slice(this.#at, end.index), end[1] ?? '', true);
    this.#line += linesIn(end[0]);
    this.#at = END_RAW.lastIndex;
    this.#after(end[2] ?? '', true);
  }

  #comment(): void {
    const end = this.#source.indexOf('#}', this.#at);
    if (end < 0) throw this.#fail('Missing end of comment tag');
    const inside = this.#source.slice(this.#at, end);
    const sign = /[-+]$/.exec(inside)?.[0] ?? '';
    this.#line += linesIn(inside);
    this.#at = end + 2;
    this.#after(sign, true);
  }

  #tag(kind: 'print' | 'block', close: string): void {
    this.#push(kind, '');
    const expected: string[] = [];
    for (;;) {
      if (expected.length === 0) {
        const first = this.#source.charAt(this.#at);
        const sign = first === '-' || (first === '+' && kind === 'block') ? first : '';
        if (this.#source.startsWith(close, this.#at + sign.length)) {
          this.#push('end', close);
          this.#at += sign.length + close.length;
          this.#after(sign, kind === 'block');
          return;
        }
      }
      TOKEN.lastIndex = this.#at;
      const match = TOKEN.exec(this.#source);
      if (match === null) {
        const next = this.#source.charAt(this.#at);
        throw this.#fail(
          next === '' ? `unexpected end of template, expected '${close}'` : `unexpected char ${JSON.stringify(next)}`,
        );
      }
      const [all, , float, int, name, text, mark] = match;
      if (float !== undefined) this.#push('float', float.replaceAll('_', ''));
      else if (int !== undefined) this.#push('int', int.replaceAll('_', ''));
      else if (name !== undefined) {
        if (!IDENTIFIER.test(name)) throw this.#fail('Invalid character in identifier');
        this.#push('name', name);
      } else if (text !== undefined) this.#push('text', this.#unescaped(text));
      else if (mark !== undefined) {
        this.#balance(mark, expected);
        this.#push('mark', mark);
      }
      this.#line += linesIn(all);
      this.#at += all.length;
    }
  }

  #balance(mark: string, expected: string[]): void {
    const closing = PAIRS[mark];
    if (closing !== undefined) expected.push(closing);
    if (mark !== ')' && mark !== ']' && mark !== '}') return;
    const awaited = expected.pop();
    if (awaited === undefined) throw this.#fail(`unexpected '${mark}'`);
    if (awaited !== mark) throw this.#fail(`unexpected '${mark}', expected '${awaited}'`);
  }

  #unescaped(quoted: string): string {
    try {
      return unescapeText(quoted.slice(1, -1));
    } catch (error) {
      if (error instanceof SyntaxError) throw this.#fail(error.message);
      throw error;
    }
  }
}

/** Throws TemplateProblem. */
export const tokensOf = (source: string, options: LexerOptions): Token[] => new Lexer(source, options).read();
