/** Texts with a common beginning: the same tokens as each text by itself, from fewer and shorter encodings. */
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { convertSentencePiece } from '../../models/tokenizer/sentencepiece.js';
import { cuttableTexts, encodeSharing } from '../../models/tokenizer/shared.js';
import { createTokenizer, type Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { sentencePieceModel, toyPieces } from './sentencepieceWriter.js';
import { hasShared, SHARED, skipReason } from './support.js';
import { isThorough } from '../support/thorough.js';

const WORDS = [
  'a',
  'bc',
  'c',
  'word',
  'abc',
  '▁',
  ' ',
  '  ',
  '\n',
  'é',
  '\u{1F600}',
  '<s>',
  '</s>',
  '<unk>',
  "'s",
  '.',
  '10',
];
const text = fc
  .array(fc.constantFrom(...WORDS, ...Array.from({ length: 6 }, () => ' ')), { maxLength: 30 })
  .map((parts) => parts.join(''));
const letters = fc
  .array(fc.constantFrom('a', 'b', 'c', 'c', ' ', ' '), { minLength: 20, maxLength: 40 })
  .map((parts) => parts.join(''));
/** Questions: beginnings, each with what follows it. */
const questions = fc
  .array(fc.tuple(fc.oneof(text, letters), fc.array(fc.oneof(text, letters), { maxLength: 4 })), {
    minLength: 1,
    maxLength: 4,
  })
  .map((each) => each.flatMap(([head, tails]) => [head.trimEnd(), ...tails.map((tail) => `${head} ${tail}`)]));

async function expectSame(tokenizer: Tokenizer, texts: readonly string[]): Promise<void> {
  const [together, each] = await Promise.all([
    tokenizer.encodeBatch(texts),
    Promise.all(texts.map((one) => tokenizer.encode(one))),
  ]);
  expect(together.map((ids) => Array.from(ids))).toEqual(each);
}

const toy = (pieces: readonly string[], special = { addBos: true, addEos: false }): Tokenizer =>
  createTokenizer({
    kind: 'json',
    where: 'toy',
    text: convertSentencePiece(
      sentencePieceModel({
        pieces: [...toyPieces, ...[...new Set(pieces)].map((piece, i): [string, number] => [piece, -i])],
      }),
      'toy',
      special,
    ),
  });

describe('encodeBatch', () => {
  it('gives what encode gives, on made-up vocabularies with and without pieces that cross into a word', async () => {
    const pieces = fc.array(
      fc.array(fc.constantFrom('▁', '▁', 'a', 'b', 'c'), { minLength: 2, maxLength: 4 }).map((parts) => parts.join('')),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(pieces, questions, fc.boolean(), fc.boolean(), async (more, texts, addBos, addEos) => {
        await expectSame(toy(['▁', 'a', 'b', 'c', ...more], { addBos, addEos }), texts);
      }),
      { numRuns: isThorough ? 200 : 80 },
    );
  });

  it.runIf(hasShared && isThorough)(skipReason("what encode gives, with LLaMA's vocabulary"), async () => {
    const llama = createTokenizer(describeTokenizer(join(SHARED, 'checkpoints', 'gqa-4m')).spec);
    await fc.assert(
      fc.asyncProperty(questions, (texts) => expectSame(llama, texts)),
      { numRuns: 200 },
    );
  });
});

describe('cuttableTexts', () => {
  const pieces = ['▁', '▁▁▁', '▁a', 'b'];

  it('allows cuts if no piece crosses the beginning of a word', () => {
    const mayCut = cuttableTexts({ pieces, added: ['<s>'] })!;
    expect([mayCut('a b'), mayCut('a <s> b')]).toEqual([true, false]);
  });

  it.each([
    ['a piece with a mark inside', [...pieces, 'a▁b'], ['<s>']],
    ['a piece with a mark at its end', [...pieces, 'b▁'], ['<s>']],
    ['a mark that is no piece', ['▁a', 'b'], ['<s>']],
    ['a token with a space', pieces, ['<a b>']],
    ['a token with a mark', pieces, ['▁x']],
    ['a token of nothing', pieces, ['']],
  ])('allows none with %s', (_, each, added) => expect(cuttableTexts({ pieces: each, added })).toBeUndefined());
});

describe('encodeSharing', () => {
  const around = { before: [1], after: [2] };
  const always = (): boolean => true;
  /** One token for each character. */
  const characters =
    (seen: string[]) =>
    (parts: string[]): Promise<number[][]> => {
      seen.push(...parts);
      return Promise.resolve(parts.map((part) => [...part].map((c) => c.charCodeAt(0))));
    };
  const lettersOf = (ids: Int32Array): string => String.fromCharCode(...ids.subarray(1, -1));

  it('encodes a common beginning once, up to the last word that all texts contain whole', async () => {
    const seen: string[] = [];
    const head = 'a man is sitting on a roof';
    const found = await encodeSharing(
      [head, `${head} and`, `${head} or  so`, 'something else', 'short a', 'short b'],
      always,
      around,
      characters(seen),
    );
    expect(seen).toEqual([
      'a man is sitting on a',
      'roof',
      'roof and',
      'roof or  so',
      'something else',
      'short a',
      'short b',
    ]);
    expect(found.map(lettersOf)).toEqual([
      'a man is sitting on aroof',
      'a man is sitting on aroof and',
      'a man is sitting on aroof or  so',
      'something else',
      'short a',
      'short b',
    ]);
    expect(found.every((ids) => ids[0] === 1 && ids.at(-1) === 2)).toBe(true);
  });

  it('never cuts behind a space or a mark, or in a text that must not be cut', async () => {
    for (const head of ['aaaaaaaaaaaaaaaaaaaa▁ b', 'aaaaaaaaaaaaaaaaaaaaa', ' aaaaaaaaaaaaaaaaaaaa']) {
      const seen: string[] = [];
      await encodeSharing([head, `${head}x`], always, around, characters(seen));
      expect(seen).toEqual([head, `${head}x`]);
    }
    const seen: string[] = [];
    const texts = ['a man is sitting on a roof', 'a man is sitting on a roof <s>'];
    await encodeSharing(texts, (one) => !one.includes('<s>'), around, characters(seen));
    expect(seen).toEqual(texts);
    const double: string[] = [];
    await encodeSharing(['a man is sitting  on', 'a man is sitting  on it'], always, around, characters(double));
    expect(double).toEqual(['a man is sitting', ' on', ' on it']);
  });
});
