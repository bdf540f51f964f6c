/** Evaluates expressions of a template. Nothing of JavaScript is reachable from them. */
import { isTruthy, typeName, type PyValue } from '../value.js';
import { attributeOf, itemOf } from './attributes.js';
import { isTest, runFilter, runTest } from './filters.js';
import { listOf, slice } from './items.js';
import type { FilterContext, JinjaFilter } from './listFilters.js';
import { Callable, dictOf, entriesOf, isDictionary, type Named, textOf, tupleOf, Undefined } from './objects.js';
import { arithmetic, compare, signed } from './operators.js';
import type { Arguments, TemplateBody, Expression, FilterCall } from './syntax.js';
import { Failure, join, typeError, type TemplateWork } from './work.js';

type Of<Kind extends Expression['kind']> = Extract<Expression, { kind: Kind }>;
const NO_NAMED: Named = new Map();

export class ExpressionEvaluator {
  readonly work: TemplateWork;
  readonly isStrict: boolean;
  readonly #filters: ReadonlyMap<string, JinjaFilter>;
  readonly #context: FilterContext;
  /** Of what is being evaluated, for messages. */
  line = 1;

  constructor(filters: ReadonlyMap<string, JinjaFilter>, isStrict: boolean, work: TemplateWork) {
    this.work = work;
    this.isStrict = isStrict;
    this.#filters = filters;
    const context: FilterContext = {
      isStrict,
      work,
      attribute: (of, name) => attributeOf(of, name, context),
      item: (of, key) => itemOf(of, key, context),
      filter: (name, value, args, named) => this.#runFilter(name, value, args, named),
      test: (name, value, args, named) => this.#runTest(name, value, args, named),
      isKnown: (kind, name) => (kind === 'filter' ? filters.has(name) : isTest(name)),
    };
    this.#context = context;
  }

  get context(): FilterContext {
    return this.#context;
  }

  undefined(reason: string): Undefined {
    return new Undefined(reason, this.isStrict);
  }

  /** Throws Failure. */
  evaluate(expression: Expression, scope: Scope): PyValue {
    this.work.spend();
    return this.work.nested(() => this.#evaluate(expression, scope));
  }

  isTrue(expression: Expression, scope: Scope): boolean {
    return isTruthy(this.evaluate(expression, scope));
  }

  /** The text that a filter of a block makes of the block's. */
  filterText(filter: FilterCall, text: string, scope: Scope): PyValue {
    const of = filter.of;
    const value = of === undefined ? text : of.kind === 'filter' ? this.filterText(of, text, scope) : text;
    const { args, named } = this.arguments(filter, scope);
    this.line = filter.line;
    return this.#runFilter(filter.name, value, args, named);
  }

  #evaluate(expression: Expression, scope: Scope): PyValue {
    const value = (part: Expression): PyValue => this.evaluate(part, scope);
    const optional = (part: Expression | undefined): PyValue => (part === undefined ? null : value(part));
    this.line = expression.line;
    switch (expression.kind) {
      case 'constant':
        return expression.value;
      case 'name':
        return this.#name(expression.name, scope);
      case 'list':
        return expression.items.map(value);
      case 'tuple':
        return tupleOf(expression.items.map(value));
      case 'dict':
        return dictOf(
          expression.entries.map(([key, item]) => [value(key), value(item)]),
          this.work,
        );
      case 'attribute': {
        const of = value(expression.of);
        this.line = expression.line;
        return attributeOf(of, expression.name, this.#context);
      }
      case 'item': {
        const of = value(expression.of);
        const key = value(expression.key);
        this.line = expression.line;
        return itemOf(of, key, this.#context);
      }
      case 'slice': {
        const of = value(expression.of);
        const { from, to, step } = expression;
        return slice(of, optional(from), optional(to), optional(step), this.work);
      }
      case 'call':
        return this.call(expression, scope);
      case 'filter': {
        const of = expression.of === undefined ? '' : value(expression.of);
        const { args, named } = this.arguments(expression, scope);
        this.line = expression.line;
        return this.#runFilter(expression.name, of, args, named);
      }
      case 'test': {
        const of = value(expression.of);
        const { args, named } = this.arguments(expression, scope);
        this.line = expression.line;
        return this.#runTest(expression.name, of, args, named);
      }
      case 'not':
        return !isTruthy(value(expression.of));
      case 'negative':
        return signed('-', value(expression.of));
      case 'positive':
        return signed('+', value(expression.of));
      case 'and':
      case 'or': {
        let last: PyValue = null;
        for (const item of expression.items) {
          last = value(item);
          if (item !== expression.items.at(-1) && isTruthy(last) === (expression.kind === 'or')) return last;
        }
        return last;
      }
      case 'concat': {
        const parts = expression.items.map((item) => {
          const part = value(item);
          return textOf(part) ?? this.work.str(part);
        });
        return join(parts, '', this.work);
      }
      case 'compare':
        return this.#compare(expression, scope);
      case 'arithmetic': {
        let result = value(expression.first);
        for (const { op, right } of expression.rest) {
          const operand = value(right);
          this.line = expression.line;
          this.work.spend();
          result = arithmetic(op, result, operand, this.work);
        }
        return result;
      }
      case 'choose':
        if (this.isTrue(expression.condition, scope)) return value(expression.then);
        if (expression.otherwise !== undefined) return value(expression.otherwise);
        // Jinja's own kind, also where what is not defined fails wherever it is used.
        return new Undefined(
          `the inline if-expression on line ${expression.line} evaluated to false and no else section was defined.`,
          false,
        );
      default:
        return expression satisfies never;
    }
  }

  #name(name: string, scope: Scope): PyValue {
    const value = scope.get(name);
    return value === undefined ? this.undefined(`'${name}' is undefined`) : value;
  }

  #compare({ first, rest, line }: Of<'compare'>, scope: Scope): boolean {
    let left = this.evaluate(first, scope);
    for (const { op, right } of rest) {
      const next = this.evaluate(right, scope);
      this.line = line;
      if (!compare(op, left, next, this.work)) return false;
      left = next;
    }
    return true;
  }

