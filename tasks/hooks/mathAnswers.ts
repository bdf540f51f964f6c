/** MATH (Hendrycks et al. 2021): its hard problems, and whether an answer is the one of the solution. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { str } from '../../python/show.js';
import type { Dict, PyValue } from '../../python/value.js';
import { type Scored, textOf } from './hook.js';
import { answerIn, boxedAnswer, finalAnswer, isSameExtracted, isSameNormal, normalAnswer } from './math/extract.js';

/** Keeps problems of level 5. */
export function hardProblem(document: Dict): Dict | undefined {
  if (str(document.get('level') ?? null) !== 'Level 5') return undefined;
  const solution = textOf(document, 'solution');
  return new Map<string, PyValue>([
    ['problem', textOf(document, 'problem')],
    ['solution', solution],
    ['answer', boxedAnswer(solution)],
  ]);
}

export const problemText = (document: Dict): PyValue => `Problem:\n${textOf(document, 'problem')}\n\nSolution:`;

export function mathResults(document: Dict, [text = '']: readonly string[]): ReadonlyMap<string, Scored> {
  const own = normalAnswer(finalAnswer(text));
  return new Map<string, Scored>([
    ['exact_match', isSameExtracted(answerIn(textOf(document, 'solution'), false), answerIn(text, true)) ? 1 : 0],
    ['exact_match_original', isSameNormal(normalAnswer(textOf(document, 'answer')), own) ? 1 : 0],
  ]);
}

// The four solved problems that MATH's tasks show.

const PROBLEMS = z.array(z.record(z.string(), z.string()));

export function mathExamples(): readonly Dict[] {
  const text = readFileSync(new URL('../builtin/texts/math.json', import.meta.url), 'utf8');
  return PROBLEMS.parse(JSON.parse(text)).map((problem) => new Map<string, PyValue>(Object.entries(problem)));
}
