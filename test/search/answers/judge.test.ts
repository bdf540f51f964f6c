/** What is right by the test suites of public programs that compare answers. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { isRight, judgeOf } from '../../../search/answers/judge.js';
import { answerIn, type ExtractedAnswer, formulaAnswer } from '../../../tasks/hooks/math/extract.js';

const FILE = new URL('../../../../shared/golden/search/equal_answers.jsonl', import.meta.url);

/** `extract`: what the suite looks for in both texts; null: both are bare answers. */
interface Pair {
  readonly gold: string;
  readonly prediction: string;
  readonly equal: boolean;
  readonly extract: readonly string[] | null;
}

/** Pairs whose verdicts are others here, and why. */
const OTHERS: readonly (readonly [gold: string, prediction: string, why: string])[] = [
  [
    '$(\\begin{pmatrix}\\frac{1}{3}\\\\ \\frac{1}{5} \\end{pmatrix})$',
    '$\\begin{pmatrix}0.33\\\\0.2 \\end{pmatrix}$',
    'the suite compares two decimals, we compare six',
  ],
  ['$(\\frac{3}{5},\\frac{8}{3}]$', '$(0.6,2.6667]$', 'the suite compares two decimals, we compare six'],
  ['$x \\in [-2,7]$', '$-2 \\\\le x \\\\le 7$', 'an option of the suite: by default it says otherwise'],
  ['$f(x)$', '$f(y)$', 'an option of the suite: by default it says otherwise'],
  ['$1 - \\frac{1}{\\mathrm{e}}$', '$1 + \\frac{1}{\\mathrm{e}}$', 'the suite says equal; it is not'],
  ['4, 10, -2', '10, 4, -2', 'this suite compares texts; to others the order does not matter'],
  ['4, .1, 2', '0.1, 4, 2', 'this suite compares texts; to others the order does not matter'],
  ['3245/5', '649', 'equal numbers; the suite wants only simplifications that are trivial'],
];

describe.skipIf(!existsSync(FILE))('verdicts of public suites', () => {
  const pairs = existsSync(FILE)
    ? readFileSync(FILE, 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Pair)
    : [];
  const read = (text: string, extract: Pair['extract']): ExtractedAnswer =>
    extract === null ? formulaAnswer(text) : answerIn(text, extract.includes('expr'));

  it('are ours, but for those that are named', () => {
    const others = pairs
      .filter(
        ({ gold, prediction, equal, extract }) => isRight(read(gold, extract), read(prediction, extract)) !== equal,
      )
      .map(({ gold, prediction }) => `${gold} | ${prediction}`);
    expect(others.sort()).toEqual(OTHERS.map(([gold, prediction]) => `${gold} | ${prediction}`).sort());
  });

  it('do not depend on who is asked first', () => {
    // Equal texts are equal answers, whatever stands in them.
    for (const { gold, extract } of pairs) {
      const answer = read(gold, extract);
      if (answer.text !== '') expect(isRight(answer, answer), gold).toBe(true);
    }
  });
});

describe('a candidate', () => {
  const sentence = (answer: string): string =>
    `We see this.\n\nTherefore, the final answer is: $\\boxed{${answer}}$. I hope it is correct.`;

  it.each([
    ['\\frac{1}{2}', '0.5'],
    ['x=5', '5'],
    ['5', 'x = 5'],
    ['1,2', '2, 1'],
    ['0 \\le x < 5', '[0,5)'],
    ['|x| \\le 2', '[-2,2]'],
    ['50\\%', '50'],
    ['50', '50\\%'],
    ['90^\\circ', '90'],
    ['\\text{Evelyn}', 'Evelyn'],
    ['\\frac{\\pi r}{h+r}', '\\frac{\\pi\\cdot r}{r+h}'],
    ['The answer is $\\frac{3}{4}$', '\\frac{6}{8}'],
    ['1 \\pm \\sqrt{19}', '1-\\sqrt{19}, 1+\\sqrt{19}'],
    ['10,080', '10080'],
  ])('with gold %s is right with %s', (gold, answer) => {
    expect(judgeOf(gold, false)(sentence(answer), '')).toBe(true);
  });

  it.each([
    ['1 \\pm \\sqrt{19}', '1'],
    ['\\frac{\\pi r}{h+r}', '\\pi'],
    ['40_9', '41_9'],
    ['12:00', '1:00'],
    ['x<5', 'x\\le5'],
    ['(1,2)', '(2,1)'],
    ['(12,102)', '12102'],
    ['5', ''],
    ['', ''],
    ['\\sum_{k=0}^{n} k', '\\sum_{k=1}^{n} k'],
  ])('with gold %s is wrong with %s', (gold, answer) => {
    expect(judgeOf(gold, false)(sentence(answer), '')).toBe(false);
  });

  it('of search-and-learn is right where its class is that of the gold answer', () => {
    expect(judgeOf('\\frac12'.replace('12', '{1}{2}'), true)('', '0.5')).toBe(true);
    expect(judgeOf('1\\\\sqrt{19}', true)('', '1')).toBe(true);
    expect(judgeOf('5', true)('5', '6')).toBe(false);
  });
});
