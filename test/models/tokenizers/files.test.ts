/** Which file of a folder is its tokenizer, and what is said where none is read. */
import { basename } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findTokenizer, tokenizerFileNames } from '../../../models/tokenizer/formats.js';
import { openTokenizer } from '../../../models/tokenizer/tokenizer.js';
import { userError } from '../support.js';
import { tokenizerFolder, TOY } from '../tokenizerFolder.js';

const bytes = Buffer.from('x');
const found = (...names: string[]): string =>
  basename(findTokenizer(tokenizerFolder(Object.fromEntries(names.map((name) => [name, bytes])))) ?? 'none');

describe('the tokenizer of a folder', () => {
  it('is the first of the formats in order', () => {
    const order = [
      'tokenizer.json',
      'tekken.json',
      'tokenizer.model',
      'tokenizer.model.v7',
      'tiktoken.model',
      'qwen.tiktoken',
      'vocab.json',
    ];
    order.forEach((name, i) => expect(found(...order.slice(i), 'merges.txt')).toBe(name));
    expect(found('tokenizer.model.v1', 'tokenizer.model.v3', 'tokenizer.model.v7m1')).toBe('tokenizer.model.v7m1');
    expect(found('vocab.json')).toBe('none');
    expect(found('.tiktoken', 'tokenizer.model.bak', 'x.json')).toBe('none');
  });

  it('is one file, or vocab.json and merges.txt', () => {
    expect(tokenizerFileNames(tokenizerFolder({ 'vocab.json': bytes, 'merges.txt': bytes }))).toEqual([
      'vocab.json',
      'merges.txt',
    ]);
    expect(tokenizerFileNames(tokenizerFolder({ 'tekken.json': bytes, 'merges.txt': bytes }))).toEqual(['tekken.json']);
    expect(tokenizerFileNames(tokenizerFolder({}))).toEqual([]);
  });

  it('is read by what it is, whatever its name', async () => {
    expect(await openTokenizer(tokenizerFolder({ 'tokenizer.model.v3': TOY })).encode('a')).toEqual([1, 5]);
  });

  it('is missed by a message that names what lies there', () => {
    const { message, hint } = userError(() =>
      openTokenizer(tokenizerFolder({ 'vocab.json': bytes, 'vocab.txt': bytes, 'tokenizer_config.json': {} })),
    );
    expect(message).toContain('found no tokenizer: neither tokenizer.json nor tokenizer.model, tekken.json, or');
    expect(message).toContain(
      'merges.txt; there are vocab.json, vocab.txt (vocab.json is read with the merges.txt that belongs to it)',
    );
    expect(hint).toContain('docs/families.md');
    expect(userError(() => openTokenizer(tokenizerFolder({}))).message).toMatch(/vocab\.json and merges\.txt$/);
  });

  it('may be a pointer that nobody has followed', () => {
    const pointer = Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2\n');
    for (const name of ['tokenizer.model', 'tekken.json', 'tokenizer.json']) {
      const error = userError(() => openTokenizer(tokenizerFolder({ [name]: pointer })));
      expect(error.message).toContain(`${name}: not the file itself but a pointer of Git LFS to it`);
      expect(error.hint).toContain('git lfs pull');
    }
  });
});

describe('a tokenizer.json', () => {
  it.each<[unknown, string]>([
    [['a b', 'a b c'], 'tokenizer.json: model.merges: merge 2 of 2 is no pair of pieces: "a b c"'],
    [[['a', 'b'], ['a']], 'merge 2 of 2 is no pair of pieces: ["a"]'],
    [['ab'], 'merge 1 of 1 is no pair of pieces: "ab"'],
    [[['a', 'b'], 'a b'], 'merge 2 of 2 is no pair of pieces: "a b"'],
    [[['a', 1]], 'merge 1 of 1 is no pair of pieces: ["a",1]'],
    [{}, 'model.merges: expected a list of at most 1048576 pairs of pieces'],
  ])('names a merge that is no pair by its place: %j', (merges, wanted) => {
    const json = { model: { type: 'BPE', vocab: { a: 0, b: 1, ab: 2 }, merges } };
    expect(userError(() => openTokenizer(tokenizerFolder({ 'tokenizer.json': json }))).message).toContain(wanted);
  });
});
