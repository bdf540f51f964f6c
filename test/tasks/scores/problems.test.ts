/** Figures that the harness cannot form: it ends with an error, and here they are left out and named. */
import { expect, test } from 'vitest';
import { problemOf, type Item } from '../../../tasks/scores/aggregate.js';
import { TaskValues } from '../../../tasks/scores/ofTask.js';

const pairs = (...labels: readonly (readonly [right: number, chosen: number])[]): readonly Item[] => labels;

test.each([
  [pairs([0, 1], [1, 1]), undefined],
  [pairs([2, 2]), undefined],
  [pairs([1, 1], [1, 5]), undefined],
  [pairs([0, 1], [2, 0]), 'F1 is of labels 0 and 1, and here there are 0, 1, 2'],
  [pairs([0, 2]), 'F1 is of labels 0 and 1, and here there are 0, 2'],
  [pairs([0, 1], [2, 3], [4, 5]), 'F1 is of labels 0 and 1, and here there are 0, 1, 2, 3, 4, …'],
] as const)('f1 of %j', (items, problem) => expect(problemOf('f1', items)).toBe(problem));

test.each([
  [
    [
      [1, 0.5, 0.5],
      [-2, 0.1, 0.9],
    ],
    undefined,
  ],
  [
    [
      [0, 0.5, 0.5],
      [2, 0.2, 0.3, 0.5],
    ],
    'documents have different numbers of choices',
  ],
  [
    [
      [0, 0.5, 0.5],
      [2, 0.2, 0.8],
    ],
    'the right answer of a document is none of its choices',
  ],
  [[[-100, 0.5, 0.5]], 'the right answer of a document is none of its choices'],
] as const)('brier_score of %j', (items, problem) => expect(problemOf('brier_score', items)).toBe(problem));

test('others are formed', () => {
  const values = new TaskValues({
    filters: [{ name: 'none' }],
    metrics: [
      { name: 'acc', aggregation: 'mean' },
      { name: 'f1', aggregation: 'f1' },
    ],
  });
  for (const label of [0, 1, 2])
    values.put(
      0,
      new Map<string, Item>([
        ['acc', 1],
        ['f1', [label, label]],
      ]),
    );
  expect([...values.figures(0)]).toEqual([['acc,none', { value: 1, error: 0 }]]);
  expect([...values.problems]).toEqual([['f1,none', 'F1 is of labels 0 and 1, and here there are 0, 1, 2']]);
});
