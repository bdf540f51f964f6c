/** A template from its text to rendered text, and the clock that it may ask. */
import type { Dict, PyValue } from '../value.js';
import { makeDict } from './attributes.js';
import { ExpressionEvaluator, Names } from './evaluate.js';
import { CHAT_FILTERS, isTest, TASK_FILTERS } from './filters.js';
import { bind, Cycler, Joiner, range } from './items.js';
import type { JinjaFilter } from './listFilters.js';
import { entriesOf, isDictionary, type Named, Namespace, NativeCallable, textOf } from './objects.js';
import { parseTemplate, type TagOptions } from './parse.js';
import { Runner } from './run.js';
import type { TemplateBody, LexerOptions } from './syntax.js';
import { Failure, TemplateProblem, typeError, TemplateWork } from './work.js';

// Python's datetime.strftime() in English, for the local time zone.

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAY_MS = 86_400_000;

/** The day of the year, from 0. */
const dayOfYear = (now: Date): number =>
  Math.round((Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) - Date.UTC(now.getFullYear(), 0, 1)) / DAY_MS);

/** Year and week of ISO 8601: a week belongs to the year of its Thursday. */
function isoWeek(now: Date): readonly [year: number, week: number] {
  const thursday = new Date(Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()));
  thursday.setUTCDate(thursday.getUTCDate() + 3 - ((thursday.getUTCDay() + 6) % 7));
  const year = thursday.getUTCFullYear();
  return [year, 1 + Math.floor((thursday.getTime() - Date.UTC(year, 0, 1)) / DAY_MS / 7)];
}

/** A directive by its letter; undefined for one that there is not. */
function directive(letter: string, now: Date): string | number | readonly [number, number, string?] | undefined {
  const hour = now.getHours() % 12 === 0 ? 12 : now.getHours() % 12;
  switch (letter) {
    case 'a':
      return DAYS[now.getDay()]?.slice(0, 3);
    case 'A':
      return DAYS[now.getDay()];
    case 'b':
    case 'h':
      return MONTHS[now.getMonth()]?.slice(0, 3);
    case 'B':
      return MONTHS[now.getMonth()];
    case 'd':
      return [now.getDate(), 2];
    case 'e':
      return [now.getDate(), 2, ' '];
    case 'm':
      return [now.getMonth() + 1, 2];
    case 'y':
      return [now.getFullYear() % 100, 2];
    case 'Y':
      return [now.getFullYear(), 4];
    case 'C':
      return [Math.floor(now.getFullYear() / 100), 2];
    case 'H':
      return [now.getHours(), 2];
    case 'k':
      return [now.getHours(), 2, ' '];
    case 'I':
      return [hour, 2];
    case 'l':
      return [hour, 2, ' '];
    case 'M':
      return [now.getMinutes(), 2];
    case 'S':
      return [now.getSeconds(), 2];
    case 'f':
      return [now.getMilliseconds() * 1000, 6];
    case 'p':
      return now.getHours() < 12 ? 'AM' : 'PM';
    case 'P':
      return now.getHours() < 12 ? 'am' : 'pm';
    case 'j':
      return [dayOfYear(now) + 1, 3];
    case 'u':
      return now.getDay() === 0 ? 7 : now.getDay();
    case 'w':
      return now.getDay();
    case 'U':
      return [Math.floor((dayOfYear(now) + 7 - now.getDay()) / 7), 2];
    case 'W':
      return [Math.floor((dayOfYear(now) + 7 - ((now.getDay() + 6) % 7)) / 7), 2];
    case 'V':
      return [isoWeek(now)[1], 2];
    case 'G':
      return [isoWeek(now)[0], 4];
    case 'g':
      return [isoWeek(now)[0] % 100, 2];
    case 's':
      return Math.floor(now.getTime() / 1000);
    case 'z':
    case 'Z':
      return '';
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '%':
      return '%';
    default:
      return undefined;
  }
}

/** Directives that stand for others. */
const SHORT: Readonly<Record<string, string>> = {
  c: '%a %b %e %H:%M:%S %Y',
  D: '%m/%d/%y',
  F: '%Y-%m-%d',
  r: '%I:%M:%S %p',
  R: '%H:%M',
  T: '%H:%M:%S',
  x: '%m/%d/%y',
  X: '%H:%M:%S',
};

