/**
 * Regular expressions of task files. Whoever writes the file decides how long a match takes: `(a+)+$` never ends on a
 * text of 40 letters. So a match that may take long runs with a limit of time, and a run ends with a line about it.
 */
import { createContext, Script } from 'node:vm';
import { isRecord, quote } from '../system/json.js';
import { regexCost, type RegexCost } from '../system/boundedRegex.js';
import { foundIn, looksBack, matchesIn, pythonRegex, RegexError } from './regex.js';

/** Milliseconds that all matches in one text may take. */
const LIMIT_MS = 1000;
/**
 * Steps that the matches in one text may take without a clock: some tenths of a second. Starting the clock takes longer
 * than most matches.
 */
const MAX_UNTIMED_STEPS = 1 << 26;

/** What they change takes no more steps. */
const GLOBAL_FLAGS = /^\(\?[imsu]+\)/;

/**
 * At most so many steps to match everywhere in a text of `length` letters. Behind an empty match, an expression that
 * looks back compares what is left of the text (nonEmptyOf).
 */
function stepsIn(cost: RegexCost, regex: RegExp, length: number): number {
  if (cost.problem !== undefined) return Number.POSITIVE_INFINITY;
  const goesOn = cost.hasLoops || (cost.mayBeEmpty && looksBack(regex));
  return (length + 1) * (goesOn ? length + 1 : 1) * cost.steps;
}

/** The engine looks at the clock's signal while it backtracks, within calls that a context makes. */
const context = createContext(Object.create(null) as object) as { work?: () => unknown };
const script = new Script('work()');

function timed<T>(work: () => T): T {
  context.work = work;
  try {
    return script.runInContext(context, { timeout: LIMIT_MS }) as T;
  } finally {
    delete context.work;
  }
}

const isTimeout = (error: unknown): boolean => isRecord(error) && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';

export class FileRegex {
  readonly #regex: RegExp;
  readonly #once: RegExp;
  readonly #pattern: string;
  readonly #cost: RegexCost;
  readonly #fail: (problem: string) => Error;

  /** `fail` makes the error for a pattern that cannot be used, or that takes too long: it names file and key. */
  constructor(pattern: string, fail: (problem: string) => Error) {
    this.#pattern = pattern;
    this.#cost = regexCost(pattern.replace(GLOBAL_FLAGS, ''), 'flat');
    this.#fail = fail;
    try {
      this.#regex = pythonRegex(pattern);
      this.#once = new RegExp(this.#regex.source, this.#regex.flags.replace('g', ''));
    } catch (error) {
      if (error instanceof RegexError) throw fail(`cannot use ${quote(pattern)}: ${error.message}`);
      throw error;
    }
  }

  /** re.findall() */
  findAll(text: string): (string | string[])[] {
    return this.matches(text).map(foundIn);
  }

  /** The first match with its groups; undefined if there is none. */
  first(text: string): RegExpMatchArray | undefined {
    return this.#run(text, () => text.match(this.#once) ?? undefined);
  }

  matches(text: string): RegExpMatchArray[] {
    return this.#run(text, () => [...matchesIn(this.#regex, text)]);
  }

  /** The text without what matches. */
  without(text: string): string {
    return this.replaced(text, () => '', 0, text.length) ?? '';
  }

  /** The number of groups, and the names of those that have one. */
  groups(): { readonly count: number; readonly names: ReadonlySet<string> } {
    const match = new RegExp(`${this.#once.source}|`, this.#once.flags).exec('');
    return { count: (match?.length ?? 1) - 1, names: new Set(Object.keys(match?.groups ?? {})) };
  }

  /**
   * re.sub() with at most `count` replacements, 0 for all; undefined where the text becomes longer than `longest`. `by`
   * throws no errors.
   */
  replaced(text: string, by: (match: RegExpMatchArray) => string, count: number, longest: number): string | undefined {
    return this.#run(text, () => {
      let result = '',
        from = 0,
        done = 0;
      for (const match of matchesIn(this.#regex, text)) {
        result += text.slice(from, match.index) + by(match);
        if (result.length > longest) return undefined;
        from = match.index + match[0].length;
        if (++done === count) break;
      }
      return result.length + text.length - from > longest ? undefined : result + text.slice(from);
    });
  }

  #run<T>(text: string, work: () => T): T {
    try {
      return stepsIn(this.#cost, this.#regex, text.length) <= MAX_UNTIMED_STEPS ? work() : timed(work);
    } catch (error) {
      const takes = isTimeout(error) ? `takes more than ${LIMIT_MS / 1000} s` : 'takes too much memory';
      throw this.#fail(`${takes} to match ${quote(this.#pattern)} in a text of ${text.length} letters`);
    }
  }
}
