/** Evaluates a parsed template within bounds of steps, depth and output. Nothing of JavaScript is reachable from it. */
import { str } from '../python/show.js';
import { Float, isDict, isInt, isList, isTruthy, numeric, typeName, type Dict, type Value } from '../python/value.js';
import { Failure } from './failure.js';
import { filterNamed, itemsOf } from './filters.js';
import { METHODS } from './methods.js';
import { arithmetic, compare, itemAt, MAX_SIZE, negative, slice } from './operators.js';
import { TemplateProblem, type Expression, type Statement } from './syntax.js';

const MAX_STEPS = 1_000_000;
const MAX_DEPTH = 200;
const MAX_RANGE = 100_000;
/** Attributes that a dictionary has in Python: they hide keys of the same name. */
const DICT_ATTRIBUTES: ReadonlySet<string> = new Set(
  'clear copy fromkeys get items keys pop popitem setdefault update values'.split(' '),
);

/** What a name without a value stands for; using it is an error, asking whether it is defined is none. */
class Undefined {
  readonly what: string;
  constructor(what: string) {
    this.what = what;
  }
}

type Scope = Map<string, Value>;

class Evaluator {
  readonly #fields: Dict;
  #steps = 0;
  #depth = 0;
  #length = 0;
  line = 1;

  constructor(fields: Dict) {
    this.#fields = fields;
  }

