import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { parseTokenizerJson } from '../../models/tokenizer/json.js';
import { createTokenizer, openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { temporaryFolder, userError, writeJson } from './support.js';

const BOS = { id: 0, content: '<s>', special: true };
const EOS = { id: 1, content: '</s>', special: true };
const small = (changes: object = {}): object => ({
  added_tokens: [BOS, EOS],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  model: { type: 'BPE', vocab: { '<s>': 0, '</s>': 1, a: 2, b: 3, ab: 4 }, merges: ['a b'] },
  ...changes,
});
const template = (...ids: number[]): object => ({
  type: 'TemplateProcessing',
  single: [{ SpecialToken: { id: 'x', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
  special_tokens: { x: { id: 'x', ids, tokens: [] } },
});
const refusal = (changes: object): string =>
  userError(() => parseTokenizerJson(JSON.stringify(small(changes)), 'tokenizer.json')).message;
const replace = (pattern: object, content: string): object => ({ type: 'Replace', pattern, content });

describe('parseTokenizerJson', () => {
  it.each([
    [
      'a table of characters',
      { normalizer: { type: 'Precompiled', precompiled_charsmap: 'AAAA' } },
      'the table of characters is damaged',
    ],
    ['an empty pattern', { normalizer: replace({ String: '' }, 'b') }, 'normalizer.pattern'],
    [
      'text in the place of nothing',
      { normalizer: replace({ Regex: 'x*' }, 'b') },
      'it would replace what may be no character at all by text',
    ],
    [
      'a regular expression without end',
      { pre_tokenizer: { type: 'Split', pattern: { Regex: '(a+)+b' }, behavior: 'Isolated', invert: false } },
      'exponential',
    ],
    [
      '21 doublings',
      { normalizer: { type: 'Sequence', normalizers: new Array(21).fill(replace({ String: 'a' }, 'aa')) } },
      'a Sequence of 21',
    ],
    [
      '7 doublings',
      { normalizer: { type: 'Sequence', normalizers: new Array(7).fill(replace({ String: 'a' }, 'aa')) } },
      '128 times longer',
    ],
    [
      'sequences in sequences',
      {
        normalizer: {
          type: 'Sequence',
          normalizers: new Array(9).fill({
            type: 'Sequence',
            normalizers: [{ type: 'NFC' }, { type: 'Strip', strip_left: true, strip_right: true }],
          }),
        },
      },
      '18 components',
    ],
    [
      'a special token that is not there',
      { post_processor: template(7) },
      'adds token 7, which is not in the vocabulary',
    ],
    ['a huge id', { added_tokens: [{ id: 2 ** 40, content: 'x' }] }, 'added_tokens'],
    ['an empty added token', { added_tokens: [{ id: 3, content: '' }] }, 'added_tokens'],
    ['an id that is text', { model: { type: 'BPE', vocab: { a: 'b' }, merges: [] } }, 'model.vocab'],
    [
      'two pieces of one id',
      { model: { type: 'BPE', vocab: { a: 0, b: 0 }, merges: [] } },
      '"a" and "b" both have the id 0',
    ],
    [
      'two added tokens of one id',
      {
        added_tokens: [
          { id: 9, content: '<x>' },
          { id: 9, content: '<y>' },
        ],
      },
      'added_tokens: "<x>" and "<y>" both have the id 9',
    ],
    ['a merge of three', { model: { type: 'BPE', vocab: { a: 0 }, merges: ['a b c'] } }, 'model.merges'],
    ['another model', { model: { type: 'Lattice', vocab: [] } }, '"Lattice" is not supported'],
    ['no pieces', { model: { type: 'Unigram', unk_id: 0, vocab: [] } }, 'model.vocab'],
    ['an unknown piece outside', { model: { type: 'Unigram', unk_id: 1, vocab: [['a', 0]] } }, 'model.unk_id'],
    ['a score without bound', { model: { type: 'Unigram', unk_id: 0, vocab: [['a', -1e300]] } }, 'model.vocab'],
    ['an empty piece', { model: { type: 'Unigram', unk_id: 0, vocab: [['', -1]] } }, 'model.vocab'],
    ['an unknown token outside', { model: { type: 'WordPiece', unk_token: '?', vocab: { a: 0 } } }, 'model.unk_token'],
    [
      'words without bound',
      { model: { type: 'WordPiece', unk_token: 'a', max_input_chars_per_word: 1e9, vocab: { a: 0 } } },
      'model.max_input_chars_per_word',
    ],
    [
      'two templates',
      { post_processor: { type: 'Sequence', processors: [template(0), template(1)] } },
      'several processors',
    ],
  ])('refuses %s in one line', (_, changes, expected) => {
    const message = refusal(changes);
    expect(message).toContain(expected);
    expect(message).not.toContain('\n');
  });

  it('passes nothing on that it did not check', async () => {
    const text = JSON.stringify(small({ decoder: { type: 'Nonsense' }, truncation: 5, post_processor: template(1) }));
    expect(await createTokenizer({ kind: 'json', text, where: 'x' }).encode('abb')).toEqual([1, 4, 3]);
  });
});

describe('added tokens', () => {
  it.each<[string, object[], number, number]>([
    ['whose ids the vocabulary gives to others', [{ id: 4, content: '<x>' }], 5, 6],
    ['whose ids are far behind it', [{ id: 4_000_000, content: '<x>' }], 5, 6],
    ['that it has', [{ id: 9, content: 'b' }], 3, 5],
  ])('%s have the ids that the library gives', async (_, added, id, vocabSize) => {
    const dir = temporaryFolder();
    writeJson(dir, 'tokenizer.json', small({ added_tokens: added }));
    const tokenizer = openTokenizer(dir);
    const [{ content }] = added as [{ content: string }];
    expect(await tokenizer.encode(`a${content}`)).toEqual([2, id]);
    expect(tokenizer.vocabSize).toBe(vocabSize);
  });
});

describe('tokenizer_config.json', () => {
  const encode = async (config: object, changes: object = {}): Promise<number[]> => {
    const dir = temporaryFolder();
    writeJson(dir, 'tokenizer.json', small(changes));
    writeJson(dir, 'tokenizer_config.json', config);
    return openTokenizer(dir).encode('ab');
  };

  it('decides whether BOS and EOS are added', async () => {
    const names = { bos_token: '<s>', eos_token: { content: '</s>' } };
    const post_processor = template(0);
    expect(await encode(names, { post_processor })).toEqual([0, 4]);
    expect(await encode({ ...names, add_bos_token: false }, { post_processor })).toEqual([4]);
    expect(await encode({ ...names, add_bos_token: true })).toEqual([0, 4]);
    expect(await encode({ ...names, add_bos_token: true, add_eos_token: true })).toEqual([0, 4, 1]);
    expect(await encode({ ...names, add_bos_token: null }, { post_processor })).toEqual([0, 4]);
  });

  it('must name a token that exists', async () => {
    await expect(encode({ add_bos_token: true })).rejects.toThrow('add_bos_token is true, but bos_token is absent');
    const dir = temporaryFolder();
    writeJson(dir, 'tokenizer.json', small());
    writeJson(dir, 'tokenizer_config.json', { add_bos_token: true, bos_token: '<x>' });
    expect(() => describeTokenizer(dir, 5)).toThrow(
      `"<x>" is no token of ${join(dir, 'tokenizer.json')}: the model has no embedding for one more, 5`,
    );
    expect(await openTokenizer(dir).encode('ab')).toEqual([5, 4]);
  });

  it('is part of the hash', () => {
    const dir = temporaryFolder();
    writeJson(dir, 'tokenizer.json', small());
    const { hash } = describeTokenizer(dir);
    writeJson(dir, 'tokenizer_config.json', { add_bos_token: true, bos_token: '<s>' });
    expect(describeTokenizer(dir).hash).not.toBe(hash);
  });
});

it('a token without an embedding is refused only if a text contains it', async () => {
  const dir = temporaryFolder();
  writeJson(dir, 'tokenizer.json', small());
  const tokenizer = createTokenizer(describeTokenizer(dir, 4).spec);
  expect(await tokenizer.encode('ba')).toEqual([3, 2]);
  await expect(tokenizer.encodeBatch(['a', 'ab'])).rejects.toThrow(
    `${join(dir, 'tokenizer.json')}: token 4 of the text "ab" has no embedding: the model has 4`,
  );
});
