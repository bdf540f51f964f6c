/** Exams and other questions with lettered or listed choices: MedQA, LogiQA, MathQA, arithmetic, Winograd's schema. */
import { strip } from '../../python/text.js';
import { isList, type Dict, type Value } from '../../python/value.js';
import { chosen, dictOf, fieldOf, HookProblem, intOf, textOf, textsOf } from './hook.js';

const LETTERS = 'ABCD';
const lettered = (options: readonly string[]): string =>
  options.map((option, i) => `${LETTERS.charAt(i)}. ${option}\n`).join('');

/** Options beyond the letters are not shown. */
const optionsOf = (document: Dict): readonly string[] =>
  textsOf(fieldOf(document, 'options'), 'options').slice(0, LETTERS.length);

export const logiqaText = (document: Dict): Value =>
  `Passage: ${textOf(document, 'context')}\nQuestion: ${textOf(document, 'question')}\nChoices:\n` +
  `${lettered(optionsOf(document))}Answer:`;
export const logiqaTarget = (document: Dict): Value =>
  chosen({ a: 0, b: 1, c: 2, d: 3 }, strip(textOf(document, 'label')), 'label');

export const logiqa2Text = (document: Dict): Value =>
  `Passage: ${textOf(document, 'text')}\nQuestion: ${textOf(document, 'question')}\n` +
  `${lettered(optionsOf(document))}Answer:`;

const columns = (document: Dict, names: string): string[] => names.split(' ').map((name) => textOf(document, name));

export const medqaText = (document: Dict): Value =>
  `Question: ${textOf(document, 'sent1')}\n${lettered(columns(document, 'ending0 ending1 ending2 ending3'))}Answer:`;
export const medqaTarget = (document: Dict): Value => intOf(document, 'label');

export const medmcqaText = (document: Dict): Value =>
  `Question: ${textOf(document, 'question')}\nChoices:\n${lettered(columns(document, 'opa opb opc opd'))}Answer:`;

export const pubmedqaText = (document: Dict): Value =>
  `Abstract: ${textsOf(fieldOf(document, 'CONTEXTS'), 'CONTEXTS').join('\n')}\n` +
  `Question: ${textOf(document, 'QUESTION')}\nAnswer:`;

/** Choices stand in one text: `a ) 38 , b ) 27.675 , … , e ) none`. A choice but the last ends before a comma. */
export function mathqaChoices(document: Dict): Value {
  const found = textOf(document, 'options').match(/[abcd] \) [^\n]*?, |e \) [^\n]*?(?=\n?$)/g) ?? [];
  return found.map((choice) => choice.slice(4).replace(/[ ,]+$/, ''));
}

/** The hypothesis ends with a period. */
export function mnliText(document: Dict): Value {
  const hypothesis = strip(textOf(document, 'hypothesis'));
  const end = hypothesis.endsWith('.') ? '' : '.';
  return `${textOf(document, 'premise')}\nQuestion: ${hypothesis}${end} True, False or Neither?\nAnswer:`;
}

export const arithmeticDocument = (document: Dict): Dict =>
  new Map<string, Value>([
    ...document,
    [
      'context',
      strip(textOf(document, 'context'))
        .replaceAll('\n\n', '\n')
        .replaceAll('Q:', 'Question:')
        .replaceAll('A:', 'Answer:'),
    ],
  ]);

const POSSESSIVE = new Set('my his her our their'.split(' '));
const CAPITALISED = new Set('A An The She He It They My His Her Their'.split(' '));

/** WSC273: an option is written as it stands in the place of the pronoun. */
export function schemaDocument(document: Dict): Dict {
  const text = textOf(document, 'text').replaceAll('  ', ' ');
  const pronoun = textOf(document, 'pronoun');
  const place = intOf(document, 'pronoun_loc');
  const letters = [...text];
  const before = letters.at(place - 2);
  if (before === undefined) throw new HookProblem(`pronoun_loc: the text has no place ${place}`);
  const options = textsOf(fieldOf(document, 'options'), 'options').map((given, i) => {
    if (i > 1) return given;
    const option = POSSESSIVE.has(pronoun.toLowerCase()) ? `${given}'s` : given;
    const [first = ''] = strip(option).split(/\s+/);
    return before !== '.' && CAPITALISED.has(first) ? option.replaceAll(first, first.toLowerCase()) : option;
  });
  return new Map<string, Value>([...document, ['text', text], ['options', options]]);
}

/** ARC for instructed models: questions with four choices, whose labels are letters. */
export function fourChoices(document: Dict): Dict | undefined {
  const choices = dictOf(fieldOf(document, 'choices'), 'choices');
  const labels = fieldOf(choices, 'label');
  if (!isList(labels)) throw new HookProblem('choices.label: expected a list');
  if (labels.length !== LETTERS.length) return undefined;
  const key = textOf(document, 'answerKey');
  const place = LETTERS.includes(key) ? key : /^[1-4]$/.test(key) ? LETTERS.charAt(Number(key) - 1) : undefined;
  if (place === undefined) throw new HookProblem(`answerKey: expected a letter or a number from 1 to 4, found ${key}`);
  return new Map<string, Value>([
    ...document,
    ['choices', new Map<string, Value>([...choices, ['label', [...LETTERS]]])],
    ['answerKey', place],
  ]);
}
