/** Tokens that only the files beside a tokenizer name: what they are, their ids, and what begins and ends texts. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { prefixToken, readNamedTokens } from '../../models/tokenizer/namedTokens.js';
import { createTokenizer, openTokenizer, type OpenTokenizer } from '../../models/tokenizer/tokenizer.js';
import { sentencePieceModel, toyPieces } from './sentencepieceWriter.js';
import { userError } from './support.js';
import { tokenizerFolder, TOY } from './tokenizerFolder.js';

const LETTERS = ['<unk>', '<s>', '</s>', ...'abcdefghijklmnopqrstuvwxyz<>|_ ', '<|end|>'];
const END = LETTERS.indexOf('<|end|>');
const id = (letter: string): number => LETTERS.indexOf(letter);
const added = (content: string, changes: object = {}): object => ({
  ...{ id: id(content), content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
  ...changes,
});
/** A tokenizer of letters, in whose vocabulary lies <|end|>. */
const json = (changes: object = {}): object => ({
  added_tokens: ['<unk>', '<s>', '</s>'].map((content) => added(content)),
  model: { type: 'BPE', vocab: Object.fromEntries(LETTERS.map((letter, i) => [letter, i])), merges: [] },
  ...changes,
});
const OBJECT = {
  content: '<|end|>',
  lstrip: false,
  normalized: false,
  rstrip: false,
  single_word: false,
  special: true,
};

const folder = (config: object | undefined, files: Record<string, unknown> = {}): string =>
  tokenizerFolder({
    'tokenizer.json': json(),
    ...(config === undefined ? {} : { 'tokenizer_config.json': config }),
    ...files,
  });
const open = (config: object | undefined, files: Record<string, unknown> = {}): OpenTokenizer =>
  openTokenizer(folder(config, files));

