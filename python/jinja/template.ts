/**
 * Jinja2's templates, in the two environments that prompts are made in: that of chat templates in transformers, and
 * that of task files in the public harness. A template is a program of unknown origin: it cannot reach anything but
 * what it is given, and everything that it does is bounded.
 */
import type { Dict, Value } from '../value.js';
import { makeDict } from './attributes.js';
import { Evaluator } from './evaluate.js';
import { Failure, TemplateProblem, typeError } from './failure.js';
import { CHAT_FILTERS, TASK_FILTERS } from './filters.js';
import type { Filter } from './filter.js';
import { bind, range } from './items.js';
import type { LexerOptions } from './lexer.js';
import { Cycler, Joiner } from './loops.js';
import { entriesOf, isDictionary, Namespace, Native, textOf, type Named } from './objects.js';
import { parseTemplate, type TagOptions } from './parse.js';
import { Runner } from './run.js';
import { Names } from './scope.js';
import { strftime } from './strftime.js';
import type { Body } from './syntax.js';
import { isTest } from './tests.js';
import { Work } from './work.js';

export { TemplateProblem };

export interface Environment extends LexerOptions, TagOptions {
  /** Whether using what is not defined is an error in every way, even printing it. */
  readonly isStrict: boolean;
  readonly filters: ReadonlyMap<string, Filter>;
  /** Whether there are raise_exception() and strftime_now(). */
  readonly isForChats: boolean;
  readonly maxSteps: number;
}

/** transformers' environment of chat templates. */
export const CHAT_ENVIRONMENT: Environment = {
  trimsBlocks: true,
  stripsBlocks: true,
  keepsLastNewline: false,
  hasLoopControls: true,
  hasGenerationTag: true,
  isStrict: false,
  filters: CHAT_FILTERS,
  isForChats: true,
  maxSteps: 20_000_000,
};

/** The public harness' environment of task files. */
export const TASK_ENVIRONMENT: Environment = {
  trimsBlocks: false,
  stripsBlocks: false,
  keepsLastNewline: true,
  hasLoopControls: false,
  hasGenerationTag: false,
  isStrict: true,
  filters: TASK_FILTERS,
  isForChats: false,
  maxSteps: 1_000_000,
};

export class JinjaTemplate {
  readonly #root: Body;
  readonly #environment: Environment;

  /** Throws TemplateProblem. */
  constructor(source: string, environment: Environment) {
    this.#environment = environment;
    try {
      this.#root = parseTemplate(source, environment, (kind, name) =>
        kind === 'filter' ? environment.filters.has(name) : isTest(name),
      );
    } catch (error) {
      if (error instanceof RangeError) throw new TemplateProblem('limit', 'the template nests too deep', 1);
      throw error;
    }
  }

  /** The text that it makes of variables. `now`: for strftime_now(). Throws TemplateProblem. */
  render(variables: Dict, now: () => Date = () => new Date()): string {
    const { filters, isStrict, maxSteps } = this.#environment;
    const evaluator = new Evaluator(filters, isStrict, new Work(maxSteps));
    const names = new Names(variables, globalsOf(evaluator, this.#environment, now));
    return new Runner(evaluator).render(this.#root, names);
  }
}

const refuseNamed = (what: string, named: Named): void => {
  if (named.size > 0) throw typeError(`${what} takes no keyword arguments`);
};

/** What every template of an environment has. */
function globalsOf({ context }: Evaluator, { isForChats }: Environment, now: () => Date): Map<string, Value> {
  const globals = new Map<string, Value>([
    [
      'range',
      new Native((args, named) => {
        refuseNamed('range()', named);
        context.work.spend(args.length);
        const made = range(args);
        context.work.items(Array.isArray(made) ? made.length : 0);
        return made;
      }),
    ],
    ['dict', new Native((args, named) => makeDict(args, named, context), "<class 'dict'>")],
    [
      'lipsum',
      new Native(() => {
        throw new Failure('TemplateRuntimeError', 'lipsum() writes another text each time: it is not supported');
      }),
    ],
    [
      'cycler',
      new Native((args, named) => {
        refuseNamed('cycler()', named);
        return new Cycler(args);
      }, "<class 'jinja2.utils.Cycler'>"),
    ],
    [
      'joiner',
      new Native((args, named) => {
        const [separator = ', '] = bind('joiner()', ['sep?'], args, named);
        return new Joiner(separator);
      }, "<class 'jinja2.utils.Joiner'>"),
    ],
    [
      'namespace',
      new Native((args, named) => {
        const fields = makeDict(args, named, context);
        if (!isDictionary(fields)) return fields;
        return new Namespace(Array.from(entriesOf(fields), ([key, value]) => [textOf(key) ?? '', value] as const));
      }, "<class 'jinja2.utils.Namespace'>"),
    ],
  ]);
  if (!isForChats) return globals;
  globals.set(
    'raise_exception',
    new Native((args, named) => {
      const [message = ''] = bind('raise_exception()', ['message'], args, named);
      throw new Failure('TemplateError', context.work.str(message));
    }),
  );
  globals.set(
    'strftime_now',
    new Native((args, named) => {
      const [format = null] = bind('strftime_now()', ['format'], args, named);
      const text = textOf(format);
      if (text === undefined) throw typeError('strftime() argument 1 must be str');
      context.work.text(text.length * 16);
      return strftime(text, now());
    }),
  );
  return globals;
}
