/** MATH (Hendrycks et al. 2021): its hard problems, and whether an answer is the one of the solution. */
import { str } from '../../python/show.js';
import type { Dict, Value } from '../../python/value.js';
import { textOf, type Scored } from './hook.js';
import { boxedAnswer, finalAnswer } from './math/boxed.js';
import { answerIn } from './math/extract.js';
import { isSameNormal, normalAnswer } from './math/minerva.js';
import { isSameAnswer } from './math/sameAnswer.js';

/** Keeps problems of level 5. */
export function hardProblem(document: Dict): Dict | undefined {
  if (str(document.get('level') ?? null) !== 'Level 5') return undefined;
  const solution = textOf(document, 'solution');
  return new Map<string, Value>([
    ['problem', textOf(document, 'problem')],
    ['solution', solution],
    ['answer', boxedAnswer(solution)],
  ]);
}

export const problemText = (document: Dict): Value => `Problem:\n${textOf(document, 'problem')}\n\nSolution:`;

/** The answers are the same after they are read, or as texts. */
function isRight(solution: string, text: string): boolean {
  const [right, answer] = [answerIn(solution, false), answerIn(text, true)];
  if (right.text !== '' && right.text === answer.text) return true;
  return (
    right.expression !== undefined &&
    answer.expression !== undefined &&
    isSameAnswer(right.expression, answer.expression)
  );
}

export function mathResults(document: Dict, [text = '']: readonly string[]): ReadonlyMap<string, Scored> {
  const own = normalAnswer(finalAnswer(text));
  return new Map<string, Scored>([
    ['exact_match', isRight(textOf(document, 'solution'), text) ? 1 : 0],
    ['exact_match_original', isSameNormal(normalAnswer(textOf(document, 'answer')), own) ? 1 : 0],
  ]);
}
