/** What a factor in LaTeX begins with: numbers, symbols, groups and commands. */
import { FUNCTIONS } from './complex.js';
import { apply, call, type Expression } from './expression.js';
import { LatexCursor, MAX_ITEMS, Unreadable } from './latexCursor.js';
import type { Token } from './latexTokens.js';
import { ofDigits } from './rational.js';

/** Commands that are symbols. */
export const GREEK = new Set(
  (
    'alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau phi ' +
    'varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar triangle angle'
  ).split(' '),
);
const BRACKETS: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };

/** Reads atoms. What may stand inside them is read by the grammar that extends this. */
export abstract class LatexAtoms extends LatexCursor {
  protected abstract sum(): Expression;
  protected abstract relation(): Expression;
  /** One value or several, with commas between them. */
  protected abstract items(read: () => Expression): Expression[];
  /** A factor with its exponent. */
  protected abstract power(): Expression;

  /** What a command takes: a group, or one digit or letter. */
  protected argument(takesBrackets = false): Expression {
    if (this.take('{')) {
      const found = this.within(() => this.sum());
      this.expect('}');
      return found;
    }
    const { kind, text } = this.next;
    if (takesBrackets && kind === 'mark' && text === '(') return this.atom();
    if (kind === 'number' && /^\d\d/.test(text)) {
      // TeX takes only the first of several digits as the argument.
      (this.tokens as Token[]).splice(
        this.at,
        1,
        { kind, text: text[0]!, isApart: true },
        { kind, text: text.slice(1), isApart: false },
      );
    }
    return this.within(() => this.atom());
  }

  protected atom(): Expression {
    const { kind, text } = this.next;
    this.at++;
    switch (kind) {
      case 'number':
        return this.number(text);
      case 'letter':
        return this.symbol(text);
      case 'text':
        if (this.isPlain) throw new Unreadable('a text');
        if (/^\s*\d+(?:\.\d+)?\s*$/.test(text)) return this.number(text.trim());
        return { kind: 'text', text: text.trim() };
      case 'command':
        return this.command(text);
      case 'mark':
        if (BRACKETS[text] !== undefined) return this.bracket(text);
        if (text === '|') return this.bar('|', 'mark');
        throw new Unreadable(`${text} begins nothing`);
      case 'end':
        throw new Unreadable('the end');
      default:
        return kind satisfies never;
    }
  }

  /** Thousands may have commas; 0.5 is a decimal number; a subscript is the base of a numeral, which says nothing. */
  private number(text: string): Expression {
    let digits = text;
    if (this.depth <= 4 && /^\d{1,3}$/.test(text))
      while (this.is(',') && /^\d{3}(?:\.\d+)?$/.test(this.tokens[this.at + 1]?.text ?? '')) {
        digits += this.tokens[this.at + 1]!.text;
        this.at += 2;
      }
    if (!this.isPlain && this.take('_')) this.argument();
    const value = ofDigits(digits);
    if (value === undefined) throw new Unreadable('too many digits');
    return { kind: 'number', value, isDecimal: digits.includes('.') };
  }

  private symbol(name: string): Expression {
    if (this.take('_')) return { kind: 'symbol', name: `${name}_${this.subscript()}` };
    if (!this.isPlain && (name === 'e' || name === 'i')) return { kind: 'constant', name };
    return { kind: 'symbol', name };
  }

  /** A group, a point, an interval or a longer tuple. */
  private bracket(open: string): Expression {
    const bars = this.bars;
    this.bars = 0;
    if (open === '{') {
      const found = this.within(() => (this.isPlain ? this.sum() : this.relation()));
      this.expect('}');
      this.bars = bars;
      return found;
    }
    const items = this.isPlain ? [this.sum()] : this.items(() => this.relation());
    const close = this.next.text;
    if (!(this.take(')') || this.take(']'))) throw new Unreadable('an open bracket');
    this.bars = bars;
    const [first, second] = items;
    if (items.length === 1 && close === BRACKETS[open]) return first!;
    if (items.length === 2)
      return { kind: 'interval', items: [first!, second!], isOpen: [open === '(', close === ')'] };
    if (close !== BRACKETS[open]) throw new Unreadable('brackets that do not match');
    return { kind: 'tuple', items };
  }

