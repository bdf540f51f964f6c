/** Runs a template: its statements, scopes and output. */
import { zip } from '../../system/at.js';
import { Thing, typeName, type PyValue } from '../value.js';
import { type ExpressionEvaluator, Names, Scope } from './evaluate.js';
import { iterate, listOf, Loop } from './items.js';
import { Callable, Lazy, type Named, Namespace, NativeCallable, textOf, tupleOf, Undefined } from './objects.js';
import type { TemplateBody, For, Signature, Statement, AssignmentTarget } from './syntax.js';
import { Failure, MAX_TEXT, TemplateProblem, typeError, valueError } from './work.js';

/** How a list of statements ends before its end. */
type Jump = 'break' | 'continue' | undefined;

/** The text that has been written. */
interface Output {
  readonly pieces: string[];
  length: number;
}

/** A macro, or the body of a call block. */
class Macro extends Callable {
  readonly type = 'Macro';
  readonly #name: string | undefined;
  readonly #signature: Signature;
  readonly #run: (values: ReadonlyMap<string, PyValue | undefined>) => string;
  readonly #isStrict: boolean;

  constructor(
    name: string | undefined,
    signature: Signature,
    isStrict: boolean,
    run: (values: ReadonlyMap<string, PyValue | undefined>) => string,
  ) {
    super();
    this.#name = name;
    this.#signature = signature;
    this.#isStrict = isStrict;
    this.#run = run;
  }

  override get code(): string {
    return this.#name === undefined ? '<Macro anonymous>' : `<Macro '${this.#name}'>`;
  }

  override attribute(name: string): PyValue | undefined {
    const { parameters, special } = this.#signature;
    if (name === 'name') return this.#name ?? null;
    if (name === 'catch_kwargs') return special.has('kwargs');
    if (name === 'catch_varargs') return special.has('varargs');
    if (name === 'caller') return special.has('caller');
    return name === 'arguments' ? tupleOf(parameters.map((parameter) => parameter.name)) : undefined;
  }

  call(args: readonly PyValue[], named: Named): PyValue {
    const { parameters, special } = this.#signature;
    const shown = this.#name === undefined ? 'None' : `'${this.#name}'`;
    const left = new Map(named);
    const values = new Map<string, PyValue | undefined>();
    for (const [i, { name }] of parameters.entries()) {
      values.set(name, i < args.length ? args[i] : left.get(name));
      if (i >= args.length) left.delete(name);
    }
    if (special.has('caller')) {
      const caller = left.get('caller');
      left.delete('caller');
      values.set(
        'caller',
        caller === undefined || caller === null ? new Undefined('No caller defined', this.#isStrict) : caller,
      );
    }
    if (special.has('kwargs')) values.set('kwargs', left);
    else if (left.has('caller') && named.has('caller'))
      throw typeError(
        `macro ${shown} was invoked with two values for the special caller argument. This is most likely a bug.`,
      );
    else if (left.size > 0) throw typeError(`macro ${shown} takes no keyword argument '${[...left.keys()][0] ?? ''}'`);
    const rest = args.slice(parameters.length);
    if (special.has('varargs')) values.set('varargs', tupleOf(rest));
    else if (rest.length > 0) throw typeError(`macro ${shown} takes not more than ${parameters.length} argument(s)`);
    return this.#run(values);
  }
}

/** "self": the blocks of the template as functions. */
class Blocks extends Thing {
  readonly type = 'TemplateReference';
  readonly isTruthy = true;
  readonly text = '<TemplateReference None>';
  readonly code = '<TemplateReference None>';
  readonly #block: (name: string) => PyValue | undefined;

  constructor(block: (name: string) => PyValue | undefined) {
    super();
    this.#block = block;
  }

  attribute(name: string): PyValue | undefined {
    return this.#block(name);
  }
}

export class Runner {
  readonly #evaluator: ExpressionEvaluator;
  readonly #blocks = new Map<string, TemplateBody>();

  constructor(evaluator: ExpressionEvaluator) {
    this.#evaluator = evaluator;
  }

