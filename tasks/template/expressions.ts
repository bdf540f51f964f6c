/** Parses the expressions of a template, with Jinja's precedence. */
import { OperandParser } from './operands.js';
import type { Arithmetic, Comparison, Expression, Target } from './syntax.js';

const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', '<', '<=', '>', '>=']);

export class ExpressionParser extends OperandParser {
  /** What a tag holds: an expression, or several with commas, which are a tuple. */
  tuple(item: () => Expression = () => this.expression()): Expression {
    const first = item();
    if (!this.isNext(',')) return first;
    const items = [first];
    while (this.takeIf(',') && !this.isNext(')') && this.next.kind !== 'end') items.push(item());
    return { kind: 'tuple', items };
  }

  /** What a loop visits: an "if" behind it chooses items. */
  visited(): Expression {
    return this.tuple(() => this.#or());
  }

  /** Names that get a value or its items. */
  target(): Target {
    const part = (): Target => {
      if (!this.takeIf('(')) return this.name();
      const inner = this.nested(() => this.target());
      this.expect(')');
      return inner;
    };
    const first = part();
    if (!this.isNext(',')) return first;
    const parts = [first];
    while (this.takeIf(',') && (this.isNext('(') || (this.next.kind === 'name' && !this.isNext('in'))))
      parts.push(part());
    return parts;
  }

  expression(): Expression {
    return this.nested(() => {
      let value = this.#or();
      while (this.takeIf('if')) {
        const condition = this.#or();
        const otherwise = this.takeIf('else') ? { otherwise: this.expression() } : {};
        value = { kind: 'choose', condition, then: value, ...otherwise };
      }
      return value;
    });
  }

  #or(): Expression {
    let left = this.#and();
    while (this.takeIf('or')) left = { kind: 'or', left, right: this.#and() };
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.takeIf('and')) left = { kind: 'and', left, right: this.#not() };
    return left;
  }

  #not(): Expression {
    return this.takeIf('not') ? { kind: 'not', of: this.nested(() => this.#not()) } : this.#compare();
  }

  #compare(): Expression {
    const first = this.#sum();
    const rest: { op: Comparison; right: Expression }[] = [];
    for (;;) {
      const op = this.#comparison();
      if (op === undefined) return rest.length === 0 ? first : { kind: 'compare', first, rest };
      rest.push({ op, right: this.#sum() });
    }
  }

  #comparison(): Comparison | undefined {
    if (this.next.kind === 'mark' && COMPARISONS.has(this.next.text)) return this.take().text as Comparison;
    if (this.takeIf('in')) return 'in';
    if (!this.isNext('not')) return undefined;
    this.take();
    this.expect('in');
    return 'not in';
  }

  #chain(marks: readonly Arithmetic[], operand: () => Expression): Expression {
    let left = operand();
    for (;;) {
      const op = marks.find((mark) => this.takeIf(mark));
      if (op === undefined) return left;
      left = { kind: 'arithmetic', op, left, right: operand() };
    }
  }

  #sum(): Expression {
    return this.#chain(['+', '-'], () => this.#concatenation());
  }

  #concatenation(): Expression {
    return this.#chain(['~'], () => this.#product());
  }

  #product(): Expression {
    return this.#chain(['*', '/', '//', '%'], () => this.#power());
  }

  /** Powers are taken from the left, and "-" binds more tightly, as Jinja has it. */
  #power(): Expression {
    return this.#chain(['**'], () => this.#unary(true));
  }

  #unary(withFilter: boolean): Expression {
    let value: Expression;
    if (this.takeIf('-')) value = { kind: 'negative', of: this.nested(() => this.#unary(false)) };
    else if (this.takeIf('+')) value = this.nested(() => this.#unary(false));
    else value = this.postfix(this.primary());
    return withFilter ? this.filters(value) : value;
  }
}
