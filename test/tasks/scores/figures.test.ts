/** Filters, regular expressions and figures, against what CPython and lm-evaluation-harness give. */
import { describe, expect, it } from 'vitest';
import { findAll, pythonRegex } from '../../../python/regex.js';
import type { PyValue } from '../../../python/value.js';
import { AGGREGATIONS, standardError } from '../../../tasks/scores/aggregate.js';
import { readFilters } from '../../../tasks/scores/filters.js';
import { comparable, readMetrics } from '../../../tasks/scores/metrics.js';
import { valuesOf } from '../../../tasks/scores/ofDocument.js';

describe("Python's regular expressions", () => {
  it.each([
    ['(?s).*#### ', 'a\nb#### c', ['a\nb#### ']],
    ['a.c', 'a\rc a\nc', ['a\rc']],
    ['b$', 'b\n', ['b']],
    ['b\\Z', 'b\n', []],
    ['(?P<x>a)(?P=x)', 'aaa', ['a']],
    ['[^\\]a-]+', 'a]b-c', ['b', 'c']],
    ['a{,2}b', 'aaab', ['aab']],
    ['x{y}', 'x{y}', ['x{y}']],
    ['\\d+', '12 ٣', ['12', '٣']],
    ['\\bé\\b', 'é éa', ['é']],
    [
      '(a)|(b)',
      'ab',
      [
        ['a', ''],
        ['', 'b'],
      ],
    ],
    ['(?i)AB', 'ab', ['ab']],
    ['\\-?[0-9\\.\\,]+', '-1,000.5', ['-1,000.5']],
  ] as const)('%j in %j', (pattern, text, expected) => {
    expect(findAll(pythonRegex(pattern), text)).toEqual(expected);
  });

  it.each(['(?x)a', 'a++', '(?>a)', '\\p{L}', '[a', 'a\\'])('%j is refused', (pattern) => {
    expect(() => pythonRegex(pattern)).toThrow();
  });
});

const steps = (...each: Record<string, PyValue>[]): PyValue => [
  new Map<string, PyValue>([
    ['name', 'f'],
    ['filter', each.map((step) => new Map(Object.entries(step)))],
  ]),
];

/** What lm-evaluation-harness's own filter makes of these texts. */
const CHOICES = new Map<string, PyValue>([['choices', ['The cat.', ' a dog', 'cat', '(x+y)*2']]]);
const CHOICE_TEXTS = [
  'I say (B).',
  '(A) no (C)',
  'it is THE CAT!',
  'the dog: a dog',
  'cat',
  'The result: D',
  'answer:  b',
  'answer:\n\nB, or : C',
  'none',
  '(x+y)*2 it is',
  '',
  'dog (Z) : A',
];
const CHOICE_REGEX: readonly (readonly [Record<string, PyValue>, readonly string[]])[] = [
  [
    { regex_pattern: '(\\([A-Z]\\))', group_select: -1, ignore_case: true, ignore_punctuation: true },
    ['(B)', '(C)', '(A)', '(B)', '(C)', '(D)', '[invalid]', '(C)', '[invalid]', '(D)', '[invalid]', '(Z)'],
  ],
  [
    { regex_pattern: '(\\([A-Z]\\))' },
    ['(B)', '(A)', '[invalid]', '(B)', '(C)', '(D)', '[invalid]', '(B)', '[invalid]', '(D)', '[invalid]', '(Z)'],
  ],
  [
    { regex_pattern: 'is (\\w+)|was (\\w+)', group_select: 0, regexes_to_ignore: ['[aeiou]'], fallback: '?' },
    ['?', '?', 'THE', 'dg', '(C)', '(D)', '?', '(B)', '?', '(D)', '?', '(A)'],
  ],
];

const NO_DOCUMENT = new Map<string, PyValue>();

