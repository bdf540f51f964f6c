/** What requests ask for, as tokens: special ones apart. */
import { describe, expect, it } from 'vitest';
import { type Expression, GrammarError } from '../../grammar/grammar.js';
import type { GrammarSource } from '../../grammar/source.js';
import { compile, compileGrammar, type MatchState } from '../../grammar/tokens/compile.js';
import { Vocabulary } from '../../grammar/tokens/vocabulary.js';

const PIECES = ['<end>', '<stop>', '<call>', ...'abcdxyz<>/{}":,01', '</', 'th>', 'ab', 'b<', '</th>', '"a":', '</t'];
const SPECIAL = new Map([
  ['<end>', 0],
  ['<stop>', 1],
  ['<call>', 2],
]);
const VOCABULARY = new Vocabulary({
  bytes: PIECES.map((piece, id) => (id < SPECIAL.size ? undefined : Buffer.from(piece))),
  special: SPECIAL,
  endTokens: [0],
});

const tokensOf = (pieces: string): number[] => pieces.split(' ').map((piece) => PIECES.indexOf(piece));
const allowed = (state: MatchState): string[] => {
  const mask = state.mask();
  return PIECES.filter((_, token) => ((mask[token >> 5]! >>> (token & 31)) & 1) === 1);
};
const behind = (source: GrammarSource, pieces: string): MatchState =>
  tokensOf(pieces).reduce((state, token) => state.take(token), compile(source, VOCABULARY).start());
const refuses = (source: GrammarSource, pieces: string): void => {
  expect(() => behind(source, pieces)).toThrow(GrammarError);
};

describe('a text', () => {
  it('is its bytes in any tokens, and a special token where it is the text of one', () => {
    expect(allowed(behind({ kind: 'text', text: 'ab<' }, 'a'))).toEqual(['b', 'b<']);
    expect(allowed(behind({ kind: 'text', text: 'ab' }, 'ab'))).toEqual(['<end>']);
    expect(allowed(compile({ kind: 'text', text: '<call>' }, VOCABULARY).start())).toEqual(['<call>']);
    refuses({ kind: 'text', text: '<call>' }, '<');
  });

  it('has ended behind a token that ends texts', () => {
    const ended = behind({ kind: 'text', text: 'a' }, 'a <end>');
    expect(allowed(ended)).toEqual(['<end>']);
    expect(allowed(ended.take(0))).toEqual(['<end>']);
    expect(() => ended.take(3)).toThrow(/cannot come here/);
    refuses({ kind: 'text', text: 'ab' }, 'a <end>');
  });
});

describe('text up to a marker', () => {
  const until: GrammarSource = { kind: 'until', text: '</th>' };

  it('ends with the first one, whatever tokens it lies in', () => {
    for (const pieces of ['a b </th>', 'x </ th>', 'b< / th>', '</ </ th>', '< < </t </th>', '</th>']) {
      expect(behind(until, pieces).isEnd, pieces).toBe(true);
      expect(allowed(behind(until, pieces))).toEqual(['<end>']);
    }
    expect(allowed(behind(until, 'a </'))).not.toContain('<end>');
    expect(behind(until, 'a </t').isEnd).toBe(false);
    refuses(until, '</ th> a');
  });

  it('may go on to a special token, which is no text', () => {
    const source: GrammarSource = {
      kind: 'sequence',
      of: [
        { kind: 'until', text: '<stop>' },
        { kind: 'text', text: 'a' },
      ],
    };
    expect(behind(source, 'a < x <stop> a').isEnd).toBe(true);
    expect(allowed(behind(source, 'a <stop>'))).toEqual(['a']);
    expect(allowed(behind(source, 'a'))).toContain('<stop>');
    expect(allowed(behind(source, 'a'))).not.toContain('<call>');
    expect(() => compile({ kind: 'until', text: '' }, VOCABULARY)).toThrow(GrammarError);
  });
});

describe('sources in sources', () => {
  it('are followed in any order, each with rules of its own', () => {
    const schema: GrammarSource = {
      kind: 'schema',
      schema: { type: 'object', properties: { a: { enum: [0, 1] } }, required: ['a'], additionalProperties: false },
    };
    const calls: GrammarSource = {
      kind: 'choice',
      of: [
        { kind: 'regex', pattern: '[xyz]{2}' },
        { kind: 'repeat', of: { kind: 'sequence', of: [{ kind: 'text', text: '<call>' }, schema] }, min: 1, max: 2 },
      ],
    };
    expect(allowed(compile(calls, VOCABULARY).start())).toEqual(['<call>', 'x', 'y', 'z']);
    expect(allowed(behind(calls, '<call> { "a": 1 }'))).toEqual(['<end>', '<call>']);
    expect(allowed(behind(calls, '<call> { "a": 1 } <call> { "a": 0 }'))).toEqual(['<end>']);
    expect(allowed(behind(calls, '<call> { "a":'))).toEqual(['0', '1']);
    expect(behind({ kind: 'json' }, '{ "a": { } }').isEnd).toBe(true);
  });

  it('with many ways to go on have the masks of all of them', () => {
    const rule: Expression = { kind: 'rule', rule: 0 };
    const literal = (text: string): Expression => ({
      kind: 'regular',
      regular: { kind: 'literal', bytes: Buffer.from(text) },
    });
    const ways = [...'abcdxyz'].map((letter): Expression => ({
      kind: 'sequence',
      of: [
        literal(letter),
        { kind: 'choice', of: [rule, literal(letter === 'a' ? 'b<' : letter)] },
        literal(letter === 'b' ? '<' : ''),
      ],
    }));
    const start = compileGrammar({ rules: [{ kind: 'choice', of: ways }], start: rule }, VOCABULARY).start();
    expect(allowed(start)).toEqual([...'abcdxyz', 'ab']);
    expect(allowed(start.take(PIECES.indexOf('ab')))).toEqual([...'abcdxyz<', 'ab', 'b<']);
  });
});
