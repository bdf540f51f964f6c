/**
 * Answers as expressions, as search-and-learn reads them before it groups them: by the grammar of latex2sympy. Lists,
 * points and intervals are none.
 */
import { at } from '../../system/at.js';
import { Unreadable } from '../../tasks/hooks/math/latexLexer.js';
import { added, divided, MAX_ENTRIES, multiplied, negated } from '../../tasks/hooks/math/matrices.js';
import {
  apply,
  call,
  FUNCTIONS,
  type MathExpression,
  ratio,
  type RelationSign,
  whole,
} from '../../tasks/hooks/math/values.js';
import { ACCENT_COMMANDS, type ExpressionToken, SYMBOL_COMMANDS, tokenAt } from './expressionTokens.js';

const MAX_LETTERS = 2000;
const MAX_DEPTH = 60;
/** Tokens that are looked at, those that are read twice counted twice. */
const MAX_READ = 20_000;
/** Terms of a sum, or factors of a product. */
const MAX_ITEMS = 200;

const SIGNS: Readonly<Record<string, RelationSign>> = {
  '=': '=',
  '==': '=',
  equiv: '=',
  '<': '<',
  leq: '<=',
  le: '<=',
  leqslant: '<=',
  '>': '>',
  geq: '>=',
  ge: '>=',
  geqslant: '>=',
  '!=': '!=',
  '!==': '!=',
  ne: '!=',
  neq: '!=',
  in: 'in',
};
const CLOSING: Readonly<Record<string, string>> = {
  '(': ')',
  '[': ']',
  '{': '}',
  '\\{': '\\}',
  '\\lgroup': '\\rgroup',
  '\\lbrace': '\\rbrace',
  '\\lbrack': '\\rbrack',
  '\\lvert': '\\rvert',
  '\\vert': '\\vert',
  '\\lfloor': '\\rfloor',
  '\\lceil': '\\rceil',
};
const AROUND: Readonly<Record<string, string>> = {
  '\\lvert': 'abs',
  '\\vert': 'abs',
  '\\lfloor': 'floor',
  '\\lceil': 'ceil',
};
const NAMED = /^(?:log|ln|exp|(?:arc)?(?:sin|cos|tan|csc|sec|cot)|(?:arc?)?(?:sinh|cosh|tanh)|floor|ceil)$/;

class ExpressionReader {
  private readonly text: string;
  private place = 0;
  private peeked: ExpressionToken | undefined;
  private depth = 0;
  private read = 0;
  /** Bars that are open: another one closes the last. */
  private bars = 0;

  constructor(text: string) {
    this.text = text;
  }

  private get next(): ExpressionToken {
    if (this.peeked === undefined && ++this.read > MAX_READ) throw new Unreadable('too long');
    return (this.peeked ??= tokenAt(this.text, this.place));
  }

  /** Marks are told by their text, commands by theirs behind a backslash. */
  private is(...texts: readonly string[]): boolean {
    const { kind, text } = this.next;
    return (kind === 'mark' && texts.includes(text)) || (kind === 'command' && texts.includes(`\\${text}`));
  }

  private advance(): ExpressionToken {
    const token = this.next;
    this.place = token.to;
    this.peeked = undefined;
    return token;
  }

  private take(...texts: readonly string[]): boolean {
    const isThere = this.is(...texts);
    if (isThere) this.advance();
    return isThere;
  }

  private expect(text: string): void {
    if (!this.take(text)) throw new Unreadable(`expected ${text}`);
  }

  private within<T>(what: () => T): T {
    if (++this.depth > MAX_DEPTH) throw new Unreadable('too deep');
    const found = what();
    this.depth--;
    return found;
  }