/** now.strftime(format). What is no directive stays as it is. */
export function strftime(format: string, now: Date): string {
  const long = format.replace(/%([cDFrRTxX])/g, (whole, letter: string) => SHORT[letter] ?? whole);
  return long.replace(/%([-_0^#]?)([a-zA-Z%])/g, (whole, flag: string, letter: string) => {
    const value = directive(letter, now);
    if (value === undefined) return whole;
    if (typeof value === 'string') return flag === '^' ? value.toUpperCase() : value;
    const [number, width, fill = '0'] = typeof value === 'number' ? ([value, 1] as const) : value;
    const filled = flag === '_' ? ' ' : flag === '0' ? '0' : fill;
    return flag === '-' ? String(number) : String(number).padStart(width, filled);
  });
}

// Jinja2's templates, in the two environments that prompts are made in: that of chat templates in transformers, and
// that of task files in the public harness. A template is a program of unknown origin: it cannot reach anything but
// what it is given, and everything that it does is bounded.

export { TemplateProblem };

export interface JinjaEnvironment extends LexerOptions, TagOptions {
  /** Whether using what is not defined is an error in every way, even printing it. */
  readonly isStrict: boolean;
  readonly filters: ReadonlyMap<string, JinjaFilter>;
  /** Whether there are raise_exception() and strftime_now(). */
  readonly isForChats: boolean;
  readonly maxSteps: number;
}

/** transformers' environment of chat templates. */
export const CHAT_ENVIRONMENT: JinjaEnvironment = {
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
export const TASK_ENVIRONMENT: JinjaEnvironment = {
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
  readonly #root: TemplateBody;
  readonly #environment: JinjaEnvironment;

  /** Throws TemplateProblem. */
  constructor(source: string, environment: JinjaEnvironment) {
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
    const evaluator = new ExpressionEvaluator(filters, isStrict, new TemplateWork(maxSteps));
    const names = new Names(variables, globalsOf(evaluator, this.#environment, now));
    return new Runner(evaluator).render(this.#root, names);
  }
}

const refuseNamed = (what: string, named: Named): void => {
  if (named.size > 0) throw typeError(`${what} takes no keyword arguments`);
};

/** What every template of an environment has. */
function globalsOf(
  { context }: ExpressionEvaluator,
  { isForChats }: JinjaEnvironment,
  now: () => Date,
): Map<string, PyValue> {
  const globals = new Map<string, PyValue>([
    [
      'range',
      new NativeCallable((args, named) => {
        refuseNamed('range()', named);
        context.work.spend(args.length);
        const made = range(args);
        context.work.items(Array.isArray(made) ? made.length : 0);
        return made;
      }),
    ],
    ['dict', new NativeCallable((args, named) => makeDict(args, named, context), "<class 'dict'>")],
    [
      'lipsum',
      new NativeCallable(() => {
        throw new Failure('TemplateRuntimeError', 'lipsum() writes another text each time: it is not supported');
      }),
    ],
    [
      'cycler',
      new NativeCallable((args, named) => {
        refuseNamed('cycler()', named);
        return new Cycler(args);
      }, "<class 'jinja2.utils.Cycler'>"),
    ],
    [
      'joiner',
      new NativeCallable((args, named) => {
        const [separator = ', '] = bind('joiner()', ['sep?'], args, named);
        return new Joiner(separator);
      }, "<class 'jinja2.utils.Joiner'>"),
    ],
    [
      'namespace',
      new NativeCallable((args, named) => {
        const fields = makeDict(args, named, context);
        if (!isDictionary(fields)) return fields;
        return new Namespace(Array.from(entriesOf(fields), ([key, value]) => [textOf(key) ?? '', value] as const));
      }, "<class 'jinja2.utils.Namespace'>"),
    ],
  ]);
  if (!isForChats) return globals;
  globals.set(
    'raise_exception',
    new NativeCallable((args, named) => {
      const [message = ''] = bind('raise_exception()', ['message'], args, named);
      throw new Failure('TemplateError', context.work.str(message));
    }),
  );
  globals.set(
    'strftime_now',
    new NativeCallable((args, named) => {
      const [format = null] = bind('strftime_now()', ['format'], args, named);
      const text = textOf(format);
      if (text === undefined) throw typeError('strftime() argument 1 must be str');
      context.work.text(text.length * 16);
      return strftime(text, now());
    }),
  );
  return globals;
}
