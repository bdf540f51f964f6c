/** Answers in LaTeX as expressions. */
import { at } from '../../../system/at.js';
import { LatexCursor, MAX_ITEMS, type LatexReading, type LatexToken, tokensOf, Unreadable } from './latexLexer.js';
import { added, divided, multiplied, negated } from './matrices.js';
import { apply, call, type MathExpression, FUNCTIONS, ofDigits, percentOf, type RelationSign } from './values.js';

// What a factor in LaTeX begins with: numbers, symbols, groups and commands.

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
  /** Within round or square brackets, where commas do not group digits. */
  private isPoint = false;

  protected abstract sum(): MathExpression;
  protected abstract relation(): MathExpression;
  /** One value or several, with commas between them. */
  protected abstract items(read: () => MathExpression, separators?: readonly string[]): MathExpression[];
  /** A factor with its exponent. */
  protected abstract power(): MathExpression;

  /** What a command takes: a group, or one digit or letter. */
  protected argument(takesBrackets = false): MathExpression {
    if (this.take('{')) {
      const found = this.within(() => this.sum());
      this.expect('}');
      return found;
    }
    const { kind, text } = this.next;
    if (takesBrackets && kind === 'mark' && text === '(') return this.atom();
    if (kind === 'number' && /^\d\d/.test(text)) {
      // TeX takes only the first of several digits as the argument.
      (this.tokens as LatexToken[]).splice(
        this.at,
        1,
        { kind, text: at(text, 0), isApart: true },
        { kind, text: text.slice(1), isApart: false },
      );
    }
    return this.within(() => this.atom());
  }

  protected atom(): MathExpression {
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
  private number(text: string): MathExpression {
    let digits = text;
    if (this.depth <= 4 && !this.isPoint && /^\d{1,3}$/.test(text))
      while (this.is(',') && /^\d{3}(?:\.\d+)?$/.test(this.textBehind())) {
        digits += at(this.tokens, this.at + 1).text;
        this.at += 2;
      }
    if (!this.isPlain && this.take('_')) this.argument();
    const value = ofDigits(digits);
    if (value === undefined) throw new Unreadable('too many digits');
    return { kind: 'number', value, isDecimal: digits.includes('.') };
  }

  /** What follows the next token, unless a space does. */
  private textBehind(): string {
    const { text, isApart } = this.tokens[this.at + 1] ?? { text: '', isApart: false };
    return isApart ? '' : text;
  }

  private symbol(name: string): MathExpression {
    if (this.take('_')) return { kind: 'symbol', name: `${name}_${this.subscript()}` };
    if (!this.isPlain && (name === 'e' || name === 'i')) return { kind: 'constant', name };
    return { kind: 'symbol', name };
  }

  /** A group, a point, an interval or a longer tuple. */
  private bracket(open: string): MathExpression {
    const bars = this.bars;
    this.bars = 0;
    if (open === '{') {
      const items = this.isPlain ? [this.within(() => this.sum())] : this.items(() => this.relation());
      this.expect('}');
      this.bars = bars;
      return items.length === 1 ? items[0]! : { kind: 'set', items };
    }
    const isPoint = this.isPoint;
    this.isPoint = true;
    const items = this.isPlain ? [this.sum()] : this.items(() => this.relation());
    this.isPoint = isPoint;
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

  private bar(text: string, kind: LatexToken['kind']): MathExpression {
    this.bars++;
    const found = this.within(() => this.sum());
    this.bars--;
    if (!this.take(text, kind)) throw new Unreadable('an open bar');
    return call('abs', found);
  }

  private command(name: string): MathExpression {
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
      case 'sum':
      case 'prod':
      case 'int':
      case 'lim':
        return this.range(name);
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

  /** The sign of a sum or the like is a symbol of what stands below and above it: it is not evaluated. */
  private range(name: string): MathExpression {
    if (this.isPlain) throw new Unreadable(`\\${name}`);
    let symbol = name;
    for (const mark of ['_', '^', '_']) if (this.take(mark)) symbol += ` ${mark}${this.group()}`;
    return { kind: 'symbol', name: symbol };
  }

  private until(end: string, name: string): MathExpression {
    const found = this.within(() => this.sum());
    if (!this.take(end, 'command')) throw new Unreadable(`no \\${end}`);
    return call(name, found);
  }

  /** A set, which may be written with a condition: that is not read. */
  private braces(): MathExpression {
    if (this.isPlain) throw new Unreadable('a set');
    const items = this.take('}', 'command') ? [] : this.items(() => this.relation());
    if (items.length > 0 && !this.take('}', 'command')) throw new Unreadable('an open set');
    return { kind: 'set', items };
  }

  private function(name: string): MathExpression {
    const base = name === 'log' && this.take('_') ? this.argument() : undefined;
    const exponent = this.take('^') ? this.argument(true) : undefined;
    const isInverse = exponent?.kind === 'number' && exponent.value.top === -1n;
    const of = this.is('(') || this.is('{') ? this.atom() : this.within(() => this.argumentOfFunction());
    const named = isInverse && FUNCTIONS[`arc${name}`] !== undefined ? `arc${name}` : name;
    const called = base === undefined ? call(named, of) : apply('logarithm', of, base);
    return exponent === undefined || named !== name ? called : apply('^', called, exponent);
  }

  /** In sin 2x, all of 2x. */
  private argumentOfFunction(): MathExpression {
    let found = this.power();
    while (['number', 'letter'].includes(this.next.kind) || GREEK.has(this.next.text) || this.is('pi', 'command'))
      found = apply('*', found, this.power());
    return found;
  }

  private matrix(): MathExpression {
    const name = /^\{?([pbvB]?matrix|array)\}?$/.exec(this.environment())?.[1];
    if (this.isPlain || name === undefined) throw new Unreadable('an environment');
    if (name === 'array') this.environment();
    const rows: MathExpression[][] = [[]];
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

// Reads an answer in LaTeX as an expression, by recursive descent.

const SIGNS: Readonly<Record<string, RelationSign>> = {
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

class LatexParser extends LatexAtoms {
  whole(): MathExpression {
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

  /** Values with commas between them are a set; groups of them with semicolons between are a set of tuples. */
  private list(): MathExpression {
    const groups = [this.items(() => this.relation(), [','])];
    while (this.take(';') && this.next.kind !== 'end') groups.push(this.items(() => this.relation(), [',']));
    const items =
      groups.length === 1
        ? at(groups, 0)
        : groups.map((group): MathExpression => (group.length === 1 ? at(group, 0) : { kind: 'tuple', items: group }));
    return items.length === 1 ? at(items, 0) : { kind: 'set', items };
  }

  protected override items(read: () => MathExpression, separators = [',', ';']): MathExpression[] {
    const items = [this.within(read)];
    while (separators.some((separator) => this.is(separator))) {
      this.at++;
      if (this.next.kind === 'end') break;
      if (items.push(this.within(read)) > MAX_ITEMS) throw new Unreadable('too many values');
    }
    return items;
  }

  protected override relation(): MathExpression {
    const sides = [this.union()];
    const signs: RelationSign[] = [];
    for (;;) {
      const sign = this.next.kind === 'mark' || this.next.kind === 'command' ? SIGNS[this.next.text] : undefined;
      if (sign === undefined) break;
      // What a value is about adds nothing to it; of a symbol it is the value.
      const isRounded = this.is('approx', 'command') && (signs.length > 0 || sides[0]!.kind !== 'symbol');
      this.at++;
      const side = this.union();
      if (isRounded) continue;
      signs.push(sign);
      sides.push(side);
      if (signs.length > MAX_ITEMS) throw new Unreadable('too many sides');
    }
    return signs.length === 0 ? at(sides, 0) : { kind: 'relation', sides, signs };
  }

  private union(): MathExpression {
    const items = [this.sum()];
    while (this.take('cup', 'command')) items.push(this.sum());
    return items.length === 1 ? at(items, 0) : { kind: 'union', items };
  }

  protected override sum(): MathExpression {
    return this.within(() => {
      let isNegative = this.sign() === -1;
      let total: MathExpression | undefined;
      for (;;) {
        const term = this.product();
        const signed = isNegative ? negated(term) : term;
        total = total === undefined ? signed : added(total, signed);
        if (!this.is('+') && !this.is('-')) return total;
        isNegative = this.sign() === -1;
      }
    });
  }

  private product(): MathExpression {
    let total: MathExpression = this.power();
    for (let count = 0; ; count++) {
      if (count > MAX_ITEMS) throw new Unreadable('too many factors');
      if (this.take('*') || this.take('cdot', 'command') || this.take('times', 'command'))
        total = multiplied(total, this.signed());
      else if (this.take('/') || this.take(':') || this.take('div', 'command')) total = divided(total, this.signed());
      else if (this.beginsFactor()) {
        const factor = this.power();
        total = this.isMixed(total, factor) ? apply('+', total, factor) : multiplied(total, factor);
      } else return total;
    }
  }

  private signed(): MathExpression {
    const sign = this.sign();
    const factor = this.power();
    return sign === -1 ? negated(factor) : factor;
  }

  /** One and a half: a whole number before a fraction of whole numbers. */
  private isMixed(left: MathExpression, right: MathExpression): boolean {
    const isWhole = (each: MathExpression | undefined): boolean =>
      each?.kind === 'number' && !each.isDecimal && each.value.over === 1n;
    return !this.isPlain && isWhole(left) && right.kind === 'apply' && right.op === '/' && right.of.every(isWhole);
  }

  private beginsFactor(): boolean {
    const { kind, text } = this.next;
    if (kind === 'letter' || kind === 'text') return true;
    if (kind === 'number') return !this.isPlain || this.tokens[this.at - 1]?.kind !== 'number';
    if (kind === 'mark') return text === '(' || text === '[' || text === '{' || (text === '|' && this.bars === 0);
    if (kind !== 'command') return false;
    const others = [
      'frac',
      'sqrt',
      'binom',
      'pi',
      'infty',
      '{',
      'begin',
      'lfloor',
      'lceil',
      'overline',
      'vec',
      'hat',
      'sum',
      'prod',
      'int',
    ];
    return others.includes(text) || FUNCTIONS[text] !== undefined || GREEK.has(text) || text === 'vert';
  }

  /** A factor with its exponent, factorial, percent and degrees. */
  protected override power(): MathExpression {
    let base = this.atom();
    for (;;) {
      if (this.take('!')) base = apply('factorial', base);
      else if (!this.isPlain && (this.take('%') || this.take('%', 'command'))) base = percentOf(base);
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
export function readLatex(latex: string, reading: LatexReading): MathExpression | undefined {
  try {
    if (reading.isPlain && UNKNOWN.test(latex)) return undefined;
    const tokens = tokensOf(latex);
    if (tokens === undefined || tokens.length === 0) return undefined;
    const commands = tokens.filter(({ kind }) => kind === 'command').map(({ text }) => text);
    if (reading.isPlain || !(commands.includes('pm') || commands.includes('mp')))
      return new LatexParser(tokens, reading).whole();
    // Both signs are two values.
    const signed = (plus: string, minus: string): MathExpression =>
      new LatexParser(
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
