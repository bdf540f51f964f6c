/**
 * The answer in a text, as Math-Verify looks for it: what follows "final answer is", then a box, then what follows
 * "answer", then the last formula or number. Of several, the last one that can be read.
 */
import { apply, whole, type Expression } from './expression.js';
import { readLatex } from './latexParse.js';
import { tidyFormula } from './tidy.js';

/** A formula or number in a text; `bodies` are several where "and" or commas join them. */
interface Found {
  readonly start: number;
  readonly end: number;
  readonly bodies: readonly string[];
  readonly isFormula: boolean;
  readonly isPercent: boolean;
  readonly isLastBox?: boolean;
}

export interface Answer {
  readonly expression: Expression | undefined;
  readonly text: string;
}

/** What is looked at of a longer text. */
const MAX_LETTERS = 20_000;
const MAX_JOINED = 6;
const PERCENT = /\s*(?:\\?%|[Pp]ercent(?:age)?|[Pp]ct)/y;
const JOIN = /\s*(?:,?and|,?or|,)\s*/y;
const FRACTION = /-?\\frac\{-?\d+(?:[.,]\d+)?\}\{-?\d+(?:[.,]\d+)?\}/y;
const DIGITS = '\\d.\\s+\\-*/×÷^()';
const SUM = `-?\\(?-?\\d[${DIGITS}]{0,100}[+\\-*/×÷^()][${DIGITS}]{1,100}\\)?`;
const PLAIN = '-?[1-9]\\d{0,2}(?:[ ,]\\d{3})+(?:\\.\\d+)?|-?\\d+[.,]\\d+|\\.\\d+|-?\\d+';
/** A sum or the like, or a number with its percent sign, at the beginning of a word. */
const NUMBER = new RegExp(
  `(?<=^|\\s|=|\\*\\*)[$€£¥]?(?:(${SUM})(?=\\*\\*|[.,:\\s)$]|$)|(${PLAIN})` + '(\\s*(?:%|[Pp]ercent(?:age)?|[Pp]ct))?)',
  'g',
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

function read(found: Found): Answer {
  if (!found.isFormula) {
    const body = (found.bodies[0] ?? '').trim().replace(/\.$/, '');
    const isGrouped = /^-?\d{1,3}(?:[ ,]\d{3})+(?:\.\d+)?$/.test(body);
    const digits = isGrouped ? body.replace(/[ ,]/g, '') : body.replace(',', '.');
    const expression = readLatex(digits, { isPlain: false });
    const value = expression && found.isPercent ? apply('/', expression, whole(100n)) : expression;
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
  return { expression: one && found.isPercent ? apply('/', one, whole(100n)) : one, text: tidied[0] ?? '' };
}

/** Of a chain of equations. */
const lastSide = (text: string): string => (/[,;]/.test(text) ? text : (text.split(/(?<![\\<!>])=/).at(-1) ?? text));

/** `takesNumbers`: numbers outside of formulas count too. */
export function answerIn(whole: string, takesNumbers: boolean): Answer {
  const text = whole.slice(-MAX_LETTERS);
  const formulas = formulasOf(text);
  const all = [...formulas, ...(takesNumbers ? numbersOf(text) : [])].sort(
    (a, b) => a.start - b.start || b.end - a.end,
  );
  const final = /final answer(?:.{0,100}?)\sis:?\s*/gis;
  const groups = [
    after(text, /final answer is:?\s*/gi, all, 0).filter(({ end }) => /^\.?\s?I hope/.test(text.slice(end, end + 12))),
    [...after(text, final, all, 0), ...boxIn(text, formulas)],
    after(text, /answer:/gi, all, 50),
    after(text, /answer/gi, all, 50),
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
