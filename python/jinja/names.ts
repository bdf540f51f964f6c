/**
 * Which names each body of a template has, and how each begins. Jinja decides this before anything is rendered: a name
 * that a scope sets starts as the one around it, or as nothing, even where it is read before it is set.
 */
import {
  type TemplateBody,
  type Expression,
  type FilterCall,
  type Origin,
  type Parameter,
  partsOf,
  type Signature,
  type Statement,
  type AssignmentTarget,
} from './syntax.js';
import { TemplateProblem } from './work.js';

type IsKnown = (kind: 'filter' | 'test', name: string) => boolean;
type Special = 'caller' | 'kwargs' | 'varargs';
const SPECIAL: readonly Special[] = ['caller', 'kwargs', 'varargs'];

/** The names of one scope. */
class Names {
  readonly outer: Names | undefined;
  readonly origins: Map<string, Origin | 'given'>;
  readonly stores: Set<string>;

  constructor(outer?: Names, copied?: Names) {
    this.outer = outer;
    this.origins = new Map(copied?.origins);
    this.stores = new Set(copied?.stores);
  }

  has(name: string): boolean {
    return this.origins.has(name) || (this.outer?.has(name) ?? false);
  }

  load(name: string): void {
    if (!this.has(name)) this.origins.set(name, 'context');
  }

  store(name: string): void {
    this.stores.add(name);
    if (!this.origins.has(name)) this.origins.set(name, this.outer?.has(name) === true ? 'outer' : 'missing');
  }

  give(name: string): void {
    this.stores.add(name);
    this.origins.set(name, 'given');
  }

  /** After branches, of which one was taken or none: what they set may still be what it was before. */
  join(branches: readonly Names[]): void {
    const set = new Set(branches.flatMap(({ stores }) => [...stores]).filter((name) => !this.stores.has(name)));
    for (const { origins, stores } of branches) {
      for (const [name, origin] of origins) this.origins.set(name, origin);
      for (const name of stores) this.stores.add(name);
    }
    for (const name of set) this.origins.set(name, this.outer?.has(name) === true ? 'outer' : 'context');
  }

  list(): [string, Origin][] {
    return [...this.origins].flatMap(([name, origin]) => (origin === 'given' ? [] : [[name, origin]]));
  }
}

class NameResolver {
  readonly #isKnown: IsKnown;
  #names: Names;
  /** The names of the body that is visited; #names is a copy of them within a branch. */
  #frame: Names;
  /** Whether what is visited is part of a condition's branch: an unknown filter matters only where it is reached. */
  #isConditional = false;
  /** Bodies are visited when all names of the scope around them are known. */
  #later: (() => void)[] = [];
  #loops = 0;

  constructor(isKnown: IsKnown) {
    this.#isKnown = isKnown;
    this.#names = new Names();
    this.#frame = this.#names;
  }

