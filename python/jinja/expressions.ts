/** Parses expressions. */
import { at } from '../../system/at.js';
import { Float, toInt } from '../value.js';
import type {
  Arguments,
  Arithmetic,
  Comparison,
  Expression,
  FilterCall,
  OperatorNode,
  AssignmentTarget,
  TemplateToken,
} from './syntax.js';
import { TemplateProblem } from './work.js';

const MAX_DEPTH = 100;
/** Attributes, calls and filters behind each other. */
const MAX_CHAIN = 300;
const MAX_DIGITS = 4300;
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);
const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', '<', '<=', '>', '>=']);
/** Words that end a test instead of being its argument. */
const BEHIND_TEST: ReadonlySet<string> = new Set(['else', 'or', 'and']);
const NO_ARGUMENTS: Arguments = { args: [], named: [] };

export class ExpressionParser {
  readonly #tokens: readonly TemplateToken[];
  #at = 0;
  #depth = 0;

  /** `tokens` ends with `eof`. */
  constructor(tokens: readonly TemplateToken[]) {
    this.#tokens = tokens;
  }

  protected get next(): TemplateToken {
    return at(this.#tokens, Math.min(this.#at, this.#tokens.length - 1));
  }

  protected get second(): TemplateToken {
    return at(this.#tokens, Math.min(this.#at + 1, this.#tokens.length - 1));
  }

  protected take(): TemplateToken {
    const token = this.next;
    this.#at++;
    return token;
  }

  /** Whether the next token is this mark or keyword. */
  protected isNext(text: string): boolean {
    return (this.next.kind === 'mark' || this.next.kind === 'name') && this.next.text === text;
  }

  /** Takes the next token if it is this mark or keyword. */
  protected takeIf(text: string): boolean {
    const isNext = this.isNext(text);
    if (isNext) this.#at++;
    return isNext;
  }

  protected expect(text: string): void {
    if (!this.takeIf(text)) throw this.problem(`expected token '${text}', got ${this.shown(this.next)}`);
  }

  protected name(): string {
    if (this.next.kind !== 'name') throw this.problem(`expected token 'name', got ${this.shown(this.next)}`);
    return this.take().text;
  }

  protected shown({ kind, text }: TemplateToken): string {
    if (kind === 'end')
      return kind === 'end' && text === '}}' ? "'end of print statement'" : "'end of statement block'";
    return kind === 'eof' ? "'end of template'" : JSON.stringify(text.slice(0, 40));
  }

  protected problem(message: string, line = this.next.line): TemplateProblem {
    return new TemplateProblem('TemplateSyntaxError', message, line);
  }

  protected nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH)
      throw new TemplateProblem('limit', `the template nests more than ${MAX_DEPTH} deep`, this.next.line);
    const value = parse();
    this.#depth--;
    return value;
  }

  /** One expression, or several with commas between them as a tuple. */
  protected tuple({ hasChoice = true, isInBrackets = false, end = '' } = {}): Expression {
    const { line } = this.next;
    const items: Expression[] = [];
    let isTuple = false;
    for (;;) {
      if (this.next.kind === 'end' || this.isNext(')') || (end !== '' && this.isNext(end))) break;
      items.push(hasChoice ? this.expression() : this.or());
      if (!this.takeIf(',')) break;
      isTuple = true;
    }
    if (!isTuple && items[0] !== undefined) return items[0];
    if (!isTuple && !isInBrackets) throw this.problem(`Expected an expression, got ${this.shown(this.next)}`);
    return { kind: 'tuple', items, line };
  }

  /** What a value is given to. `end`: the keyword that ends it. */
  protected target(end = '', takesFields = false): AssignmentTarget {
    const { line } = this.next;
    const items: AssignmentTarget[] = [];
    let isTuple = false;
    for (;;) {
      if (this.next.kind === 'end' || this.isNext(')') || (end !== '' && this.isNext(end))) break;
      items.push(this.nested(() => this.#oneTarget(takesFields)));
      if (!this.takeIf(',')) break;
      isTuple = true;
    }
    if (!isTuple && items[0] !== undefined) return items[0];
    if (!isTuple) throw this.problem(`Expected an expression, got ${this.shown(this.next)}`);
    return { kind: 'targets', items, line };
  }

  #oneTarget(takesFields: boolean): AssignmentTarget {
    const token = this.take();
    const { text: name, line } = token;
    if (token.kind === 'mark' && name === '(') {
      if (this.takeIf(')')) return { kind: 'targets', items: [], line };
      const inner = this.target();
      this.expect(')');
      return inner;
    }
    if (token.kind !== 'name' || CONSTANTS.has(name)) throw this.problem(`can't assign to ${this.shown(token)}`, line);
    if (takesFields && this.takeIf('.')) return { kind: 'field', of: name, name: this.name(), line };
    return { kind: 'name', name, line };
  }

  expression(): Expression {
    return this.nested(() => {
      let value = this.or();
      for (;;) {
        const { line } = this.next;
        if (!this.takeIf('if')) return value;
        const condition = this.or();
        const otherwise = this.takeIf('else') ? this.expression() : undefined;
        value = { kind: 'choose', condition, then: value, otherwise, line };
      }
    });
  }

  protected or(): Expression {
    return this.#several('or', 'or', () => this.#several('and', 'and', () => this.#not()));
  }

  #several(kind: 'or' | 'and' | 'concat', word: string, part: () => Expression): Expression {
    const { line } = this.next;
    const items = [part()];
    while (this.takeIf(word)) items.push(part());
    return items.length === 1 ? at(items, 0) : { kind, items, line };
  }

