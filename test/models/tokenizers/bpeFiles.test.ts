/** vocab.json and merges.txt give the tokens that the class of transformers gives which reads them. */
import { describe, expect, it } from 'vitest';
import { BYTE_LETTERS } from '../../../models/tokenizer/byteLevel.js';
import { openTokenizer } from '../../../models/tokenizer/tokenizer.js';
import { userError } from '../support.js';
import { tokenizerFolder } from '../tokenizerFolder.js';

const MERGES = ['a b', 'Ġ a', '1 2', 'c ab', 'Ġ Ġ', 'Ċ Ċ', 'e Ì'];
const vocabOf = (merges: readonly string[], more: readonly string[] = []): Record<string, number> =>
  Object.fromEntries(
    [...BYTE_LETTERS, ...merges.map((pair) => pair.replace(' ', '')), ...more].map((piece, id) => [piece, id]),
  );
const VOCAB = vocabOf(MERGES, ['<|endoftext|>', '</s>', '__proto__']);
const lines = (merges: readonly string[]): Buffer => Buffer.from(`#version: 0.2\n${merges.join('\n')}\n`);
const FILES = { 'vocab.json': VOCAB, 'merges.txt': lines(MERGES) };

/** The pieces of the tokens of a text. */
async function pieces(files: Record<string, unknown>, text: string): Promise<(string | undefined)[]> {
  const names = new Map(Object.entries(VOCAB).map(([piece, id]) => [id, piece]));
  return (await openTokenizer(tokenizerFolder(files)).encode(text)).map((id) => names.get(id));
}

describe('vocab.json and merges.txt', () => {
  it.each<[string, string, string[]]>([
    ['GPT2Tokenizer', "12 ab\n\n c'S", ['12', 'Ġ', 'ab', 'ĊĊ', 'Ġ', 'c', "'", 'S']],
    ['GPT2TokenizerFast', '12', ['12']],
    ['CodeGenTokenizer', '12', ['12']],
    ['GPTNeoXTokenizer', '12e\u0301', ['12', 'Ã', '©']],
    ['Qwen2Tokenizer', '12e\u0301', ['1', '2', 'Ã', '©']],
    ['CohereTokenizer', '12e\u0301', ['1', '2', 'Ã', '©']],
  ])('are cut as by %s', async (name, text, wanted) => {
    expect(await pieces({ ...FILES, 'tokenizer_config.json': { tokenizer_class: name } }, text)).toEqual(wanted);
  });

  it('are those of the class of the model_type where none is named', async () => {
    expect(await pieces({ ...FILES, 'config.json': { model_type: 'qwen2' } }, '12')).toEqual(['1', '2']);
    expect(await pieces({ ...FILES, 'config.json': { model_type: 'starcoder2' } }, '12')).toEqual(['12']);
  });

  it('have special tokens, and those around a text that tokenizer_config.json wants', async () => {
    const config = { tokenizer_class: 'GPT2Tokenizer', add_bos_token: true, bos_token: '</s>' };
    expect(await pieces({ ...FILES, 'tokenizer_config.json': config }, 'cab<|endoftext|>')).toEqual([
      '</s>',
      'cab',
      '<|endoftext|>',
    ]);
    const prefixed = { tokenizer_class: 'GPT2Tokenizer', add_prefix_space: true };
    expect(await pieces({ ...FILES, 'tokenizer_config.json': prefixed }, 'a')).toEqual(['Ġa']);
  });

  it('number a special token that vocab.json lacks behind all others, as Qwen 2 has it', async () => {
    const vocab = vocabOf(MERGES);
    const files = { 'vocab.json': vocab, 'merges.txt': lines(MERGES), 'config.json': { model_type: 'qwen2' } };
    const tokenizer = openTokenizer(tokenizerFolder(files));
    expect(await tokenizer.encode('a<|endoftext|>')).toEqual([97, tokenizer.vocabSize - 1]);
    expect(tokenizer.vocabSize).toBe(Object.keys(vocab).length + 1);
  });

  it('may end lines as Windows does', async () => {
    const merges = Buffer.from(MERGES.map((pair) => `${pair}\r\n`).join(''));
    const files = { ...FILES, 'merges.txt': merges, 'config.json': { model_type: 'gpt2' } };
    expect(await pieces(files, 'cab')).toEqual(['cab']);
  });

  it('may end with lines of nothing', async () => {
    const merges = Buffer.from(`${MERGES.join('\n')}\n\n\r\n`);
    const files = { ...FILES, 'merges.txt': merges, 'config.json': { model_type: 'gpt2' } };
    expect(await pieces(files, 'cab')).toEqual(['cab']);
  });

  it.each<[string, string[], string]>([
    ['three pieces', ['a b', 'c d e'], 'merges.txt: line 3: "c d e" is no pair of pieces with a space between them'],
    ['one piece', ['a b', 'c'], 'merges.txt: line 3: "c" is no pair'],
    ['nothing', ['a b', '', 'c ab'], 'merges.txt: line 3: "" is no pair'],
    ['a piece that is none', ['a b', 'a x1'], 'merges.txt: line 3: "a x1" needs "x1", which is not in vocab.json'],
    ['a union that is none', ['a b', 'a c'], 'merges.txt: line 3: "a c" needs "ac", which is not in vocab.json'],
    ['a long line', ['a b', 'a'.repeat(1 << 20)], 'is no pair of pieces'],
  ])('are refused where a line has %s', (_, merges, wanted) => {
    const dir = tokenizerFolder({ ...FILES, 'merges.txt': lines(merges), 'config.json': { model_type: 'gpt2' } });
    const { message } = userError(() => openTokenizer(dir));
    expect(message).toContain(wanted);
    expect(message.length).toBeLessThan(400);
  });

  it.each<[string, Record<string, unknown>, string]>([
    [
      'for another class',
      { 'tokenizer_config.json': { tokenizer_class: 'WhisperTokenizer' } },
      'vocab.json: it is for the tokenizer_class "WhisperTokenizer"; vocab.json and merges.txt are read for GPT2Token',
    ],
    ['for a property', { 'tokenizer_config.json': { tokenizer_class: '__proto__' } }, 'tokenizer_class "__proto__"'],
    ['for an unknown model', { 'config.json': { model_type: 'olmo2' } }, 'none is known for model_type "olmo2"'],
    ['with text for an id', { 'vocab.json': { a: 'b' }, 'config.json': { model_type: 'gpt2' } }, 'expected a number'],
    ['that are a list', { 'vocab.json': [], 'config.json': { model_type: 'gpt2' } }, 'expected an object of pieces'],
    [
      'with one id for two',
      { 'vocab.json': { ...VOCAB, zz: 5 }, 'config.json': { model_type: 'gpt2' } },
      'both have the id 5',
    ],
  ])('are refused %s', (_, change, wanted) => {
    expect(userError(() => openTokenizer(tokenizerFolder({ ...FILES, ...change }))).message).toContain(wanted);
  });
});
