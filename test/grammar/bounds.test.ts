/** What costs much is refused, for that text alone; what looks as if it did is not. */
import { describe, expect, it } from 'vitest';
import { type Expression, type Grammar, GrammarError, type Regular } from '../../grammar/grammar.js';
import { compileGrammar } from '../../grammar/tokens/compile.js';
import { Vocabulary } from '../../grammar/tokens/vocabulary.js';
import { casesHere, thorough } from '../support/thorough.js';
import { LETTERS, randomFrom } from './randomGrammars.js';

const literal = (text: string): Regular => ({ kind: 'literal', bytes: Buffer.from(text) });
const sequence = (...of: Regular[]): Regular => ({ kind: 'sequence', of });
const choice = (...of: Regular[]): Regular => ({ kind: 'choice', of });
const repeat = (of: Regular, min: number, max = Infinity): Regular => ({ kind: 'repeat', of, min, max });
const both = (...of: Regular[]): Regular => ({ kind: 'and', of });
const not = (of: Regular): Regular => ({ kind: 'not', of });
const any = choice(...[...LETTERS].map(literal));
const ofRegular = (regular: Regular): Grammar => ({ rules: [], start: { kind: 'regular', regular } });

/** Every text of up to four letters, and long ones, so that trees of all lengths have some. */
const vocabulary = (): Vocabulary => {
  const random = randomFrom(7);
  const bytes: (Uint8Array | undefined)[] = [undefined];
  let last = [''];
  for (let length = 1; length <= 4; length++) {
    last = last.flatMap((text) => [...LETTERS].map((letter) => text + letter));
    for (const text of last) bytes.push(Buffer.from(text));
  }
  for (let count = 0; count < 400; count++) {
    const text = Array.from({ length: 5 + random(40) }, () => LETTERS[random(random(3) + 1)]);
    bytes.push(Buffer.from(text.join('')));
  }
  return new Vocabulary({ bytes, special: new Map(), endTokens: [0] });
};
const VOCABULARY = vocabulary();

const has = (mask: Uint32Array, token: number): boolean => ((mask[token >> 5]! >>> (token & 31)) & 1) === 1;

/** Follows random tokens; each mask must hold exactly what can be taken. */
const follow = (grammar: Grammar, seed: number, most: number): number => {
  const random = randomFrom(seed);
  let state = compileGrammar(grammar, VOCABULARY).start();
  let count = 0;
  for (; count < most; count++) {
    const mask = state.mask();
    const next = Array.from({ length: VOCABULARY.size }, (_, token) => {
      try {
        return state.take(token);
      } catch (error) {
        if (error instanceof GrammarError) return undefined;
        throw error;
      }
    });
    expect([...next.keys()].filter((token) => has(mask, token) !== (next[token] !== undefined))).toEqual([]);
    const possible = next.slice(1).filter((each) => each !== undefined);
    if (possible.length === 0) break;
    state = possible[random(possible.length)]!;
  }
  return count;
};

describe('masks of what is counted', () => {
  it('are exact near the limits and far from them', () => {
    const word = repeat(choice(literal('ab'), literal('c')), 0);
    for (const most of casesHere([3, 7, 8, 9, 24, 25, 41, 70], 0, 2, 5, 6)) {
      follow(ofRegular(sequence(literal('b'), repeat(any, 0, most), literal('b'))), most, 3);
      follow(ofRegular(sequence(repeat(any, most, most + 2), literal('c'))), most, 2);
      follow(ofRegular(both(sequence(word, literal('c')), repeat(any, 0, most))), most, 3);
      // An end that is far off for the one part and must be near for the other.
      const far = sequence(repeat(any, 0), literal('c'), repeat(any, 9, 9));
      follow(ofRegular(both(far, repeat(any, 0, most + 8))), most, 3);
      follow(ofRegular(both(repeat(any, 0, most), not(choice(literal('ab'), literal('abcabc'))))), most, 2);
      follow(ofRegular(sequence(both(repeat(any, 0), not(repeat(any, 0, most))), literal('a'))), most, 2);
    }
  });
});

const failure = (action: () => unknown): string => {
  try {
    action();
  } catch (error) {
    expect(error).toBeInstanceOf(GrammarError);
    return (error as GrammarError).message;
  }
  return 'none';
};

