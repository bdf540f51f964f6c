/** Filters of BIG-Bench-Hard without examples, beside what the public harness's classes make of the same texts. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Dict } from '../../../python/value.js';
import { Hook } from '../../../tasks/definition/yaml.js';
import { Keys } from '../../../tasks/requests/keys.js';
import { type TextFilter, numberInWords, readFilters } from '../../../tasks/scores/filters.js';
import { toValue } from '../values.js';

type Row = readonly [
  name: string,
  settings: object,
  document: object,
  texts: readonly string[],
  filtered: readonly string[],
];
const ROWS = JSON.parse(readFileSync(new URL('./hardFilters.json', import.meta.url), 'utf8')) as readonly Row[];

function filterOf(name: string, settings: object): TextFilter {
  const step = new Map([['function', new Hook(`utils.${name}`, '/tasks/cot_zeroshot/a.yaml')]]);
  for (const [key, value] of toValue(settings) as Dict) step.set(key, value as never);
  const keys = new Keys(
    new Map([
      ['dataset_path', { value: 'SaylorTwift/bbh', where: 'a.yaml:1: dataset_path' }],
      [
        'filter_list',
        {
          value: [
            new Map<string, never>([
              ['name', 'f' as never],
              ['filter', [step] as never],
            ]),
          ],
          where: 'a.yaml:2',
        },
      ],
    ]),
  );
  return readFilters(keys.filters(), 'a.yaml:2')[0]!;
}

describe('a filter of BIG-Bench-Hard', () => {
  it.each(ROWS.map((row, i) => [row[0], i, row] as const))('%s (%i)', (name, _, [, settings, document, ...both]) => {
    const [texts, filtered] = both;
    const filter = filterOf(name, settings);
    expect(texts.length).toBeGreaterThan(8);
    expect(texts.map((text) => filter.apply([text], toValue(document) as Dict))).toEqual(filtered);
  });

  it('names what it lacks', () => {
    expect(() => filterOf('MapRegexFilter', {})).toThrow('needs patterns and values');
    expect(() => filterOf('OtherFilter', {})).toThrow('the Python function utils.OtherFilter is not supported');
    expect(() => filterOf('WordSortFilter', {}).apply(['a'], new Map())).toThrow('needs documents with a "List:"');
    expect(() => filterOf('MultiChoiceRegexFilter', {}).apply(['a'], new Map())).toThrow(
      'needs documents with choices',
    );
  });

  it.each([
    ['one hundred and five', 105],
    ['two million, three thousand', 2_003_000],
    ['forty-two', 42],
    ['and', undefined],
  ])('%s', (text, value) => {
    expect(numberInWords(text)).toBe(value);
  });
});
