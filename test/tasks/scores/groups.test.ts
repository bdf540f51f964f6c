/** Figures of groups, and figures by rules that the real task files do not show. */
import { describe, expect, it } from 'vitest';
import type { PyValue } from '../../../python/value.js';
import { generationOf } from '../../../tasks/requests/generation.js';
import { AGGREGATIONS, figuresOfGroup } from '../../../tasks/scores/aggregate.js';
import { readFilters } from '../../../tasks/scores/filters.js';

describe('a group', () => {
  const leaf = (names: readonly string[], value: number) => ({
    documents: 10,
    figures: new Map(names.map((name) => [name, { value, error: 0.1 }])),
  });

  it('without filters has a figure by each filter of its tasks, in order of their names', () => {
    const leaves = [leaf(['exact_match,strict', 'exact_match,flex', 'acc,none'], 0.5), leaf(['exact_match,flex'], 1)];
    const found = figuresOfGroup(leaves, [{ metric: 'exact_match', weightBySize: true }]);
    expect([...found].map(([name, { value, documents }]) => [name, value, documents])).toEqual([
      ['exact_match,flex', 0.75, 20],
      ['exact_match,strict', 0.5, 10],
    ]);
  });
});

describe('figures', () => {
  it('have the upper value in the middle', () => {
    expect(AGGREGATIONS.median.of([5, 1, 9, 3])).toBe(5);
    expect(AGGREGATIONS.nanmean.of([1, NaN, 3])).toBe(2);
    expect(AGGREGATIONS.nanmean.of([NaN])).toBeNaN();
    expect(AGGREGATIONS.matthews_corrcoef).toEqual(AGGREGATIONS.mcc);
  });

  it('count places from the end', () => {
    expect(AGGREGATIONS.brier_score.of([[-1, 0.25, 0.75]])).toBeCloseTo(0.125, 12);
  });
});

it('a choice without text is no answer', () => {
  const step = { function: 'multi_choice_regex', regex_pattern: '(\\([A-Z]\\))' };
  const list = [
    new Map<string, PyValue>([
      ['name', 'f'],
      ['filter', [new Map(Object.entries(step)), new Map([['function', 'take_first']])]],
    ]),
  ];
  const [filter] = readFilters(list, 'x');
  const document = new Map<string, PyValue>([['choices', ['', 'z']]]);
  expect(['answer: B', 'nothing'].map((text) => filter!.apply([text], document))).toEqual(['(B)', '[invalid]']);
});

it('a length beyond what any model has is refused', () => {
  expect(() => generationOf(new Map([['max_gen_toks', 10n ** 20n]]), 'a.yaml:3')).toThrow(
    'a.yaml:3: max_gen_toks: expected a whole number from 1 to 2147483647',
  );
});