  run(statements: readonly Statement[], scope: Scope, output: string[]): void {
    for (const statement of statements) {
      if (++this.#steps > MAX_STEPS) throw new Failure(`more than ${MAX_STEPS} steps`);
      if (statement.kind === 'text') {
        this.#print(statement.text, output);
        continue;
      }
      this.line = statement.line;
      switch (statement.kind) {
        case 'print':
          this.#print(str(this.#value(statement.value, scope)), output);
          break;
        case 'set':
          scope.set(statement.name, this.#value(statement.value, scope));
          break;
        case 'if':
          this.run(this.#isTrue(statement.condition, scope) ? statement.then : statement.otherwise, scope, output);
          break;
        case 'for':
          this.#loop(statement, scope, output);
          break;
        default:
          statement satisfies never;
      }
    }
  }

  #print(text: string, output: string[]): void {
    this.#length += text.length;
    if (this.#length > MAX_SIZE) throw new Failure(`the text is longer than ${MAX_SIZE} characters`);
    output.push(text);
  }

  #loop(statement: Extract<Statement, { kind: 'for' }>, scope: Scope, output: string[]): void {
    const items = itemsOf(this.#value(statement.of, scope));
    if (items.length === 0) this.run(statement.otherwise, new Map(scope), output);
    for (const [i, item] of items.entries()) {
      if (++this.#steps > MAX_STEPS) throw new Failure(`more than ${MAX_STEPS} steps`);
      const inner: Scope = new Map(scope);
      if (statement.names.length === 1) inner.set(statement.names[0]!, item);
      else {
        const parts = itemsOf(item);
        if (parts.length !== statement.names.length)
          throw new Failure(`an item has ${parts.length} parts and not ${statement.names.length}`);
        for (const [j, name] of statement.names.entries()) inner.set(name, parts[j]!);
      }
      inner.set(
        'loop',
        new Map<string, Value>([
          ['index', i + 1],
          ['index0', i],
          ['first', i === 0],
          ['last', i === items.length - 1],
          ['length', items.length],
        ]),
      );
      this.run(statement.body, inner, output);
    }
  }

  #value(expression: Expression, scope: Scope): Value {
    const value = this.#evaluate(expression, scope);
    if (value instanceof Undefined) throw new Failure(`${value.what} is not defined`);
    return value;
  }

  #isTrue(expression: Expression, scope: Scope): boolean {
    return isTruthy(this.#value(expression, scope));
  }

  #evaluate(expression: Expression, scope: Scope): Value | Undefined {
    if (++this.#steps > MAX_STEPS) throw new Failure(`more than ${MAX_STEPS} steps`);
    if (++this.#depth > MAX_DEPTH) throw new Failure(`the expression nests more than ${MAX_DEPTH} deep`);
    const value = this.#evaluateInner(expression, scope);
    this.#depth--;
    // Long texts and lists take time of their own.
    if (typeof value === 'string' || isList(value)) this.#steps += value.length >> 6;
    return value;
  }

  #evaluateInner(expression: Expression, scope: Scope): Value | Undefined {
    const all = (items: readonly Expression[]): Value[] => items.map((item) => this.#value(item, scope));
    switch (expression.kind) {
      case 'text':
      case 'int':
      case 'constant':
        return expression.value;
      case 'float':
        return new Float(expression.value);
      case 'name':
        return this.#field(expression.name, scope);
      case 'list':
        return all(expression.items);
      case 'dict':
        return new Map(expression.entries.map(([key, item]) => [this.#key(key, scope), this.#value(item, scope)]));
      case 'attribute':
        return this.#attribute(this.#value(expression.of, scope), expression.name);
      case 'item': {
        const of = this.#value(expression.of, scope);
        const key = this.#value(expression.key, scope);
        const item = itemAt(of, key);
        return item === undefined ? new Undefined(`item ${str(key)} of ${typeName(of)}`) : item;
      }
      case 'slice': {
        const part = (each: Expression | undefined): Value => (each === undefined ? null : this.#value(each, scope));
        const of = this.#value(expression.of, scope);
        return slice(of, part(expression.from), part(expression.to), part(expression.step));
      }
      case 'method':
        return this.#call(this.#value(expression.of, scope), expression.name, all(expression.args));
      case 'range':
        return range(all(expression.args));
      case 'filter': {
        const filter = filterNamed(expression.name, expression.named.keys());
        const named = new Map([...expression.named].map(([name, each]) => [name, this.#value(each, scope)]));
        return filter(this.#value(expression.of, scope), all(expression.args), named);
      }
      case 'defined':
        return !(this.#evaluate(expression.of, scope) instanceof Undefined) === expression.expected;
      case 'isNone':
        return (this.#evaluate(expression.of, scope) === null) === expression.expected;
      case 'not':
        return !this.#isTrue(expression.of, scope);
      case 'negative':
        return negative(this.#value(expression.of, scope));
      case 'and':
      case 'or': {
        const left = this.#value(expression.left, scope);
        return isTruthy(left) === (expression.kind === 'or') ? left : this.#evaluate(expression.right, scope);
      }
      case 'compare':
        return this.#compare(expression, scope);
      case 'arithmetic':
        return arithmetic(expression.op, this.#value(expression.left, scope), this.#value(expression.right, scope));
      case 'choose':
        if (this.#isTrue(expression.condition, scope)) return this.#evaluate(expression.then, scope);
        if (expression.otherwise !== undefined) return this.#evaluate(expression.otherwise, scope);
        return new Undefined('the value of "if" without "else"');
      default:
        return expression satisfies never;
    }
  }

  #field(name: string, scope: Scope): Value | Undefined {
    const value = scope.has(name) ? scope.get(name) : this.#fields.get(name);
    return value === undefined ? new Undefined(JSON.stringify(name)) : value;
  }

  #key(expression: Expression, scope: Scope): string {
    const key = this.#value(expression, scope);
    if (typeof key !== 'string') throw new Failure(`a key must be text, not ${typeName(key)}`);
    return key;
  }

  /** Python's attributes win over keys, as in Jinja; no attribute of a type is a value here. */
  #attribute(of: Value, name: string): Value | Undefined {
    if (isDict(of) && DICT_ATTRIBUTES.has(name))
      throw new Failure(`.${name} is a method of dictionaries; write ["${name}"] for the field`);
    if (METHODS.has(name) && !isDict(of)) throw new Failure(`.${name} is a method; call it: .${name}(…)`);
    const value = isDict(of) ? of.get(name) : undefined;
    return value === undefined ? new Undefined(`field "${name}" of ${typeName(of)}`) : value;
  }

  #call(of: Value, name: string, args: readonly Value[]): Value {
    if (isDict(of) && args.length === 0) {
      if (name === 'keys') return [...of.keys()];
      if (name === 'values') return [...of.values()];
      if (name === 'items') return [...of].map(([key, value]) => [key, value]);
    }
    const method = METHODS.get(name);
    if (method === undefined)
      throw new Failure(`the method .${name}() is not supported; there are ${[...METHODS.keys()].join(', ')}`);
    return method(of, args);
  }

  #compare({ first, rest }: Extract<Expression, { kind: 'compare' }>, scope: Scope): boolean {
    let left = this.#value(first, scope);
    for (const { op, right } of rest) {
      const next = this.#value(right, scope);
      if (!compare(op, left, next)) return false;
      left = next;
    }
    return true;
  }
}

function range(args: readonly Value[]): Value {
  if (args.length < 1 || args.length > 3 || !args.every(isInt)) throw new Failure('range() takes 1 to 3 whole numbers');
  const [from = 0, to = 0, step = 1] = (args.length === 1 ? [0, ...args] : args).map((arg) => numeric(arg) ?? 0);
  if (step === 0) throw new Failure('the step of range() is 0');
  const count = Math.max(0, Math.ceil((to - from) / step));
  if (count > MAX_RANGE) throw new Failure(`range() of ${count} numbers is more than ${MAX_RANGE}`);
  return Array.from({ length: count }, (_, i) => from + i * step);
}

/** The text that a template makes of fields. Throws TemplateProblem. */
export function evaluateTemplate(statements: readonly Statement[], fields: Dict): string {
  const evaluator = new Evaluator(fields);
  const output: string[] = [];
  try {
    evaluator.run(statements, new Map(), output);
  } catch (error) {
    if (error instanceof Failure) throw new TemplateProblem(error.message, evaluator.line);
    throw error;
  }
  return output.join('');
}
