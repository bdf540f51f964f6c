/** BLEU and ROUGE beside what sacrebleu and rouge_score give, and TruthfulQA's scores of a text. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { truthfulScores } from '../../../tasks/hooks/documents.js';
import { bleu, rougeN, rougeSum } from '../../../tasks/hooks/similarity.js';

type Row = readonly [text: string, reference: string, bleu: number, one: number, two: number, sum: number];
const ROWS = JSON.parse(readFileSync(new URL('./similarity.json', import.meta.url), 'utf8')) as readonly Row[];

describe('texts', () => {
  it.each(ROWS)('%j beside %j', (text, reference, ...expected) => {
    const found = [
      bleu(text, reference),
      rougeN(text, reference, 1),
      rougeN(text, reference, 2),
      rougeSum(text, reference),
    ];
    for (const [i, value] of found.entries()) expect(value).toBeCloseTo(expected[i]!, 11);
  });

  it('are scored by the answers that they are most like', () => {
    const document = new Map([
      ['correct_answers', ['It is a cat.', 'I have no comment.']],
      ['incorrect_answers', ['It is a dog.']],
    ]);
    const scores = truthfulScores(document, ['It is a cat.']);
    expect([scores.get('bleu_acc'), scores.get('rouge1_max'), scores.get('rougeL_diff')]).toEqual([1, 100, 25]);
    expect(scores.size).toBe(12);
    expect(truthfulScores(document, ['']).get('bleu_acc')).toBe(0);
    expect(() => truthfulScores(new Map([...document, ['incorrect_answers', []]]), ['x'])).toThrow('no false answers');
  });

  it('may be long', () => {
    expect(rougeSum('a b '.repeat(50_000), 'b a '.repeat(50_000))).toBeGreaterThan(0.9);
  });
});