  private bar(text: string, kind: Token['kind']): Expression {
    this.bars++;
    const found = this.within(() => this.sum());
    this.bars--;
    if (!this.take(text, kind)) throw new Unreadable('an open bar');
    return call('abs', found);
  }

  private command(name: string): Expression {
    switch (name) {
      case 'frac':
        return apply('/', this.argument(), this.argument());
      case 'binom':
        return apply('binomial', this.argument(), this.argument());
      case 'sqrt': {
        const degree = this.take('[') ? this.sum() : undefined;
        if (degree !== undefined) this.expect(']');
        const of = this.argument(true);
        return degree === undefined ? apply('root', of) : apply('root', of, degree);
      }
      case 'pi':
        return this.isPlain ? { kind: 'symbol', name } : { kind: 'constant', name };
      case 'infty':
        return { kind: 'constant', name: 'infinity' };
      case 'vert':
        return this.bar('vert', 'command');
      case 'lfloor':
        return this.until('rfloor', 'floor');
      case 'lceil':
        return this.until('rceil', 'ceil');
      case '{':
        return this.braces();
      case 'begin':
        return this.matrix();
      case 'overline':
      case 'vec':
      case 'hat':
        return { kind: 'symbol', name: `${name} ${this.subscript()}` };
      default:
        if (FUNCTIONS[name] !== undefined) return this.function(name);
        if (GREEK.has(name)) return this.symbol(name);
        throw new Unreadable(`\\${name}`);
    }
  }

  private until(end: string, name: string): Expression {
    const found = this.within(() => this.sum());
    if (!this.take(end, 'command')) throw new Unreadable(`no \\${end}`);
    return call(name, found);
  }

  /** A set, which may be written with a condition: that is not read. */
  private braces(): Expression {
    if (this.isPlain) throw new Unreadable('a set');
    const items = this.take('}', 'command') ? [] : this.items(() => this.relation());
    if (items.length > 0 && !this.take('}', 'command')) throw new Unreadable('an open set');
    return { kind: 'set', items };
  }

  private function(name: string): Expression {
    const base = name === 'log' && this.take('_') ? this.argument() : undefined;
    const exponent = this.take('^') ? this.argument(true) : undefined;
    const isInverse = exponent?.kind === 'number' && exponent.value.top === -1n;
    const of = this.is('(') || this.is('{') ? this.atom() : this.within(() => this.argumentOfFunction());
    const named = isInverse && FUNCTIONS[`arc${name}`] !== undefined ? `arc${name}` : name;
    const called = base === undefined ? call(named, of) : apply('logarithm', of, base);
    return exponent === undefined || named !== name ? called : apply('^', called, exponent);
  }

  /** In sin 2x, all of 2x. */
  private argumentOfFunction(): Expression {
    let found = this.power();
    while (['number', 'letter'].includes(this.next.kind) || GREEK.has(this.next.text) || this.is('pi', 'command'))
      found = apply('*', found, this.power());
    return found;
  }

  private matrix(): Expression {
    const name = /^\{?([pbvB]?matrix|array)\}?$/.exec(this.environment())?.[1];
    if (this.isPlain || name === undefined) throw new Unreadable('an environment');
    if (name === 'array') this.environment();
    const rows: Expression[][] = [[]];
    for (;;) {
      if (this.take('end', 'command')) break;
      if (this.take('&')) continue;
      if (this.take('\\', 'command')) {
        rows.push([]);
        continue;
      }
      rows.at(-1)!.push(this.within(() => this.sum()));
      if (rows.flat().length > MAX_ITEMS || this.next.kind === 'end') throw new Unreadable('an open matrix');
    }
    this.environment();
    return { kind: 'matrix', rows: rows.filter((row) => row.length > 0) };
  }
}