describe('tokens that other files name', () => {
  it.each<[string, object | undefined, Record<string, unknown>]>([
    ['eos_token', { eos_token: '<|end|>' }, {}],
    ['an object', { eos_token: { __type: 'AddedToken', ...OBJECT } }, {}],
    ['an object without a type', { pad_token: { content: '<|end|>' } }, {}],
    ['a key of the model', { image_token: '<|end|>' }, {}],
    ['additional_special_tokens', { additional_special_tokens: ['<|end|>'] }, {}],
    ['extra_special_tokens, a list', { extra_special_tokens: ['</s>', { __type: 'AddedToken', ...OBJECT }] }, {}],
    ['extra_special_tokens, an object', { extra_special_tokens: { image: '<|end|>' } }, {}],
    ['added_tokens_decoder', { added_tokens_decoder: { [END]: OBJECT } }, {}],
    ['added_tokens_decoder with another id', { added_tokens_decoder: { 3: OBJECT } }, {}],
    ['special_tokens_map.json', undefined, { 'special_tokens_map.json': { eos_token: '<|end|>' } }],
    ['its list', {}, { 'special_tokens_map.json': { additional_special_tokens: [{ content: '<|end|>' }] } }],
    ['added_tokens.json', {}, { 'added_tokens.json': { '<|end|>': END } }],
  ])('%s', async (_, config, files) => {
    const tokenizer = open(config, files);
    expect(await tokenizer.encode('a<|end|>b')).toEqual([id('a'), END, id('b')]);
    expect(tokenizer.vocabSize).toBe(LETTERS.length);
    expect(await createTokenizer(structuredClone(tokenizer.spec)).encode('a<|end|>b')).toEqual([id('a'), END, id('b')]);
  });

  it('are special, so that texts do not show them, unless a file says otherwise', async () => {
    expect(
      open({ eos_token: '<|end|>' })
        .detokenizer()
        .decode([id('a'), END, id('b')]),
    ).not.toContain('end');
    const plain = open({ added_tokens_decoder: { [END]: { ...OBJECT, special: false } } });
    expect(plain.detokenizer().decode([id('a'), END])).toContain('<|end|>');
    const named = open({ eos_token: '<|end|>', added_tokens_decoder: { [END]: { ...OBJECT, special: false } } });
    expect(named.detokenizer().decode([id('a'), END])).not.toContain('<|end|>');
  });

  it('older files do not count where added_tokens_decoder is', async () => {
    const older = { 'special_tokens_map.json': { pad_token: '<|end|>' }, 'added_tokens.json': { '<|end|>': END } };
    expect(await open({ added_tokens_decoder: {} }, older).encode('<|end|>')).toHaveLength(7);
    expect(await open({}, older).encode('<|end|>')).toEqual([END]);
  });

  it('special_tokens_map.json overrides tokenizer_config.json', () => {
    const map = { 'special_tokens_map.json': { eos_token: '<|end|>' } };
    expect(open({ eos_token: '</s>' }, map).eos).toEqual({ id: END, text: '<|end|>' });
    expect(open({ eos_token: '</s>', added_tokens_decoder: {} }, map).eos).toEqual({ id: 2, text: '</s>' });
  });

  it('take the flags of added_tokens_decoder, also for tokens of tokenizer.json', async () => {
    const strips = { added_tokens_decoder: { [END]: { ...OBJECT, lstrip: true, rstrip: true } } };
    expect(await open(strips).encode('a <|end|>  b')).toEqual([id('a'), END, id('b')]);
    const own = { 'tokenizer.json': json({ added_tokens: [added('<|end|>')] }) };
    expect(await open({}, own).encode('a <|end|> b')).toEqual([id('a'), id(' '), END, id(' '), id('b')]);
    expect(await open(strips, own).encode('a <|end|>  b')).toEqual([id('a'), END, id('b')]);
    // A name alone changes nothing of a token that is there.
    const stripped = { 'tokenizer.json': json({ added_tokens: [added('<|end|>', { lstrip: true })] }) };
    expect(await open({ eos_token: '<|end|>' }, stripped).encode('a <|end|>')).toEqual([id('a'), END]);
    const word = { added_tokens_decoder: { [END]: { ...OBJECT, single_word: true } } };
    expect(await open(word).encode('a<|end|>b')).toHaveLength(9);
  });

  it('get the next ids where the vocabulary lacks them, by the ids that they state', async () => {
    const next = LETTERS.length;
    const tokenizer = open({
      pad_token: '[PAD]',
      added_tokens_decoder: { 900: { content: '<y>' }, 800: { content: '<x>' }, 2: { content: '</s>' } },
    });
    expect(await tokenizer.encode('<x>a<y>[PAD]')).toEqual([next, id('a'), next + 1, next + 2]);
    expect(tokenizer.vocabSize).toBe(next + 3);
  });

  it('are refused only in texts that have them, where the model has no embedding', async () => {
    const { spec } = describeTokenizer(folder({ pad_token: '[PAD]' }), LETTERS.length);
    const tokenizer = createTokenizer(spec);
    expect(await tokenizer.encode('a')).toEqual([id('a')]);
    await expect(tokenizer.encode('a[PAD]')).rejects.toThrow(`token ${LETTERS.length} of the text "a[PAD]" has no`);
  });

  it('are no part of the tokenizer where it has them all', () => {
    const bare = describeTokenizer(folder(undefined));
    const named = describeTokenizer(folder({ eos_token: '</s>', added_tokens_decoder: { 2: added('</s>') } }));
    expect(named.spec.tokens).toBeUndefined();
    expect(named.hash).toBe(bare.hash);
    expect(describeTokenizer(folder({ pad_token: '<|end|>' })).hash).not.toBe(bare.hash);
  });

  it.each<[string, object, Record<string, unknown>, string]>([
    ['a number', { eos_token: 5 }, {}, 'tokenizer_config.json: eos_token: expected the text of a token'],
    ['a long text', { pad_token: 'x'.repeat(2000) }, {}, 'pad_token: expected the text of a token, of at most 1024'],
    ['half of a character', { eos_token: 'a\ud83d' }, {}, 'eos_token: expected the text of a token'],
    ['a flag that is text', { eos_token: { content: 'a', lstrip: 'yes' } }, {}, 'eos_token.lstrip: expected true or'],
    ['a list of numbers', { extra_special_tokens: [1] }, {}, 'extra_special_tokens: expected the text of a token'],
    ['a text for a list', { additional_special_tokens: 'a' }, {}, 'additional_special_tokens: expected a list'],
    ['a list for an object', { added_tokens_decoder: [] }, {}, 'added_tokens_decoder: expected an object of tokens'],
    ['a text for a token', { added_tokens_decoder: { 1: 'a' } }, {}, 'added_tokens_decoder.1: expected an object'],
    ['no id', { added_tokens_decoder: { x: OBJECT } }, {}, 'added_tokens_decoder: expected token ids below'],
    [
      'ids of any size',
      {},
      { 'added_tokens.json': { x: 2 ** 40 } },
      'added_tokens.json: ids: expected token ids below',
    ],
    ['too many', { extra_special_tokens: Array(70_000).fill('a') }, {}, 'expected at most 65536 tokens, got'],
  ])('refuses %s in one line', (_, config, files, expected) => {
    const { message, hint } = userError(() => open(config, files));
    expect(message).toContain(expected);
    expect(message).not.toContain('\n');
    expect(hint).toMatch(/^download .*\.json again$/);
  });

  it('of any content are read, or refused in one line', async () => {
    const value = fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.constantFrom('', ' ', '<|end|>', '</s>', '\ud83d', '\u0000', 'a'.repeat(1025), OBJECT, {
        content: ' ',
        lstrip: true,
      }),
      fc.dictionary(
        fc.constantFrom('0', '2', '-1', '1e3', '9999999', 'x'),
        fc.constantFrom<unknown>(OBJECT, '</s>', 3),
      ),
    );
    const keys = ['eos_token', 'pad_token', 'image_token', 'extra_special_tokens', 'added_tokens_decoder'];
    const config = fc.dictionary(fc.constantFrom(...keys, 'additional_special_tokens', 'add_bos_token'), value);
    await fc.assert(
      fc.asyncProperty(config, config, value, async (own, map, encoder) => {
        const files = { 'special_tokens_map.json': map, 'added_tokens.json': encoder };
        try {
          const tokenizer = open(own, files);
          const ids = await tokenizer.encode('a <|end|>b</s>');
          for (const token of ids) expect(token).toBeLessThan(tokenizer.vocabSize);
        } catch (error) {
          if (!(error instanceof UserError)) throw error;
          expect(error.message).not.toContain('\n');
        }
      }),
      { numRuns: 300 },
    );
  });

  it('may be called as prototypes are', async () => {
    const tokenizer = open({ pad_token: '__proto__', eos_token: 'constructor', tokenizer_class: '__proto__' });
    expect(await tokenizer.encode('a__proto__')).toEqual([id('a'), LETTERS.length + 1]);
    expect(tokenizer.eos).toEqual({ id: LETTERS.length, text: 'constructor' });
    const pieces = openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY, 'added_tokens.json': { constructor: 6 } }));
    expect(await pieces.encode('aconstructor')).toEqual([1, 5, 6]);
  });
});

