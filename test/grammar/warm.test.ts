import { expect, it } from 'vitest';
import { compile } from '../../grammar/tokens/compile.js';
import { Vocabulary } from '../../grammar/tokens/vocabulary.js';
import { warm } from '../../grammar/tokens/warm.js';

const texts = Array.from({ length: 95 }, (_, at) => String.fromCharCode(32 + at)).concat(
  '":',
  '","',
  'abc',
  'abc"',
  '"abc',
);
const vocabularyOf = (pieces: readonly string[]): Vocabulary =>
  new Vocabulary({
    bytes: [undefined, ...pieces.map((piece) => Buffer.from(piece))],
    special: new Map(),
    endTokens: [0],
  });

it('changes no mask', () => {
  const masksOf = (vocabulary: Vocabulary): Uint32Array[] => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'string', minLength: 2, maxLength: 9 } },
      required: ['a'],
    };
    let state = compile({ kind: 'schema', schema }, vocabulary).start();
    return [...'{"a":"abcdefghi"}'].map((letter) => {
      const mask = state.mask();
      state = state.take(1 + texts.indexOf(letter));
      return mask;
    });
  };
  const [cold, warmed] = [vocabularyOf(texts), vocabularyOf(texts)];
  warm(warmed);
  expect(masksOf(warmed)).toEqual(masksOf(cold));
});

it('does nothing for a vocabulary that cannot write strings', () => {
  expect(() => warm(vocabularyOf(['a', 'b']))).not.toThrow();
});
