/** Lines that texts have in common: the same tokens as each text as a whole, from fewer and shorter encodings. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { Tokenizer as Native } from 'tokenizers';
import { describe, expect, it } from 'vitest';
import { parseTokenizerJson, type TokenizerJson, writeTokenizerJson } from '../../models/tokenizer/json.js';
import { convertSentencePiece } from '../../models/tokenizer/sentencepiece.js';
import { mayCutLines, SharedLines } from '../../models/tokenizer/shared.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { sentencePieceModel, toyPieces } from './sentencepieceWriter.js';
import { hasShared, SHARED, skipReason } from './support.js';
import { casesHere } from '../support/thorough.js';

const LETTERS = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'];
const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
const LIKE_LLAMA3 =
  "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const split = (pattern: string) => ({
  type: 'Split',
  pattern: { Regex: pattern },
  behavior: 'Isolated',
  invert: false,
});
const byteLevel = { ...BYTE_LEVEL, use_regex: false };

/** A byte-level tokenizer with merges of white space, signs and letters. */
function byteJson(preTokenizers: readonly object[], extra: readonly [string, string][] = []): TokenizerJson {
  const bytes = [...LETTERS, ...'0123456789.,:?()-\'"', 'Ċ', 'Ġ', 'ĉ', 'č', 'Ã', '©'];
  const merges: [string, string][] = [
    ['Ċ', 'Ċ'],
    ['Ġ', 'Ġ'],
    ['.', 'Ċ'],
    ['.Ċ', 'Ċ'],
    ['Ġ', 'Ċ'],
    ['a', 'b'],
    ['Ġ', 'a'],
    ['Ã', '©'],
    ...extra,
  ];
  const vocab = Object.fromEntries([...bytes, ...merges.map(([a, b]) => a + b)].map((piece, id) => [piece, id]));
  const json = {
    model: { type: 'BPE', vocab, merges },
    pre_tokenizer: { type: 'Sequence', pretokenizers: preTokenizers },
  };
  return parseTokenizerJson(JSON.stringify(json), 'test');
}

const SP = parseTokenizerJson(
  convertSentencePiece(
    sentencePieceModel({
      pieces: [
        ...toyPieces,
        ...[...new Set([...LETTERS, '\n', '.', '▁a', '\n\n', 'ab'])].map((piece, i): [string, number] => [piece, -i]),
      ],
    }),
    'toy',
    { addBos: true, addEos: false },
  ),
  'toy',
);

const text = fc
  .array(fc.constantFrom('a', 'ab', 'B', ' ', '  ', '\n', '\n', '\n\n', '.\n\n', 'é', '1', ':', '\t', '\r\n', "'s"), {
    maxLength: 40,
  })
  .map((parts) => parts.join(''));

describe('lines that texts have in common', () => {
  it.each([
    ['as LLaMA 3 splits', byteJson([split(LIKE_LLAMA3), byteLevel])],
    ['as GPT-2 splits', byteJson([BYTE_LEVEL])],
    ['with digits by themselves', byteJson([{ type: 'Digits', individual_digits: true }, BYTE_LEVEL])],
    ['of SentencePiece', SP],
  ])('have the tokens of the whole text: %s', async (_name, json) => {
    expect(mayCutLines(json)).toBe(true);
    const native = Native.fromString(writeTokenizerJson(json).toString());
    let encoded = 0;
    const encode = async (parts: string[]): Promise<number[][]> => {
      encoded += parts.length;
      return (await native.encodeBatch(parts, { addSpecialTokens: false })).map((each) => each.getIds());
    };
    const lines = (await SharedLines.open(encode))!;
    expect(lines).toBeDefined();
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 6 }), async (texts) => {
        const whole = await encode([...texts]);
        const shared = await lines.encodeBatch(texts, { before: [7], after: [8, 9] });
        expect(shared.map((ids) => [...ids])).toEqual(whole.map((ids) => [7, ...ids, 8, 9]));
      }),
      { numRuns: 60 },
    );
    encoded = 0;
    const shots = 'Some words\n\nAnother line.\nBB abBA\n';
    await lines.encodeBatch([`${shots}C`, `${shots}D`, `${shots}E`], { before: [], after: [] });
    // Three lines once, and three ends.
    expect(encoded).toBe(6);
  });

  it('are not cut where a piece, an added token or a split crosses the beginning of a line', async () => {
    expect(mayCutLines(byteJson([BYTE_LEVEL], [['Ċ', 'a']]))).toBe(false);
    expect(mayCutLines(byteJson([split('(?<=\\n)a'), byteLevel]))).toBe(false);
    const plain = byteJson([BYTE_LEVEL]);
    const token = {
      id: 9,
      content: 'x\nY',
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    };
    expect(mayCutLines({ ...plain, added: [token] })).toBe(false);
    expect(mayCutLines({ ...plain, normalizers: [{ type: 'Strip', strip_left: true, strip_right: true }] })).toBe(
      false,
    );
    // Three characters at a time: where a line begins depends on what is before it.
    const threes = byteJson([split('[\\s\\S]{3}'), byteLevel], [['b', 'c']]);
    const native = Native.fromString(writeTokenizerJson(threes).toString());
    const opened = await SharedLines.open(async (parts) =>
      (await native.encodeBatch(parts, { addSpecialTokens: false })).map((each) => each.getIds()),
    );
    expect(opened).toBeUndefined();
  });

  it.skipIf(!hasShared).each(casesHere(['gsm8k_5shot', 'leaderboard_bbh_3shot', 'truthfulqa_mc1_5shot_asked'], 2))(
    skipReason('have the tokens of the whole prompts of real tasks: %s'),
    async (name) => {
      const prompts = gunzipSync(readFileSync(join(SHARED, 'golden', 'requests', `${name}.jsonl.gz`)))
        .toString()
        .trim()
        .split('\n')
        .slice(0, 30)
        .map((line) => (JSON.parse(line) as { arguments: string[][] }).arguments[0]![0]!);
      for (const spec of [
        { kind: 'file', path: join(SHARED, 'checkpoints', 'demo', 'tokenizer.json') },
        {
          kind: 'sentencepiece',
          path: join(SHARED, 'data', 'llama_tokenizer.model'),
          special: { addBos: false, addEos: false },
        },
      ] as const) {
        const tokenizer = createTokenizer(spec);
        const together = await tokenizer.encodeBatch(prompts);
        for (const [i, prompt] of prompts.entries()) {
          const own = await tokenizer.encodeWritten(prompt);
          expect(Array.from(together[i]!).slice(-own.length)).toEqual(own);
        }
      }
    },
  );
});
