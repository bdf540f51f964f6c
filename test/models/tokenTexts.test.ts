import { join } from 'node:path';
import { expect, it } from 'vitest';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { createTokenizer, tokenTexts } from '../../models/tokenizer/tokenizer.js';

const ROOT = join(import.meta.dirname, '..', '..');

it('gives tokens the texts that they have in the middle of a text, and none to special ones', async () => {
  const folder = join(ROOT, 'models', 'demo');
  const tokenizer = createTokenizer(describeTokenizer(folder, 1 << 20).spec);
  const text = 'She opens the door, and waits 12 minutes.';
  const ids = await tokenizer.encode(text);
  const texts = tokenTexts(tokenizer, ids);
  expect(
    ids
      .map((id) => texts.get(id) ?? '')
      .join('')
      .trimStart(),
  ).toBe(text);
  expect(texts.size).toBe(new Set(ids).size);
  const [begin] = await tokenizer.encode('');
  if (begin !== undefined) expect(texts.get(begin)).toBeNull();
});
