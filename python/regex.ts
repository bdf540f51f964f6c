/** Python's regular expressions as JavaScript's: the parts of the syntax that task files use. */
import { at as elementAt } from '../system/at.js';
import { createContext, Script } from 'node:vm';
import { regexCost, type RegexCost } from '../system/boundedRegex.js';
import { isRecord, quote } from '../system/json.js';

/** A pattern that is invalid, or that JavaScript cannot express. */
export class RegexError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'RegexError';
  }
}

const MAX_LETTERS = 10_000;
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
/** What lies between those, since a class cannot hold the opposite of another. */
const NO_SPACE =
  '\\0-\\x08\\x0e-\\x1b\\x21-\\x84\\x86-\\x9f\\xa1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e' +
  '\\u2030-\\u205e\\u2060-\\u2fff\\u3001-\\u{10ffff}';
const WORD = '\\p{L}\\p{N}_';
/** All other categories; of the punctuation that connects, all but the low line. */
const NO_WORD =
  '\\p{M}\\p{S}\\p{Z}\\p{C}\\p{Pd}\\p{Ps}\\p{Pe}\\p{Pi}\\p{Pf}\\p{Po}' +
  '\\u203f\\u2040\\u2054\\ufe33\\ufe34\\ufe4d-\\ufe4f\\uff3f';
/** What an escaped letter stands for inside of a class. */
const CLASSES: ReadonlyMap<string, string> = new Map([
  ['d', '\\p{Nd}'],
  ['D', '\\P{Nd}'],
  ['s', SPACE],
  ['S', NO_SPACE],
  ['w', WORD],
  ['W', NO_WORD],
]);
const CONTROL: ReadonlySet<string> = new Set('nrtfv');
const AT_WORD = `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`;
const OUTSIDE: ReadonlyMap<string, string> = new Map([
  ['d', '\\p{Nd}'],
  ['D', '\\P{Nd}'],
  ['s', `[${SPACE}]`],
  ['S', `[^${SPACE}]`],
  ['w', `[${WORD}]`],
  ['W', `[^${WORD}]`],
  ['b', AT_WORD],
  // Not in an empty text, where Python finds neither.
  ['B', `(?:(?!${AT_WORD})(?:(?<=[^])|(?=[^])))`],
  ['A', '(?<![^])'],
  ['Z', '(?![^])'],
]);

/** A letter by itself, where JavaScript gives it no meaning. */
const literal = (letter: string): string => (/[\^$\\.*+?()[\]{}|/]/.test(letter) ? `\\${letter}` : letter);
const inClass = (letter: string): string => (/[\^\\\]-]/.test(letter) ? `\\${letter}` : letter);

class Translator {
  readonly #pattern: string;
  #at = 0;
  readonly #flags = new Set(['g', 'u']);

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  translate(): RegExp {
    this.#globalFlags();
    let source = '';
    while (this.#at < this.#pattern.length) source += this.#next();
    try {
      return new RegExp(source, [...this.#flags].filter((flag) => flag !== 's').join(''));
    } catch (error) {
      throw new RegexError(error instanceof Error ? error.message : String(error));
    }
  }

  #take(length = 1): string {
    const taken = this.#pattern.slice(this.#at, this.#at + length);
    this.#at += length;
    return taken;
  }

  #globalFlags(): void {
    const [all, flags = ''] = /^\(\?([a-zA-Z]+)\)/.exec(this.#pattern) ?? [''];
    for (const flag of flags) {
      if (flag === 'u') continue;
      if (!'ims'.includes(flag)) throw new RegexError(`the flag (?${flag}) is not supported`);
      this.#flags.add(flag);
    }
    this.#at = all.length;
  }

  #next(): string {
    const letter = String.fromCodePoint(this.#pattern.codePointAt(this.#at) ?? 0);
    this.#at += letter.length;
    switch (letter) {
      case '\\':
        return this.#escape();
      case '[':
        return this.#class();
      case '(':
        return this.#group();
      case '.':
        return this.#flags.has('s') ? '[^]' : '[^\\n]';
      case '$':
        return this.#flags.has('m') ? '(?=\\n|(?![^]))' : '(?=\\n?(?![^]))';
      case '^':
        return this.#flags.has('m') ? '(?<=(?<![^])|\\n)' : '(?<![^])';
      case '{':
        return this.#braces();
      case '}':
      case ']':
        return `\\${letter}`;
      case '*':
      case '+':
      case '?':
        if (this.#pattern[this.#at] === '+') throw new RegexError('possessive quantifiers are not supported');
        return letter;
      default:
        return letter;
    }
  }

  #braces(): string {
    const [all, least = '', comma = '', most = ''] =
      /^(\d*)(,?)(\d*)\}/.exec(this.#pattern.slice(this.#at, this.#at + 40)) ?? [];
    if (all === undefined || all === '}') return '\\{';
    this.#at += all.length;
    return `{${least === '' ? '0' : least}${comma}${most}}`;
  }

  #group(): string {
    if (this.#pattern[this.#at] !== '?') return '(';
    const rest = this.#pattern.slice(this.#at);
    const named = /^\?P<(\w+)>/.exec(rest);
    if (named !== null) {
      this.#at += named[0].length;
      return `(?<${named[1]}>`;
    }
    const again = /^\?P=(\w+)\)/.exec(rest);
    if (again !== null) {
      this.#at += again[0].length;
      return `\\k<${again[1]}>`;
    }
    const kind = /^\?(?::|=|!|<=|<!)/.exec(rest)?.[0];
    if (kind === undefined) throw new RegexError(`the group (${rest.slice(0, 3)}…) is not supported`);
    this.#at += kind.length;
    return `(${kind}`;
  }

  /** A letter after a backslash that is the same in and out of classes. */
  #character(): string | undefined {
    const code = /^(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})/.exec(this.#pattern.slice(this.#at, this.#at + 5))?.[0];
    if (code !== undefined) return `\\${this.#take(code.length)}`;
    const letter = this.#pattern[this.#at];
    if (letter === undefined) throw new RegexError('a backslash at the end');
    if (CONTROL.has(letter)) return `\\${this.#take()}`;
    if (letter === 'a') {
      this.#at++;
      return '\\x07';
    }
    return undefined;
  }

