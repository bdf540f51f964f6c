/** The answer in a text: boxes, final sentences, and LaTeX that is tidied for comparison. */
import { at as elementAt } from '../../../system/at.js';
import { readLatex } from './latex.js';
import { isSameAnswer, isSameExpression } from './sameAnswer.js';
import { type MathExpression, percentOf } from './values.js';

// What stands in boxes, and the answer that a text ends with: as the public harness takes them from solutions.

/** No answer was found. It is a text that equals itself, as in the public harness. */
export const INVALID = '[invalidanswer]';

/** Where the group that begins after `from` ends, behind its brace; undefined if it does not. */
export function groupEnd(text: string, from: number): number | undefined {
  let depth = 0;
  for (let i = from; i < text.length; i++) {
    if (text[i] === '{') depth++;
    else if (text[i] === '}' && --depth === 0) return i + 1;
  }
  return undefined;
}

/** What stands before the first `mark`; all if there is none. */
function before(text: string, mark: string): string {
  const end = text.indexOf(mark);
  return end < 0 ? text : text.slice(0, end);
}

/** The content of the last box of a solution; INVALID where there is none. */
export function boxedAnswer(solution: string): string {
  const spaced = solution.split('\\boxed ');
  if (spaced.length > 1) return before(elementAt(spaced, -1), '$');
  const [boxed, framed] = [solution.lastIndexOf('\\boxed'), solution.lastIndexOf('\\fbox')];
  const start = boxed < 0 ? framed : boxed;
  const end = start < 0 ? undefined : groupEnd(solution, start);
  // A frame is found, and its content is not taken out of it.
  if (end === undefined || boxed < 0 || !solution.startsWith('\\boxed{', start)) return INVALID;
  return solution.slice(start + '\\boxed{'.length, end - 1);
}

const BEGIN = 'Final Answer: The final answer is';
const END = ' I hope it is correct.';

/** The last words of the model's answer, in the form that the examples show. */
export function finalAnswer(text: string): string {
  const whole = `${text}${END.trimStart()}`;
  for (let from = whole.indexOf(BEGIN); from >= 0; from = whole.indexOf(BEGIN, from + 1)) {
    const line = before(whole.slice(from + BEGIN.length), '\n');
    // One letter, mostly a period, stands before the end.
    const end = line.indexOf(END, 1);
    if (end > 0) return line.slice(0, end - 1).trim();
  }
  return INVALID;
}

// A formula before it is read: boxes opened, units and words removed.

const UNITS =
  'points? feet foot digits? pounds? meals? edges? students? multiples? degrees? mph kmph ft miles? gm lbs? tiles? ' +
  'dm ways? inch inches cents? gal acres? coins? gallons? hr sq square cubic cc numbers? days? hours? minutes? min ' +
  'seconds? sec cubes? hectares? units? kg g months? km m cm mm apples? liters? litres? yards? years? meters? ' +
  'metres? dollars?';
/** A unit behind a digit, a brace or a space. */
const UNIT = new RegExp(`([\\d}\\s])\\s*(?:${UNITS.split(' ').join('|')})\\s*$`);
const TEXT_AT_END = /(?:\\(?:text|mbox)\s*\{[^{}]*\})(?:\^\d|\^?\{\^?\d\})?$/;

const REPLACED: readonly (readonly [pattern: RegExp, by: string])[] = [
  [/\\math(?:rm|it|bf)\b|\\text(?:normal|bf|it|rm)\b/g, '\\text'],
  [/\\!\s*/g, ''],
  [/\\\$|\$/g, ''],
  [/\s*\{\s*,\s*\}/g, ','],
  [/,?\s*\\text\s*\{\s*(?:and|or)\s*\}/g, ','],
  [/(?<![a-zA-Z\\])(?:,?\s*(?:and|or))(?![a-zA-Z])/g, ','],
  [/,?\\ldots|,?\\dots/g, ' '],
  [/\\text\s*\{\s*(?:percent|percentage|pct)\s*\}|\s*\b(?:percentage|percent|pct)\b/g, '\\%'],
  [/(?<!\\)infinity/g, '\\infty'],
  [/\\text\s*\{\s*\}/g, ''],
  [/(?<!\\)\\\s/g, ' '],
  [/\s+/g, ' '],
];
const MAX_LATEX_LETTERS = 4000;

