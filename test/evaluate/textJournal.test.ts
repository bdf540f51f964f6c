/** Generated texts are kept: several of a request in their order, and not those of a line that was cut off. */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { TextJournal } from '../../evaluate/journal.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-texts-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

it('keeps drawn texts in the order of their numbers', () => {
  const path = join(root, 'texts.jsonl');
  const journal = new TextJournal(path, { seed: 1 }, false);
  for (const [number, sample, text] of [
    [4, 0, 'a'],
    [4, 2, 'c'],
    [4, 1, 'b'],
    [5, 1, 'only the second'],
  ] as const)
    journal.append([{ number, request: 0, sample, text }]);
  journal.close();
  appendFileSync(path, '{"doc_id":5,"request":0,"te');
  const read = new TextJournal(path, { seed: 1 }, true);
  read.close();
  expect([read.size, read.textsOf(4, 0), read.textsOf(5, 0), read.textsOf(6, 0)]).toEqual([4, ['a', 'b', 'c'], [], []]);
  expect(() => new TextJournal(path, { seed: 2 }, true)).toThrow('differs in seed');
});

it('refuses texts of a version that did not note which tokens ended them', () => {
  const path = join(root, 'older.jsonl');
  const older = new TextJournal(path, { seed: 1 }, false);
  older.append([{ number: 0, request: 0, sample: 0, text: 'a' }]);
  older.close();
  expect(() => new TextJournal(path, { seed: 1, endTokens: '2' }, true)).toThrow('which tokens ended its texts');
});
