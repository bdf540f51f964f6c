import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { threadsAtOnce, tokenizerThreads } from '../../commands/questionSet.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-threads-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** One question whose two choices, with their context, have this many characters. */
const questions = (characters: number): Parameters<typeof tokenizerThreads>[0] => [
  { context: 'x'.repeat(characters / 2 - 1), choices: ['a', 'b'] },
];
const HOST = { isHost: true };
const GPUS = { isHost: false };
const json = (length: number) => ({ kind: 'json', text: ' '.repeat(length), where: 'tokenizer.json' }) as const;

it('a small question set needs no tokenizer threads if its tokenizer is small too', () => {
  const [small, large] = [questions(512 << 10), questions((512 << 10) + 2)];
  expect(tokenizerThreads(small, json(512 << 10), GPUS, 64)).toBe(0);
  expect(tokenizerThreads(small, json((512 << 10) + 1), HOST, 64)).toBe(1);
  expect(tokenizerThreads(large, json(10), HOST, 64)).toBe(1);
  // Whoever reads the tokenizer reports what is wrong with it.
  for (const path of [join(folder, 'gone'), folder])
    expect(tokenizerThreads(small, { kind: 'file', path }, HOST, 64)).toBe(1);
});

it('a host of GPUs gets one tokenizer thread for every four cores, at most four', () => {
  const large = questions(1 << 20);
  expect([1, 8, 15, 16, 31, 64, 128].map((cores) => tokenizerThreads(large, json(10), GPUS, cores))).toEqual([
    1, 2, 3, 4, 4, 4, 4,
  ]);
  expect(tokenizerThreads(large, json(10), HOST, 128)).toBe(1);
});

it('a small question set behind which others follow gets a thread', () => {
  expect(tokenizerThreads(questions(10), json(10), HOST, 64, true)).toBe(1);
  expect(tokenizerThreads(questions(10), json(10), GPUS, 64, true)).toBe(4);
});

it('threads open a tokenizer before there are questions, unless a small set might need none beside kernels', () => {
  expect(threadsAtOnce(json(10), GPUS, 16)).toBe(4);
  expect(threadsAtOnce(json(10), HOST, 16)).toBe(0);
  expect(threadsAtOnce(json((512 << 10) + 1), HOST, 16)).toBe(1);
});