/** How far boxes may be from each other that are one answer; further with a separator between. */
const NEAR = 10;
const FAR = 70;
const SEPARATOR = /\b(?:and|or)\b|,|;/;
/** What may stand between them beside separators and one word. */
const FILLING = /\\(?:text|mbox|q?quad)|\b(?:and|or)\b|[^a-zA-Z]/g;

/** Contents of all boxes, or of the last ones that belong together; the text itself where there is none. */
function boxesOf(text: string, isLast: boolean): string {
  const found: { content: string; start: number }[] = [];
  for (let from = text.length; ;) {
    const start = Math.max(text.lastIndexOf('\\boxed', from), text.lastIndexOf('\\fbox', from));
    if (start < 0) break;
    const open = text.indexOf('{', start);
    const end = open < 0 ? undefined : groupEnd(text, open);
    if (end === undefined) {
      if (found.length === 0) found.push({ content: text.slice(text.indexOf('x', start) + 1), start });
    } else {
      const content = text.slice(open + 1, end - 1).trim();
      const next = found.at(-1);
      const between = next === undefined ? '' : text.slice(end, next.start);
      const belongs =
        between.length < NEAR ||
        (next?.content !== content &&
          between.length < FAR &&
          SEPARATOR.test(between) &&
          /^ *[a-zA-Z]* *$/.test(between.replace(FILLING, ' ')));
      if (isLast && !belongs) break;
      if (next?.content !== content) found.push({ content, start });
      else next.start = start;
    }
    if (start === 0 || found.length > 50) break;
    from = start - 1;
  }
  return found.length === 0
    ? text
    : found
        .reverse()
        .map(({ content }) => content)
        .join(',');
}

/** Commands whose backslash was escaped once more, unless rows end with two; and spaces that stick to a letter. */
const withCommands = (formula: string): string =>
  (formula.includes('\\begin') ? formula : formula.replace(/\\\\(?=[a-zA-Z])/g, '\\'))
    .replace(/\\q?quad(?=[a-zA-Z])/g, ' ')
    .replace(/\\\s*$/, '');

/** Undefined for a formula that is too long to be an answer. */
export function tidyFormula(text: string, isLastBox: boolean): string | undefined {
  let left = withCommands(boxesOf(text, isLastBox));
  if (left.length > MAX_LATEX_LETTERS) return undefined;
  for (const [pattern, by] of REPLACED) left = left.replace(pattern, by);
  const bare = left.trim().replace(TEXT_AT_END, '').trim();
  if (bare !== '') left = bare;
  for (let i = 0; i < 2; i++) {
    const without = left.replace(UNIT, '$1');
    if (without.trim() !== '') left = without;
  }
  return left.trim().replace(/^\./, '0.');
}

// The answer in a text, as Math-Verify looks for it: what follows "final answer is", then a box, then what follows
// "answer", then the last formula or number. Of several, the last one that can be read.

/** A formula or number in a text; `bodies` are several where "and" or commas join them. */
interface Found {
  readonly start: number;
  readonly end: number;
  readonly bodies: readonly string[];
  readonly isFormula: boolean;
  readonly isPercent: boolean;
  readonly isLastBox?: boolean;
}

export interface ExtractedAnswer {
  readonly expression: MathExpression | undefined;
  readonly text: string;
}

/** In several languages. */
const ANSWERS = 'answer|réponse|respuesta|antwort|resposta|risposta|ответ|答案|उत्तर';
const [ANSWER, ANSWER_COLON] = ['', '\\s*[:：]'].map((end) => new RegExp(`(?:${ANSWERS})${end}`, 'giu')) as [
  RegExp,
  RegExp,
];

/** What is looked at of a longer text. */
const MAX_LETTERS = 20_000;
const MAX_JOINED = 6;
const PERCENT = /\s*(?:\\?%|[Pp]ercent(?:age)?|[Pp]ct)/y;
const JOIN = /\s*(?:,?and|,?or|,)\s*/y;
const FRACTION = /-?\\frac\{-?\d+(?:[.,]\d+)?\}\{-?\d+(?:[.,]\d+)?\}/y;
const DIGITS = '\\d.\\s+\\-*/×÷^()';
const SUM = `-?\\(?-?\\d[${DIGITS}]{0,100}[+\\-*/×÷^(][${DIGITS}]{1,100}\\)?`;
const PLAIN = '-?[1-9]\\d{0,2}(?:[ ,]\\d{3})+(?:\\.\\d+)?|-?\\d+[.,]\\d+|\\.\\d+|-?\\d+';
/** A sum or the like, or a number with its percent sign, at the beginning of a word. */
const NUMBER = new RegExp(
  `(?<=^|\\s|=|\\*\\*|\\p{Script=Han})[$€£¥]?(?:(${SUM})(?=\\*\\*|[.,:\\s)$]|$)|(${PLAIN})` +
    '(\\s*(?:%|[Pp]ercent(?:age)?|[Pp]ct))?)',
  'gu',
);

