/** Answers as search-and-learn extracts and groups them, hostile ones, and rules where ours differ. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { classesOf } from '../../../search/answers/classes.js';
import { answerOf } from '../../../search/answers/extract.js';
import { expectLinear } from '../../support/growth.js';

const FOLDER = new URL('../../../../shared/golden/search/', import.meta.url);
/** Lines of a golden. */
const lines = <T>(name: string): readonly T[] =>
  readFileSync(new URL(name, FOLDER), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

const sentence = (boxed: string): string =>
  `Therefore, the final answer is: $\\boxed{${boxed}}$. I hope it is correct.`;

describe.skipIf(!existsSync(FOLDER))('goldens of answers', () => {
  interface Golden {
    readonly boxed: string;
    readonly answer: string;
    readonly class: string;
  }
  const rows = existsSync(FOLDER) ? lines<Golden>('answers.jsonl') : [];

  it('are extracted as search-and-learn does', () => {
    for (const { boxed, answer } of rows) expect(answerOf(sentence(boxed)), boxed).toBe(answer);
  });

  /** Pairs of answers that are one by one grouping and two by another. */
  function differences(a: readonly unknown[], b: readonly unknown[]): ReadonlySet<string> {
    const found = new Set<string>();
    for (const i of rows.keys())
      for (let j = 0; j < i; j++)
        if ((a[i] === a[j]) !== (b[i] === b[j])) found.add([rows[i]!.answer, rows[j]!.answer].sort().join(' | '));
    return found;
  }
  const golden = rows.map((row) => row.class);
  const answers = rows.map(({ answer }) => answer);

  // latex2sympy reads "odd" as o times a differential, and no letter after that in the same process. So the file keeps
  // apart what comes later. Alone, (x+1)^2 is another matter: sympy does not multiply it out.
  it('are grouped as search-and-learn does', () => {
    expect([...differences(golden, classesOf(answers, true))].sort()).toEqual([
      '(A) | A',
      '(r+5)(r+5) | (r+5)^2',
      '(x+1)^2 | x^2+2*x+1',
      '(x+1)^2 | x^2+2*x-(-1)',
      '(x+1)^2 | x^2+2x+1',
      '2x+3 | 3+2x',
      'east | seat',
      'x^2+2*x+1 | x^2+2*x-(-1)',
      'x^2+2*x+1 | x^2+2x+1',
      'x^2+2*x-(-1) | x^2+2x+1',
    ]);
  });

  it('are not one by default where search-and-learn reads a part', () => {
    const [compat, own] = [true, false].map((isCompat) => classesOf(answers, isCompat));
    expect([...differences(compat!, own!)].sort()).toEqual([
      '-2 | -2\\\\lex\\\\le7',
      '1 | 1\\\\sqrt{19}',
      '1 | x<=1',
      '12:00 | 1:00',
      '1\\\\sqrt{19} | x<=1',
      '40 | 40_9',
      'east | seat',
    ]);
  });
});

describe('an answer', () => {
  it.each([
    ['The final answer is $ 7 $. I hope it is right. The answer is 8.', '7'],
    ['So \\boxed{1}, no: \\boxed{\\frac{1}{2}}. The answer is 3.', '\\frac{1}{2}'],
    ['\\boxed 5$ and more', '5'],
    ['\\boxed{5 and no end', '5andnoend'.replace('and', '')],
    ['boxed', ''],
    ['The answer is: 12.', '12'],
    ['the final answer is 3/4 /', '\\frac{3}{4}'],
    ['答案是 B\n\nand more', 'B'],
    ['1,234 and then -5.50 apples', '-5.50'],
    ['nothing', ''],
    ['', ''],
    ['The answer is ки5', '5'],
    ['The answer is 007', '7'],
    ['The answer is ٣٤', '34'],
    ['The answer is ２²', '２²'],
    ['The answer is forty-two', '42'],
    ['The answer is two thousand and five', '2005'],
    ['The answer is one million two hundred thousand', '1200000'],
    ['The answer is three point one four', '3.14'],
    ['The answer is five point zero', '5'],
    ['The answer is point', '0'],
    ['The answer is one thousand two thousand', 'onethoustwothous'],
    ['The answer is thousand million', 'thousmillion'],
  ])('in %j', (text, answer) => {
    expect(answerOf(text)).toBe(answer);
  });

  const isOne = (a: string, b: string, isCompat = false): boolean => new Set(classesOf([a, b], isCompat)).size === 1;

  it.each([
    ['0.5', '\\frac{1}{2}'],
    ['1,234', '1234'],
    ['2/(-3)', '-\\frac{2}{3}'],
    ['x^2-1', '(x-1)(x+1)'],
    ['\\frac{\\sqrt{2}}{2}', '\\frac{1}{\\sqrt{2}}'],
    ['\\sin^2(x)+\\cos^2(x)', '1'],
    ['x-x', '0'],
    ['\\sqrt{12}', '2\\sqrt{3}'],
    ['x\\ge5', '5\\lex'],
    ['-x>-1', 'x<1'],
    [
      '\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}+\\begin{pmatrix}1&1\\\\1&1\\end{pmatrix}',
      '\\begin{pmatrix}2&3\\\\4&5\\end{pmatrix}',
    ],
    ['2\\begin{pmatrix}1\\\\3\\end{pmatrix}', '\\begin{pmatrix}2\\\\6\\end{pmatrix}'],
    ['\\begin{pmatrix}1&2\\end{pmatrix}\\begin{pmatrix}3\\\\4\\end{pmatrix}', '\\begin{pmatrix}11\\end{pmatrix}'],
    ['\\binom{5}{2}', '10'],
    ['{5\\choose2}', '10'],
    ['5!', '120'],
    ['|-3|', '3'],
    ['\\log_{2}8', '3'],
    ['\\log(100)', '2'],
    ['\\ln(e^2)', '2'],
    ['e^{2}', 'e\\cdote'],
    ['\\lfloor2.5\\rfloor', '2'],
    ['1E3', '1000'],
    ['-\\infty', '-\\infty-5'],
    ['2^{3^2}', '512'],
    ['\\sqrt[3]{8}', '2'],
    ['f(x)+f(x)', '2f(x)'],
    ['x_{12}+1', '1+x_{12}'],
    ['\\overline{AB}\\cdot2', '2\\overline{AB}'],
    ['\\left(\\frac12\\right)'.replace('frac12', 'frac{1}{2}'), '0.5'],
    ['I^2', '-1'],
  ])('%s is one with %s', (a, b) => {
    for (const isCompat of [false, true]) expect(isOne(a, b, isCompat)).toBe(true);
  });

  it.each([
    ['f(x)', 'f(y)'],
    ['x', 'y'],
    ['1,2', '2,1'],
    ['(1,2)', '[1,2]'],
    ['x<1', 'x\\le1'],
    ['x<1', '1'],
    ['0.333', '\\frac{1}{3}'],
    ['\\sqrt{x^2}', 'x'],
    ['\\infty', '-\\infty'],
    ['\\begin{pmatrix}1&2\\end{pmatrix}', '\\begin{pmatrix}1\\\\2\\end{pmatrix}'],
    ['', '0'],
    ['E', 'e'],
  ])('%s is not one with %s', (a, b) => {
    for (const isCompat of [false, true]) expect(isOne(a, b, isCompat)).toBe(false);
  });

  const HOSTILE = [
    '('.repeat(1900),
    '\\frac'.repeat(400),
    `${'{'.repeat(900)}1${'}'.repeat(900)}`,
    '9^{9^{9^{9^{9}}}}',
    '(((9!)!)!)!',
    `${'9'.repeat(1500)}^{${'9'.repeat(300)}}`,
    `1E${'9'.repeat(300)}`,
    'x'.repeat(1900),
    'f(f'.repeat(600),
    'x^{f('.repeat(300),
    '\\begin{pmatrix}' + '1&'.repeat(900),
    '\\begin{pmatrix}1\\end{pmatrix}'.repeat(80),
    '|'.repeat(1900),
    '-'.repeat(1900),
    '\\sqrt{'.repeat(300),
    `${'1+'.repeat(900)}1`,
    '__proto__',
    '\\constructor',
    'toString(x)',
    '$&'.repeat(50),
  ];
  it.each(HOSTILE)('that is hostile is one with itself, and ends: %#', (body) => {
    for (const isCompat of [false, true]) {
      const answer = answerOf(sentence(body));
      expect(classesOf([answer, '5', answer, `${answer}+0`], isCompat)).toHaveLength(4);
      expect(isOne(answer, answer, isCompat)).toBe(true);
    }
  });

  it('takes time in proportion to its text, and many answers do to their number', () => {
    const parts = [
      'boxed',
      '{',
      '1',
      '\\text{',
      '\\mbox{',
      '.',
      '0',
      'm ',
      '\\frac',
      '\\begin{array}{',
      '\n ',
      'ки',
      '/',
    ];
    for (const part of parts) expectLinear((size) => () => answerOf(`boxed{${part.repeat(size)}`), 3000);
    const texts = Array.from({ length: 256 }, (_, i) => `\\sqrt{${i + 2}}+x`);
    expect(new Set(classesOf(texts, false)).size).toBe(256);
  });
});