  /** The result of a call. `caller`: the body of a call block. */
  call(expression: Of<'call'>, scope: Scope, caller?: PyValue): PyValue {
    const of = this.evaluate(expression.of, scope);
    const { args, named } = this.arguments(expression, scope);
    this.line = expression.line;
    const all = caller === undefined ? named : new Map([...named, ['caller', caller] as const]);
    if (of instanceof Callable) return this.work.nested(() => of.call(args, all));
    if (of instanceof Undefined) return of.fail();
    throw typeError(`'${typeName(of)}' object is not callable`);
  }

  arguments(given: Arguments, scope: Scope): { args: readonly PyValue[]; named: Named } {
    const args = given.args.map((arg) => this.evaluate(arg, scope));
    const hasNamed = given.named.length > 0 || given.restNamed !== undefined;
    const named = hasNamed ? new Map(given.named.map(([name, arg]) => [name, this.evaluate(arg, scope)])) : NO_NAMED;
    if (given.rest !== undefined) {
      const rest = listOf(this.evaluate(given.rest, scope), this.work);
      this.work.items(rest.length);
      args.push(...rest);
    }
    if (given.restNamed === undefined) return { args, named };
    const rest = this.evaluate(given.restNamed, scope);
    if (!isDictionary(rest)) throw typeError(`argument after ** must be a mapping, not ${typeName(rest)}`);
    const all = new Map(named);
    for (const [key, value] of entriesOf(rest)) {
      const name = textOf(key);
      if (name === undefined) throw typeError('keywords must be strings');
      if (all.has(name)) throw typeError(`got multiple values for keyword argument '${name}'`);
      all.set(name, value);
    }
    return { args, named: all };
  }

  #runFilter(name: string, value: PyValue, args: readonly PyValue[], named: Named): PyValue {
    const result = runFilter(this.#filters, name, value, args, named, this.#context);
    if (result === undefined) throw new Failure('TemplateRuntimeError', `No filter named '${name}' found.`);
    return result;
  }

  #runTest(name: string, value: PyValue, args: readonly PyValue[], named: Named): boolean {
    const result = runTest(name, value, args, named, this.#context);
    if (result === undefined) throw new Failure('TemplateRuntimeError', `No test named '${name}' found.`);
    return result;
  }
}

// The names of a template that is being rendered.

/** What a template is given, what it has set outside of all blocks, and what its environment gives every template. */
export class Names {
  readonly given: ReadonlyMap<string, PyValue>;
  readonly globals: ReadonlyMap<string, PyValue>;
  readonly set: Map<string, PyValue>;

  constructor(
    given: ReadonlyMap<string, PyValue>,
    globals: ReadonlyMap<string, PyValue>,
    set = new Map<string, PyValue>(),
  ) {
    this.given = given;
    this.globals = globals;
    this.set = set;
  }

  get(name: string): PyValue | undefined {
    for (const names of [this.set, this.given, this.globals]) {
      const value = names.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }
}

/** The names of one body while it runs. */
export class Scope {
  readonly #outer: Scope | undefined;
  readonly #names: Names;
  readonly #values = new Map<string, PyValue | undefined>();

  /** Every name of the body begins as the body says. */
  constructor(body: TemplateBody, names: Names, outer: Scope | undefined) {
    this.#outer = outer;
    this.#names = names;
    for (const [name, origin] of body.origins)
      this.#values.set(
        name,
        origin === 'context' ? names.get(name) : origin === 'outer' ? outer?.get(name) : undefined,
      );
  }

  get(name: string): PyValue | undefined {
    const value = this.#values.get(name);
    if (value !== undefined || this.#values.has(name)) return value;
    return this.#outer === undefined ? this.#names.get(name) : this.#outer.get(name);
  }

  set(name: string, value: PyValue | undefined): void {
    this.#values.set(name, value);
  }

  /** All names that have a value, the inner ones first. */
  all(): Map<string, PyValue> {
    const all = this.#outer?.all() ?? new Map<string, PyValue>();
    for (const [name, value] of this.#values) if (value !== undefined) all.set(name, value);
    return all;
  }

  get names(): Names {
    return this.#names;
  }
}
