import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { drawPicture } from '../../bench/picture/draw.js';
import { label } from '../../bench/picture/svg.js';

const ROOT = join(import.meta.dirname, '..', '..');

it("is the README's picture; npm run picture writes it again", async () => {
  expect(await drawPicture(ROOT)).toBe(readFileSync(join(ROOT, 'docs', 'picture.svg'), 'utf8'));
});

it('escapes text', () => {
  expect(label(0, 0, '<a href="b">&')).toContain('&lt;a href=&quot;b&quot;&gt;&amp;');
});