  whole(isPrefix: boolean): MathExpression {
    let left = this.sum();
    for (;;) {
      const { kind, text } = this.next;
      const sign = kind === 'mark' || kind === 'command' ? SIGNS[text] : undefined;
      if (sign === undefined) break;
      this.advance();
      const right = this.sum();
      if (left.kind === 'relation') throw new Unreadable('a chain');
      // A named value, as x = 5, counts as its value. Other equations are solved, and give lists.
      if (text === '=' && left.kind === 'symbol') left = right;
      else if (text === '=' || sign === 'in') throw new Unreadable('an equation');
      else left = { kind: 'relation', sides: [left, right], signs: [sign] };
    }
    if (this.is(',', ';') || !(isPrefix || this.next.kind === 'end')) throw new Unreadable('more than an expression');
    return left;
  }

  private sum(): MathExpression {
    return this.within(() => {
      let total = this.product(false);
      for (let count = 1; ; count++) {
        if (count > MAX_ITEMS) throw new Unreadable('too many terms');
        const isMinus = this.is('-');
        if (!this.take('+', '-')) return total;
        const term = this.product(false);
        total = added(total, isMinus ? negated(term) : term);
      }
    });
  }

  /** `isArgument`: of a function without brackets. Functions among its factors end it. */
  private product(isArgument: boolean): MathExpression {
    let total = this.signed(isArgument);
    for (let count = 1; ; count++) {
      if (count > MAX_ITEMS) throw new Unreadable('too many factors');
      if (this.take('*', '\\times', '\\cdot')) total = multiplied(total, this.signed(isArgument));
      else if (this.take('/', '\\over', '\\div', ':')) total = divided(total, this.signed(isArgument));
      else if (this.is('\\mod')) throw new Unreadable('a remainder');
      else return total;
    }
  }

  /** Factors one behind another bind more closely than signs do. */
  private signed(isArgument: boolean): MathExpression {
    let isNegative = false;
    for (;;) {
      if (this.take('-')) isNegative = !isNegative;
      else if (!this.take('+')) break;
    }
    let total = this.power();
    for (let count = 1; this.beginsFactor(isArgument); count++) {
      if (count > MAX_ITEMS) throw new Unreadable('too many factors');
      total = multiplied(total, this.power());
    }
    return isNegative ? negated(total) : total;
  }

  private beginsFactor(isArgument: boolean): boolean {
    const { kind, text } = this.next;
    switch (kind) {
      case 'number':
        return true;
      case 'letter':
        return !(isArgument && text === 'e');
      case 'mark':
        return text === '(' || text === '[' || text === '{' || (text === '|' && this.bars === 0);
      case 'command':
        if (text === 'vert') return this.bars === 0;
        if (NAMED.test(text) || text === 'sqrt') return !isArgument;
        if (CLOSING[`\\${text}`] !== undefined || SYMBOL_COMMANDS.has(text) || ACCENT_COMMANDS.has(text)) return true;
        return /^(?:frac|[td]?binom|pi|infty|left|mleft|mathit|begin.*)$/.test(text);
      case 'name':
      case 'end':
        return false;
      default:
        return kind satisfies never;
    }
  }

  private power(): MathExpression {
    let base = this.atom();
    for (let count = 1; ; count++) {
      if (count > MAX_ITEMS) throw new Unreadable('too many exponents');
      if (this.take('!')) base = apply('factorial', base);
      else if (this.take('^')) base = apply('^', base, this.script());
      else if (!this.take("'", '^T', '^{T}')) return base;
    }
  }

  /** An exponent or index: a group, or a number or symbol, which may have an exponent of its own. */
  private script(): MathExpression {
    if (this.take('{')) {
      const found = this.sum();
      this.expect('}');
      return found;
    }
    return this.within(() => this.simple());
  }

  /** A number or symbol. */
  private simple(): MathExpression {
    const { kind, text } = this.next;
    if (kind === 'number') {
      this.advance();
      return numberOf(text);
    }
    if (this.take('\\pi')) return { kind: 'constant', name: 'pi' };
    if (this.take('\\infty')) return { kind: 'constant', name: 'infinity' };
    const symbol = this.symbol();
    return this.take('^') ? apply('^', symbol, this.script()) : symbol;
  }