  #not(): Expression {
    const { line } = this.next;
    if (!this.takeIf('not')) return this.#compare();
    return { kind: 'not', of: this.nested(() => this.#not()), line };
  }

  #compare(): Expression {
    const { line } = this.next;
    const first = this.#sum();
    const rest: OperatorNode<Comparison>[] = [];
    for (;;) {
      const { kind, text } = this.next;
      if (kind === 'mark' && COMPARISONS.has(text)) {
        this.take();
        rest.push({ op: text as Comparison, right: this.#sum() });
      } else if (this.takeIf('in')) rest.push({ op: 'in', right: this.#sum() });
      else if (this.isNext('not') && this.second.kind === 'name' && this.second.text === 'in') {
        this.take();
        this.take();
        rest.push({ op: 'not in', right: this.#sum() });
      } else return rest.length === 0 ? first : { kind: 'compare', first, rest, line };
    }
  }

  #sum(): Expression {
    return this.#arithmetic(['+', '-'], () => this.#several('concat', '~', () => this.#product()));
  }

  #product(): Expression {
    return this.#arithmetic(['*', '/', '//', '%'], () => this.#arithmetic(['**'], () => this.#unary()));
  }

  #arithmetic(ops: readonly Arithmetic[], part: () => Expression): Expression {
    const { line } = this.next;
    const first = part();
    const rest: OperatorNode<Arithmetic>[] = [];
    for (;;) {
      const op = this.next.kind === 'mark' ? ops.find((each) => each === this.next.text) : undefined;
      if (op === undefined) return rest.length === 0 ? first : { kind: 'arithmetic', first, rest, line };
      this.take();
      rest.push({ op, right: part() });
    }
  }

  #unary(hasFilters = true): Expression {
    const { line } = this.next;
    let value: Expression;
    if (this.next.kind === 'mark' && (this.isNext('-') || this.isNext('+'))) {
      const kind = this.take().text === '-' ? 'negative' : 'positive';
      value = { kind, of: this.nested(() => this.#unary(false)), line };
    } else value = this.#primary();
    value = this.#postfix(value);
    return hasFilters ? this.#filtered(value) : value;
  }

  #primary(): Expression {
    const token = this.take();
    const { line, text } = token;
    switch (token.kind) {
      case 'name': {
        const value = CONSTANTS.get(text);
        return value === undefined ? { kind: 'name', name: text, line } : { kind: 'constant', value, line };
      }
      case 'text': {
        let value = text;
        while (this.next.kind === 'text') value += this.take().text;
        return { kind: 'constant', value, line };
      }
      case 'int':
        if (text.length > MAX_DIGITS) throw this.problem(`a number has more than ${MAX_DIGITS} digits`);
        return { kind: 'constant', value: toInt(BigInt(text)), line };
      case 'float':
        return { kind: 'constant', value: new Float(Number(text)), line };
      case 'mark':
        return this.nested(() => this.#bracket(token));
      case 'data':
      case 'print':
      case 'block':
      case 'end':
      case 'eof':
        throw this.problem(`unexpected ${this.shown(token)}`, line);
      default:
        return token.kind satisfies never;
    }
  }

  #bracket({ text, line }: TemplateToken): Expression {
    if (text === '(') {
      const value = this.tuple({ isInBrackets: true });
      this.expect(')');
      return value;
    }
    if (text === '[') {
      const items: Expression[] = [];
      while (!this.takeIf(']')) {
        items.push(this.expression());
        if (!this.takeIf(',') && !this.isNext(']')) this.expect(']');
      }
      return { kind: 'list', items, line };
    }
    if (text !== '{') throw this.problem(`unexpected '${text}'`, line);
    const entries: [Expression, Expression][] = [];
    while (!this.takeIf('}')) {
      const key = this.expression();
      this.expect(':');
      entries.push([key, this.expression()]);
      if (!this.takeIf(',') && !this.isNext('}')) this.expect('}');
    }
    return { kind: 'dict', entries, line };
  }

  #checkChain(length: number): void {
    if (length > MAX_CHAIN)
      throw new TemplateProblem('limit', `the expression nests more than ${MAX_CHAIN} deep`, this.next.line);
  }

  #postfix(start: Expression): Expression {
    let value = start;
    for (let length = 0; ; length++) {
      this.#checkChain(length);
      const { line } = this.next;
      if (this.next.kind !== 'mark') return value;
      if (this.takeIf('.')) {
        const token = this.take();
        if (token.kind === 'name') value = { kind: 'attribute', of: value, name: token.text, line };
        else if (token.kind === 'int')
          value = { kind: 'item', of: value, key: { kind: 'constant', value: toInt(BigInt(token.text)), line }, line };
        else throw this.problem('expected name or number', token.line);
      } else if (this.takeIf('[')) value = this.#subscript(value, line);
      else if (this.isNext('(')) value = { kind: 'call', of: value, line, ...this.arguments() };
      else return value;
    }
  }

  #subscript(of: Expression, line: number): Expression {
    const part = (): Expression | undefined =>
      this.isNext(':') || this.isNext(']') || this.isNext(',') ? undefined : this.expression();
    const keys: Expression[] = [];
    while (!this.takeIf(']')) {
      if (keys.length > 0) this.expect(',');
      const from = this.isNext(':') ? undefined : this.expression();
      if (from !== undefined && !this.isNext(':')) {
        keys.push(from);
        continue;
      }
      this.expect(':');
      const to = part();
      const step = this.takeIf(':') ? part() : undefined;
      if (keys.length > 0 || !this.isNext(']')) throw this.problem('a slice beside other keys', line);
      this.expect(']');
      return { kind: 'slice', of, from, to, step, line };
    }
    return {
      kind: 'item',
      of,
      key: keys.length === 1 ? at(keys, 0) : { kind: 'tuple', items: keys, line },
      line,
    };
  }