  /** `before` gives the scope its names, and visits what belongs to it beside the body; `after` visits more. */
  scope(body: TemplateBody, outer: Names | undefined, before?: () => void, after?: () => void): void {
    const saved = { names: this.#names, frame: this.#frame, later: this.#later, isConditional: this.#isConditional };
    this.#names = new Names(outer);
    this.#frame = this.#names;
    this.#later = [];
    this.#isConditional = false;
    before?.();
    this.#visitAll(body.statements);
    after?.();
    for (const visit of this.#later) visit();
    body.origins = this.#names.list();
    this.#names = saved.names;
    this.#frame = saved.frame;
    this.#later = saved.later;
    this.#isConditional = saved.isConditional;
  }

  /** A name that is given a value before the scope begins. */
  give(name: string): void {
    this.#names.give(name);
  }

  #visitAll(statements: readonly Statement[]): void {
    for (const statement of statements) this.#statement(statement);
  }

  #statement(statement: Statement): void {
    const frame = this.#frame;
    const loops = this.#loops;
    const later = (visit: () => void): void => {
      this.#later.push(() => {
        const outside = this.#loops;
        this.#loops = loops;
        visit();
        this.#loops = outside;
      });
    };
    switch (statement.kind) {
      case 'text':
      case 'loader':
      case 'break':
      case 'continue':
        return;
      case 'print':
        this.#expression(statement.value);
        return;
      case 'set':
        this.#expression(statement.value);
        this.#target(statement.target, false);
        return;
      case 'capture':
        this.#target(statement.target, false);
        later(() => this.scope(statement.body, frame));
        return;
      case 'if': {
        const names = this.#names;
        const isConditional = this.#isConditional;
        this.#isConditional = true;
        const branch = (visit: () => void): Names => {
          this.#names = new Names(names.outer, names);
          visit();
          const found = this.#names;
          this.#names = names;
          return found;
        };
        const [first, ...others] = statement.branches;
        if (first !== undefined) this.#expression(first.condition);
        names.join([
          branch(() => this.#visitAll(first?.body ?? [])),
          branch(() => this.#elif(others)),
          branch(() => this.#visitAll(statement.otherwise)),
        ]);
        this.#isConditional = isConditional;
        return;
      }
      case 'for':
        this.#expression(statement.of);
        later(() => {
          const { target, condition, otherwise } = statement;
          if (condition !== undefined)
            this.scope(statement.conditionScope, frame, () => {
              this.#target(target, true);
              this.#expression(condition);
            });
          if (otherwise !== undefined) this.scope(otherwise, frame);
          this.#loops++;
          this.scope(statement.body, frame, () => {
            this.#names.give('loop');
            this.#target(target, true);
          });
          this.#loops--;
        });
        return;
      case 'macro':
        this.#names.store(statement.name);
        later(() => this.#function(statement, frame));
        return;
      case 'call':
        this.#expression(statement.call);
        later(() => this.#function(statement, frame));
        return;
      case 'filtered':
        this.#filter(statement.filter);
        later(() => {
          const after = (): void => this.#filter(statement.filter);
          this.scope(statement.body, frame, undefined, after);
        });
        return;
      case 'with':
        for (const [, value] of statement.entries) this.#expression(value);
        later(() => {
          this.scope(statement.body, frame, () => {
            for (const [target] of statement.entries) this.#target(target, true);
          });
        });
        return;
      case 'scope':
        if (statement.escapes !== undefined) this.#expression(statement.escapes);
        later(() => this.scope(statement.body, frame));
        return;
      case 'block':
        later(() => {
          this.scope(statement.body, undefined, () => {
            this.#names.give('self');
            this.#names.give('super');
          });
        });
        return;
      default:
        statement satisfies never;
    }
  }

  /** Each further condition is one inside the last: what the first of them reads or sets is seen by the next. */
  #elif(branches: readonly { readonly condition: Expression; readonly body: readonly Statement[] }[]): void {
    for (const { condition, body } of branches) {
      this.#expression(condition);
      const names = this.#names;
      this.#names = new Names(names.outer, names);
      this.#visitAll(body);
      const found = this.#names;
      this.#names = names;
      names.join([found, new Names(names.outer, names), new Names(names.outer, names)]);
    }
  }

  #function(signature: Signature, outer: Names): void {
    const { parameters, body } = signature;
    const given = new Set(parameters.map(({ name }) => name));
    const used = new Set<string>(SPECIAL);
    const found = new Set<Special>();
    findSpecial(body.statements, used, found);
    const caller = parameters.find(({ name }) => name === 'caller');
    if (found.has('caller') && caller !== undefined && caller.otherwise === undefined)
      throw new TemplateProblem(
        'TemplateAssertionError',
        'When defining macros or call blocks the special "caller" argument must be omitted or be given a default.',
        1,
      );
    signature.special = new Set([...found].filter((name) => !given.has(name)));
    this.scope(body, outer, () => {
      for (const { name } of parameters) this.#names.give(name);
      for (const { otherwise } of parameters) if (otherwise !== undefined) this.#expression(otherwise);
      for (const name of signature.special) this.#names.give(name);
    });
  }

  #target(target: AssignmentTarget, isGiven: boolean): void {
    if (target.kind === 'targets') for (const item of target.items) this.#target(item, isGiven);
    else if (target.kind === 'field') this.#names.load(target.of);
    else if (isGiven) this.#names.give(target.name);
    else {
      if (target.name === 'loop' && this.#loops > 0)
        throw new TemplateProblem(
          'TemplateAssertionError',
          "Can't assign to special loop variable in for-loop",
          target.line,
        );
      this.#names.store(target.name);
    }
  }

  #filter(filter: FilterCall): void {
    if (filter.of !== undefined) this.#expression(filter.of);
    this.#check('filter', filter.name, filter.line);
    this.#arguments(filter);
  }

  #check(kind: 'filter' | 'test', name: string, line: number): void {
    if (!this.#isConditional && !this.#isKnown(kind, name))
      throw new TemplateProblem('TemplateAssertionError', `No ${kind} named '${name}'.`, line);
  }

  #arguments({ args, named, rest, restNamed }: FilterCall | Extract<Expression, { kind: 'call' | 'test' }>): void {
    for (const arg of args) this.#expression(arg);
    for (const [, arg] of named) this.#expression(arg);
    if (rest !== undefined) this.#expression(rest);
    if (restNamed !== undefined) this.#expression(restNamed);
  }

  #expression(expression: Expression): void {
    switch (expression.kind) {
      case 'name':
        this.#names.load(expression.name);
        return;
      case 'filter':
        this.#filter(expression);
        return;
      case 'test':
        this.#expression(expression.of);
        this.#check('test', expression.name, expression.line);
        this.#arguments(expression);
        return;
      case 'call':
        this.#expression(expression.of);
        this.#arguments(expression);
        return;
      case 'choose': {
        const isConditional = this.#isConditional;
        this.#isConditional = true;
        for (const part of partsOf(expression)) this.#expression(part);
        this.#isConditional = isConditional;
        return;
      }
      default:
        for (const part of partsOf(expression)) this.#expression(part);
    }
  }
}