  /** A letter or the like, with its index. */
  private symbol(): MathExpression {
    const { kind, text } = this.next;
    const isAccent = kind === 'command' && (ACCENT_COMMANDS.has(text) || text === 'mathit');
    if (!(kind === 'letter' ? text !== 'e' : kind === 'command' && (isAccent || SYMBOL_COMMANDS.has(text))))
      throw new Unreadable(`${text} is no symbol`);
    this.advance();
    let name = text;
    if (isAccent) {
      this.expect('{');
      name += `{${this.spanOf(() => (text === 'mathit' ? this.letters() : this.sum()))}}`;
      this.expect('}');
    }
    if (this.take('_')) name += `_${this.index()}`;
    return name === 'I' ? { kind: 'constant', name: 'i' } : { kind: 'symbol', name };
  }

  private letters(): void {
    while (this.next.kind === 'letter' || (this.next.kind === 'name' && this.next.text === 'E')) this.advance();
  }

  private index(): string {
    if (!this.take('{')) return this.spanOf(() => this.simple());
    const text = this.spanOf(() => {
      do this.sum();
      while (this.take(','));
    });
    this.expect('}');
    return text;
  }

  /** The text of what is read. */
  private spanOf(what: () => void): string {
    const { from } = this.next;
    what();
    return this.text.slice(from, this.place).replace(/\s+/g, '');
  }

  private atom(): MathExpression {
    const { kind, text } = this.next;
    if (kind === 'letter' && text === 'e') {
      this.advance();
      const e: MathExpression = { kind: 'constant', name: 'e' };
      return this.take('^') ? apply('^', e, this.script()) : e;
    }
    if (kind === 'mark') return this.group();
    if (kind === 'letter' || (kind === 'command' && SYMBOL_COMMANDS.has(text))) return this.applied() ?? this.simple();
    return kind === 'command' ? this.command(text) : this.simple();
  }

  /** f(x) or f(x, y): a symbol of this name. A product with a group of more than a number or symbol is none. */
  private applied(): MathExpression | undefined {
    const { place, peeked, depth } = this;
    const back = (): undefined => {
      Object.assign(this, { place, peeked, depth });
    };
    try {
      const name = this.spanOf(() => this.symbol());
      if (!this.take('(', '[')) return back();
      const inner = this.spanOf(() => this.simple());
      return this.take(')', ']') ? { kind: 'symbol', name: `${name}(${inner})` } : back();
    } catch (error) {
      if (error instanceof Unreadable && this.read <= MAX_READ) return back();
      throw error;
    }
  }

  private group(): MathExpression {
    const sized = this.take('\\left') ? '\\right' : this.take('\\mleft') ? '\\mright' : undefined;
    const bars = this.bars;
    if (this.take('|')) {
      this.bars++;
      const found = this.within(() => this.sum());
      this.bars = bars;
      if (sized !== undefined) this.expect(sized);
      this.expect('|');
      return call('abs', found);
    }
    const { kind, text } = this.advance();
    const open = kind === 'command' ? `\\${text}` : text;
    const close = CLOSING[open];
    if (close === undefined) throw new Unreadable(`${text} begins nothing`);
    this.bars = open === '\\vert' ? 1 : 0;
    const found = this.within(() => this.sum());
    const isChoice = open === '{' && this.take('\\choose');
    const lower = isChoice ? this.sum() : undefined;
    this.bars = bars;
    if (sized !== undefined) this.expect(sized);
    this.expect(close);
    if (lower !== undefined) return apply('binomial', found, lower);
    const around = AROUND[open];
    return around === undefined ? found : call(around, found);
  }

