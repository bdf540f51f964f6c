/** The pages that show how to extend the compiler quote the code as it is. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

it.each([
  ['docs/addAnOp.md', 2],
  ['docs/addAnArchitecture.md', 1],
])('%s quotes its examples from the source', (page, count) => {
  const blocks = [...read(page).matchAll(/```ts\n\/\/ (\S+)\n([\s\S]*?)```/g)];
  expect(blocks.length).toBe(count);
  for (const [, path, code] of blocks) expect(read(path!), path).toContain(code);
});

it('docs/addAnOp.md names files that exist', () => {
  for (const [, path] of read('docs/addAnOp.md').matchAll(/`((?:ir|test|passes|codegen)\/[A-Za-z/.]+\.ts)`/g))
    expect(read(path!).length, path).toBeGreaterThan(0);
});
