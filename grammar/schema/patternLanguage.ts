/** Patterns as languages: strings in which one is found, as they stand between their quotes, and texts that are one. */
import { GrammarError, type Regular } from '../grammar.js';
import { ALL_CHARACTERS, ANY_CHARACTER, ANY_TEXT, character, type CharacterSet, encoded } from './characters.js';
import { type Pattern, parsePattern } from './pattern.js';
import { EPSILON, NOTHING, both, choice, repeat, sequence, without } from './regular.js';

/** Patterns that look around are written out; more parts than these are refused. */
const MAX_PARTS = 2_000;

/** How characters are written, and any text of them. */
interface Alphabet {
  readonly character: (set: CharacterSet) => Regular;
  readonly anyText: Regular;
}

const QUOTED: Alphabet = { character, anyText: ANY_TEXT };
const PLAIN: Alphabet = { character: encoded, anyText: repeat(encoded(ALL_CHARACTERS), 0) };

/** Texts that match a pattern from their beginning to their end. Throws GrammarError as `patternLanguage` does. */
export const wholeTexts = (pattern: Pattern): Regular => new PatternWriter(PLAIN).write(pattern, EPSILON, true);

/** Throws GrammarError where the pattern is no regular language, or not supported. */
export function patternLanguage(source: string): Regular {
  const pattern = parsePattern(source);
  const writer = new PatternWriter(QUOTED);
  const fromStart = writer.write(pattern, ANY_TEXT, true);
  if (!hasStart(pattern)) return sequence(ANY_TEXT, fromStart);
  return choice(fromStart, sequence(ANY_CHARACTER, ANY_TEXT, writer.write(pattern, ANY_TEXT, false)));
}

const hasStart = (pattern: Pattern): boolean => has(pattern, ({ kind }) => kind === 'start');

const looksAround = (pattern: Pattern): boolean =>
  has(pattern, ({ kind }) => kind === 'start' || kind === 'end' || kind === 'ahead');

function has(pattern: Pattern, test: (part: Pattern) => boolean): boolean {
  if (test(pattern)) return true;
  if (pattern.kind === 'sequence' || pattern.kind === 'choice') return pattern.of.some((part) => has(part, test));
  return (pattern.kind === 'repeat' || pattern.kind === 'ahead') && has(pattern.of, test);
}

/** Whether it never takes a character, and whether it can do without one. */
const isZeroWidth = (pattern: Pattern): boolean => {
  if (pattern.kind === 'sequence' || pattern.kind === 'choice') return pattern.of.every(isZeroWidth);
  return pattern.kind === 'start' || pattern.kind === 'end' || pattern.kind === 'ahead';
};
const canBeEmpty = (pattern: Pattern): boolean => {
  switch (pattern.kind) {
    case 'set':
      return false;
    case 'sequence':
      return pattern.of.every(canBeEmpty);
    case 'choice':
      return pattern.of.some(canBeEmpty);
    case 'repeat':
      return pattern.min === 0 || canBeEmpty(pattern.of);
    default:
      return true;
  }
};

/** A part that does not look around. */
function plain(pattern: Pattern, alphabet: Alphabet): Regular {
  switch (pattern.kind) {
    case 'set':
      return alphabet.character(pattern.set);
    case 'sequence':
      return sequence(...pattern.of.map((part) => plain(part, alphabet)));
    case 'choice':
      return choice(...pattern.of.map((part) => plain(part, alphabet)));
    case 'repeat':
      return repeat(plain(pattern.of, alphabet), pattern.min, pattern.max);
    default:
      return NOTHING;
  }
}

class PatternWriter {
  #parts = 0;
  readonly #alphabet: Alphabet;

  constructor(alphabet: Alphabet) {
    this.#alphabet = alphabet;
  }

  /** Texts that begin with a match and go on with one of `rest`; `isStart`: nothing stands before them. */
  write(pattern: Pattern, rest: Regular, isStart: boolean): Regular {
    if (++this.#parts > MAX_PARTS) throw new GrammarError('A pattern looks around in too many places.');
    if (!looksAround(pattern)) return sequence(plain(pattern, this.#alphabet), rest);
    switch (pattern.kind) {
      case 'start':
        return isStart ? rest : NOTHING;
      case 'end':
        return rest === this.#alphabet.anyText ? EPSILON : both(rest, EPSILON);
      case 'ahead': {
        const ahead = this.write(pattern.of, this.#alphabet.anyText, isStart);
        return pattern.isNegative ? without(rest, ahead) : both(rest, ahead);
      }
      case 'choice':
        return choice(...pattern.of.map((part) => this.write(part, rest, isStart)));
      case 'sequence':
        return this.#sequence(pattern.of, rest, isStart);
      case 'repeat':
        if (pattern.max === 1) {
          const once = this.write(pattern.of, rest, isStart);
          return pattern.min === 1 ? once : choice(rest, once);
        }
        throw new GrammarError('A pattern repeats a part that looks around, as in (a$)*.');
      default:
        return sequence(plain(pattern, this.#alphabet), rest);
    }
  }

  #sequence(parts: readonly Pattern[], rest: Regular, isStart: boolean): Regular {
    if (parts.length === 0) return rest;
    // What does not look around is one part.
    const count = Math.max(1, parts.findIndex(looksAround));
    const first: Pattern = { kind: 'sequence', of: parts.slice(0, count) };
    const others = parts.slice(count);
    const behind = (isStillStart: boolean): Regular => this.#sequence(others, rest, isStillStart);
    const isUnclear = isStart && !isZeroWidth(first) && canBeEmpty(first) && others.some(hasStart);
    const [only] = first.of;
    if (!isUnclear)
      return this.write(
        count === 1 && only !== undefined ? only : first,
        behind(isStart && isZeroWidth(first)),
        isStart,
      );
    // `a?^b`: either nothing stands before what follows, or a character does.
    if (looksAround(first)) throw new GrammarError('A pattern has ^ behind a part that may be empty.');
    return choice(behind(true), sequence(without(plain(first, this.#alphabet), EPSILON), behind(false)));
  }
}
