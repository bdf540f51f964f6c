import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { tokeniserThreads } from '../../driver/tokeniserThreads.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-threads-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const file = (name: string, bytes: number): string => {
  const path = join(folder, name);
  writeFileSync(path, Buffer.alloc(bytes));
  return path;
};
const json = (length: number) => ({ kind: 'json', text: ' '.repeat(length), where: 'tokenizer.json' }) as const;

it('a small question set has none where its tokenizer is small, too', () => {
  const [small, large] = [file('small', 256 << 10), file('large', (256 << 10) + 1)];
  expect(tokeniserThreads(small, json(512 << 10), 'cuda', 64)).toBe(0);
  expect(tokeniserThreads(small, json((512 << 10) + 1), 'cpu', 64)).toBe(1);
  expect(tokeniserThreads(large, json(10), 'cpu', 64)).toBe(1);
  // Who reads it says what is wrong.
  for (const odd of [join(folder, 'gone'), folder]) expect(tokeniserThreads(odd, json(10), 'cpu', 64)).toBe(1);
});

it('a host of GPUs has one for each eight cores, four at most', () => {
  const large = file('many', 1 << 20);
  expect([1, 8, 15, 16, 31, 64, 128].map((cores) => tokeniserThreads(large, json(10), 'cuda', cores))).toEqual([
    1, 1, 1, 2, 3, 4, 4,
  ]);
  expect(tokeniserThreads(large, json(10), 'cpu', 128)).toBe(1);
});
