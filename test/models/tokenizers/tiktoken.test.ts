/** tiktoken files give the tokens that the merging by rank gives, with the special tokens of their release. */
import { describe, expect, it } from 'vitest';
import { convertTiktoken, isTiktoken, type TiktokenFacts } from '../../../models/tokenizer/byRank.js';
import { openTokenizer } from '../../../models/tokenizer/tokenizer.js';
import { randomOf } from '../../fuzz/mutate.js';
import { userError } from '../support.js';
import { tokenizerFolder, TOY } from '../tokenizerFolder.js';
import { base64, encodeByRank, randomRanks, tiktokenFile, tiktokenLines } from './byRank.js';
import { thorough } from '../../support/thorough.js';

const LETTERS = 'abcAB .\n1é字';
// The published expressions, written for JavaScript.
const ANY_CASE = "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const LLAMA_3 = new RegExp(
  `${ANY_CASE}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
  'gu',
);
const [UPPER, LOWER] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];
const LLAMA_4 = new RegExp(
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+(?:${ANY_CASE})?|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*(?:${ANY_CASE})?` +
    `|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
  'gu',
);

const convert = (lines: readonly string[], facts: TiktokenFacts): { added_tokens: { id: number; content: string }[] } =>
  JSON.parse(convertTiktoken(tiktokenFile(lines), 'tokenizer.model', facts)) as ReturnType<typeof convert>;
const namesOf = (facts: TiktokenFacts): Record<number, string> => {
  const lines = tiktokenLines(randomRanks(randomOf(1), 4, LETTERS));
  return Object.fromEntries(
    convert(lines, { ...facts, vocabSize: lines.length + facts.vocabSize! }).added_tokens.map(({ id, content }) => [
      id - lines.length,
      content,
    ]),
  );
};

describe('a tiktoken file', () => {
  it.each([
    ['Llama 3', 256, LLAMA_3, '<|eot_id|>', 9],
    ['Llama 4', 2048, LLAMA_4, '<|eot|>', 8],
  ] as const)('of %s has the tokens of merging by rank', async (_, special, expression, eot, place) => {
    const random = randomOf(special);
    for (let i = 0; i < 12; i++) {
      const ranks = randomRanks(random, 40 + 4 * i, LETTERS);
      const dir = tokenizerFolder({
        'tokenizer.model': tiktokenFile(tiktokenLines(ranks)),
        'config.json': { vocab_size: ranks.size + special },
      });
      const tokenizer = openTokenizer(dir);
      expect(tokenizer.vocabSize).toBe(ranks.size + special);
      const texts = Array.from({ length: 60 }, () => {
        const size = Math.floor(random() * 40);
        return Array.from({ length: size }, () => [...LETTERS][Math.floor(random() * [...LETTERS].length)]!).join('');
      });
      const got = await tokenizer.encodeBatch(texts);
      const bos = ranks.size;
      texts.forEach((text, at) => {
        expect(Array.from(got[at]!), JSON.stringify(text)).toEqual([bos, ...encodeByRank(text, ranks, expression)]);
      });
      const [a] = encodeByRank('a', ranks, expression);
      expect(await tokenizer.encodeWritten(`a${eot}<|begin_of_text|>`)).toEqual([a, bos + place, bos]);
      expect(tokenizer.detokenizer().decode(await tokenizer.encode('a字 1é.'))).toBe('a字 1é.');
    }
  });

  it('takes a part whole that is a token, though no merges make it', async () => {
    const ranks = new Map(Array.from({ length: 256 }, (_, byte) => [String.fromCharCode(byte), byte]));
    ranks.set('abc', 256);
    const tokenizer = openTokenizer(
      tokenizerFolder({
        'tokenizer.model': tiktokenFile(tiktokenLines(ranks)),
        'params.json': { vocab_size: 257 + 256, use_scaled_rope: true },
      }),
    );
    expect(await tokenizer.encode('abc abc')).toEqual([257, 256, 32, 97, 98, 99]);
  });

  it('has the special tokens of its release', () => {
    const [old, current, llama4] = [
      namesOf({ vocabSize: 256, isScaled: false }),
      namesOf({ vocabSize: 256, isScaled: true }),
      namesOf({ vocabSize: 2048 }),
    ];
    expect([old[0], old[1], old[2], old[5], old[6], old[8], old[9], old[10], old[255]]).toEqual([
      '<|begin_of_text|>',
      '<|end_of_text|>',
      '<|reserved_special_token_0|>',
      '<|reserved_special_token_3|>',
      '<|start_header_id|>',
      '<|reserved_special_token_4|>',
      '<|eot_id|>',
      '<|reserved_special_token_5|>',
      '<|reserved_special_token_250|>',
    ]);
    expect([current[4], current[8], current[10], current[12], current[255]]).toEqual([
      '<|finetune_right_pad_id|>',
      '<|eom_id|>',
      '<|python_tag|>',
      '<|reserved_special_token_2|>',
      '<|reserved_special_token_245|>',
    ]);
    expect([llama4[5], llama4[18], llama4[80], llama4[90], llama4[1143], llama4[1144], llama4[2047]]).toEqual([
      '<|header_start|>',
      '<|finetune_right_pad|>',
      '<|image_start|>',
      '<|image|>',
      '<|reasoning_thinking_end|>',
      '<|reserved_special_token_0|>',
      '<|reserved_special_token_903|>',
    ]);
  });

  it('is told from SentencePiece by its content', () => {
    expect(isTiktoken(Buffer.from('IQ== 0\nIg== 1\n'))).toBe(true);
    expect(isTiktoken(Buffer.from('IQ== 0\r\nIg== 1\r\n'))).toBe(true);
    expect(isTiktoken(TOY)).toBe(false);
    expect(isTiktoken(new Uint8Array())).toBe(false);
  });

  const good = tiktokenLines(randomRanks(randomOf(3), 20, LETTERS));
  const facts = { vocabSize: good.length + 256 };
  it('may end its lines as Windows does, and have empty ones', () => {
    const plain = convertTiktoken(tiktokenFile(good), 'f', facts);
    expect(convertTiktoken(Buffer.from(`${good.join('\r\n')}\r\n\r\n`), 'f', facts)).toBe(plain);
    expect(convertTiktoken(tiktokenFile([...good].reverse()), 'f', facts)).toBe(plain);
  });

  it.each<[string, string[], string]>([
    ['a rank twice', [...good, `${base64('zzzz')} 5`], `line ${good.length + 1}: rank 5 is there twice`],
    ['a token twice', [...good, `${good[7]!.split(' ')[0]} ${good.length}`], 'has rank 7 too'],
    ['a gap', [...good, `${base64('zzzz')} ${good.length + 3}`], `no token has rank ${good.length}, and one has`],
    ['a byte too few', good.slice(1).map((line, i) => `${line.split(' ')[0]} ${i}`), 'byte 0 is no token'],
    ['bad base64', [...good.slice(0, 9), 'a!b= 9', ...good.slice(10)], 'line 10: not base64'],
    ['no rank', [...good.slice(0, 9), 'YWI=', ...good.slice(10)], 'line 10: expected a token in base64'],
    ['an absurd rank', [...good, `${base64('zzzz')} 99999999`], 'rank 99999999; the limit is'],
    ['a long token', [...good, `${base64('z'.repeat(600))} ${good.length}`], 'more than 512 bytes'],
    ['a huge line', [...good, 'A'.repeat(1 << 20)], '1048576 characters; the limit is 1024'],
    ['a special token', [...good, `${base64('<|eot_id|>')} ${good.length}`], 'the special token "<|eot_id|>" is the'],
  ])('is refused with %s', (_, lines, wanted) => {
    const error = userError(() => convert(lines, { vocabSize: lines.length + 256 }));
    expect(error.message).toMatch(/^tokenizer\.model: /);
    expect(error.message).toContain(wanted);
    expect(error.message.length).toBeLessThan(300);
    expect(error.hint).toContain('tokenizer.json');
  });

  it('is refused where its release is not known', () => {
    const dir = tokenizerFolder({ 'tokenizer.model': tiktokenFile(good) });
    const error = userError(() => openTokenizer(dir));
    expect(error.message).toContain(`tokenizer.model: a tiktoken file of ${good.length} tokens, whose expression`);
    expect(error.message).toContain('known: Llama 3, 128,000; Llama 4, 200,000; Qwen, 151,643');
    expect(error.hint).toContain('put the tokenizer.json of the model beside it');
  });

  thorough('has at most twice the tokens of the largest vocabularies', () => {
    const lines = Array.from({ length: (1 << 19) + 2 }, (_, i) => {
      const bytes = String.fromCharCode(i >> 16, (i >> 8) & 255, i & 255);
      return `${base64(bytes)} ${i}`;
    });
    expect(userError(() => convert(lines, {})).message).toContain('line 524289: more than 524288 tokens');
  });
});
