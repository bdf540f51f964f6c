/** HellaSwag, WinoGrande and COPA. */
import { literalEval } from '../../python/literal.js';
import { capitalize, codePoints, strip } from '../../python/text.js';
import { isInt, type Dict, type Value } from '../../python/value.js';
import { chosen, fieldOf, HookProblem, intOf, textOf, textsOf } from './hook.js';

/** Removes what the WikiHow pages left: titles and notes in brackets. Python's `.` is anything but a newline. */
const cleaned = (text: string): string => withoutNotes(strip(text).replaceAll(' [title]', '. ')).replaceAll('  ', ' ');

/** Without `[…]` on one line. Linear in the text, also where brackets do not close. */
export function withoutNotes(text: string): string {
  let result = '';
  let at = 0;
  for (;;) {
    const from = text.indexOf('[', at);
    const to = from < 0 ? -1 : text.indexOf(']', from);
    if (to < 0) return result + text.slice(at);
    const newline = text.lastIndexOf('\n', to);
    if (newline > from) {
      result += text.slice(at, newline);
      at = newline;
    } else {
      result += text.slice(at, from);
      at = to + 1;
    }
  }
}

function wholeNumber(value: Value, name: string): Value {
  if (isInt(value)) return value;
  const text = typeof value === 'string' ? strip(value) : '';
  if (!/^[-+]?[0-9]{1,15}$/.test(text)) throw new HookProblem(`${name}: expected a whole number`);
  return literalEval(text.replace(/^\+?(-?)0*(?=[0-9])/, '$1'));
}

export function hellaswagDocument(document: Dict): Dict {
  const context = `${textOf(document, 'ctx_a')} ${capitalize(textOf(document, 'ctx_b'))}`;
  return new Map<string, Value>([
    ...document,
    ['query', cleaned(`${textOf(document, 'activity_label')}: ${context}`)],
    ['choices', textsOf(fieldOf(document, 'endings'), 'endings').map(cleaned)],
    ['gold', wholeNumber(fieldOf(document, 'label'), 'label')],
  ]);
}

function gapOf(document: Dict): readonly [before: string, after: string] {
  const sentence = textOf(document, 'sentence');
  const at = sentence.indexOf('_');
  if (at < 0) throw new HookProblem('sentence: there is no "_" in it');
  return [sentence.slice(0, at), sentence.slice(at + 1)];
}

/** The contexts are the choices here: this is the index of the right one. */
export const winograndeText = (document: Dict): Value =>
  chosen({ '1': 0, '2': 1 }, textOf(document, 'answer'), 'answer');
export const winograndeTarget = (document: Dict): Value => strip(gapOf(document)[1]);
export const winograndeChoices = (document: Dict): Value =>
  ['option1', 'option2'].map((option) => gapOf(document)[0] + textOf(document, option));

const CONNECTORS = { cause: 'because', effect: 'therefore' };

/** The premise without its last character, which is a period. */
export function copaText(document: Dict): Value {
  const premise = codePoints(strip(textOf(document, 'premise'))).slice(0, -1);
  return `${premise.join('')} ${chosen(CONNECTORS, textOf(document, 'question'), 'question')}`;
}

function copaChoice(document: Dict, name: string): string {
  const [first, ...rest] = codePoints(textOf(document, name));
  if (first === undefined) throw new HookProblem(`${name} is empty`);
  return ` ${first.toLowerCase()}${rest.join('')}`;
}

export const copaTarget = (document: Dict): Value =>
  copaChoice(document, intOf(document, 'label') === 0 ? 'choice1' : 'choice2');
export const copaChoices = (document: Dict): Value => ['choice1', 'choice2'].map((name) => copaChoice(document, name));
