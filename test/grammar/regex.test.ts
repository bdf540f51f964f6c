/** The dialect of regular expressions, compared with JavaScript's own. */
import { describe, expect, it } from 'vitest';
import { GrammarError } from '../../grammar/grammar.js';
import { Automaton } from '../../grammar/regular/automaton.js';
import { NOTHING } from '../../grammar/regular/nodes.js';
import { regexLanguage } from '../../grammar/tokens/regex.js';
import { Work } from '../../grammar/work.js';
import { isThorough } from '../support/thorough.js';
import { type Random, randomFrom } from './randomGrammars.js';

const matcherOf = (pattern: string): ((text: string) => boolean) => {
  const work = new Work();
  work.begin(1e9);
  const automaton = new Automaton(work);
  const made = automaton.of(regexLanguage(pattern));
  const start = automaton.isAlive(made) ? made : NOTHING;
  return (text) => {
    let state = start;
    for (const byte of Buffer.from(text)) {
      if (state === NOTHING) return false;
      state = automaton.next(state, byte);
    }
    return state !== NOTHING && automaton.isNullable[state]!;
  };
};

const LETTERS = ['a', 'b', 'A', '1', ' ', '-', 'ä', 'Ä', '中', '😀', '\n', 'ß', 'k'];
/** Names of groups must differ, so that random ones have none. */
const ATOMS = ['a', 'b', '.', '[ab]', '[^a]', '\\d', '\\w', '\\s', '\\S', '\\W', '[a-zä]', '\\u00e4', '\\x41'];
const MORE_ATOMS = ['\\p{L}', '[^\\w-]', '[\\d\\-a]', '\\u{1F600}', '\\.', '[\\s\\S]', '1', '中', '-'];

const pick = <T>(random: Random, values: readonly T[]): T => values[random(values.length)]!;

const randomPattern = (random: Random, depth: number): string => {
  const kind = depth === 0 ? 0 : random(7);
  const part = (): string => randomPattern(random, depth - 1);
  if (kind <= 1) return pick(random, random(2) === 0 ? ATOMS : MORE_ATOMS);
  if (kind <= 3) return part() + part();
  if (kind === 4) return `(?:${part()}|${part()})`;
  if (kind === 5) return `(${part()})${pick(random, ['*', '+', '?', '*?', '{2}', '{1,3}', '{0,2}?', '{2,}'])}`;
  return pick(random, [`^${part()}`, `${part()}$`, `(?=${part()})${part()}`, `(?!${part()})${part()}`]);
};

const isRepeatedAround = (error: unknown): boolean =>
  error instanceof GrammarError && /looks around|\^ behind/.test(error.message);

describe('regular expressions of requests', () => {
  it('match what those of JavaScript match from beginning to end', () => {
    let count = 0;
    for (let seed = 0; seed < (isThorough ? 2000 : 60); seed++) {
      const random = randomFrom(seed);
      const isAnyCase = random(4) === 0;
      const pattern = randomPattern(random, 3);
      const expected = new RegExp(`^(?:${pattern})$`, isAnyCase ? 'iu' : 'u');
      let matches: (text: string) => boolean;
      try {
        matches = matcherOf((isAnyCase ? '(?i)' : '') + pattern);
      } catch (error) {
        expect(isRepeatedAround(error), `${pattern}: ${String(error)}`).toBe(true);
        continue;
      }
      for (let each = 0; each < 60; each++) {
        const text = Array.from({ length: random(6) }, () => pick(random, LETTERS)).join('');
        const isMatch = expected.test(text);
        if (isMatch) count++;
        if (matches(text) !== isMatch) expect.fail(`${isAnyCase ? '(?i)' : ''}${pattern} and ${JSON.stringify(text)}`);
      }
    }
    expect(count).toBeGreaterThan(200);
  });

  it('know the cases that JavaScript knows', () => {
    for (const letter of ['a', 'K', 'ſ', 'ß', 'σ', 'İ', 'ı', 'i', 'Ǆ', 'ö', 'Ω', 'ꙋ', 'ᏸ', '𐐀']) {
      const expected = new RegExp(`^${letter}$`, 'iu');
      const matches = matcherOf(`(?i)${letter}`);
      for (let code = 0; code < 0x10500; code++) {
        const other = String.fromCodePoint(code);
        if (code >= 0xd800 && code <= 0xdfff) continue;
        if (expected.test(other) !== matches(other)) expect.fail(`${letter} ${other}`);
      }
    }
  });

  it('read what Python writes', () => {
    expect(matcherOf('\\A(?P<year>\\d{4})-(?P<month>\\d{2})\\Z')('2024-05')).toBe(true);
    expect(matcherOf('\\A(?P<year>\\d{4})\\Z')('20245')).toBe(false);
    expect(matcherOf('(yes|no)(, (yes|no))*?')('yes, no')).toBe(true);
  });

  it.each([
    ['(?<=a)b', /looking behind/],
    ['(?<!a)b', /looking behind/],
    ['(a)\\1', /references to groups/],
    ['(?P=name)', /group/],
    ['a\\b', /borders of words/],
    ['a**', /nothing to repeat/],
    ['(a', /not closed/],
    ['a)', /closed that is not open/],
    ['[a', /not closed/],
    ['[b-a]', /out of order/],
    ['a{3,1}', /out of order/],
    ['\\q', /not known/],
    ['\\p{Nonsense}', /unknown property/],
    [`${'('.repeat(200)}a${')'.repeat(200)}`, /nested too deep/],
    ['a'.repeat(60_000), /more than/],
  ])('refuse %s by name', (pattern, message) => {
    expect(() => regexLanguage(pattern)).toThrow(message);
  });
});
