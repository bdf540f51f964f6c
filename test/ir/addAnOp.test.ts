/** docs/addAnOp.md shows the code as it is. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const DOC = read('docs/addAnOp.md');

it('docs/addAnOp.md quotes its examples from the source', () => {
  const blocks = [...DOC.matchAll(/```ts\n\/\/ (\S+)\n([\s\S]*?)```/g)];
  expect(blocks.length).toBe(2);
  for (const [, path, code] of blocks) expect(read(path!), path).toContain(code);
});

it('docs/addAnOp.md names files that exist', () => {
  for (const [, path] of DOC.matchAll(/`((?:ir|test|passes|codegen)\/[A-Za-z/.]+\.ts)`/g))
    expect(read(path!).length, path).toBeGreaterThan(0);
});
