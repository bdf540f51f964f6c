/** BLEU, chrF and TER of a corpus beside what sacrebleu gives, and their errors beside the harness's. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { AGGREGATIONS, type Item, standardError } from '../../../tasks/scores/aggregate.js';
import { terCounts } from '../../../tasks/scores/corpus.js';
import { readMetrics } from '../../../tasks/scores/metrics.js';
import { valuesOf } from '../../../tasks/scores/ofDocument.js';

const NAMES = ['bleu', 'chrf', 'ter'] as const;
type Corpus = readonly [texts: readonly string[], references: readonly string[], ...scores: readonly number[]];
const GOLDEN = JSON.parse(readFileSync(new URL('./corpus.json', import.meta.url), 'utf8')) as {
  readonly corpora: readonly Corpus[];
  readonly errors: readonly number[];
};

const metrics = readMetrics(
  NAMES.map((metric) => new Map([['metric', metric]])),
  'generate_until',
  false,
  'a.yaml:3: metric_list',
);
const counts = (text: string, gold: string): ReadonlyMap<string, Item> =>
  valuesOf(
    'generate_until',
    { document: new Map(), gold, choices: undefined, hasManyTargets: false, target: gold },
    [text],
    metrics,
  );
const items = ([texts, references]: Corpus, name: string): Item[] =>
  texts.map((text, i) => counts(text, references[i]!).get(name)!);

describe('a corpus', () => {
  it.each(GOLDEN.corpora.map((corpus, i) => [i, corpus] as const))('%i is scored as sacrebleu does', (_, corpus) => {
    for (const [i, name] of NAMES.entries())
      expect(AGGREGATIONS[name].of(items(corpus, name)), name).toBeCloseTo(corpus[i + 2] as number, 9);
  });

  it('has errors of a hundred samples', () => {
    const corpus = GOLDEN.corpora.at(-1)!;
    for (const [i, name] of NAMES.entries())
      expect(standardError(name, items(corpus, name)), name).toBeCloseTo(GOLDEN.errors[i]!, 9);
  });

  it('has one reference for each text', () => {
    const of = { document: new Map(), gold: ['a', 'b'], choices: undefined, hasManyTargets: true, target: [] };
    expect(() => valuesOf('generate_until', of, ['a'], metrics)).toThrow(
      new UserError('a.yaml:3: metric_list: bleu takes one reference, not 2'),
    );
    expect(metrics.map(({ isHigherBetter }) => isHigherBetter)).toEqual([true, true, true]);
  });

  it('may be long and repeat itself', () => {
    expect(terCounts('a b '.repeat(5000), 'b a '.repeat(5000))[0]).toBeGreaterThan(0);
    expect(terCounts('a '.repeat(300), 'b a c '.repeat(300))[0]).toBeGreaterThan(0);
  });
});
