/** Parses statements: what a template says between text and expressions. */
import { ExpressionParser } from './expressions.js';
import { resolveNames } from './names.js';
import { Callable, NativeCallable } from './objects.js';
import {
  type TemplateBody,
  type IfBranch,
  type Expression,
  type LexerOptions,
  type Parameter,
  type Signature,
  type Statement,
  type AssignmentTarget,
  type TemplateToken,
  tokensOf,
} from './syntax.js';
import { TemplateProblem } from './work.js';

const MAX_LENGTH = 1 << 20;

/** Which tags there are beside Jinja's own. */
export interface TagOptions {
  /** {% break %} and {% continue %} */
  readonly hasLoopControls: boolean;
  /** {% generation %}, which marks what an assistant has written. */
  readonly hasGenerationTag: boolean;
}

const quoted = (tags: readonly string[]): string => tags.map((tag) => `'${tag}'`).join(' or ');
const body = (statements: readonly Statement[]): TemplateBody => ({ statements, origins: [] });
/** What transformers calls with the block of {% generation %}: it writes the block. */
const WRITES_BLOCK = new NativeCallable((_args, named) => {
  const caller = named.get('caller') ?? null;
  return caller instanceof Callable ? caller.call([], new Map()) : null;
});
const callOf = (value: NativeCallable, line: number): Expression => ({
  kind: 'call',
  of: { kind: 'constant', value, line },
  args: [],
  named: [],
  line,
});
const NO_PARAMETERS: readonly Parameter[] = [];

class Parser extends ExpressionParser {
  readonly #options: TagOptions;
  readonly #blocks = new Set<string>();
  /** Whether a loop is around, without a macro or a call between. */
  #isInLoop = false;

  constructor(tokens: readonly TemplateToken[], options: TagOptions) {
    super(tokens);
    this.#options = options;
  }

  template(): Statement[] {
    return this.#statements([]);
  }

  /** Statements up to a tag of these names, or to the end of the template where there are none. */
  #statements(ends: readonly string[]): Statement[] {
    const statements: Statement[] = [];
    for (;;) {
      const token = this.next;
      const { line, text } = token;
      if (token.kind === 'eof') {
        if (ends.length === 0) return statements;
        throw this.problem(`Unexpected end of template. Jinja was looking for the following tags: ${quoted(ends)}.`);
      }
      this.take();
      if (token.kind === 'data') statements.push({ kind: 'text', text, line });
      else if (token.kind === 'print') {
        statements.push({ kind: 'print', value: this.tuple(), line });
        this.#end();
      } else {
        if (ends.length > 0 && this.next.kind === 'name' && ends.includes(this.next.text)) return statements;
        this.nested(() => this.#statement(statements, ends));
        this.#end();
      }
    }
  }