/** A formula that begins at a place: how its marks end. */
function formulaAt(text: string, at: number): { body: string; end: number } | undefined {
  const closed = (open: string, close: string, isLine: boolean): { body: string; end: number } | undefined => {
    if (!text.startsWith(open, at)) return undefined;
    const from = at + open.length;
    const limit = isLine ? text.indexOf('\n', from) : -1;
    for (let end = text.indexOf(close, from); end >= 0; end = text.indexOf(close, end + 1)) {
      if (limit >= 0 && end > limit) return undefined;
      if (text[end - 1] === '\\' && text[end - 2] !== '\\') continue;
      return end === from ? undefined : { body: text.slice(from, end), end: end + close.length };
    }
    return undefined;
  };
  const before = text[at - 1] ?? '';
  if (text[at] === '$' && before !== '\\')
    return closed('$$', '$$', false) ?? (/\d/.test(before) ? undefined : closed('$', '$', true));
  if (text[at] === '\\' && before !== '\\') return closed('\\[', '\\]', false) ?? closed('\\(', '\\)', true);
  if (text[at] !== '[' || !/\s/.test(before)) return undefined;
  const bracket = /\[([^\n\][]+)\](?=\s)/y;
  bracket.lastIndex = at;
  const body = bracket.exec(text)?.[1];
  return body === undefined ? undefined : { body, end: at + body.length + 2 };
}

function formulasOf(text: string): Found[] {
  const found: (Found & { readonly end: number })[] = [];
  const begin = /[$\\[-]/g;
  for (let mark = begin.exec(text); mark !== null; mark = begin.exec(text)) {
    FRACTION.lastIndex = mark.index;
    const fraction = FRACTION.exec(text)?.[0];
    const one =
      formulaAt(text, mark.index) ??
      (fraction === undefined ? undefined : { body: fraction, end: mark.index + fraction.length });
    if (one === undefined) continue;
    PERCENT.lastIndex = one.end;
    const percent = PERCENT.exec(text)?.[0] ?? '';
    const end = one.end + percent.length;
    begin.lastIndex = end;
    const before = found.at(-1);
    JOIN.lastIndex = before?.end ?? 0;
    const joined = before === undefined ? undefined : JOIN.exec(text)?.[0];
    const isJoined = joined !== undefined && before!.end + joined.length === mark.index;
    if (isJoined && before!.bodies.length < MAX_JOINED)
      found[found.length - 1] = { ...before!, end, bodies: [...before!.bodies, one.body] };
    else found.push({ start: mark.index, end, bodies: [one.body], isFormula: true, isPercent: percent !== '' });
  }
  return found;
}

const numbersOf = (text: string): Found[] =>
  [...text.matchAll(NUMBER)].map(({ index, 0: all, 1: sum, 2: number, 3: percent }) => ({
    start: index,
    end: index + all.length,
    bodies: [sum ?? number ?? ''],
    isFormula: false,
    isPercent: percent !== undefined,
  }));

/** The last box, by itself or within its formula. */
function boxIn(text: string, formulas: readonly Found[]): Found[] {
  const start = text.lastIndexOf('\\boxed');
  if (start < 0) return [];
  const around = formulas.filter((each) => each.start <= start && start < each.end);
  const end = text.lastIndexOf('}') + 1;
  const whole = { start, end, bodies: [text.slice(text.indexOf('\\boxed'))], isFormula: true, isPercent: false };
  return [...around, ...(end > start ? [{ ...whole, isLastBox: true }] : [])];
}

/** Those that follow a word closely. */
function after(text: string, word: RegExp, all: readonly Found[], reach: number): Found[] {
  return [...text.matchAll(word)].flatMap(({ index, 0: { length } }) => {
    const from = index + length;
    const first = all.find(({ start }) => start >= from && start - from <= reach);
    const gap = first === undefined ? '' : text.slice(from, first.start);
    return first === undefined || (!first.isFormula && gap.includes('\n')) ? [] : [first];
  });
}

function read(found: Found): ExtractedAnswer {
  if (!found.isFormula) {
    const body = (found.bodies[0] ?? '').trim().replace(/\.$/, '');
    const isGrouped = /^-?[1-9]\d{0,2}(?:[ ,]\d{3})+(?:\.\d+)?$/.test(body);
    const digits = isGrouped ? body.replace(/[ ,]/g, '') : body.replace(',', '.');
    const expression = readLatex(digits, { isPlain: false });
    const value = expression && found.isPercent ? percentOf(expression) : expression;
    return { expression: value, text: digits };
  }
  const tidied = found.bodies.map((body) => tidyFormula(body, found.isLastBox === true) ?? '');
  const parsed = tidied.map(
    (each) => readLatex(each, { isPlain: false }) ?? readLatex(lastSide(each), { isPlain: false }),
  );
  const [one] = parsed;
  if (parsed.length > 1 && parsed.every((each) => each !== undefined)) {
    const items = parsed.flatMap((each) => (each.kind === 'set' ? each.items : [each]));
    return { expression: { kind: 'set', items }, text: tidied.join(' and ') };
  }
  return { expression: one && found.isPercent ? percentOf(one) : one, text: tidied[0] ?? '' };
}

/** Of a chain of equations; not of what stands in groups. */
function lastSide(text: string): string {
  if (/[,;]/.test(text)) return text;
  let [depth, from] = [0, 0];
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '{') depth++;
    else if (text[i] === '}') depth--;
    else if (text[i] === '=' && depth <= 0 && !/[\\<!>]/.test(text[i - 1] ?? '')) from = i + 1;
  }
  return text.slice(from);
}

