/** Reads an answer in LaTeX as an expression, by recursive descent. */
import { FUNCTIONS } from './complex.js';
import { apply, minus, whole, type Expression, type Sign } from './expression.js';
import { GREEK, LatexAtoms } from './latexAtoms.js';
import { MAX_ITEMS, Unreadable, type Reading } from './latexCursor.js';
import { tokensOf } from './latexTokens.js';

const SIGNS: Readonly<Record<string, Sign>> = {
  '=': '=',
  '<': '<',
  '>': '>',
  le: '<=',
  ge: '>=',
  lt: '<',
  gt: '>',
  ne: '!=',
  in: 'in',
  approx: '=',
  equiv: '=',
};
/** What sympy's reader may leave at the end. */
const LEAVABLE = /^[\w\s,;:.?()=<>|^+\-*/!{}[\]]*$/;

/** What sympy's reader does not read at all. */
const UNKNOWN = /\\math[a-z]+|\\bold|(?<!\d)\.\d/;

class Parser extends LatexAtoms {
  whole(): Expression {
    if (this.isPlain) {
      const found = this.sum();
      const rest = this.tokens.slice(this.at);
      const isRelation = rest[0] !== undefined && SIGNS[rest[0].text] !== undefined;
      if (isRelation || !rest.every(({ kind, text }) => kind !== 'command' && kind !== 'text' && LEAVABLE.test(text)))
        throw new Unreadable('more than an expression');
      return found;
    }
    const found = this.list();
    if (this.next.kind !== 'end') throw new Unreadable(`${this.next.text} is left`);
    return found;
  }

  /** Values with commas between them are a set. */
  private list(): Expression {
    const items = this.items(() => this.relation());
    return items.length === 1 ? items[0]! : { kind: 'set', items };
  }

  protected override items(read: () => Expression): Expression[] {
    const items = [this.within(read)];
    while (this.is(',') || this.is(';')) {
      this.at++;
      if (this.next.kind === 'end') break;
      if (items.push(this.within(read)) > MAX_ITEMS) throw new Unreadable('too many values');
    }
    return items;
  }

  protected override relation(): Expression {
    const sides = [this.union()];
    const signs: Sign[] = [];
    for (;;) {
      const sign = this.next.kind === 'mark' || this.next.kind === 'command' ? SIGNS[this.next.text] : undefined;
      if (sign === undefined) break;
      this.at++;
      signs.push(sign);
      sides.push(this.union());
      if (signs.length > MAX_ITEMS) throw new Unreadable('too many sides');
    }
    return signs.length === 0 ? sides[0]! : { kind: 'relation', sides, signs };
  }

  private union(): Expression {
    const items = [this.sum()];
    while (this.take('cup', 'command')) items.push(this.sum());
    return items.length === 1 ? items[0]! : { kind: 'union', items };
  }

  protected override sum(): Expression {
    return this.within(() => {
      let isNegative = this.sign() === -1;
      let total: Expression | undefined;
      for (;;) {
        const term = this.product();
        const signed = isNegative ? minus(term) : term;
        total = total === undefined ? signed : apply('+', total, signed);
        if (!this.is('+') && !this.is('-')) return total;
        isNegative = this.sign() === -1;
      }
    });
  }

  private product(): Expression {
    let total = this.power();
    for (let count = 0; ; count++) {
      if (count > MAX_ITEMS) throw new Unreadable('too many factors');
      if (this.take('*') || this.take('cdot', 'command') || this.take('times', 'command'))
        total = apply('*', total, this.signed());
      else if (this.take('/') || this.take(':') || this.take('div', 'command'))
        total = apply('/', total, this.signed());
      else if (this.beginsFactor()) {
        const factor = this.power();
        total = this.isMixed(total, factor) ? apply('+', total, factor) : apply('*', total, factor);
      } else return total;
    }
  }

  private signed(): Expression {
    const sign = this.sign();
    const factor = this.power();
    return sign === -1 ? minus(factor) : factor;
  }

  /** One and a half: a whole number before a fraction of whole numbers. */
  private isMixed(left: Expression, right: Expression): boolean {
    const isWhole = (each: Expression | undefined): boolean =>
      each?.kind === 'number' && !each.isDecimal && each.value.over === 1n;
    return !this.isPlain && isWhole(left) && right.kind === 'apply' && right.op === '/' && right.of.every(isWhole);
  }

  private beginsFactor(): boolean {
    const { kind, text } = this.next;
    if (kind === 'letter' || kind === 'text') return true;
    if (kind === 'number') return !this.isPlain || this.tokens[this.at - 1]?.kind !== 'number';
    if (kind === 'mark') return text === '(' || text === '[' || text === '{' || (text === '|' && this.bars === 0);
    if (kind !== 'command') return false;
    const others = ['frac', 'sqrt', 'binom', 'pi', 'infty', '{', 'begin', 'lfloor', 'lceil', 'overline', 'vec', 'hat'];
    return others.includes(text) || FUNCTIONS[text] !== undefined || GREEK.has(text) || text === 'vert';
  }

  /** A factor with its exponent, factorial, percent and degrees. */
  protected override power(): Expression {
    let base = this.atom();
    for (;;) {
      if (this.take('!')) base = apply('factorial', base);
      else if (!this.isPlain && (this.take('%') || this.take('%', 'command'))) base = apply('/', base, whole(100n));
      else if (!this.isPlain && (this.take('circ', 'command') || this.take('degree', 'command'))) continue;
      else if (this.take('^')) {
        if (!this.isPlain && this.isDegrees()) continue;
        const exponent = this.within(() => (this.is('-') ? this.signed() : this.argument(true)));
        base = apply('^', base, exponent);
      } else if (this.is("'")) this.at++;
      else return base;
    }
  }
}

/** Undefined for what this grammar does not read. */
export function readLatex(latex: string, reading: Reading): Expression | undefined {
  try {
    if (reading.isPlain && UNKNOWN.test(latex)) return undefined;
    const tokens = tokensOf(latex);
    if (tokens === undefined || tokens.length === 0) return undefined;
    const commands = tokens.filter(({ kind }) => kind === 'command').map(({ text }) => text);
    if (reading.isPlain || !(commands.includes('pm') || commands.includes('mp')))
      return new Parser(tokens, reading).whole();
    // Both signs are two values.
    const signed = (plus: string, minus: string): Expression =>
      new Parser(
        tokens.map((token) =>
          token.kind === 'command' && /^(?:pm|mp)$/.test(token.text)
            ? { ...token, kind: 'mark', text: token.text === 'pm' ? plus : minus }
            : token,
        ),
        reading,
      ).whole();
    const items = [signed('+', '-'), signed('-', '+')];
    return { kind: 'set', items: items.flatMap((item) => (item.kind === 'set' ? item.items : [item])) };
  } catch (error) {
    if (error instanceof Unreadable) return undefined;
    throw error;
  }
}