  #escape(): string {
    const character = this.#character();
    if (character !== undefined) return character;
    const letter = this.#take();
    const known = OUTSIDE.get(letter);
    if (known !== undefined) return known;
    if (/[1-9]/.test(letter)) return `(?:\\${letter})`;
    if (/[a-zA-Z0-9]/.test(letter)) throw new RegexError(`\\${letter} is not supported`);
    return literal(letter);
  }

  #class(): string {
    const isNegated = this.#pattern[this.#at] === '^';
    if (isNegated) this.#at++;
    let inner = '';
    for (let isFirst = true; ; isFirst = false) {
      const letter = this.#take();
      if (letter === '') throw new RegexError('a class without its end');
      if (letter === ']' && !isFirst) break;
      if (letter !== '\\') {
        inner += letter === '-' ? '-' : inClass(letter);
        continue;
      }
      const character = this.#character();
      if (character !== undefined) {
        inner += character;
        continue;
      }
      const escaped = this.#take();
      const known = escaped === 'b' ? '\\x08' : CLASSES.get(escaped);
      if (known === undefined && /[a-zA-Z0-9]/.test(escaped))
        throw new RegexError(`\\${escaped} in a class is not supported`);
      inner += known ?? inClass(escaped);
    }
    return `[${isNegated ? '^' : ''}${inner}]`;
  }
}

/** re.compile(pattern), with the flags g and u. Throws RegexError for what is not supported here. */
export function pythonRegex(pattern: string): RegExp {
  if (pattern.length > MAX_LETTERS) throw new RegexError(`more than ${MAX_LETTERS} letters`);
  return new Translator(pattern).translate();
}

/** Backward references, as they are translated. */
const REFERENCE = /\(\?:\\(\d)\)/g;
const nonEmpty = new WeakMap<RegExp, RegExp>();

/** Whether the letter before a place may decide what matches there: by \b, ^ or a lookbehind. True where in doubt. */
export function looksBack({ source }: RegExp): boolean {
  const rest = source.replace(/\\([^])|\[\^/g, (_, escaped) => (escaped === 'b' || escaped === 'B' ? '^' : '['));
  return /\^|\(\?<[=!]/.test(rest);
}

/**
 * The same at one place, but for empty matches. Of an expression that looks back, group 1 is the rest of the text, and
 * what matches must end later, at the cost of comparing that rest. Another one begins where the text does, and must end
 * behind a letter.
 */
function nonEmptyOf(regex: RegExp): RegExp {
  let found = nonEmpty.get(regex);
  if (found === undefined) {
    const shifted = regex.source.replace(REFERENCE, (_, group) => `(?:\\${Number(group) + 1})`);
    const source = looksBack(regex) ? `(?=([^]*))(?:${shifted})(?!\\1(?![^]))` : `(?:${regex.source})(?<=[^])`;
    found = new RegExp(source, regex.flags.replace('g', 'y'));
    nonEmpty.set(regex, found);
  }
  return found;
}

/** A match that is not empty, exactly at `at`. */
function nonEmptyAt(regex: RegExp, text: string, at: number): RegExpExecArray | undefined {
  const own = nonEmptyOf(regex);
  const isWhole = looksBack(regex);
  own.lastIndex = isWhole ? at : 0;
  const match = own.exec(isWhole ? text : text.slice(at));
  if (match === null) return undefined;
  if (isWhole) match.splice(1, 1);
  else match.index += at;
  return match;
}

/** Between the two units of a letter beyond 0xffff, where JavaScript finds empty matches of assertions. */
const isWithinLetter = (text: string, at: number): boolean => at > 0 && (text.codePointAt(at - 1) ?? 0) > 0xffff;

/**
 * The matches of a regular expression of pythonRegex(), as re.finditer() gives them. Where one was empty, a longer one
 * at the same place follows it (since Python 3.7); JavaScript would go on at the next letter.
 */
export function* matchesIn(regex: RegExp, text: string): Generator<RegExpExecArray> {
  const search = new RegExp(regex.source, regex.flags);
  for (let at = 0; at <= text.length;) {
    search.lastIndex = at;
    const match = search.exec(text);
    if (match === null) return;
    if (isWithinLetter(text, match.index)) {
      at = match.index + 1;
      continue;
    }
    yield match;
    at = match.index + match[0].length;
    if (match[0] !== '') continue;
    const longer = nonEmptyAt(regex, text, at);
    if (longer !== undefined) yield longer;
    at += longer?.[0].length ?? ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);
  }
}

/** re.findall(): whole matches, or the group, or all groups where there are several. */
export function findAll(regex: RegExp, text: string): (string | string[])[] {
  return Array.from(matchesIn(regex, text), foundIn);
}

/** What re.findall() gives of one match. */
export function foundIn(match: RegExpMatchArray): string | string[] {
  if (match.length === 1) return match[0];
  const groups = match.slice(1).map((group) => (group as string | undefined) ?? '');
  return groups.length === 1 ? elementAt(groups, 0) : groups;
}

// Regular expressions of task files. Whoever writes the file decides how long a match takes: `(a+)+$` never ends on a
// text of 40 letters. So a match that may take long runs with a limit of time, and a run ends with a line about it.

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