/** The answer that a formula without marks around it is. */
export const formulaAnswer = (formula: string): ExtractedAnswer =>
  read({ start: 0, end: formula.length, bodies: [formula], isFormula: true, isPercent: false });

/** `takesNumbers`: numbers outside of formulas count too. */
export function answerIn(whole: string, takesNumbers: boolean): ExtractedAnswer {
  const text = whole.slice(-MAX_LETTERS);
  const formulas = formulasOf(text);
  const numbers = takesNumbers ? numbersOf(text) : [];
  const all = [...formulas, ...numbers].sort((a, b) => a.start - b.start || b.end - a.end);
  const final = /final answer(?:.{0,100}?)\sis:?\s*/gis;
  const groups = [
    after(text, /final answer is:?\s*/gi, all, 0).filter(({ end }) => /^\.?\s?I hope/.test(text.slice(end, end + 12))),
    [...after(text, final, all, 0), ...boxIn(text, formulas)],
    after(text, ANSWER_COLON, all, 50),
    after(text, ANSWER, all, 50),
    all,
  ];
  let fallback: string | undefined;
  for (const group of groups)
    for (const each of group.sort((a, b) => b.end - a.end || a.start - b.start)) {
      const answer = read(each);
      fallback ??= answer.text === '' ? undefined : answer.text;
      if (answer.expression !== undefined) return { ...answer, text: fallback ?? '' };
    }
  return { expression: undefined, text: fallback ?? '' };
}

/** The answers are the same as they are written, or after they are read. */
export const isSameExtracted = (right: ExtractedAnswer, answer: ExtractedAnswer): boolean =>
  (right.text !== '' && right.text === answer.text) ||
  (right.expression !== undefined &&
    answer.expression !== undefined &&
    isSameAnswer(right.expression, answer.expression));

// A final answer in the normal form of Lewkowycz et al. (2022), appendix D, and when two of them are equivalent: what
// the public harness calls exact_match_original.

/** Texts and what takes their places, in order. */
const SUBSTITUTED: readonly (readonly [text: string, by: string])[] = [
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
const MAX_ANSWER_LETTERS = 2000;

export function normalAnswer(text: string): string {
  if (text.length > MAX_ANSWER_LETTERS) return text;
  let left = text.split('=').at(-1)!;
  for (const [each, by] of SUBSTITUTED) left = left.replaceAll(each, by);
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
