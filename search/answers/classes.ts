/**
 * Which answers are one: equal expressions, else equal texts. Expressions are compared by their values, where
 * search-and-learn compares what sympy simplifies them to within a time limit.
 */
import { zip } from '../../system/at.js';
import { isSameAnswer, isSameSampled, sampled, type Sampled } from '../../tasks/hooks/math/sameAnswer.js';
import { exactly, type MathExpression, valueOf } from '../../tasks/hooks/math/values.js';
import { expressionOf } from './expressions.js';
import { normalForm } from './normalForm.js';

/** What an answer is compared by: two with texts by these alone. */
interface Compared {
  readonly text?: string;
  readonly relation?: Extract<MathExpression, { readonly kind: 'relation' }>;
  /** Values of the entries of a matrix, row by row, or of one expression. */
  readonly shape?: string;
  readonly entries?: readonly Sampled[];
}

const hasInfinity = (of: MathExpression): boolean =>
  of.kind === 'constant' ? of.name === 'infinity' : of.kind === 'apply' && of.of.some(hasInfinity);

/** Rational numbers, symbols and infinities as sympy writes them: others may be texts that are no expressions. */
function textOf(expression: MathExpression): string | undefined {
  if (expression.kind === 'symbol') return expression.name;
  const exact = exactly(expression);
  if (exact !== undefined) {
    const [sign, top] = exact.top < 0n ? ['- ', -exact.top] : ['', exact.top];
    return exact.over === 1n ? String(exact.top) : `${sign}\\frac{${top}}{${exact.over}}`;
  }
  const { re, im } = valueOf(expression, () => ({ re: NaN, im: NaN }));
  if (im !== 0 || Math.abs(re) !== Infinity) return undefined;
  return hasInfinity(expression) ? (re < 0 ? '-\\infty' : '\\infty') : DIVISION_BY_ZERO;
}
/** No product of letters. */
const WORD = /^[a-zA-Z]{4,}$/;
const DIVISION_BY_ZERO = '\\tilde{\\infty}';

function comparedOf(answer: string, isCompat: boolean): Compared {
  // Search-and-learn reads what an answer begins with, and writes what it cannot read in the normal form once more.
  const asText = { text: isCompat ? normalForm(answer) : answer };
  if (!isCompat && WORD.test(answer)) return asText;
  const expression = expressionOf(answer, isCompat);
  if (expression === undefined) return asText;
  if (expression.kind === 'relation') return { relation: expression };
  const text = textOf(expression);
  if (text === DIVISION_BY_ZERO && !isCompat) return asText;
  const rows = expression.kind === 'matrix' ? expression.rows : [[expression]];
  const entries = rows.flat().map(sampled);
  const shape = expression.kind === 'matrix' ? `${rows.length} by ${rows[0]!.length}` : 'one';
  return entries.every((entry) => entry !== undefined)
    ? { ...(text !== undefined && { text }), shape, entries }
    : { text: text ?? asText.text };
}

function isOne(a: Compared, b: Compared): boolean {
  if (a.text !== undefined && b.text !== undefined) return a.text === b.text;
  if (a.relation !== undefined || b.relation !== undefined)
    return a.relation !== undefined && b.relation !== undefined && isSameAnswer(a.relation, b.relation);
  if (a.shape === undefined || a.shape !== b.shape) return false;
  return zip(a.entries!, b.entries!).every(([left, right]) => isSameSampled(left, right));
}

/** Relations that others are compared with, as this takes its time; further ones are one with equal texts alone. */
const MAX_RELATIONS = 64;

/** The class of each answer in its normal form: classes are numbered in the order in which they come. */
export function classesOf(answers: readonly string[], isCompat: boolean): readonly number[] {
  const known = new Map<string, number>();
  const classes: Compared[] = [];
  let relations = 0;
  return answers.map((answer) => {
    const before = known.get(answer);
    if (before !== undefined) return before;
    const compared = comparedOf(answer, isCompat);
    const isLeft = compared.relation !== undefined && ++relations > MAX_RELATIONS;
    let number = isLeft ? -1 : classes.findIndex((each) => isOne(each, compared));
    if (number < 0) number = classes.push(isLeft ? {} : compared) - 1;
    known.set(answer, number);
    return number;
  });
}
