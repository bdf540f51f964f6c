/**
 * Decides which regular expressions of a file (a tokenizer.json, a task file) can be matched from one place in time
 * proportional to the text. Engines backtrack: of any other expression a match may never end.
 *
 * A match that fails tries all ways of matching what stands before the place of failure. So the ways of parts that
 * follow one another are multiplied, and the steps of a part are taken once for each way of the parts before it.
 */
import { at } from './at.js';

const MAX_LENGTH = 4096;
const MAX_DEPTH = 16;
const MAX_COUNT = 64;
/** Steps from one place, without those that grow with the text: patterns of published tokenizers take below 150. */
const MAX_STEPS = 1024;
/**
 * Character classes, control characters and positions. Backreferences (digits) and calls (\g, \k) are not supported.
 */
const ESCAPES =
  /^(?:[rntfvaesSdDwWhHbBAzZ]|[pP]\{\^?\w{1,40}\}|x[\da-fA-F]{2}|x\{[\da-fA-F]{1,6}\}|u[\da-fA-F]{4}|[^\w\s]|[ \n])/u;
const GROUPS = /^\((?:\?(?:[im]*(?:-[im]+)?:|<?[=!]|>)|(?!\?))/;
const NEVER_OPTIONAL = /^\(\?<?!/;
const LOOKS_AROUND = /^\(\?<?[=!]/;
const FLAGS = /^\(\?[im]*(?:-[im]+)?\)/;
const POSIX = /^\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]/;
const QUANTIFIER = /^(?:[*+?]|\{(\d{1,4})(,(\d{1,4})?)?\}|\{,(\d{1,4})\})[?+]?/;

/** A part of an expression, described by what a failing match costs. */
interface RegexPart {
  /** Repetitions without an upper bound that can follow one another. */
  readonly loops: number;
  /**
   * True if something that can fail follows the last repetition: a failing match then tries every division of the text.
   */
  readonly hasTail: boolean;
  readonly isOptional: boolean;
  /** Whether every match has a character at least. */
  readonly takes: boolean;
  /** True if it always matches the same length, in one way. */
  readonly isFixed: boolean;
  /** At most so many ways to match from one place, not counting how often an unbounded repetition repeats. */
  readonly ways: number;
  /** At most so many steps to try all of them: to be multiplied by the text's length where there are loops. */
  readonly steps: number;
}

const EMPTY: RegexPart = { loops: 0, hasTail: false, isOptional: true, takes: false, isFixed: true, ways: 1, steps: 1 };
const SINGLE: RegexPart = { ...EMPTY, isOptional: false, takes: true };
/** A place between characters. */
const PLACE: RegexPart = { ...SINGLE, takes: false };
const PLACES = /^(?:\\[bBAzZGyYK]|[\^$])/;

class RegexRefusal extends Error {}

/** How classes of characters are written: in a tokenizer.json one may contain others, in Python "[" is a character. */
export type RegexClasses = 'nested' | 'flat';

/** What a match costs, or why it cannot be bounded. */
export type RegexCost =
  | { readonly problem: string }
  | {
      readonly problem: undefined;
      /** Steps from one place: for each character behind it if `hasLoops`, else all of them. */
      readonly steps: number;
      readonly hasLoops: boolean;
      /** Whether it may match where there is no character. */
      readonly mayBeEmpty: boolean;
    };

/** Bounds the work of matching `pattern` from one place. */
export function regexCost(pattern: string, classes: RegexClasses): RegexCost {
  if (pattern.length > MAX_LENGTH)
    return { problem: `it has ${pattern.length} characters; the limit is ${MAX_LENGTH}` };
  try {
    const parser = new RegexParser(pattern, classes);
    const { steps, loops, takes } = parser.alternatives(0);
    return parser.isAtEnd
      ? { problem: undefined, steps, hasLoops: loops > 0, mayBeEmpty: !takes }
      : { problem: 'its parentheses do not match' };
  } catch (error) {
    if (error instanceof RegexRefusal) return { problem: error.message };
    throw error;
  }
}

/** Why a tokenizer's `pattern` may take more than linear time or is not supported; undefined if it is safe. */
export const regexProblem = (pattern: string): string | undefined => regexCost(pattern, 'nested').problem;

class RegexParser {
  private rest: string;
  private readonly classes: RegexClasses;

  constructor(pattern: string, classes: RegexClasses) {
    this.rest = pattern;
    this.classes = classes;
  }

  get isAtEnd(): boolean {
    return this.rest === '';
  }

  alternatives(depth: number): RegexPart {
    if (depth > MAX_DEPTH) throw new RegexRefusal(`its groups nest more than ${MAX_DEPTH} deep`);
    const found = [this.sequence(depth)];
    while (this.take(/^\|/) !== undefined) found.push(this.sequence(depth));
    const sum = (of: (part: RegexPart) => number): number => found.reduce((total, part) => total + of(part), 0);
    return bounded({
      loops: Math.max(...found.map(({ loops }) => loops)),
      hasTail: found.some(({ hasTail }) => hasTail),
      isOptional: found.some(({ isOptional }) => isOptional),
      takes: found.every(({ takes }) => takes),
      isFixed: found.length === 1 && at(found, 0).isFixed,
      ways: sum(({ ways }) => ways),
      steps: sum(({ steps }) => steps),
    });
  }

  private sequence(depth: number): RegexPart {
    let all = EMPTY;
    while (this.rest !== '' && !/^[|)]/.test(this.rest)) {
      const part = this.quantified(this.atom(depth));
      all = bounded({
        loops: all.loops + part.loops,
        hasTail: part.loops > 0 ? part.hasTail : all.hasTail || (all.loops > 0 && !part.isOptional),
        isOptional: all.isOptional && part.isOptional,
        takes: all.takes || part.takes,
        isFixed: all.isFixed && part.isFixed,
        ways: all.ways * part.ways,
        steps: all.steps + all.ways * part.steps,
      });
    }
    if (all.loops - (all.hasTail ? 0 : 1) > 1)
      throw new RegexRefusal('several repetitions follow one another, which can take more than linear time');
    return all;
  }

  private atom(depth: number): RegexPart {
    // Flags hold to the end of the group around them, the alternatives behind them included.
    if (this.take(FLAGS) !== undefined) return this.alternatives(depth + 1);
    const mayFail = NEVER_OPTIONAL.test(this.rest);
    const looksAround = LOOKS_AROUND.test(this.rest);
    if (this.take(GROUPS) !== undefined) {
      const inner = this.alternatives(depth + 1);
      if (this.take(/^\)/) === undefined) throw new RegexRefusal('its parentheses do not match');
      return { ...inner, isOptional: inner.isOptional && !mayFail, takes: inner.takes && !looksAround };
    }
    const single = PLACES.test(this.rest) ? PLACE : SINGLE;
    if (this.rest.startsWith('[')) return (this.characterClass(), SINGLE);
    if (this.rest.startsWith('\\')) return (this.escape(), single);
    if (this.take(/^[^()[\]{}*+?|\\]/u) === undefined)
      throw new RegexRefusal(`it has ${JSON.stringify(this.rest.slice(0, 12))}, which is not supported`);
    return single;
  }

  private escape(): void {
    this.rest = this.rest.slice(1);
    if (this.take(ESCAPES) === undefined)
      throw new RegexRefusal(`it has ${JSON.stringify(`\\${this.rest.slice(0, 12)}`)}, which is not supported`);
  }

  /** Nested: [a-z&&[^q]]. */
  private characterClass(): void {
    const isNested = this.classes === 'nested';
    let depth = 0;
    do {
      if (this.rest.startsWith('\\')) this.escape();
      else if (isNested && depth > 0 && this.rest.startsWith('[:')) {
        if (this.take(POSIX) === undefined) throw new RegexRefusal('"[:" in a class names no kind of characters');
      } else if ((isNested || depth === 0) && this.take(/^\[\^?\]?/) !== undefined) depth++;
      else if (this.take(/^\]/) !== undefined) depth--;
      else if (this.take(/^[^\\]/u) === undefined) throw new RegexRefusal('a class of characters does not end');
      if (depth > MAX_DEPTH) throw new RegexRefusal(`its classes nest more than ${MAX_DEPTH} deep`);
    } while (depth > 0);
  }

  private quantified(part: RegexPart): RegexPart {
    const found = this.take(QUANTIFIER);
    if (found === undefined) return part;
    if (this.take(QUANTIFIER) !== undefined) throw new RegexRefusal('a repetition is repeated');
    const [text, least, range, most, upTo] = found;
    const { steps } = part;
    if (text.startsWith('?')) return { ...part, isOptional: true, takes: false, isFixed: false, ways: part.ways + 1 };
    const count = Math.max(1, ...[least, most, upTo].map((number) => Number(number ?? 0)));
    if (count > MAX_COUNT) throw new RegexRefusal(`it repeats ${count} times; the limit is ${MAX_COUNT}`);
    if (!part.isFixed) throw new RegexRefusal('a group of varying length is repeated, which can take exponential time');
    const isExact = least !== undefined && range === undefined;
    const isFixed = isExact && text.endsWith('}');
    const isOptional = text.startsWith('*') || upTo !== undefined || Number(least) === 0;
    const isUnbounded = /^[*+]/.test(text) || (range !== undefined && most === undefined);
    // The tokenizer library reads {2}? as (?:…{2})? and a + behind braces as another repetition, {1,3}+ as (?:…{1,3})+.
    const isAgain = text.endsWith('}+');
    return bounded({
      loops: (isUnbounded ? 1 : 0) + (isAgain ? (isExact ? 1 : 2) : 0),
      hasTail: false,
      isOptional,
      takes: part.takes && !isOptional && !text.endsWith('}?'),
      isFixed,
      ways: isUnbounded || isFixed ? 1 : isExact ? 2 : count + 1,
      steps: steps * count,
    });
  }

  private take(pattern: RegExp): RegExpExecArray | undefined {
    const found = pattern.exec(this.rest);
    if (found === null) return undefined;
    this.rest = this.rest.slice(found[0].length);
    return found;
  }
}

/** `part`, if the work that it stands for is small enough. */
function bounded(part: RegexPart): RegexPart {
  if (part.steps <= MAX_STEPS && part.ways <= MAX_STEPS) return part;
  throw new RegexRefusal(`its choices multiply: it may take more than ${MAX_STEPS} steps for each character`);
}
