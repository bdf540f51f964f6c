/** MATH: verdicts of lm-evaluation-harness with Math-Verify and sympy, and answers that are hostile. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Dict, PyValue } from '../../../../python/value.js';
import { HookProblem } from '../../../../tasks/hooks/hook.js';
import { answerIn, boxedAnswer, finalAnswer, INVALID, normalAnswer } from '../../../../tasks/hooks/math/extract.js';
import { readLatex } from '../../../../tasks/hooks/math/latex.js';
import { hardProblem, mathExamples, mathResults } from '../../../../tasks/hooks/mathAnswers.js';
import { expectLinear } from '../../../support/growth.js';
import { casesHere } from '../../../support/thorough.js';

type Row = readonly [right: string, text: string, verified: number, original: number];
const ROWS = JSON.parse(readFileSync(new URL('./answers.json', import.meta.url), 'utf8')) as readonly Row[];

const problemOf = (right: string): Dict => {
  const solution = `We compute this, since $5+4=9$, to get $\\boxed{${right}}.$`;
  const made = hardProblem(
    new Map<string, PyValue>([
      ['level', 'Level 5'],
      ['problem', 'p'],
      ['solution', solution],
    ]),
  );
  return made!;
};
const verdict = (right: string, text: string): unknown => [...mathResults(problemOf(right), [text]).values()];

describe('an answer', () => {
  it.each([...new Set(ROWS.map(([right]) => right))])('to %s is right where the harness says so', (right) => {
    for (const [of, text, ...expected] of ROWS) if (of === right) expect(verdict(right, text), text).toEqual(expected);
  });

  it('may be right where sympy or Math-Verify give up', () => {
    expect(verdict('e^{i\\pi}', 'So $\\boxed{-1}$.')).toEqual([1, 0]);
    expect(verdict('2+3i', 'So $\\boxed{2+3 i}$.')).toEqual([1, 0]);
    expect(verdict('\\frac{a}{b}', 'So $\\boxed{\\frac ab}$.')).toEqual([1, 0]);
  });

  it('is looked for where answers stand', () => {
    const found = (text: string): string => answerIn(text, true).text;
    expect(found('First $1$. Final Answer: The final answer is $2$. I hope it is correct. Or $3$.')).toBe('2');
    expect(found('So \\boxed{4}, though the answer is 5.')).toBe('4');
    expect(found('The answer: $6$ apples, and 7 pears')).toBe('6');
    expect(found('it is 8, or $9$ and $10$')).toBe('9 and 10');
    expect(found('about 1,234 dollars')).toBe('1234');
    expect(found('nothing')).toBe('');
    expect(answerIn('only 5', false).expression).toBeUndefined();
  });

  it('of the examples and of boxes', () => {
    expect(mathExamples().map((each) => boxedAnswer(each.get('solution') as string))).toEqual([
      '[2,5)',
      '24',
      '16',
      '-\\frac{2}{3}',
    ]);
    expect([boxedAnswer('\\fbox{1}'), boxedAnswer('x'), boxedAnswer('\\boxed 5$')]).toEqual([INVALID, INVALID, '5']);
    expect(finalAnswer('Final Answer: The final answer is\n2')).toBe(INVALID);
    expect(normalAnswer('x = 12,\\!000\\text{ dollars}')).toBe('12000');
    expect(normalAnswer('\\frac34 and \\sqrt2')).toBe('\\frac{3}{4}and\\sqrt{2}');
  });

  it('of an easier problem is left out', () => {
    expect(hardProblem(new Map([['level', 'Level 4']]))).toBeUndefined();
    expect(() => hardProblem(new Map([['level', 'Level 5']]))).toThrow(HookProblem);
  });

  it.each([
    '('.repeat(5000),
    '\\frac'.repeat(400),
    '{'.repeat(900) + '1' + '}'.repeat(900),
    '9^{9^{9^{9^{9}}}}',
    '(((9!)!)!)!',
    `${'9'.repeat(1500)}^{${'9'.repeat(300)}}`,
    '1,'.repeat(900),
    '\\pm'.repeat(600),
    '\\begin{pmatrix}' + '1&'.repeat(900),
    '\\sqrt'.repeat(390),
    'x'.repeat(1900),
    '|'.repeat(1900),
  ])('that is hostile is wrong, and ends: %#', (body) => {
    for (const text of [`$${body}$`, `\\boxed{${body}}`, body, `$${body}$`.repeat(20)]) {
      expect(verdict('5', text)).toEqual([0, 0]);
      expect(() => readLatex(body, { isPlain: true })).not.toThrow();
    }
  });

  it('in a long text takes time in proportion', () => {
    const parts = ['$', '\\(', '1 ', '\\boxed{', 'answer ', '[ ', '-\\frac{1', '1+', '$1$ and ', '1,000'];
    for (const part of casesHere(parts, 3, 8))
      expectLinear((size) => verdict.bind(undefined, '5', part.repeat(size)), 20_000);
  });
});
