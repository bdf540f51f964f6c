/** Whether the answer of a candidate is the one that is known to be right. */
import { answerIn, type ExtractedAnswer, formulaAnswer, isSameExtracted } from '../../tasks/hooks/math/extract.js';
import { isSamePercentage } from '../../tasks/hooks/math/sameAnswer.js';
import { classesOf } from './classes.js';

/** Of a candidate's text, and the answer that it votes with. */
export type Judge = (text: string, answer: string) => boolean;

/** Begins a formula, or a box. */
const FORMULA = /\$|\\boxed|\\\[|\\\(/;

/** A right answer as it stands in a file: a formula alone, or a text with formulas. */
export const goldAnswer = (gold: string): ExtractedAnswer =>
  FORMULA.test(gold) ? answerIn(gold, true) : formulaAnswer(gold);

/** As Math-Verify compares them; a percentage is also right without its sign. */
export function isRight(right: ExtractedAnswer, answer: ExtractedAnswer): boolean {
  if (isSameExtracted(right, answer)) return true;
  const [a, b] = [right.expression, answer.expression];
  return a !== undefined && b !== undefined && isSamePercentage(a, b);
}

/**
 * By default as Math-Verify compares them: sets in any order, intervals as inequalities, x = 5 as 5. `isCompat`: by
 * their classes, as search-and-learn counts right answers for pass@k.
 */
export function judgeOf(gold: string, isCompat: boolean): Judge {
  if (isCompat) return (_, answer) => new Set(classesOf([gold, answer], true)).size === 1;
  const right = goldAnswer(gold);
  return (text) => isRight(right, answerIn(text, true));
}