  #filtered(start: Expression): Expression {
    let value = start;
    for (let length = 0; ; length++) {
      this.#checkChain(length);
      const { line } = this.next;
      if (this.isNext('|')) value = this.filter(value, false) ?? value;
      else if (this.takeIf('is')) value = this.#test(value, line);
      else if (this.next.kind === 'mark' && this.isNext('('))
        value = { kind: 'call', of: value, line, ...this.arguments() };
      else return value;
    }
  }

  #dottedName(): string {
    let name = this.name();
    while (this.takeIf('.')) name += `.${this.name()}`;
    return name;
  }

  /** Filters in a row; without a value, those of a block. `isBegun`: the first one has no bar before it. */
  protected filter(of: Expression | undefined, isBegun: boolean): FilterCall | undefined {
    let value: FilterCall | undefined;
    let length = 0;
    for (let isFirst = isBegun; isFirst || this.isNext('|'); isFirst = false) {
      this.#checkChain(length++);
      if (!isFirst) this.take();
      const { line } = this.next;
      const name = this.#dottedName();
      const given = this.isNext('(') ? this.arguments() : NO_ARGUMENTS;
      value = { kind: 'filter', of: value ?? of, name, line, ...given };
    }
    return value;
  }

  #test(of: Expression, line: number): Expression {
    const isNegated = this.takeIf('not');
    const name = this.#dottedName();
    let given = NO_ARGUMENTS;
    if (this.next.kind === 'mark' && this.isNext('(')) given = this.arguments();
    else if (this.#isOperand()) {
      if (this.isNext('is')) throw this.problem('You cannot chain multiple tests with is');
      given = { args: [this.#postfix(this.#primary())], named: [] };
    }
    const test: Expression = { kind: 'test', of, name, line, ...given };
    return isNegated ? { kind: 'not', of: test, line } : test;
  }

  #isOperand(): boolean {
    const { kind, text } = this.next;
    if (kind === 'mark') return text === '[' || text === '{';
    return kind === 'name' ? !BEHIND_TEST.has(text) : kind === 'text' || kind === 'int' || kind === 'float';
  }

  /** The arguments of a call, with their brackets. */
  protected arguments(): Arguments {
    this.expect('(');
    const { line } = this.next;
    const args: Expression[] = [];
    const named: [string, Expression][] = [];
    let rest: Expression | undefined, restNamed: Expression | undefined;
    while (!this.isNext(')')) {
      const isRest = this.isNext('*'),
        isNamed = this.next.kind === 'name' && this.second.kind === 'mark' && this.second.text === '=';
      if (restNamed !== undefined || (!isNamed && !this.isNext('**') && rest !== undefined) || (isRest && rest))
        throw this.problem('invalid syntax for function call expression', line);
      if (this.takeIf('*')) rest = this.expression();
      else if (this.takeIf('**')) restNamed = this.expression();
      else if (isNamed) {
        const name = this.name();
        this.take();
        if (named.some(([other]) => other === name)) throw this.problem(`keyword argument repeated: ${name}`, line);
        named.push([name, this.expression()]);
      } else if (named.length > 0) throw this.problem('invalid syntax for function call expression', line);
      else args.push(this.expression());
      if (!this.takeIf(',')) break;
    }
    this.expect(')');
    return { args, named, rest, restNamed };
  }
}
