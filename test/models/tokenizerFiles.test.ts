import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openTokenizer } from '../../models/tokenizer.js';
import { findTokenizer } from '../../models/tokenizers/files.js';
import { DEMO, userError } from './support.js';
import { TOY, tokenizerFolder } from './tokenizerFolder.js';

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
});
