import { describe, expect, it } from 'vitest';
import { parseTokenizerJson } from '../../models/tokenizer/json.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';

const open = (json: object): ReturnType<typeof createTokenizer> =>
  createTokenizer({ kind: 'json', text: JSON.stringify(json), where: 'tokenizer.json' });
const METASPACE = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true };
const PIECES: [string, number][] = [
  ['<unk>', 0],
  ['<s>', 0],
  ['▁', -3],
  ['a', -2],
  ['b', -2],
  ['ab', -3.5],
  ['▁ab', -6],
  ['ba', -1],
];
const unigram = (changes: object = {}): object => ({
  added_tokens: [{ id: 1, content: '<s>', special: true }],
  pre_tokenizer: METASPACE,
  post_processor: {
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: '<s>' } }, { Sequence: { id: 'A' } }],
    special_tokens: { '<s>': { ids: [1] } },
  },
  model: { type: 'Unigram', unk_id: 0, byte_fallback: false, vocab: PIECES, ...changes },
});

describe('a Unigram tokenizer', () => {
  it.each([
    ['ab', [1, 6]], // ▁ab: -6; ▁ + ab: -6.5; ▁ + a + b: -7
    ['aba', [1, 2, 3, 7]], // ▁ + a + ba: -6; ▁ab + a: -8
    ['b a', [1, 2, 4, 2, 3]],
    ['azb', [1, 2, 3, 0, 4]],
    ['', [1]],
  ])('takes the most likely pieces of %j', async (text, ids) => {
    expect(await open(unigram()).encode(text)).toEqual(ids);
  });

  it('falls back to bytes', async () => {
    const bytes = Array.from({ length: 256 }, (_, value): [string, number] => [
      `<0x${value.toString(16).toUpperCase().padStart(2, '0')}>`,
      -20,
    ]);
    const tokenizer = open(unigram({ byte_fallback: true, vocab: [...PIECES, ...bytes] }));
    expect(await tokenizer.encode('aé')).toEqual([1, 2, 3, 8 + 0xc3, 8 + 0xa9]);
  });

  it('numbers its pieces in order', () => {
    expect(parseTokenizerJson(JSON.stringify(unigram()), 'x').vocabSize).toBe(PIECES.length);
  });

  it('without an unknown piece refuses the text that needs one', async () => {
    const tokenizer = open(unigram({ unk_id: null }));
    expect(await tokenizer.encode('ab')).toEqual([1, 6]);
    await expect(tokenizer.encode('z')).rejects.toThrow('tokenizer.json: cannot tokenize');
  });
});

it('a WordPiece tokenizer takes the longest pieces', async () => {
  const tokenizer = open({
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    model: { type: 'WordPiece', unk_token: '[UNK]', vocab: { '[UNK]': 0, un: 1, '##able': 2, '##a': 3, 漢: 4 } },
  });
  expect(await tokenizer.encode('UNABLE una 漢漢 xyz')).toEqual([1, 2, 1, 3, 4, 4, 0]);
});
