/**
 * A final answer in the normal form of Lewkowycz et al. (2022), appendix D, and when two of them are equivalent: what
 * the public harness calls exact_match_original.
 */
import { isSameExpression } from './sameAnswer.js';
import { readLatex } from './latexParse.js';
import { INVALID } from './boxed.js';

/** Texts and what takes their places, in order. */
const REPLACED: readonly (readonly [text: string, by: string])[] = [
  ['an ', ''],
  ['a ', ''],
  ['.$', '$'],
  ['\\$', ''],
  ['\\ ', ''],
  [' ', ''],
  ['mbox', 'text'],
  [',\\text{and}', ','],
  ['\\text{and}', ','],
  ['\\text{m}', '\\text{}'],
];
/** Units and the like, removed in this order. */
const REMOVED = [
  ...'square ways integers dollars mph inches ft hours km units \\ldots sue points feet minutes digits'.split(' '),
  ...'cents degrees cm gm pounds meters meals edges students childrentickets multiples'.split(' '),
  '\\text{s}',
  '\\text{.}',
  '\\text{\ns}',
  '\\text{}^2',
  '\\text{}^3',
  '\\text{\n}',
  '\\text{}',
  '\\mathrm{th}',
  '^\\circ',
  '^{\\circ}',
  '\\;',
  ',\\!',
  '{,}',
  '"',
  '\\dots',
];
/** Groups of these commands are left without them; of a box all up to the last brace. */
const UNWRAPPED = [
  /\\text\{([^\n]*?)\}/g,
  /\\textbf\{([^\n]*?)\}/g,
  /\\overline\{([^\n]*?)\}/g,
  /\\boxed\{([^\n]*)\}/g,
];
/** Longer answers are not normalized: none of the data set is near. */
const MAX_LETTERS = 2000;

export function normalAnswer(text: string): string {
  if (text.length > MAX_LETTERS) return text;
  let left = text.split('=').at(-1)!;
  for (const [each, by] of REPLACED) left = left.replaceAll(each, by);
  for (const each of REMOVED) left = left.replaceAll(each, '');
  // The first formula of a line is all that counts of it.
  left = left.replace(/[^\n$]*\$([^\n$]*)\$[^\n]*/g, '$$$1$$');
  for (const pattern of UNWRAPPED) left = left.replace(pattern, '$1');
  left = left.replace(/frac([^{])([^\n])/g, 'frac{$1}{$2}').replace(/sqrt([^{])/g, 'sqrt{$1}');
  left = left.replaceAll('$', '');
  const digits = left.replaceAll(',', '');
  return /^\p{Nd}+$/u.test(digits) ? digits : left;
}

/** Whether an answer is the reference after both are normalized. */
export function isSameNormal(right: string, answer: string): boolean {
  if (answer === INVALID) return false;
  if (right.trim() === answer.trim()) return true;
  const [a, b] = [right, answer].map((each) => readLatex(each, { isPlain: true }));
  return a !== undefined && b !== undefined && isSameExpression(a, b);
}
