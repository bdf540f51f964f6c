import { appendFileSync, copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { findTokenizer } from '../../models/tokenizer/formats.js';
import { createTokenizer, openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { DEMO, userError } from './support.js';
import { tokenizerFolder, TOY } from './tokenizerFolder.js';

describe('files of a tokenizer', () => {
  it('prefers tokenizer.json', () => {
    const dir = tokenizerFolder({ 'tokenizer.model': TOY });
    expect(findTokenizer(dir)).toBe(join(dir, 'tokenizer.model'));
    expect(openTokenizer(dir).spec.kind).toBe('sentencepiece');
    copyFileSync(join(DEMO, 'tokenizer.json'), join(dir, 'tokenizer.json'));
    expect(findTokenizer(dir)).toBe(join(dir, 'tokenizer.json'));
    expect(openTokenizer(dir).vocabSize).toBe(4096);
  });

  it('respects add_bos_token beside a tokenizer.model', async () => {
    expect(
      await openTokenizer(
        tokenizerFolder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_bos_token: false } }),
      ).encode('a'),
    ).toEqual([5]);
    expect(
      await openTokenizer(
        tokenizerFolder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_eos_token: true } }),
      ).encode('a'),
    ).toEqual([1, 5, 2]);
    expect(
      await openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY, 'tokenizer_config.json': {} })).encode('a'),
    ).toEqual([1, 5]);
    expect(
      userError(() =>
        openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_bos_token: 'yes' } })),
      ).message,
    ).toContain('add_bos_token: expected true or false, got "yes"');
  });

  it('has a hash that depends on the contents', () => {
    const same = tokenizerFolder({});
    copyFileSync(join(DEMO, 'tokenizer.json'), join(same, 'tokenizer.json'));
    expect(openTokenizer(same).hash).toBe(openTokenizer(DEMO).hash);
    const toy = openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY })).hash;
    expect(openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY })).hash).toBe(toy);
    expect(
      openTokenizer(tokenizerFolder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_bos_token: false } }))
        .hash,
    ).not.toBe(toy);
  });

  it.each([
    ['tokenizer.json', { 'tokenizer.json': readFileSync(join(DEMO, 'tokenizer.json')) }, ' '],
    ['tokenizer.model', { 'tokenizer.model': TOY }, '\n\u0000'],
    [
      'merges.txt',
      {
        'vocab.json': { a: 0, b: 1, ab: 2, ba: 3, '<|endoftext|>': 4 },
        'merges.txt': Buffer.from('#version: 0.2\na b\n'),
        'tokenizer_config.json': { tokenizer_class: 'GPT2Tokenizer' },
      },
      'b a\n',
    ],
  ])('must be those that were described: %s', (name, files, more) => {
    const dir = tokenizerFolder(files);
    const { spec } = describeTokenizer(dir);
    expect(() => createTokenizer(spec)).not.toThrow();
    appendFileSync(join(dir, name), more);
    expect(userError(() => createTokenizer(spec)).message).toContain('the file has changed since this command read it');
  });
});
