/** The syntax tree of a template. Lines count from 1. */
import { unescapeText } from '../literal.js';
import { isSpace, PYTHON_SPACE, rightStrip, type PyValue } from '../value.js';
import { TemplateProblem } from './work.js';

export type Comparison = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';
export type Arithmetic = '+' | '-' | '*' | '/' | '//' | '%' | '**';

/** What stands between the brackets of a call. */
export interface Arguments {
  readonly args: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  /** Behind `*` and `**`. */
  readonly rest?: Expression | undefined;
  readonly restNamed?: Expression | undefined;
}

export type Expression = { readonly line: number } & (
  | { readonly kind: 'constant'; readonly value: PyValue }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
  | { readonly kind: 'dict'; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: 'attribute'; readonly of: Expression; readonly name: string }
  | { readonly kind: 'item'; readonly of: Expression; readonly key: Expression }
  | {
      readonly kind: 'slice';
      readonly of: Expression;
      readonly from: Expression | undefined;
      readonly to: Expression | undefined;
      readonly step: Expression | undefined;
    }
  | ({ readonly kind: 'call'; readonly of: Expression } & Arguments)
  | FilterCall
  | ({ readonly kind: 'test'; readonly of: Expression; readonly name: string } & Arguments)
  | { readonly kind: 'not' | 'negative' | 'positive'; readonly of: Expression }
  | { readonly kind: 'and' | 'or' | 'concat'; readonly items: readonly Expression[] }
  | { readonly kind: 'compare'; readonly first: Expression; readonly rest: readonly OperatorNode<Comparison>[] }
  | { readonly kind: 'arithmetic'; readonly first: Expression; readonly rest: readonly OperatorNode<Arithmetic>[] }
  | {
      readonly kind: 'choose';
      readonly condition: Expression;
      readonly then: Expression;
      readonly otherwise: Expression | undefined;
    }
);

export interface OperatorNode<Op> {
  readonly op: Op;
  readonly right: Expression;
}

/** Without `of`, it filters the text of a block. */
export type FilterCall = {
  readonly kind: 'filter';
  readonly of: Expression | undefined;
  readonly name: string;
  readonly line: number;
} & Arguments;

/** What a value is given to: a name, a field of a namespace, or several of them for its items. */
export type AssignmentTarget =
  | { readonly kind: 'name'; readonly name: string; readonly line: number }
  | { readonly kind: 'field'; readonly of: string; readonly name: string; readonly line: number }
  | { readonly kind: 'targets'; readonly items: readonly AssignmentTarget[]; readonly line: number };

/** How a name of a scope begins: from the context, from the scope around, or without a value. */
export type Origin = 'context' | 'outer' | 'missing';

/** A body with a scope of its own. `origins` is filled by resolveNames(). */
export interface TemplateBody {
  readonly statements: readonly Statement[];
  origins: readonly (readonly [string, Origin])[];
}

export interface Parameter {
  readonly name: string;
  readonly otherwise: Expression | undefined;
}

/** What a macro and a call block share. */
export interface Signature {
  readonly parameters: readonly Parameter[];
  readonly body: TemplateBody;
  /** Names that the body uses without being given them. */
  special: ReadonlySet<'caller' | 'kwargs' | 'varargs'>;
}

export interface IfBranch {
  readonly condition: Expression;
  readonly body: readonly Statement[];
}

export interface For {
  readonly kind: 'for';
  readonly target: AssignmentTarget;
  readonly of: Expression;
  readonly condition: Expression | undefined;
  readonly conditionScope: TemplateBody;
  readonly isRecursive: boolean;
  readonly body: TemplateBody;
  readonly otherwise: TemplateBody | undefined;
  readonly line: number;
}

export type Statement = { readonly line: number } & (
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly value: Expression }
  | { readonly kind: 'set'; readonly target: AssignmentTarget; readonly value: Expression }
  | {
      readonly kind: 'capture';
      readonly target: AssignmentTarget;
      readonly filter: FilterCall | undefined;
      readonly body: TemplateBody;
    }
  | { readonly kind: 'if'; readonly branches: readonly IfBranch[]; readonly otherwise: readonly Statement[] }
  | For
  | ({ readonly kind: 'macro'; readonly name: string } & Signature)
  | ({ readonly kind: 'call'; readonly call: Expression } & Signature)
  | { readonly kind: 'filtered'; readonly filter: FilterCall; readonly body: TemplateBody }
  | {
      readonly kind: 'with';
      readonly entries: readonly (readonly [AssignmentTarget, Expression])[];
      readonly body: TemplateBody;
    }
  | { readonly kind: 'scope'; readonly body: TemplateBody; readonly escapes: Expression | undefined }
  | { readonly kind: 'block'; readonly name: string; readonly isScoped: boolean; readonly body: TemplateBody }
  | { readonly kind: 'loader'; readonly tag: string }
  | { readonly kind: 'break' | 'continue' }
);

/** The expressions that an expression is made of. */
export function partsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'constant':
    case 'name':
      return [];
    case 'list':
    case 'tuple':
    case 'and':
    case 'or':
    case 'concat':
      return expression.items;
    case 'dict':
      return expression.entries.flat();
    case 'attribute':
    case 'not':
    case 'negative':
    case 'positive':
      return [expression.of];
    case 'item':
      return [expression.of, expression.key];
    case 'slice':
      return [expression.of, expression.from, expression.to, expression.step].filter((part) => part !== undefined);
    case 'call':
    case 'filter':
    case 'test': {
      const { of, args, named, rest, restNamed } = expression;
      const all = [of, ...args, ...named.map(([, value]) => value), rest, restNamed];
      return all.filter((part) => part !== undefined);
    }
    case 'compare':
    case 'arithmetic':
      return [expression.first, ...expression.rest.map(({ right }) => right)];
    case 'choose':
      return [expression.condition, expression.then, expression.otherwise].filter((part) => part !== undefined);
    default:
      return expression satisfies never;
  }
}

// Cuts a template into text and tags, and tags into tokens, as Jinja does.

export interface LexerOptions {
  /** Whether the end of a line behind a block's tag is left out. */
  readonly trimsBlocks: boolean;
  /** Whether spaces from the start of a line to a block's tag are left out. */
  readonly stripsBlocks: boolean;
  /** Whether the end of the last line is kept. */
  readonly keepsLastNewline: boolean;
}

export interface TemplateToken {
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
  readonly #tokens: TemplateToken[] = [];
  #at = 0;
  #line = 1;
  /** Whether what was read last ends a line. */
  #startsLine = true;

  constructor(source: string, options: LexerOptions) {
    const lines = source.replace(/\r\n?/g, '\n');
    this.#source = options.keepsLastNewline || !lines.endsWith('\n') ? lines : lines.slice(0, -1);
    this.#options = options;
  }

  read(): TemplateToken[] {
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

  #push(kind: TemplateToken['kind'], text: string): void {
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
export const tokensOf = (source: string, options: LexerOptions): TemplateToken[] => new Lexer(source, options).read();