  private command(text: string): MathExpression {
    if (CLOSING[`\\${text}`] !== undefined || text === 'left' || text === 'mleft') return this.group();
    if (ACCENT_COMMANDS.has(text) || text === 'mathit' || text === 'pi' || text === 'infty') return this.simple();
    this.advance();
    if (text === 'frac' || /^[td]?binom$/.test(text)) {
      const [upper, lower] = [this.braced(), this.braced()];
      return text === 'frac' ? divided(upper, lower) : apply('binomial', upper, lower);
    }
    if (text === 'sqrt') {
      const degree = this.take('[') ? this.sum() : undefined;
      if (degree !== undefined) this.expect(']');
      const of = this.braced();
      return apply('^', of, apply('/', whole(1n), degree ?? whole(2n)));
    }
    if (text.startsWith('begin')) return this.matrix(text.slice('begin'.length));
    if (NAMED.test(text)) return this.named(text);
    throw new Unreadable(`\\${text}`);
  }

  private braced(): MathExpression {
    this.expect('{');
    const found = this.sum();
    this.expect('}');
    return found;
  }

  private named(name: string): MathExpression {
    let [base, exponent]: (MathExpression | undefined)[] = [];
    for (;;) {
      if (base === undefined && this.take('_')) base = this.script();
      else if (exponent === undefined && this.take('^')) exponent = this.script();
      else break;
    }
    const of = this.is('(') || this.is('\\left') ? this.group() : this.within(() => this.product(true));
    const short = name.replace(/^arc?/, 'arc');
    if (name === 'log' || (name === 'ln' && base !== undefined))
      return raised(apply('logarithm', of, base ?? whole(10n)), exponent);
    const isInverse = exponent?.kind === 'number' && exponent.value.top === -1n && exponent.value.over === 1n;
    if (isInverse && FUNCTIONS[`arc${name}`] !== undefined) return call(`arc${name}`, of);
    return raised(call(short, of), exponent);
  }

  private matrix(environment: string): MathExpression {
    if (environment === '{vmatrix}') throw new Unreadable('a determinant');
    const rows: MathExpression[][] = [[]];
    for (let entries = 1; ; entries++) {
      if (entries > MAX_ENTRIES) throw new Unreadable('too many entries');
      at(rows, -1).push(this.sum());
      if (this.take('&')) continue;
      const isRow = this.take('\\\\');
      if (this.next.kind === 'command' && this.next.text.startsWith('end')) break;
      if (!isRow) throw new Unreadable('an open matrix');
      rows.push([]);
    }
    this.advance();
    if (rows.some((row) => row.length !== rows[0]!.length)) throw new Unreadable('rows of several lengths');
    return { kind: 'matrix', rows };
  }
}

/** A decimal number is the fraction that it is written as. */
function numberOf(text: string): MathExpression {
  const [digits = '', exponent = '0'] = text.replaceAll(',', '').split('E');
  const [before = '', after = ''] = digits.split('.');
  const places = Number(exponent) - after.length;
  if (Math.abs(places) > 1000) throw new Unreadable('too many digits');
  const top = BigInt(`${before}${after}`) * (places > 0 ? 10n ** BigInt(places) : 1n);
  const value = ratio(top, places < 0 ? 10n ** BigInt(-places) : 1n);
  if (value === undefined) throw new Unreadable('too many digits');
  return { kind: 'number', value, isDecimal: false };
}

const raised = (of: MathExpression, exponent: MathExpression | undefined): MathExpression =>
  exponent === undefined ? of : apply('^', of, exponent);

/** Undefined for what is no expression. `isPrefix`: what follows an expression is left alone, as latex2sympy does. */
export function expressionOf(answer: string, isPrefix: boolean): MathExpression | undefined {
  if (answer.length > MAX_LETTERS) return undefined;
  try {
    return new ExpressionReader(answer).whole(isPrefix);
  } catch (error) {
    if (error instanceof Unreadable) return undefined;
    throw error;
  }
}
