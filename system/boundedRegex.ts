/**
 * Decides which regular expressions of a file (a tokenizer.json, a task file) can be matched from one place in time
 * proportional to the text. Engines backtrack: of any other expression a match may never end.
 */

const MAX_LENGTH = 4096;
const MAX_DEPTH = 16;
const MAX_COUNT = 64;
/**
 * Character classes, control characters and positions. Backreferences (digits) and calls (\g, \k) are not supported.
 */
const ESCAPES =
  /^(?:[rntfvaesSdDwWhHbBAzZ]|[pP]\{\^?\w{1,40}\}|x[\da-fA-F]{2}|x\{[\da-fA-F]{1,6}\}|u[\da-fA-F]{4}|[^\w\s]|[ \n])/u;
const GROUPS = /^\((?:\?(?:[imx]*(?:-[imx]+)?:|<?[=!]|>)|(?!\?))/;
const FLAGS = /^\(\?[imx]*(?:-[imx]+)?\)/;
const QUANTIFIER = /^(?:[*+?]|\{(\d{1,4})(,(\d{1,4})?)?\}|\{,(\d{1,4})\})[?+]?/;

/** A part of an expression, described by what a failing match costs. */
interface Part {
  /** Repetitions without an upper bound that can follow one another. */
  readonly loops: number;
  /**
   * True if something that can fail follows the last repetition: a failing match then tries every division of the text.
   */
  readonly hasTail: boolean;
  readonly isOptional: boolean;
  /** True if it always matches the same length, in one way. */
  readonly isFixed: boolean;
}

class Refusal extends Error {}

/** The reason why `pattern` may take more than linear time or is not supported; undefined if it is safe. */
export function regexProblem(pattern: string): string | undefined {
  if (pattern.length > MAX_LENGTH) return `it has ${pattern.length} characters; the limit is ${MAX_LENGTH}`;
  try {
    const parser = new Parser(pattern);
    parser.alternatives(0);
    return parser.isAtEnd ? undefined : 'its parentheses do not match';
  } catch (error) {
    if (error instanceof Refusal) return error.message;
    throw error;
  }
}

class Parser {
  private rest: string;

  constructor(pattern: string) {
    this.rest = pattern;
  }

  get isAtEnd(): boolean {
    return this.rest === '';
  }

  alternatives(depth: number): Part {
    if (depth > MAX_DEPTH) throw new Refusal(`its groups nest more than ${MAX_DEPTH} deep`);
    const found = [this.sequence(depth)];
    while (this.take(/^\|/) !== undefined) found.push(this.sequence(depth));
    return {
      loops: Math.max(...found.map(({ loops }) => loops)),
      hasTail: found.some(({ hasTail }) => hasTail),
      isOptional: found.some(({ isOptional }) => isOptional),
      isFixed: found.length === 1 && found[0]!.isFixed,
    };
  }

  private sequence(depth: number): Part {
    let [loops, hasTail, isOptional, isFixed] = [0, false, true, true];
    while (this.rest !== '' && !/^[|)]/.test(this.rest)) {
      const part = this.quantified(this.atom(depth));
      hasTail = part.loops > 0 ? part.hasTail : hasTail || (loops > 0 && !part.isOptional);
      loops += part.loops;
      isOptional &&= part.isOptional;
      isFixed &&= part.isFixed;
    }
    if (loops - (hasTail ? 0 : 1) > 1)
      throw new Refusal('several repetitions follow one another, which can take more than linear time');
    return { loops, hasTail, isOptional, isFixed };
  }

  private atom(depth: number): Part {
    const single = { loops: 0, hasTail: false, isOptional: false, isFixed: true };
    if (this.take(FLAGS) !== undefined) return { ...single, isOptional: true };
    if (this.take(GROUPS) !== undefined) {
      const inner = this.alternatives(depth + 1);
      if (this.take(/^\)/) === undefined) throw new Refusal('its parentheses do not match');
      return inner;
    }
    if (this.rest.startsWith('[')) return (this.characterClass(), single);
    if (this.rest.startsWith('\\')) return (this.escape(), single);
    if (this.take(/^[^()[\]{}*+?|\\]/u) === undefined)
      throw new Refusal(`it has ${JSON.stringify(this.rest.slice(0, 12))}, which is not supported`);
    return single;
  }

  private escape(): void {
    this.rest = this.rest.slice(1);
    if (this.take(ESCAPES) === undefined)
      throw new Refusal(`it has ${JSON.stringify(`\\${this.rest.slice(0, 12)}`)}, which is not supported`);
  }

  /** Classes may contain classes: [a-z&&[^q]]. */
  private characterClass(): void {
    let depth = 0;
    do {
      if (this.rest.startsWith('\\')) this.escape();
      else if (this.take(/^\[\^?\]?/) !== undefined) depth++;
      else if (this.take(/^\]/) !== undefined) depth--;
      else if (this.take(/^[^\\]/u) === undefined) throw new Refusal('a class of characters does not end');
      if (depth > MAX_DEPTH) throw new Refusal(`its classes nest more than ${MAX_DEPTH} deep`);
    } while (depth > 0);
  }

  private quantified(part: Part): Part {
    const found = this.take(QUANTIFIER);
    if (found === undefined) return part;
    if (this.take(QUANTIFIER) !== undefined) throw new Refusal('a repetition is repeated');
    const [text, least, range, most, upTo] = found;
    if (text.startsWith('?')) return { ...part, isOptional: true, isFixed: false };
    const count = Math.max(...[least, most, upTo].map((number) => Number(number ?? 0)));
    if (count > MAX_COUNT) throw new Refusal(`it repeats ${count} times; the limit is ${MAX_COUNT}`);
    if (!part.isFixed) throw new Refusal('a group of varying length is repeated, which can take exponential time');
    const isUnbounded = /^[*+]/.test(text) || (range !== undefined && most === undefined);
    return {
      loops: isUnbounded ? 1 : 0,
      hasTail: false,
      isOptional: text.startsWith('*') || upTo !== undefined || least === '0',
      isFixed: least !== undefined && range === undefined,
    };
  }

  private take(pattern: RegExp): RegExpExecArray | undefined {
    const found = pattern.exec(this.rest);
    if (found === null) return undefined;
    this.rest = this.rest.slice(found[0].length);
    return found;
  }
}
