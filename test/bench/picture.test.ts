import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { drawPicture, label } from '../../bench/picture.js';

const ROOT = join(import.meta.dirname, '..', '..');

it('docs/picture.svg is what npm run picture writes', async () => {
  expect(await drawPicture(ROOT)).toBe(readFileSync(join(ROOT, 'docs', 'picture.svg'), 'utf8'));
});

it('text in a picture is escaped', () => {
  expect(label(0, 0, '<a href="b">&')).toContain('&lt;a href=&quot;b&quot;&gt;&amp;');
});