  /** The text that the template makes. Throws TemplateProblem. */
  render(root: TemplateBody, names: Names): string {
    try {
      this.#findBlocks(root.statements);
      const scope = new Scope(root, names, undefined);
      scope.set('self', this.#self(names));
      return this.#text(root, scope, true);
    } catch (error) {
      const { line } = this.#evaluator;
      if (error instanceof Failure) throw new TemplateProblem(error.kind, error.message, line);
      if (error instanceof RangeError)
        throw new TemplateProblem('limit', 'the template nests too deep, or a value is too large', line);
      throw error;
    }
  }

  #self(names: Names): Thing {
    return new Blocks((name) => {
      const block = this.#blocks.get(name);
      return block === undefined ? undefined : new NativeCallable(() => this.#block(block, names));
    });
  }

  #findBlocks(statements: readonly Statement[]): void {
    for (const statement of statements) {
      if (statement.kind === 'block') this.#blocks.set(statement.name, statement.body);
      if ('body' in statement) this.#findBlocks(statement.body.statements);
      if (statement.kind === 'for') this.#findBlocks(statement.otherwise?.statements ?? []);
      if (statement.kind !== 'if') continue;
      for (const { body } of statement.branches) this.#findBlocks(body);
      this.#findBlocks(statement.otherwise);
    }
  }

  #block(block: TemplateBody, names: Names): string {
    const scope = new Scope(block, names, undefined);
    scope.set('self', this.#self(names));
    scope.set('super', new Undefined('there is no parent block called', this.#evaluator.isStrict));
    return this.#text(block, scope);
  }

  /** `isTop`: what it sets is seen by all of the template. */
  #text(body: TemplateBody, scope: Scope, isTop = false): string {
    const output: Output = { pieces: [], length: 0 };
    this.#run(body.statements, scope, output, isTop);
    return output.pieces.join('');
  }

  #print(text: string, output: Output): void {
    output.length += text.length;
    this.#evaluator.work.spend(text.length / 1024);
    if (output.length > MAX_TEXT) throw new Failure('limit', `the text is longer than ${MAX_TEXT} characters`);
    output.pieces.push(text);
  }

  #run(statements: readonly Statement[], scope: Scope, output: Output, isTop: boolean): Jump {
    for (const statement of statements) {
      this.#evaluator.work.spend();
      const jump = this.#statement(statement, scope, output, isTop);
      if (jump !== undefined) return jump;
    }
    return undefined;
  }

