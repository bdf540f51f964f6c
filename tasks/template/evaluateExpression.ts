/** Evaluates expressions of a template. Nothing of JavaScript is reachable from them. */
import { str } from '../../python/show.js';
import { Float, isDict, isList, isTruthy, Sequence, typeName, type Dict, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { runCheck } from './checks.js';
import { defaulted, DEFAULTS } from './default.js';
import { applyFilter } from './filters.js';
import { callMethod, METHODS } from './methods.js';
import { arithmetic, compare, negative } from './operators.js';
import { Loop, type Held, type Scope } from './scope.js';
import { itemAt, range, slice } from './sequences.js';
import type { Expression } from './syntax.js';
import { compareUndefined, Undefined } from './undefined.js';
import type { Work } from './work.js';

const MAX_DEPTH = 200;
/** Attributes that a dictionary has in Python: they hide keys of the same name. */
const DICT_ATTRIBUTES: ReadonlySet<string> = new Set(
  'clear copy fromkeys get items keys pop popitem setdefault update values'.split(' '),
);
/** Functions that Jinja defines in every template. */
const GLOBALS: ReadonlySet<string> = new Set('cycler dict joiner lipsum namespace range'.split(' '));

type Of<Kind extends Expression['kind']> = Extract<Expression, { kind: Kind }>;

export class ExpressionEvaluator {
  readonly #fields: Dict;
  readonly #work: Work;
  #depth = 0;

  constructor(fields: Dict, work: Work) {
    this.#fields = fields;
    this.#work = work;
  }

  /** Throws Failure. */
  evaluate(expression: Expression, scope: Scope): Value | Undefined {
    this.#work.spend();
    if (++this.#depth > MAX_DEPTH) throw new Failure(`the expression nests more than ${MAX_DEPTH} deep`);
    const value = this.#evaluateInner(expression, scope);
    this.#depth--;
    // Whatever reads long texts and lists takes time of its own.
    if (typeof value === 'string' || isList(value)) this.#work.spend(value.length >> 6);
    return value;
  }

  /** Whether the value is true, as for "if". Throws Failure. */
  isTrue(expression: Expression, scope: Scope): boolean {
    return this.#isTruthy(this.evaluate(expression, scope));
  }

  #isTruthy(value: Value | Undefined): boolean {
    if (!(value instanceof Undefined)) return isTruthy(value);
    if (!value.isLenient) throw new Failure(`${value.what} is not defined`);
    return false;
  }

  #value(expression: Expression, scope: Scope): Value {
    const value = this.evaluate(expression, scope);
    if (value instanceof Undefined) throw new Failure(`${value.what} is not defined`);
    return value;
  }

  #evaluateInner(expression: Expression, scope: Scope): Value | Undefined {
    const value = (part: Expression): Value => this.#value(part, scope);
    switch (expression.kind) {
      case 'text':
      case 'int':
      case 'constant':
        return expression.value;
      case 'float':
        return new Float(expression.value);
      case 'name': {
        const held = this.#held(expression.name, scope);
        if (held instanceof Loop) throw new Failure('of "loop", only fields and loop.cycle() are supported');
        return held;
      }
      case 'list':
        return expression.items.map((item) => value(unmarked(item)));
      case 'tuple':
        return new Sequence(
          'tuple',
          expression.items.map((item) => value(unmarked(item))),
        );
      case 'dict':
        return new Map(expression.entries.map(([key, item]) => [this.#key(key, scope), value(unmarked(item))]));
      case 'attribute':
        return this.#attribute(expression, scope);
      case 'item': {
        const of = value(expression.of);
        const key = value(expression.key);
        const item = itemAt(of, key);
        if (item !== undefined) return item;
        const shown = isList(key) || isDict(key) ? typeName(key) : str(key);
        return new Undefined(`item ${shown} of ${typeName(of)}`);
      }
      case 'slice': {
        const part = (each: Expression | undefined): Value => (each === undefined ? null : value(each));
        const of = value(expression.of);
        return slice(of, part(expression.from), part(expression.to), part(expression.step), this.#work);
      }
      case 'method':
        return this.#method(expression, scope);
      case 'range':
        return range(expression.args.map(value));
      case 'filter':
        return this.#filter(expression, scope);
      case 'check':
        return this.#check(expression, scope) === expression.expected;
      case 'not':
        return !this.isTrue(expression.of, scope);
      case 'negative':
        return negative(value(expression.of));
      case 'and':
      case 'or': {
        const left = this.evaluate(expression.left, scope);
        return this.#isTruthy(left) === (expression.kind === 'or') ? left : this.evaluate(expression.right, scope);
      }
      case 'compare':
        return this.#compare(expression, scope);
      case 'arithmetic':
        return this.#arithmetic(expression, scope);
      case 'choose':
        if (this.isTrue(expression.condition, scope)) return this.evaluate(expression.then, scope);
        if (expression.otherwise !== undefined) return this.evaluate(expression.otherwise, scope);
        return new Undefined('the value of "if" without "else"', true);
      default:
        return expression satisfies never;
    }
  }

  #held(name: string, scope: Scope): Held {
    const held = scope.get(name);
    const value = held === undefined ? this.#fields.get(name) : held;
    if (value !== undefined) return value;
    if (GLOBALS.has(name)) throw new Failure(`the function ${name} is no value here`);
    return new Undefined(JSON.stringify(name));
  }

  #key(expression: Expression, scope: Scope): string {
    const key = this.#value(expression, scope);
    if (typeof key !== 'string') throw new Failure(`a key must be text, not ${typeName(key)}`);
    return key;
  }

  #loop(of: Expression, scope: Scope): Loop | undefined {
    const held = of.kind === 'name' ? this.#held(of.name, scope) : undefined;
    return held instanceof Loop ? held : undefined;
  }

  /** Python's attributes win over keys, as in Jinja; no attribute of a type is a value here. */
  #attribute({ of: holder, name }: Of<'attribute'>, scope: Scope): Value | Undefined {
    const loop = this.#loop(holder, scope);
    if (loop !== undefined) return loop.field(name);
    const of = this.#value(holder, scope);
    if (isDict(of) && DICT_ATTRIBUTES.has(name))
      throw new Failure(`.${name} is a method of dictionaries; write ["${name}"] for the field`);
    if ((METHODS.has(name) || name === 'format') && !isDict(of))
      throw new Failure(`.${name} is a method; call it: .${name}(…)`);
    const value = isDict(of) ? of.get(name) : undefined;
    return value === undefined ? new Undefined(`field "${name}" of ${typeName(of)}`) : value;
  }

  /** What stands in for a value is evaluated in any case, and may be undefined where it is not used. */
  #filter(expression: Of<'filter' | 'method'>, scope: Scope): Value | Undefined {
    const { name, args, named } = expression;
    const of = this.evaluate(expression.of, scope);
    if (DEFAULTS.has(name)) {
      const values = args.map((arg) => this.evaluate(arg, scope));
      return defaulted(of, values, new Map([...named].map(([key, arg]) => [key, this.evaluate(arg, scope)])));
    }
    const values = args.map((arg) => this.#value(arg, scope));
    return applyFilter(name, of, values, this.#named(expression, scope), this.#work);
  }

  #named({ named }: Of<'filter' | 'method'>, scope: Scope): Map<string, Value> {
    return new Map([...named].map(([name, each]) => [name, this.#value(each, scope)]));
  }

  #method(expression: Of<'filter' | 'method'>, scope: Scope): Value {
    const { name } = expression;
    const args = (): Value[] => expression.args.map((arg) => this.#value(arg, scope));
    const loop = this.#loop(expression.of, scope);
    if (loop !== undefined) {
      if (name !== 'cycle') throw new Failure(`loop.${name}() is not supported; there is loop.cycle()`);
      return loop.cycle(args());
    }
    return callMethod(
      this.#value(unmarked(expression.of), scope),
      name,
      args(),
      this.#named(expression, scope),
      this.#work,
    );
  }

  #check(expression: Of<'check'>, scope: Scope): boolean {
    const { name } = expression;
    if (this.#loop(expression.of, scope) !== undefined && (name === 'defined' || name === 'undefined'))
      return name === 'defined';
    const of = this.evaluate(expression.of, scope);
    return runCheck(
      name,
      of,
      expression.args.map((arg) => this.#value(arg, scope)),
      this.#work,
    );
  }

  #compare({ first, rest }: Of<'compare'>, scope: Scope): boolean {
    let left = this.evaluate(first, scope);
    for (const { op, right } of rest) {
      const next = this.evaluate(right, scope);
      if (!(left instanceof Undefined) && !(next instanceof Undefined)) {
        if (!compare(op, left, next, this.#work)) return false;
      } else if (!compareUndefined(op, left, next)) return false;
      left = next;
    }
    return true;
  }

  #arithmetic({ op, left, right }: Of<'arithmetic'>, scope: Scope): Value {
    const operand = (part: Expression): Value => {
      if (op !== '~') return this.#value(unmarked(part), scope);
      const value = this.evaluate(part, scope);
      return value instanceof Undefined && value.isLenient ? '' : this.#defined(value);
    };
    return arithmetic(op, operand(left), operand(right), this.#work);
  }

  #defined(value: Value | Undefined): Value {
    if (value instanceof Undefined) throw new Failure(`${value.what} is not defined`);
    return value;
  }
}

/** What is used as a value. Jinja marks the text of tojson as HTML, which changes what is joined with it. */
function unmarked(expression: Expression): Expression {
  if (expression.kind === 'filter' && expression.name === 'tojson')
    throw new Failure('what tojson makes can be printed, filtered, set and joined by "~", nothing else');
  return expression;
}
