/** Runs the statements of a parsed template within bounds of steps, sizes and output. */
import type { Dict, Value } from '../../python/value.js';
import { ExpressionEvaluator } from './evaluateExpression.js';
import { Failure } from './failure.js';
import { Loop, Scope, type Held } from './scope.js';
import { itemsOf } from './sequences.js';
import { TemplateProblem, type Statement, type Target } from './syntax.js';
import { Undefined } from './undefined.js';
import { MAX_TEXT, Work } from './work.js';

type For = Extract<Statement, { kind: 'for' }>;

class Runner {
  readonly #work = new Work();
  readonly #expressions: ExpressionEvaluator;
  line = 1;

  constructor(fields: Dict) {
    this.#expressions = new ExpressionEvaluator(fields, this.#work);
  }

  /** The text that statements make. */
  text(statements: readonly Statement[], scope: Scope): string {
    const output: string[] = [];
    this.#run(statements, scope, output, { length: 0 });
    return output.join('');
  }

  #run(statements: readonly Statement[], scope: Scope, output: string[], made: { length: number }): void {
    const print = (text: string): void => {
      made.length += text.length;
      if (made.length > MAX_TEXT) throw new Failure(`the text is longer than ${MAX_TEXT} characters`);
      output.push(text);
    };
    for (const statement of statements) {
      this.#work.spend();
      switch (statement.kind) {
        case 'text':
          print(statement.text);
          break;
        case 'print': {
          this.line = statement.line;
          const value = this.#expressions.evaluate(statement.value, scope);
          if (!(value instanceof Undefined)) print(this.#work.str(value));
          else if (!value.isLenient) throw new Failure(`${value.what} is not defined`);
          break;
        }
        case 'set':
          this.line = statement.line;
          this.#give(statement.target, this.#expressions.evaluate(statement.value, scope), scope);
          break;
        case 'capture': {
          const text = this.text(statement.body, new Scope(scope));
          this.line = statement.line;
          this.#work.text(text.length);
          this.#give(statement.target, text, scope);
          break;
        }
        case 'if': {
          const taken = statement.branches.find(({ condition, line }) => {
            this.line = line;
            return this.#expressions.isTrue(condition, scope);
          });
          this.#run(taken?.body ?? statement.otherwise, scope, output, made);
          break;
        }
        case 'for':
          this.#loop(statement, scope, (body, inner) => this.#run(body, inner, output, made));
          break;
        default:
          statement satisfies never;
      }
    }
  }

  #loop(statement: For, scope: Scope, run: (body: readonly Statement[], inner: Scope) => void): void {
    this.line = statement.line;
    const visited = this.#expressions.evaluate(statement.of, scope);
    if (visited instanceof Undefined && !visited.isLenient) throw new Failure(`${visited.what} is not defined`);
    const all = visited instanceof Undefined ? [] : itemsOf(visited, this.#work);
    const { condition } = statement;
    const items = condition === undefined ? all : all.filter((item) => this.#isKept(statement, item, scope));
    if (items.length === 0) run(statement.otherwise, new Scope(scope));
    for (const [i, item] of items.entries()) {
      this.#work.spend();
      const inner = new Scope(scope);
      inner.set('loop', new Loop(items, i));
      this.#give(statement.target, item, inner);
      run(statement.body, inner);
    }
  }

  /** In the condition, "loop" is that of the loop outside. */
  #isKept({ condition, target }: For, item: Value, scope: Scope): boolean {
    this.#work.spend();
    const inner = new Scope(scope);
    this.#give(target, item, inner);
    return condition === undefined || this.#expressions.isTrue(condition, inner);
  }

  #give(target: Target, value: Held, scope: Scope): void {
    if (typeof target === 'string') {
      scope.set(target, value);
      return;
    }
    if (value instanceof Undefined || value instanceof Loop) throw new Failure('what is not defined has no items');
    const items = itemsOf(value, this.#work);
    if (items.length !== target.length) throw new Failure(`an item has ${items.length} parts and not ${target.length}`);
    for (const [i, part] of target.entries()) this.#give(part, items[i] ?? null, scope);
  }
}

/** The text that a template makes of fields. Throws TemplateProblem. */
export function evaluateTemplate(statements: readonly Statement[], fields: Dict): string {
  const runner = new Runner(fields);
  try {
    return runner.text(statements, new Scope());
  } catch (error) {
    if (error instanceof Failure) throw new TemplateProblem(error.message, runner.line);
    if (error instanceof RangeError) throw new TemplateProblem('a value is too large', runner.line);
    throw error;
  }
}