/** Which of the names `left` statements read before they set them. A name that was set is no longer special. */
function findSpecial(statements: readonly Statement[], left: Set<string>, found: Set<Special>): void {
  const load = (expression: Expression | undefined): void => {
    if (expression === undefined) return;
    if (expression.kind === 'name' && left.has(expression.name)) found.add(expression.name as Special);
    for (const part of partsOf(expression)) load(part);
  };
  const store = (target: AssignmentTarget): void => {
    if (target.kind === 'targets') for (const item of target.items) store(item);
    else if (target.kind === 'name') left.delete(target.name);
  };
  const inside = (signature: { parameters: readonly Parameter[]; body: TemplateBody }): void => {
    for (const { name } of signature.parameters) left.delete(name);
    for (const { otherwise } of signature.parameters) load(otherwise);
    findSpecial(signature.body.statements, left, found);
  };
  for (const statement of statements)
    switch (statement.kind) {
      case 'text':
      case 'loader':
      case 'break':
      case 'continue':
      case 'block':
        break;
      case 'print':
        load(statement.value);
        break;
      case 'set':
        store(statement.target);
        load(statement.value);
        break;
      case 'capture':
        store(statement.target);
        load(statement.filter);
        findSpecial(statement.body.statements, left, found);
        break;
      case 'if':
        for (const { condition, body } of statement.branches) {
          load(condition);
          findSpecial(body, left, found);
        }
        findSpecial(statement.otherwise, left, found);
        break;
      case 'for':
        store(statement.target);
        load(statement.of);
        findSpecial(statement.body.statements, left, found);
        findSpecial(statement.otherwise?.statements ?? [], left, found);
        load(statement.condition);
        break;
      case 'macro':
        inside(statement);
        break;
      case 'call':
        load(statement.call);
        inside(statement);
        break;
      case 'filtered':
        load(statement.filter);
        findSpecial(statement.body.statements, left, found);
        break;
      case 'with':
        for (const [target, value] of statement.entries) {
          store(target);
          load(value);
        }
        findSpecial(statement.body.statements, left, found);
        break;
      case 'scope':
        load(statement.escapes);
        findSpecial(statement.body.statements, left, found);
        break;
      default:
        statement satisfies never;
    }
}

/** Fills `origins` and `special` of all bodies. Throws TemplateProblem. */
export function resolveNames(root: TemplateBody, isKnown: IsKnown): void {
  const resolver = new NameResolver(isKnown);
  resolver.scope(root, undefined, () => resolver.give('self'));
}
