/** Filters and metrics with odd settings: what the public harness's own code gives for the same settings and texts. */
import { describe, expect, it } from 'vitest';
import { findAll, pythonRegex } from '../../../python/regex.js';
import type { Dict, PyValue } from '../../../python/value.js';
import { readFilters } from '../../../tasks/scores/filters.js';
import { comparable, readMetrics } from '../../../tasks/scores/metrics.js';

const dict = (of: Readonly<Record<string, PyValue>>): Dict => new Map(Object.entries(of));
const named = (name: string, ...steps: Record<string, PyValue>[]): PyValue => dict({ name, filter: steps.map(dict) });
const FIRST = { function: 'take_first' };
const TEXTS = ['The answer is #### 4 ok #### 5', 'Paris', ' x  y ', 'He said "quoted".', '', 'z', '0'];
const filtered = (...steps: Record<string, PyValue>[]): string[] => {
  const [filter] = readFilters([named('f', ...steps, FIRST)], 'a.yaml:1');
  return TEXTS.map((text) => filter!.apply([text], new Map()));
};

describe('filters', () => {
  it('put texts of a table in the place of others', () => {
    const table = dict({ z: 'q', Paris: 'x', '"0"': 'a key that is a number' });
    const step = { function: 'map', mapping_dict: table, default_value: 'd' };
    expect(filtered(step)).toEqual(['d', 'x', 'd', 'd', 'd', 'q', 'd']);
    expect(() => filtered({ function: 'map', mapping_dict: table })).toThrow(
      'a.yaml:1: the filter "map" has no "The answer is #### 4 ok #### 5" and no default_value',
    );
    expect(() => filtered({ function: 'map', mapping_dict: dict({ z: 1 }) })).toThrow('needs texts by texts');
    expect(() => filtered({ function: 'map', mapping_dict: [] })).toThrow('needs texts by texts');
  });

  it('take everything but space and letters in classes', () => {
    const regex_pattern = '([^\\S\\n]|[\\W])+?[\\s\\S]$';
    expect(filtered({ function: 'regex', regex_pattern })).toEqual([
      '',
      ...['[invalid]', '[invalid]', '"', '[invalid]', '[invalid]', '[invalid]'],
    ]);
  });

  it('of one name: the last counts', () => {
    const list = [named('f', { function: 'lowercase' }, FIRST), named('g', FIRST), named('f', FIRST)];
    const found = readFilters(list, 'a.yaml:1');
    expect(found.map(({ name, apply }) => [name, apply(['Paris'], new Map())])).toEqual([
      ['f', 'Paris'],
      ['g', 'Paris'],
    ]);
  });

  it('that take some texts say how many', () => {
    expect(() => filtered({ function: 'take_first_k' })).toThrow('the filter "take_first_k" needs a number k');
  });
});

it.each([
  ['[\\S]+', 'a\u2029b\u200bc \u{1f600}', ['a', 'b\u200bc', '\u{1f600}']],
  ['[^\\S\\n]', 'a \n\tb', [' ', '\t']],
  ['[\\W]', 'a_\u203f\u2040é1-\u0301', ['\u203f', '\u2040', '-', '\u0301']],
  ['[\\s\\S]+', 'a\nb', ['a\nb']],
])('%j in %j', (pattern, text, expected) => {
  expect(findAll(pythonRegex(pattern), text)).toEqual(expected);
});

describe('exact_match', () => {
  const clean = (settings: Readonly<Record<string, PyValue>>) =>
    comparable(dict({ metric: 'exact_match', ...settings }), 'a.yaml:1');

  it('ignores the characters of a text where a list of expressions is meant', () => {
    expect(['PParisPis', 'rPx yPisa'].map(clean({ regexes_to_ignore: 'ar' }))).toEqual(['PPisPis', 'Px yPis']);
    expect(() => clean({ regexes_to_ignore: [1] })).toThrow('a.yaml:1: exact_match needs texts for regexes_to_ignore');
    expect(() => clean({ regexes_to_ignore: true })).toThrow('needs texts');
  });

  it('may say that it is that of Hugging Face', () => {
    expect(clean({ hf_evaluate: false })('a')).toBe('a');
  });
});

describe('aggregations', () => {
  const read = (metric: string, aggregation: string, type: Parameters<typeof readMetrics>[1]) => () =>
    readMetrics([dict({ metric, aggregation })], type, false, 'a.yaml:1: metric_list');

  it.each([
    ['bleu', 'mean', 'generate_until'],
    ['chrf', 'bleu', 'generate_until'],
    ['exact_match', 'f1', 'generate_until'],
    ['f1', 'mean', 'multiple_choice'],
    ['acc', 'brier_score', 'multiple_choice'],
    ['brier_score', 'mean', 'multiple_choice'],
    ['byte_perplexity', 'mean', 'loglikelihood_rolling'],
  ] as const)('of %s cannot be %s', (metric, aggregation, type) => {
    expect(read(metric, aggregation, type)).toThrow(
      `a.yaml:1: metric_list: the aggregation "${aggregation}" cannot join values of ${metric}`,
    );
  });

  it.each([
    ['exact_match', 'median', 'generate_until'],
    ['perplexity', 'mean', 'loglikelihood'],
    ['word_perplexity', 'bits_per_byte', 'loglikelihood_rolling'],
    ['f1', 'matthews_corrcoef', 'multiple_choice'],
  ] as const)('of %s can be %s', (metric, aggregation, type) => {
    expect(read(metric, aggregation, type)()[0]).toMatchObject({ name: metric, aggregation });
  });
});