describe('beside a tokenizer.model', () => {
  it('tokens are searched for in the text as it is written', async () => {
    for (const files of [
      { 'added_tokens.json': { '<|end|>': 6 } },
      { 'tokenizer_config.json': { added_tokens_decoder: { 6: { ...OBJECT, normalized: true } } } },
      { 'tokenizer_config.json': { pad_token: '<|end|>' } },
    ]) {
      const tokenizer = openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY, ...files }));
      expect(await tokenizer.encode('a<|end|>a')).toEqual([1, 5, 6, 5]);
      expect(tokenizer.vocabSize).toBe(7);
    }
  });

  it('names decide what goes around a text', async () => {
    const pieces = [...toyPieces, ['<start>', 0, 3] as const, ['▁', -1] as const, ['▁a', -3] as const];
    const model = { 'tokenizer.model': sentencePieceModel({ pieces: [...pieces, ['a', -4]] }) };
    const encode = (config: object) =>
      openTokenizer(tokenizerFolder({ ...model, 'tokenizer_config.json': config })).encode('a');
    expect(await encode({})).toEqual([1, 5]);
    expect(await encode({ bos_token: '<start>' })).toEqual([3, 5]);
    expect(await encode({ bos_token: null })).toEqual([5]);
    expect(await encode({ bos_token: '<start>', add_bos_token: false, add_eos_token: true })).toEqual([5, 2]);
  });
});

describe('the tokens that begin and end texts', () => {
  const CONFIG = { bosTokenId: 0, eosTokenIds: [0], vocabSize: LETTERS.length };
  it.each<[string, object, object, number | undefined, number | undefined]>([
    ['none where no file names them', {}, {}, undefined, undefined],
    ['named', { bos_token: '<s>', eos_token: OBJECT }, {}, 1, END],
    ['EOS alone', { bos_token: null, eos_token: '</s>' }, {}, undefined, 2],
    ['by the class', { tokenizer_class: 'LlamaTokenizerFast' }, {}, 1, 2],
    ['by the class that config.json names', {}, { tokenizer_class: 'LlamaTokenizer' }, 1, 2],
    [
      'not by the class where a file says none',
      { tokenizer_class: 'LlamaTokenizer', bos_token: null },
      {},
      undefined,
      2,
    ],
    ['not by a class whose tokens are not there', { tokenizer_class: 'GPT2Tokenizer' }, {}, undefined, undefined],
  ])('are %s', (_, config, model, bos, eos) => {
    const described = describeTokenizer(folder(config, { 'config.json': model }));
    expect([described.bos?.id, described.eos?.id]).toEqual([bos, eos]);
    expect(prefixToken(described, CONFIG)).toBe(bos ?? eos ?? 0);
  });

  it('are those of a tokenizer.model itself', () => {
    const { bos, eos } = describeTokenizer(tokenizerFolder({ 'tokenizer.model': TOY }));
    expect([bos, eos]).toEqual([
      { id: 1, text: '<s>' },
      { id: 2, text: '</s>' },
    ]);
  });

  it('need an embedding to stand before a text', () => {
    const bos = { id: LETTERS.length, text: '<x>' };
    expect(prefixToken({ bos }, CONFIG)).toBeUndefined();
    expect(prefixToken({}, { ...CONFIG, bosTokenId: 7 })).toBe(7);
  });

  it('are read with NaN in the file, as Python writes it', () => {
    const dir = tokenizerFolder({ 'tokenizer_config.json': Buffer.from('{"x": NaN, "eos_token": "</s>"}') });
    expect(readNamedTokens(dir).roles).toEqual({ eos_token: '</s>' });
  });
});