describe('filters', () => {
  it('take, vote and strip', () => {
    const vote = readFilters(steps({ function: 'majority_vote' }, { function: 'take_first' }), 'x');
    expect(vote[0]!.apply(['b', 'a', 'a', 'b'], NO_DOCUMENT)).toBe('b');
    const first = readFilters(steps({ function: 'take_first_k', k: 2 }, { function: 'take_first' }), 'x');
    expect(first[0]!.apply(['b', 'a', 'a'], NO_DOCUMENT)).toBe('b');
    const last = readFilters(
      steps({ function: 'regex', regex_pattern: '\\d+', group_select: -1 }, { function: 'take_first' }),
      'x',
    );
    expect([last[0]!.apply(['1 2 3'], NO_DOCUMENT), last[0]!.apply(['none'], NO_DOCUMENT)]).toEqual(['3', '[invalid]']);
  });

  it.each(CHOICE_REGEX)('find choices as the harness does with %j', (settings, expected) => {
    const [filter] = readFilters(
      steps({ function: 'multi_choice_regex', ...settings }, { function: 'take_first' }),
      'x',
    );
    expect(CHOICE_TEXTS.map((text) => filter!.apply([text], CHOICES))).toEqual(expected);
    expect(() => filter!.apply(['a'], NO_DOCUMENT)).toThrow('needs documents with a list of texts');
  });

  it('end a run with a line where a pattern takes exponential or polynomial time', () => {
    const [filter] = readFilters(steps({ function: 'regex', regex_pattern: '(a+)+$' }), 'a.yaml:7: filter_list');
    expect(() => filter!.apply([`${'a'.repeat(60)}!`], NO_DOCUMENT)).toThrow(
      'a.yaml:7: filter_list: the filter "regex" takes more than 1 s to match "(a+)+$" in a text of 61 letters',
    );
    const entry = new Map<string, PyValue>([['regexes_to_ignore', ['a*a*a*b']]]);
    expect(() => comparable(entry, 'b.yaml:3: metric_list')('a'.repeat(100_000))).toThrow(
      'b.yaml:3: metric_list: exact_match takes more than 1 s to match "a*a*a*b" in a text of 100000 letters',
    );
  });

  it('that are not there are refused', () => {
    expect(() => readFilters(steps({ function: 'custom' }), 'a.yaml:1')).toThrow('a.yaml:1: no filter "custom"');
    expect(() => readFilters(steps({ function: 'regex', regex_pattern: '(?>a)' }), 'x')).toThrow('cannot use');
    expect(() => readFilters(steps({ function: 'lowercase', k: 1 }), 'x')).toThrow('has no setting "k"');
    expect(() => readMetrics([new Map([['metric', 'comet']])], 'generate_until', false, 'x')).toThrow(
      'no metric "comet"',
    );
  });
});

describe('figures', () => {
  it('are those of the harness', () => {
    const items = [-1, -2.5, -3];
    expect(AGGREGATIONS.perplexity.of(items)).toBeCloseTo(Math.exp(6.5 / 3), 12);
    expect(
      AGGREGATIONS.weighted_perplexity.of([
        [-6, 2],
        [-4, 3],
      ]),
    ).toBeCloseTo(Math.exp(2), 12);
    expect(
      AGGREGATIONS.bits_per_byte.of([
        [-6, 2],
        [-4, 3],
      ]),
    ).toBeCloseTo(2 / Math.LN2, 12);
    expect(
      AGGREGATIONS.f1.of([
        [1, 1],
        [1, 0],
        [0, 1],
        [0, 0],
      ]),
    ).toBe(0.5);
    expect(
      AGGREGATIONS.mcc.of([
        [1, 1],
        [1, 0],
        [0, 0],
        [0, 0],
      ]),
    ).toBeCloseTo(0.5773502691896258, 12);
    // scikit-learn's f1_score(…, average="weighted").
    const labels = [
      [0, 0],
      [0, 1],
      [1, 1],
      [2, 1],
      [2, 2],
      [2, 3],
    ];
    expect(AGGREGATIONS.weighted_f1.of(labels)).toBeCloseTo(0.5555555555555555, 12);
    expect(AGGREGATIONS.brier_score.of([[0, 0.5, 0.5]])).toBe(0.5);
    expect(standardError('mean', [1])).toBeNull();
    expect(
      standardError('brier_score', [
        [0, 1],
        [0, 1],
      ]),
    ).toBeNull();
  });

  it('have bootstrapped errors of the sequences that CPython draws', () => {
    expect(standardError('perplexity', [-1, -2.5, -3, -0.25], 2000)).toBeCloseTo(3.58171825981319, 12);
  });

  it('of one document', () => {
    const names = ['acc', 'acc_norm', 'acc_bytes', 'acc_mutual_info', 'exact_match', 'brier_score'];
    const list = names.map((name) => new Map<string, PyValue>([['metric', name]]));
    const metrics = readMetrics(list, 'multiple_choice', false, 'x');
    const of = { document: new Map(), target: 1, gold: 1, choices: ['a', 'ééé'], hasManyTargets: false };
    const answers = [-2, -3, -1, -5].map((ll, i) => ({ ll, isGreedy: i === 1 }));
    const share = 1 / (1 + Math.exp(-1));
    expect(Object.fromEntries(valuesOf('multiple_choice', of, answers, metrics))).toEqual({
      acc: 0,
      acc_norm: 1,
      acc_bytes: 1,
      acc_mutual_info: 1,
      exact_match: 1,
      brier_score: [1, expect.closeTo(share, 12), expect.closeTo(1 - share, 12)],
    });
    const missing = { ...of, gold: 'b' };
    expect(valuesOf('multiple_choice', missing, answers, metrics).get('acc')).toBe(0);
  });

  it('of a text that is scored as a whole', () => {
    const of = { document: new Map(), target: ' two words', gold: '', choices: undefined, hasManyTargets: false };
    const metrics = readMetrics(null, 'loglikelihood_rolling', false, 'x');
    expect(Object.fromEntries(valuesOf('loglikelihood_rolling', of, [{ ll: -7, isGreedy: false }], metrics))).toEqual({
      word_perplexity: [-7, 3],
      byte_perplexity: [-7, 10],
      bits_per_byte: [-7, 10],
    });
  });
});