describe('hostile grammars', () => {
  it('of numbers that multiply are followed without writing them out', () => {
    const million = repeat(repeat(literal('a'), 1000, 1000), 1000, 1000);
    expect(follow(ofRegular(million), 1, 3)).toBe(3);
    expect(follow(ofRegular(repeat(repeat(any, 1000, 1000), 0, 1000)), 1, 2)).toBe(2);
  });

  it('of automata with very many states are followed or given up', () => {
    // Whether the 60th letter from the end is an a: 2^60 states, of which a text meets few.
    const far = sequence(repeat(any, 0), literal('a'), repeat(any, 60, 60));
    const start = compileGrammar(ofRegular(far), VOCABULARY).start();
    expect(['none', 'what is asked of the text takes too long to follow']).toContain(failure(() => start.mask()));
    const lengths = Array.from({ length: 40 }, (_, at) => repeat(repeat(any, at + 2, at + 2), 0));
    const multiples = (): unknown => compileGrammar(ofRegular(both(...lengths, repeat(any, 1))), VOCABULARY);
    expect(failure(multiples)).toMatch(/too long to follow|too many states/);
  });

  it('that are nested too deep are refused', () => {
    let regular = any;
    let expression: Expression = { kind: 'rule', rule: 0 };
    for (let depth = 0; depth < 5000; depth++) {
      regular = choice(sequence(regular, any), any);
      expression = { kind: 'sequence', of: [expression] };
    }
    const deep: Grammar = { rules: [{ kind: 'token', id: 1 }], start: expression };
    expect(failure(() => compileGrammar(ofRegular(regular), VOCABULARY))).toMatch(/nested too deep/);
    expect(failure(() => compileGrammar(deep, VOCABULARY))).toMatch(/nested too deep/);
    const optional = sequence(...Array.from({ length: 5000 }, () => repeat(any, 0, 1)));
    expect(failure(() => compileGrammar(ofRegular(optional), VOCABULARY))).toMatch(/nested too deep/);
  });

  it('that nothing fits are refused, and others go on', () => {
    const rule: Expression = { kind: 'rule', rule: 0 };
    const endless: Grammar = { rules: [{ kind: 'sequence', of: [rule, rule] }], start: rule };
    expect(failure(() => compileGrammar(endless, VOCABULARY))).toMatch(/no text can be written/);
    expect(failure(() => compileGrammar(ofRegular(both(literal('a'), literal('b'))), VOCABULARY))).toMatch(/no text/);
    const unknown = compileGrammar(ofRegular(literal('z')), VOCABULARY);
    expect(failure(() => unknown.start().mask())).toMatch(/no token of the vocabulary/);
    expect(follow(ofRegular(repeat(any, 1)), 3, 3)).toBe(3);
  });

  thorough('of texts that can be read in very many ways are given up at some length', () => {
    const rule: Expression = { kind: 'rule', rule: 0 };
    const a: Expression = { kind: 'regular', regular: literal('a') };
    const ambiguous: Grammar = {
      rules: [
        {
          kind: 'choice',
          of: [{ kind: 'sequence', of: [rule, rule, rule] }, { kind: 'sequence', of: [rule, rule] }, a],
        },
      ],
      start: rule,
    };
    let state = compileGrammar(ambiguous, VOCABULARY).start();
    const message = failure(() => {
      for (let length = 0; length < 5000; length++) state = state.take(1);
    });
    expect(message).toMatch(/too long to follow|too many/);
    expect(follow(ambiguous, 1, 3)).toBe(3);
  });

  it('of rules that name the next one cost what they have', () => {
    const count = 12;
    const rules = Array.from({ length: count }, (_, at): Expression => {
      const next: Expression = at + 1 < count ? { kind: 'rule', rule: at + 1 } : { kind: 'token', id: 0 };
      return { kind: 'choice', of: [{ kind: 'sequence', of: [{ kind: 'regular', regular: any }, next] }, next] };
    });
    expect(follow({ rules, start: { kind: 'rule', rule: 0 } }, 1, 1)).toBe(1);
    expect(
      failure(() => compileGrammar({ rules: rules.toReversed(), start: { kind: 'rule', rule: 9999 } }, VOCABULARY)),
    ).toMatch(/no text/);
  });
});
