/** Parses the expressions of a template, with Jinja's precedence. */
import { TemplateProblem, type Arithmetic, type Comparison, type Expression } from './syntax.js';
import type { Token } from './tokens.js';

const MAX_DEPTH = 60;
const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', '<', '<=', '>', '>=']);
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);
const TESTS: ReadonlySet<string> = new Set(['defined', 'undefined', 'none']);

export class ExpressionParser {
  readonly #tokens: readonly Token[];
  #at = 0;
  #depth = 0;

  /** `tokens` ends with an `end`. */
  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get next(): Token {
    return this.#tokens[Math.min(this.#at, this.#tokens.length - 1)]!;
  }

  take(): Token {
    const token = this.next;
    this.#at++;
    return token;
  }

  /** Whether the next token is this mark or keyword; it is taken then. */
  takeIf(text: string): boolean {
    const isNext = this.#isNext(text);
    if (isNext) this.#at++;
    return isNext;
  }

  #isNext(text: string): boolean {
    return (this.next.kind === 'mark' || this.next.kind === 'name') && this.next.text === text;
  }

  expect(text: string): void {
    if (!this.takeIf(text)) throw this.problem(`"${text}" is missing before "${this.next.text}"`);
  }

  name(): string {
    const token = this.take();
    if (token.kind !== 'name') throw this.problem(`expected a name, found "${token.text}"`);
    return token.text;
  }

  end(): void {
    if (this.next.kind !== 'end') throw this.problem(`"${this.next.text}" is not expected here`);
  }

  problem(message: string): TemplateProblem {
    return new TemplateProblem(message, this.next.line);
  }

  expression(): Expression {
    if (++this.#depth > MAX_DEPTH) throw this.problem(`the expression nests more than ${MAX_DEPTH} deep`);
    let value = this.#or();
    while (this.takeIf('if')) {
      const condition = this.#or();
      const otherwise = this.takeIf('else') ? { otherwise: this.expression() } : {};
      value = { kind: 'choose', condition, then: value, ...otherwise };
    }
    this.#depth--;
    return value;
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
    return this.takeIf('not') ? { kind: 'not', of: this.#nested(() => this.#not()) } : this.#compare();
  }

  #nested(parse: () => Expression): Expression {
    if (++this.#depth > MAX_DEPTH) throw this.problem(`the expression nests more than ${MAX_DEPTH} deep`);
    const value = parse();
    this.#depth--;
    return value;
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
    if (!this.#isNext('not')) return undefined;
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
    return this.#chain(['*', '/', '//', '%'], () => this.#unary(true));
  }

  #unary(withFilter: boolean): Expression {
    let value: Expression;
    if (this.takeIf('-')) value = { kind: 'negative', of: this.#nested(() => this.#unary(false)) };
    else if (this.takeIf('+')) value = this.#nested(() => this.#unary(false));
    else value = this.#postfix(this.#primary());
    if (this.#isNext('**')) throw this.problem('the operator ** is not supported');
    return withFilter ? this.#filters(value) : value;
  }

  #primary(): Expression {
    const token = this.take();
    switch (token.kind) {
      case 'text': {
        let value = token.text;
        while (this.next.kind === 'text') value += this.take().text;
        return { kind: 'text', value };
      }
      case 'int': {
        const value = Number(token.text);
        if (!Number.isSafeInteger(value)) throw this.problem(`the number ${token.text} is too large`);
        return { kind: 'int', value };
      }
      case 'float':
        return { kind: 'float', value: Number(token.text) };
      case 'name':
        return this.#named(token.text);
      case 'mark':
        return this.#bracket(token);
      case 'end':
        throw new TemplateProblem(`an expression is missing before "${token.text}"`, token.line);
      default:
        return token.kind satisfies never;
    }
  }

  #named(name: string): Expression {
    const constant = CONSTANTS.get(name);
    if (constant !== undefined) return { kind: 'constant', value: constant };
    if (!this.#isNext('(')) return { kind: 'name', name };
    if (name !== 'range') throw this.problem(`the function ${name}() is not supported; there is range()`);
    this.take();
    return { kind: 'range', args: this.#items(')') };
  }

  #bracket(token: Token): Expression {
    if (token.text === '[') return { kind: 'list', items: this.#items(']') };
    if (token.text === '(') {
      const value = this.expression();
      if (this.#isNext(',')) throw this.problem('tuples are not supported; write a list');
      this.expect(')');
      return value;
    }
    if (token.text !== '{') throw new TemplateProblem(`"${token.text}" is not expected here`, token.line);
    const entries: [Expression, Expression][] = [];
    while (!this.takeIf('}')) {
      const key = this.expression();
      this.expect(':');
      entries.push([key, this.expression()]);
      if (!this.takeIf(',') && !this.#isNext('}')) throw this.problem('"}" is missing');
    }
    return { kind: 'dict', entries };
  }

  #items(close: string): Expression[] {
    const items: Expression[] = [];
    while (!this.takeIf(close)) {
      items.push(this.expression());
      if (!this.takeIf(',') && !this.#isNext(close)) throw this.problem(`"${close}" is missing`);
    }
    return items;
  }

  #postfix(start: Expression): Expression {
    let value = start;
    for (;;) {
      if (this.takeIf('.')) {
        const token = this.take();
        if (token.kind === 'int') value = { kind: 'item', of: value, key: { kind: 'int', value: Number(token.text) } };
        else if (token.kind !== 'name') throw this.problem(`"${token.text}" is no name of a field`);
        else if (this.takeIf('(')) value = { kind: 'method', of: value, name: token.text, args: this.#items(')') };
        else value = { kind: 'attribute', of: value, name: token.text };
      } else if (this.takeIf('[')) value = this.#subscript(value);
      else if (this.#isNext('(')) throw this.problem('only methods can be called');
      else return value;
    }
  }

  #subscript(of: Expression): Expression {
    const part = (): Expression | undefined => (this.#isNext(':') || this.#isNext(']') ? undefined : this.expression());
    const from = part();
    if (this.takeIf(']')) {
      if (from === undefined) throw this.problem('an index is missing');
      return { kind: 'item', of, key: from };
    }
    this.expect(':');
    const to = part();
    const step = this.takeIf(':') ? part() : undefined;
    this.expect(']');
    return {
      kind: 'slice',
      of,
      ...(from === undefined ? {} : { from }),
      ...(to === undefined ? {} : { to }),
      ...(step === undefined ? {} : { step }),
    };
  }

  #filters(start: Expression): Expression {
    let value = start;
    for (;;) {
      if (this.takeIf('|')) value = this.#filter(value);
      else if (this.takeIf('is')) value = this.#test(value);
      else return value;
    }
  }

  #filter(of: Expression): Expression {
    const name = this.name();
    const args: Expression[] = [];
    const named = new Map<string, Expression>();
    if (this.takeIf('(')) {
      while (!this.takeIf(')')) {
        const value = this.expression();
        if (value.kind === 'name' && this.takeIf('=')) named.set(value.name, this.expression());
        else args.push(value);
        if (!this.takeIf(',') && !this.#isNext(')')) throw this.problem('")" is missing');
      }
    }
    return { kind: 'filter', of, name, args, named };
  }

  #test(of: Expression): Expression {
    const isNegated = this.takeIf('not');
    const name = this.name();
    if (!TESTS.has(name))
      throw this.problem(`the test "is ${name}" is not supported; there are ${[...TESTS].join(', ')}`);
    if (name === 'none') return { kind: 'isNone', of, expected: !isNegated };
    return { kind: 'defined', of, expected: (name === 'defined') !== isNegated };
  }
}
