/** The rules of a grammar that is being written, and what of JSON's text is the same everywhere. */
import { type Expression, type Grammar, GrammarError, type Regular } from '../grammar.js';
import { choice, literal, optional, repeat, sequence } from './regular.js';
import { ANY_CHARACTER, characterSet, encoded } from './characters.js';

/** Expressions of one grammar. */
const MAX_EXPRESSIONS = 400_000;

export const lexeme = (regular: Regular): Expression => ({ kind: 'regular', regular });
export const inOrder = (...of: readonly Expression[]): Expression => ({ kind: 'sequence', of });
export const either = (...of: readonly Expression[]): Expression => {
  const [only] = of;
  return of.length === 1 && only !== undefined ? only : { kind: 'choice', of };
};
export const repeated = (of: Expression, min: number, max: number): Expression => ({ kind: 'repeat', of, min, max });
export const NO_EXPRESSION: Expression = { kind: 'choice', of: [] };
export const EMPTY_EXPRESSION: Expression = { kind: 'sequence', of: [] };

/** At most one space stands behind a colon or a comma, and nowhere else. */
const SPACE = optional(literal(' '));
const COMMA = sequence(literal(','), SPACE);
const COLON = sequence(literal(':'), SPACE);
const QUOTE = literal('"');

export const comma = lexeme(COMMA);

const hex = (...ranges: Parameters<typeof characterSet>[0]): Regular => encoded(characterSet([...ranges]));
const DIGIT = [0x30, 0x39] as const;
const UPPER = [0x41, 0x46] as const;
const LOWER = [0x61, 0x66] as const;
const HEX = hex(DIGIT, UPPER, LOWER);
const letters = (text: string): Regular =>
  hex(...Array.from(text, (letter): [number, number] => [letter.charCodeAt(0), letter.charCodeAt(0)]));
const ESCAPE = literal('\\u');
/** \uXXXX for any character; those beyond 0xFFFF as a pair. */
const ESCAPED = choice(
  sequence(
    ESCAPE,
    choice(
      sequence(hex(DIGIT, [0x41, 0x43], [0x45, 0x46], [0x61, 0x63], [0x65, 0x66]), HEX),
      sequence(letters('dD'), letters('01234567')),
    ),
    HEX,
    HEX,
  ),
  sequence(ESCAPE, letters('dD'), letters('89abAB'), HEX, HEX, ESCAPE, letters('dD'), letters('cdefCDEF'), HEX, HEX),
);

/** Any string: the only one in which every character may be escaped by its number. */
export const ANY_STRING = sequence(QUOTE, repeat(choice(ANY_CHARACTER, ESCAPED), 0), QUOTE);

export const quoted = (text: Regular): Regular => sequence(QUOTE, text, QUOTE);

/** A name and a colon, behind a comma unless it is the first. */
export const nameOf = (names: Regular, isFirst: boolean): Expression =>
  lexeme(isFirst ? sequence(quoted(names), COLON) : sequence(COMMA, quoted(names), COLON));
export const fixedName = (name: string): Regular => literal(JSON.stringify(name).slice(1, -1));

export class Rules {
  readonly #rules: Expression[] = [];
  #count = 0;

  /** A place for a rule that is written later. */
  reserve(): number {
    this.spend();
    return this.#rules.push(NO_EXPRESSION) - 1;
  }

  set(rule: number, expression: Expression): void {
    this.#rules[rule] = expression;
  }

  at(rule: number): Expression {
    return this.#rules[rule] ?? NO_EXPRESSION;
  }

  add(expression: Expression): Expression {
    const rule = this.reserve();
    this.set(rule, expression);
    return { kind: 'rule', rule };
  }

  /** Throws GrammarError where the grammar is too large. */
  spend(count = 1): void {
    if ((this.#count += count) > MAX_EXPRESSIONS)
      throw new GrammarError('The schema makes a grammar that is too large.');
  }

  grammar(start: Expression): Grammar {
    return { rules: this.#rules, start };
  }
}
