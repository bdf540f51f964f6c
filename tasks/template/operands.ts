/** Parses what operators stand between: literals, names, calls, filters and tests. */
import { toInt } from '../../python/value.js';
import { checkProblem } from './checks.js';
import { Cursor } from './cursor.js';
import { TemplateProblem, type Expression } from './syntax.js';
import type { Token } from './tokens.js';

const MAX_DEPTH = 60;
const MAX_DIGITS = 1000;
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);
/** Words that end a test instead of being its argument. */
const BEHIND_TEST: ReadonlySet<string> = new Set(['else', 'or', 'and']);

interface Arguments {
  readonly args: readonly Expression[];
  readonly named: ReadonlyMap<string, Expression>;
}

export abstract class OperandParser extends Cursor {
  #depth = 0;

  abstract expression(): Expression;
  abstract tuple(): Expression;

  /** Throws TemplateProblem where `parse` is nested too deeply. */
  protected nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) throw this.problem(`the expression nests more than ${MAX_DEPTH} deep`);
    const value = parse();
    this.#depth--;
    return value;
  }

  protected primary(): Expression {
    const token = this.take();
    switch (token.kind) {
      case 'text': {
        let value = token.text;
        while (this.next.kind === 'text') value += this.take().text;
        return { kind: 'text', value };
      }
      case 'int': {
        if (token.text.length > MAX_DIGITS) throw this.problem(`a number has more than ${MAX_DIGITS} digits`);
        return { kind: 'int', value: toInt(BigInt(token.text)) };
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
    if (!this.isNext('(')) return { kind: 'name', name };
    if (name !== 'range') throw this.problem(`the function ${name}() is not supported; there is range()`);
    this.take();
    return { kind: 'range', args: this.#items(')') };
  }

  #bracket(token: Token): Expression {
    if (token.text === '[') return { kind: 'list', items: this.#items(']') };
    if (token.text === '(') {
      if (this.takeIf(')')) return { kind: 'tuple', items: [] };
      const value = this.tuple();
      this.expect(')');
      return value;
    }
    if (token.text !== '{') throw new TemplateProblem(`"${token.text}" is not expected here`, token.line);
    const entries: [Expression, Expression][] = [];
    while (!this.takeIf('}')) {
      const key = this.expression();
      this.expect(':');
      entries.push([key, this.expression()]);
      if (!this.takeIf(',') && !this.isNext('}')) throw this.problem('"}" is missing');
    }
    return { kind: 'dict', entries };
  }

  #items(close: string): Expression[] {
    const items: Expression[] = [];
    while (!this.takeIf(close)) {
      items.push(this.expression());
      if (!this.takeIf(',') && !this.isNext(close)) throw this.problem(`"${close}" is missing`);
    }
    return items;
  }

  protected postfix(start: Expression): Expression {
    let value = start;
    for (;;) {
      if (this.takeIf('.')) {
        const token = this.take();
        if (token.kind === 'int') value = { kind: 'item', of: value, key: { kind: 'int', value: Number(token.text) } };
        else if (token.kind !== 'name') throw this.problem(`"${token.text}" is no name of a field`);
        else if (this.takeIf('(')) value = { kind: 'method', of: value, name: token.text, ...this.#arguments() };
        else value = { kind: 'attribute', of: value, name: token.text };
      } else if (this.takeIf('[')) value = this.#subscript(value);
      else if (this.isNext('(')) throw this.problem('only methods can be called');
      else return value;
    }
  }

  #subscript(of: Expression): Expression {
    const part = (): Expression | undefined => (this.isNext(':') || this.isNext(']') ? undefined : this.expression());
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

  protected filters(start: Expression): Expression {
    let value = start;
    for (;;) {
      if (this.takeIf('|')) value = this.#filter(value);
      else if (this.takeIf('is')) value = this.#test(value);
      else return value;
    }
  }

  #filter(of: Expression): Expression {
    const name = this.name();
    const given = this.takeIf('(') ? this.#arguments() : { args: [], named: new Map<string, Expression>() };
    return { kind: 'filter', of, name, ...given };
  }

  /** Arguments up to the closing bracket, which is taken. */
  #arguments(): Arguments {
    const args: Expression[] = [];
    const named = new Map<string, Expression>();
    while (!this.takeIf(')')) {
      const value = this.expression();
      if (value.kind === 'name' && this.takeIf('=')) named.set(value.name, this.expression());
      else if (named.size > 0) throw this.problem('an argument without a name is behind one with a name');
      else args.push(value);
      if (!this.takeIf(',') && !this.isNext(')')) throw this.problem('")" is missing');
    }
    return { args, named };
  }

  /** A test may have one argument without brackets. */
  #test(of: Expression): Expression {
    const isNegated = this.takeIf('not');
    const name = this.name();
    let args: readonly Expression[] = [];
    if (this.takeIf('(')) args = this.#items(')');
    else if (this.isNext('is')) throw this.problem('a test of a test needs brackets');
    else if (this.#isOperand()) args = [this.postfix(this.primary())];
    const problem = checkProblem(name, args.length);
    if (problem !== undefined) throw this.problem(problem);
    return { kind: 'check', of, name, args, expected: !isNegated };
  }

  #isOperand(): boolean {
    const { kind, text } = this.next;
    if (kind === 'mark') return text === '[' || text === '{';
    return kind === 'name' ? !BEHIND_TEST.has(text) : kind !== 'end';
  }
}
