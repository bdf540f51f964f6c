import { expect, it } from 'vitest';
import { TextProgress } from '../../commands/textProgress.js';

it('texts are as far as their tokens are, of all that can still come', () => {
  const told: unknown[] = [];
  const progress = new TextProgress([3, 2, 4], { step: (share, detail) => void told.push([share, detail]) });
  const last = (): unknown => told.at(-1);
  progress.add(0);
  expect(last()).toEqual([1 / 9, { done: 1, total: 9, unit: 'tokens' }]);
  progress.end(0);
  expect(last()).toEqual([1 / 7, { done: 1, total: 7, unit: 'tokens' }]);
  for (const prompt of [1, 1, 2, 2]) progress.add(prompt);
  progress.end(1);
  expect(last()).toEqual([5 / 7, { done: 5, total: 7, unit: 'tokens' }]);
  progress.end(2);
  expect(last()).toEqual([1, { done: 5, total: 5, unit: 'tokens' }]);
});