  #inner(body: TemplateBody, outer: Scope): Scope {
    return new Scope(body, outer.names, outer);
  }

  #statement(statement: Statement, scope: Scope, output: Output, isTop: boolean): Jump {
    const evaluator = this.#evaluator;
    evaluator.line = statement.line;
    switch (statement.kind) {
      case 'text':
        this.#print(statement.text, output);
        return undefined;
      case 'print': {
        const value = evaluator.evaluate(statement.value, scope);
        evaluator.line = statement.line;
        this.#print(evaluator.work.str(value), output);
        return undefined;
      }
      case 'set':
        this.#give(statement.target, evaluator.evaluate(statement.value, scope), scope, isTop);
        return undefined;
      case 'capture': {
        const inner = this.#inner(statement.body, scope);
        const captured: Output = { pieces: [], length: 0 };
        const jump = this.#run(statement.body.statements, inner, captured, false);
        if (jump !== undefined) return jump;
        const text = captured.pieces.join('');
        const { filter, target } = statement;
        evaluator.work.text(text.length);
        this.#give(target, filter === undefined ? text : evaluator.filterText(filter, text, inner), scope, isTop);
        return undefined;
      }
      case 'if': {
        const taken = statement.branches.find(({ condition }) => evaluator.isTrue(condition, scope));
        return evaluator.work.nested(() => this.#run(taken?.body ?? statement.otherwise, scope, output, isTop));
      }
      case 'for':
        return evaluator.work.nested(() => this.#for(statement, scope, output));
      case 'macro':
        this.#set(statement.name, this.#macro(statement.name, statement, scope), scope, isTop);
        return undefined;
      case 'call': {
        const { call } = statement;
        if (call.kind !== 'call') return undefined;
        const value = evaluator.call(call, scope, this.#macro(undefined, statement, scope));
        this.#print(evaluator.work.str(value), output);
        return undefined;
      }
      case 'filtered': {
        const inner = this.#inner(statement.body, scope);
        const captured: Output = { pieces: [], length: 0 };
        const jump = this.#run(statement.body.statements, inner, captured, false);
        if (jump !== undefined) return jump;
        const value = evaluator.filterText(statement.filter, captured.pieces.join(''), inner);
        const text = textOf(value);
        if (text === undefined) throw typeError(`expected str instance, ${typeName(value)} found`);
        this.#print(text, output);
        return undefined;
      }
      case 'with': {
        const inner = this.#inner(statement.body, scope);
        for (const [target, value] of statement.entries)
          this.#give(target, evaluator.evaluate(value, scope), inner, false);
        return evaluator.work.nested(() => this.#run(statement.body.statements, inner, output, false));
      }
      case 'scope': {
        const { escapes, body } = statement;
        const inner = this.#inner(body, scope);
        if (escapes !== undefined && evaluator.isTrue(escapes, inner))
          throw new Failure('TemplateRuntimeError', '{% autoescape true %} is not supported');
        return evaluator.work.nested(() => this.#run(body.statements, inner, output, false));
      }
      case 'block': {
        const { names } = scope;
        const seen = statement.isScoped
          ? new Names(new Map([...names.given, ...names.set, ...scope.all()]), names.globals)
          : names;
        this.#print(
          evaluator.work.nested(() => this.#block(statement.body, seen)),
          output,
        );
        return undefined;
      }
      case 'loader':
        throw typeError(`no loader for this environment specified: {% ${statement.tag} %}`);
      case 'break':
      case 'continue':
        return statement.kind;
      default:
        return statement satisfies never;
    }
  }

  #macro(name: string | undefined, signature: Signature, scope: Scope): Macro {
    return new Macro(name, signature, this.#evaluator.isStrict, (values) => {
      const inner = this.#inner(signature.body, scope);
      for (const [each, value] of values) inner.set(each, value);
      for (const parameter of signature.parameters) {
        if (values.get(parameter.name) !== undefined) continue;
        const { name: missing, otherwise } = parameter;
        const value =
          otherwise === undefined
            ? this.#evaluator.undefined(`parameter '${missing}' was not provided`)
            : this.#evaluator.evaluate(otherwise, inner);
        inner.set(missing, value);
      }
      return this.#text(signature.body, inner);
    });
  }

  #for(statement: For, scope: Scope, output: Output): Jump {
    const visited = this.#evaluator.evaluate(statement.of, scope);
    this.#evaluator.line = statement.line;
    this.#loop(statement, scope, output, visited, 0);
    return undefined;
  }

  #loop(statement: For, scope: Scope, output: Output, visited: PyValue, depth: number): void {
    const { work } = this.#evaluator;
    const items = iterate(visited, work);
    const { condition } = statement;
    const chosen = condition === undefined ? items : this.#chosen(statement, items, scope);
    const recurse = (inner: PyValue, deeper: number): PyValue => {
      const made: Output = { pieces: [], length: 0 };
      work.nested(() => this.#loop(statement, scope, made, inner, deeper));
      return made.pieces.join('');
    };
    const source = condition === undefined ? visited : new Lazy(chosen);
    const loop = new Loop(
      source,
      chosen,
      work,
      this.#evaluator.isStrict,
      depth,
      statement.isRecursive ? recurse : undefined,
    );
    let hasRun = false;
    for (let item = loop.next(); item !== undefined; item = loop.next()) {
      work.spend();
      const inner = this.#inner(statement.body, scope);
      inner.set('loop', loop);
      this.#give(statement.target, item, inner, false);
      const jump = this.#run(statement.body.statements, inner, output, false);
      if (jump === 'break') break;
      // Jinja notes at the end of a body that it has run, which "continue" and "break" do not reach.
      if (jump === undefined) hasRun = true;
    }
    const { otherwise } = statement;
    if (!hasRun && otherwise !== undefined)
      this.#run(otherwise.statements, this.#inner(otherwise, scope), output, false);
  }

  *#chosen(statement: For, items: Iterator<PyValue>, scope: Scope): Generator<PyValue> {
    const { condition, conditionScope, target } = statement;
    for (let next = items.next(); next.done !== true; next = items.next()) {
      this.#evaluator.work.spend();
      const inner = this.#inner(conditionScope, scope);
      this.#give(target, next.value, inner, false);
      if (condition === undefined || this.#evaluator.isTrue(condition, inner)) yield next.value;
    }
  }

  #set(name: string, value: PyValue, scope: Scope, isTop: boolean): void {
    scope.set(name, value);
    if (isTop) scope.names.set.set(name, value);
  }

  #give(target: AssignmentTarget, value: PyValue, scope: Scope, isTop: boolean): void {
    if (target.kind === 'name') {
      this.#set(target.name, value, scope, isTop);
      return;
    }
    if (target.kind === 'field') {
      const holder = scope.get(target.of);
      if (!(holder instanceof Namespace))
        throw new Failure('TemplateRuntimeError', 'cannot assign attribute on non-namespace object');
      holder.fields.set(target.name, value);
      return;
    }
    const items = listOf(value, this.#evaluator.work);
    if (items.length !== target.items.length)
      throw valueError(
        items.length > target.items.length
          ? `too many values to unpack (expected ${target.items.length})`
          : `not enough values to unpack (expected ${target.items.length}, got ${items.length})`,
      );
    for (const [part, item] of zip(target.items, items)) this.#give(part, item, scope, isTop);
  }
}
