/** RACE, MuSR and WikiText. */
import { literalEval } from '../../python/literal.js';
import { codePoints, type Dict, isDict, isList, type PyValue } from '../../python/value.js';
import { chosen, fieldOf, HookProblem, type Scored, textOf, textsOf } from './hook.js';

const LETTERS = { A: 0, B: 1, C: 2, D: 3 };
/** How a statement with a gap at its end ends. */
const GAP = '  _  .';

function literal(document: Dict, name: string): PyValue {
  try {
    return literalEval(textOf(document, name));
  } catch (error) {
    if (error instanceof SyntaxError) throw new HookProblem(`${name}: no Python literal: ${error.message}`);
    throw error;
  }
}

/** The questions about an article: all but the last are shown with their answers. */
function problemsOf(document: Dict): { readonly shown: readonly Dict[]; readonly last: Dict } {
  const problems = literal(document, 'problems');
  if (!isList(problems) || !problems.every(isDict)) throw new HookProblem('problems: expected a list of questions');
  const last = problems.at(-1);
  if (last === undefined) throw new HookProblem('problems: there are none');
  return { shown: problems.slice(0, -1), last };
}

const answerOf = (problem: Dict): number => chosen(LETTERS, textOf(problem, 'answer'), 'answer');

function optionOf(problem: Dict, index: number): string {
  const option = textsOf(fieldOf(problem, 'options'), 'options')[index];
  if (option === undefined) throw new HookProblem(`options: there is no option ${'ABCD'.charAt(index)}`);
  return option;
}

export const raceTarget = (document: Dict): PyValue => answerOf(problemsOf(document).last);

export function raceChoices(document: Dict): PyValue {
  const { last } = problemsOf(document);
  return [0, 1, 2, 3].map((index) => optionOf(last, index));
}

export function raceText(document: Dict): PyValue {
  const { shown, last } = problemsOf(document);
  const solved = shown.map((problem) => {
    const question = textOf(problem, 'question');
    const answer = optionOf(problem, answerOf(problem));
    // The space before the gap stays.
    return question.endsWith(GAP)
      ? `${question.slice(0, 1 - GAP.length)}${answer}\n`
      : `Question: ${question}\nAnswer: ${answer}\n`;
  });
  return `Article: ${textOf(document, 'article')}\n\n${solved.join('')}${textOf(last, 'question')}`;
}

export const musrChoices = (document: Dict): PyValue => textsOf(literal(document, 'choices'), 'choices');

export function musrText(document: Dict): PyValue {
  const choices = textsOf(literal(document, 'choices'), 'choices').map((choice, i) => `${i + 1} - ${choice}\n`);
  return `${textOf(document, 'narrative')}\n\n${textOf(document, 'question')}\n\n${choices.join('')}\nAnswer:`;
}

/** Python's `\s`: of its white space all but U+FEFF, which JavaScript's has. */
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const SPACES = new RegExp(`[${SPACE}]+`);

/** Between two delimiters, without the white space inside of them. Linear, unlike an expression with `\s*…*?\s*`. */
function tightened(text: string, open: string, close: string): string {
  let result = '';
  let at = 0;
  for (;;) {
    const from = text.indexOf(open, at);
    const to = from < 0 ? -1 : text.indexOf(close, from + 1);
    if (to < 0) return result + text.slice(at);
    const inner = text.slice(from + 1, to).replace(TRIM, '');
    result += text.slice(at, from) + open + inner + close;
    at = to + 1;
  }
}
const TRIM = new RegExp(`^[${SPACE}]+|(?<![${SPACE}])[${SPACE}]+$`, 'g');

const BEFORE: readonly (readonly [string, string])[] = [
  [' @-@ ', '-'],
  [' @,@ ', ','],
  [' @.@ ', '.'],
  ...[':', ';', '.', '!', '?', ','].map((mark) => [` ${mark} `, `${mark} `] as const),
];
const AFTER: readonly (readonly [string, string])[] = [
  ['= = = =', '===='],
  ['= = =', '==='],
  ['= =', '=='],
  [' \u00b0 ', '\u00b0'],
  [' \n', '\n'],
  ['\n ', '\n'],
  [' N ', ' 1 '],
  [" 's", "'s"],
];

/** Undoes WikiText's tokenization: " @-@ " was a hyphen, and white space was put around marks and inside brackets. */
export function wikitextTarget(document: Dict): PyValue {
  // The public harness replaces a slash, an apostrophe, a space, a digit and a slash by these very characters.
  let text = textOf(document, 'page')
    .replaceAll("s '", "s'")
    .replace(/\/' [0-9]\//g, "/'[0-9]/");
  for (const [from, to] of BEFORE) text = text.replaceAll(from, to);
  for (const [open, close] of ['()', '[]', '{}', '""', "''"].map(codePoints)) text = tightened(text, open!, close!);
  for (const [from, to] of AFTER) text = text.replaceAll(from, to);
  return text;
}

/** Per word and per byte of the page as it is, before tokenization is undone. */
export function wikitextResults(document: Dict, [logLikelihood]: readonly number[]): ReadonlyMap<string, Scored> {
  const page = textOf(document, 'page');
  if (logLikelihood === undefined) throw new HookProblem('the page has no score');
  const bytes = Buffer.byteLength(page, 'utf8');
  return new Map<string, Scored>([
    ['word_perplexity', [logLikelihood, page.split(SPACES).length]],
    ['byte_perplexity', [logLikelihood, bytes]],
    ['bits_per_byte', [logLikelihood, bytes]],
  ]);
}
