/** Made-up tokenizers: those of the library's own forms, which are scanned and opened as published ones are. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SHAPES, tokenizerText } from '../../bench/tokenizers.js';
import { scanTokenizer } from '../../models/tokenizer/scan.js';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { temporaryFolder } from '../models/support.js';

it.each(SHAPES.map((shape) => [shape.name, shape] as const))('%s has its shape, and opens', async (_, shape) => {
  const [pieces, added] = [6000, Math.min(shape.added, 20)];
  const text = tokenizerText({ ...shape, pieces, added });
  const { model } = JSON.parse(text) as { readonly model: { readonly vocab: object; readonly merges: unknown[] } };
  expect(Object.keys(model.vocab)).toHaveLength(pieces);
  expect(Array.isArray(model.merges[0])).toBe(shape.hasPairs);
  expect(model.merges.length / pieces).toBeGreaterThan(0.4);
  expect(scanTokenizer(Buffer.from(text))?.pieces.count).toBe(pieces);
  const dir = temporaryFolder();
  writeFileSync(join(dir, 'tokenizer.json'), text);
  const tokenizer = openTokenizer(dir);
  const ids = await tokenizer.encode('abc abc');
  expect(ids.length).toBeGreaterThan(1);
  expect(tokenizer.detokenizer().decode(ids)).toMatch(/abc.abc$/);
});
