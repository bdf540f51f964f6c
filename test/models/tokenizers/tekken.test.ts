/** tekken.json gives the tokens that the merging by rank gives, behind its special tokens. */
import { describe, expect, it } from 'vitest';
import { convertTekken } from '../../../models/tokenizer/byRank.js';
import { openTokenizer } from '../../../models/tokenizer/tokenizer.js';
import { randomOf } from '../../fuzz/mutate.js';
import { userError } from '../support.js';
import { tokenizerFolder } from '../tokenizerFolder.js';
import { base64, encodeByRank, randomRanks } from './byRank.js';

const LETTERS = 'abcAB .\n/1é字';
const [UPPER, LOWER] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];
/** As published files have it. */
const PATTERN =
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*` +
  '|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const SPECIAL = ['<unk>', '<s>', '</s>', '[INST]', '[/INST]'].map((name, rank) => ({
  rank,
  token_str: name,
  is_control: true,
}));

type Json = Record<string, unknown>;
const file = (ranks: ReadonlyMap<string, number>, change: Json = {}, config: Json = {}): Json => ({
  config: {
    pattern: PATTERN,
    num_vocab_tokens: ranks.size,
    default_vocab_size: ranks.size + 10,
    default_num_special_tokens: 10,
    version: 'v13',
    ...config,
  },
  vocab: [...ranks].map(([token, rank]) => ({ rank, token_bytes: base64(token), token_str: null })),
  special_tokens: SPECIAL,
  ...change,
});

describe('tekken.json', () => {
  it('has the tokens of merging by rank, BOS first', async () => {
    const random = randomOf(5);
    for (let i = 0; i < 12; i++) {
      const ranks = randomRanks(random, 40 + 4 * i, LETTERS);
      const tokenizer = openTokenizer(tokenizerFolder({ 'tekken.json': file(ranks) }));
      expect(tokenizer.vocabSize).toBe(ranks.size + 10);
      const letters = [...LETTERS];
      const texts = Array.from({ length: 60 }, () =>
        Array.from({ length: Math.floor(random() * 40) }, () => letters[Math.floor(random() * letters.length)]!).join(
          '',
        ),
      );
      const got = await tokenizer.encodeBatch(texts);
      const wanted = (text: string): number[] =>
        encodeByRank(text, ranks, new RegExp(PATTERN, 'gu')).map((rank) => rank + 10);
      texts.forEach((text, at) => expect(Array.from(got[at]!), JSON.stringify(text)).toEqual([1, ...wanted(text)]));
      expect(await tokenizer.encodeWritten('<s>[INST]a[/INST]<SPECIAL_9>')).toEqual([1, 3, ...wanted('a'), 4, 9]);
      expect(tokenizer.detokenizer().decode(await tokenizer.encode('a字 1é.'))).toBe('a字 1é.');
    }
  });

  const ranks = randomRanks(randomOf(6), 30, LETTERS);
  const convert = (json: Json): { added_tokens: { id: number; content: string }[]; model: { vocab: object } } =>
    JSON.parse(convertTekken(JSON.stringify(json), 'tekken.json')) as ReturnType<typeof convert>;

  it('has the special tokens of version 7 where it lists none', () => {
    const json = file(ranks, { special_tokens: null }, { version: 'v3', default_num_special_tokens: 24 });
    const { added_tokens: added } = convert({
      ...json,
      config: { ...(json['config'] as Json), default_vocab_size: ranks.size + 24 },
    });
    expect([0, 1, 9, 11, 19, 20, 23].map((id) => added[id]?.content)).toEqual([
      '<unk>',
      '<s>',
      '[TOOL_CALLS]',
      '<pad>',
      '[TOOL_CONTENT]',
      '<SPECIAL_20>',
      '<SPECIAL_23>',
    ]);
  });

  it('leaves out the tokens that the default size leaves out', () => {
    const { model } = convert(file(ranks, {}, { default_vocab_size: ranks.size + 10 - 7 }));
    expect(Object.keys(model.vocab)).toHaveLength(ranks.size + 10 - 7);
  });

  it('respects add_bos_token beside it', async () => {
    const dir = tokenizerFolder({ 'tekken.json': file(ranks), 'tokenizer_config.json': { add_bos_token: false } });
    expect(await openTokenizer(dir).encode('1')).toEqual([10 + ranks.get('1')!]);
  });

  const vocab = file(ranks)['vocab'] as Json[];
  it.each<[string, Json, string]>([
    ['another expression', file(ranks, {}, { pattern: '(a+)+b' }), 'config.pattern: "(a+)+b" is not the expression'],
    ['no config', { vocab: [] }, 'config: '],
    ['an absurd size', file(ranks, {}, { default_vocab_size: 1e9 }), 'config.default_vocab_size: '],
    ['more special tokens than tokens', file(ranks, {}, { default_num_special_tokens: 400 }), 'vocab has 286 tokens'],
    ['too few tokens', file(ranks, {}, { default_vocab_size: 1000 }), 'default_vocab_size is 1000, with 10 special'],
    ['ranks out of order', file(ranks, { vocab: [...vocab].reverse() }), 'vocab.0: expected rank 0 and token_bytes'],
    ['an entry that is none', file(ranks, { vocab: [null, ...vocab.slice(1)] }), 'vocab.0: expected rank 0'],
    [
      'bad base64',
      file(ranks, { vocab: [{ rank: 0, token_bytes: '?', token_str: null }, ...vocab.slice(1)] }),
      'vocab.0: not base64',
    ],
    ['no list of special tokens', file(ranks, { special_tokens: null }), 'special_tokens is missing, which files of'],
    [
      'a special token twice',
      file(ranks, { special_tokens: [...SPECIAL, { rank: 5, token_str: '<s>' }] }),
      'special_tokens: "<s>" is there twice',
    ],
    [
      'a special token behind the others',
      file(ranks, { special_tokens: [{ rank: 10, token_str: '<s>' }] }),
      '"<s>" has rank 10, and there are 10 special tokens',
    ],
    [
      'a special token of the vocabulary',
      file(ranks, { special_tokens: [...SPECIAL, { rank: 5, token_str: 'A' }] }),
      'the special token "A" is the token of rank',
    ],
  ])('is refused with %s', (_, json, wanted) => {
    const error = userError(() => convert(json));
    expect(error.message).toMatch(/^tekken\.json: /);
    expect(error.message).toContain(wanted);
    expect(error.hint).toContain('tokenizer.json');
  });
});