  #end(): void {
    if (this.next.kind !== 'end')
      throw this.problem(`expected token 'end of statement block', got ${this.shown(this.next)}`);
    this.take();
  }

  #isAtEnd(): boolean {
    return this.next.kind === 'end' || this.next.kind === 'eof';
  }

  /** The body of a block whose tag ends here. Its last tag is not taken. */
  #until(...ends: readonly string[]): Statement[] {
    if (this.next.kind === 'mark') this.takeIf(':');
    this.#end();
    return this.#statements(ends);
  }

  /** The same with the last tag's name taken. */
  #inside(end: string): Statement[] {
    const statements = this.#until(end);
    this.take();
    return statements;
  }

  #statement(into: Statement[], ends: readonly string[]): void {
    const { line } = this.next;
    if (this.next.kind !== 'name') throw this.problem('tag name expected');
    const tag = this.take().text;
    switch (tag) {
      case 'if':
        into.push(this.#if(line));
        return;
      case 'for':
        into.push(this.#for(line));
        return;
      case 'set':
        into.push(this.#set(line));
        return;
      case 'with':
        into.push(this.#with(line));
        return;
      case 'macro': {
        const name = this.name();
        const parameters = this.#parameters();
        into.push({ kind: 'macro', name, line, ...this.#function(parameters, 'endmacro') });
        return;
      }
      case 'call': {
        const parameters = this.isNext('(') ? this.#parameters() : NO_PARAMETERS;
        const call = this.expression();
        if (call.kind !== 'call') throw this.problem('expected call', line);
        into.push({ kind: 'call', call, line, ...this.#function(parameters, 'endcall') });
        return;
      }
      case 'filter': {
        const filter = this.filter(undefined, true);
        if (filter === undefined) throw this.problem('expected a filter');
        into.push({ kind: 'filtered', filter, body: body(this.#inside('endfilter')), line });
        return;
      }
      case 'print':
        for (let isFirst = true; !this.#isAtEnd(); isFirst = false) {
          if (!isFirst) this.expect(',');
          into.push({ kind: 'print', value: this.expression(), line });
        }
        return;
      case 'autoescape': {
        const escapes = this.expression();
        into.push({ kind: 'scope', escapes, body: body(this.#inside('endautoescape')), line });
        return;
      }
      case 'block':
        into.push(this.#block(line));
        return;
      case 'extends':
      case 'include':
      case 'import':
      case 'from':
        while (!this.#isAtEnd()) this.take();
        into.push({ kind: 'loader', tag, line });
        return;
      case 'break':
      case 'continue':
        if (!this.#options.hasLoopControls) break;
        if (!this.#isInLoop) throw this.problem(`'${tag}' outside loop`, line);
        into.push({ kind: tag, line });
        return;
      case 'generation':
        if (!this.#options.hasGenerationTag) break;
        // As transformers has it: a call of what returns its block.
        into.push({ kind: 'call', call: callOf(WRITES_BLOCK, line), line, ...this.#function([], 'endgeneration') });
        return;
      default:
    }
    const looking = ends.length === 0 ? '' : ` Jinja was looking for the following tags: ${quoted(ends)}.`;
    throw this.problem(`Encountered unknown tag '${tag}'.${looking}`, line);
  }

  #if(line: number): Statement {
    const branches: IfBranch[] = [];
    for (;;) {
      const condition = this.tuple({ hasChoice: false });
      branches.push({ condition, body: this.#until('elif', 'else', 'endif') });
      const end = this.take().text;
      if (end === 'elif') continue;
      return { kind: 'if', branches, otherwise: end === 'else' ? this.#inside('endif') : [], line };
    }
  }

  #for(line: number): Statement {
    const target = this.target('in');
    refuseLoop(target);
    this.expect('in');
    const of = this.tuple({ hasChoice: false, end: 'recursive' });
    const condition = this.takeIf('if') ? this.expression() : undefined;
    const isRecursive = this.takeIf('recursive');
    const isAround = this.#isInLoop;
    this.#isInLoop = true;
    const statements = this.#until('endfor', 'else');
    this.#isInLoop = isAround;
    const otherwise = this.take().text === 'else' ? body(this.#inside('endfor')) : undefined;
    return {
      kind: 'for',
      target,
      of,
      condition,
      conditionScope: body([]),
      isRecursive,
      body: body(statements),
      otherwise,
      line,
    };
  }

  #set(line: number): Statement {
    const target = this.target('', true);
    if (this.takeIf('=')) return { kind: 'set', target, value: this.tuple(), line };
    const filter = this.filter(undefined, false);
    return { kind: 'capture', target, filter, body: body(this.#inside('endset')), line };
  }

  #with(line: number): Statement {
    const entries: [AssignmentTarget, Expression][] = [];
    while (this.next.kind !== 'end') {
      if (entries.length > 0) this.expect(',');
      const target = this.target('');
      this.expect('=');
      entries.push([target, this.expression()]);
    }
    return { kind: 'with', entries, body: body(this.#inside('endwith')), line };
  }

  #block(line: number): Statement {
    const name = this.name();
    const isScoped = this.takeIf('scoped');
    this.takeIf('required');
    if (this.#blocks.has(name)) throw this.problem(`block '${name}' defined twice`, line);
    this.#blocks.add(name);
    const inner = this.#closure(() => this.#inside('endblock'));
    if (this.next.kind === 'name') this.takeIf(name);
    return { kind: 'block', name, isScoped, body: inner, line };
  }

  #parameters(): Parameter[] {
    const parameters: Parameter[] = [];
    this.expect('(');
    while (!this.takeIf(')')) {
      if (parameters.length > 0) this.expect(',');
      const { line } = this.next;
      const name = this.name();
      const otherwise = this.takeIf('=') ? this.expression() : undefined;
      if (otherwise === undefined && parameters.at(-1)?.otherwise !== undefined)
        throw this.problem('non-default argument follows default argument', line);
      if (parameters.some((other) => other.name === name))
        throw this.problem(`duplicate argument '${name}' in function definition`, line);
      parameters.push({ name, otherwise });
    }
    return parameters;
  }

  #function(parameters: readonly Parameter[], end: string): Signature {
    return { parameters, body: this.#closure(() => this.#inside(end)), special: new Set() };
  }

  /** A body that a loop around cannot be left from. */
  #closure(inside: () => Statement[]): TemplateBody {
    const isAround = this.#isInLoop;
    this.#isInLoop = false;
    const statements = inside();
    this.#isInLoop = isAround;
    return body(statements);
  }
}

/** Throws TemplateProblem for a loop that gives a value to "loop". */
function refuseLoop(target: AssignmentTarget): void {
  if (target.kind === 'targets') target.items.forEach(refuseLoop);
  if (target.kind === 'name' && target.name === 'loop')
    throw new TemplateProblem(
      'TemplateAssertionError',
      "Can't assign to special loop variable in for-loop",
      target.line,
    );
}

/** Throws TemplateProblem. `isKnown`: whether there is such a filter or test. */
export function parseTemplate(
  source: string,
  options: LexerOptions & TagOptions,
  isKnown: (kind: 'filter' | 'test', name: string) => boolean,
): TemplateBody {
  if (source.length > MAX_LENGTH) throw new TemplateProblem('limit', `longer than ${MAX_LENGTH} characters`, 1);
  const root = body(new Parser(tokensOf(source, options), options).template());
  resolveNames(root, isKnown);
  return root;
}
