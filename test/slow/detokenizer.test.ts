/** Tables of tokens give the texts of the tokenizer library for the tokenizers beside the repository. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { hasShared, SHARED, skipReason } from '../models/support.js';
import { compareTokenizer } from '../support/detokenizing.js';

const CHECKPOINTS = join(SHARED, 'checkpoints');
const folders = (hasShared ? ['families', 'verifiers', '.'] : [])
  .flatMap((kind) => readdirSync(join(CHECKPOINTS, kind)).map((name) => join(CHECKPOINTS, kind, name)))
  .filter((folder) => ['tokenizer.json', 'tokenizer.model'].some((name) => existsSync(join(folder, name))));

describe.skipIf(!hasShared)(skipReason('the text of tokens is that of the library'), () => {
  it('for every checkpoint', { timeout: 600_000 }, async () => {
    const seen = new Set<string>();
    for (const folder of folders) {
      const { spec, hash } = describeTokenizer(folder);
      if (!seen.has(hash)) await compareTokenizer(spec, 300);
      seen.add(hash);
    }
    expect(folders.length).toBeGreaterThan(50);
    expect(seen.size).toBeGreaterThan(3);
  });

  it('for a tokenizer.model', { timeout: 600_000 }, async () => {
    const path = join(SHARED, 'data', 'llama_tokenizer.model');
    await compareTokenizer({ kind: 'sentencepiece', path, special: { addBos: true, addEos: false } }, 300);
  });
});
