/** Answers as search-and-learn extracts them, their classes, and what is right by public test suites. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { answerOf } from '../../../search/answers/extract.js';

const FOLDER = new URL('../../../../shared/golden/search/', import.meta.url);
const lines = <T>(name: string): readonly T[] =>
  readFileSync(new URL(name, FOLDER), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

describe.skipIf(!existsSync(FOLDER))('goldens of answers', () => {
  interface Golden {
    readonly boxed: string;
    readonly answer: string;
  }
  const sentence = (boxed: string): string =>
    `Therefore, the final answer is: $\\boxed{${boxed}}$. I hope it is correct.`;

  it('are extracted as search-and-learn does', () => {
    for (const { boxed, answer } of lines<Golden>('answers.jsonl'))
      expect(answerOf(sentence(boxed)), boxed).toBe(answer);
  });
});
