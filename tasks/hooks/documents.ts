/** Functions of documents with questions: exams, GPQA, lettered choices, TruthfulQA. */
import type { PythonRandom } from '../../python/random.js';
import { type Dict, isInt, isList, strip, type PyValue } from '../../python/value.js';
import { chosen, dictOf, fieldOf, HookProblem, intOf, type Scored, textOf, textsOf } from './hook.js';
import { withoutNotes } from './markup.js';
import { bleu, rougeN, rougeSum } from './similarity.js';

// Exams and other questions with lettered or listed choices: MedQA, LogiQA, MathQA, arithmetic, Winograd's schema.

const EXAM_LETTERS = 'ABCD';
const lettered = (options: readonly string[]): string =>
  options.map((option, i) => `${EXAM_LETTERS.charAt(i)}. ${option}\n`).join('');

/** Options beyond the letters are not shown. */
const examOptions = (document: Dict): readonly string[] =>
  textsOf(fieldOf(document, 'options'), 'options').slice(0, EXAM_LETTERS.length);

export const logiqaText = (document: Dict): PyValue =>
  `Passage: ${textOf(document, 'context')}\nQuestion: ${textOf(document, 'question')}\nChoices:\n` +
  `${lettered(examOptions(document))}Answer:`;
export const logiqaTarget = (document: Dict): PyValue =>
  chosen({ a: 0, b: 1, c: 2, d: 3 }, strip(textOf(document, 'label')), 'label');

export const logiqa2Text = (document: Dict): PyValue =>
  `Passage: ${textOf(document, 'text')}\nQuestion: ${textOf(document, 'question')}\n` +
  `${lettered(examOptions(document))}Answer:`;

const columns = (document: Dict, names: string): string[] => names.split(' ').map((name) => textOf(document, name));

export const medqaText = (document: Dict): PyValue =>
  `Question: ${textOf(document, 'sent1')}\n${lettered(columns(document, 'ending0 ending1 ending2 ending3'))}Answer:`;
export const medqaTarget = (document: Dict): PyValue => intOf(document, 'label');

export const medmcqaText = (document: Dict): PyValue =>
  `Question: ${textOf(document, 'question')}\nChoices:\n${lettered(columns(document, 'opa opb opc opd'))}Answer:`;

export const pubmedqaText = (document: Dict): PyValue =>
  `Abstract: ${textsOf(fieldOf(document, 'CONTEXTS'), 'CONTEXTS').join('\n')}\n` +
  `Question: ${textOf(document, 'QUESTION')}\nAnswer:`;

/** Choices stand in one text: `a ) 38 , b ) 27.675 , … , e ) none`. A choice but the last ends before a comma. */
export function mathqaChoices(document: Dict): PyValue {
  const found = textOf(document, 'options').match(/[abcd] \) [^\n]*?, |e \) [^\n]*?(?=\n?$)/g) ?? [];
  return found.map((choice) => choice.slice(4).replace(/[ ,]+$/, ''));
}

/** The hypothesis ends with a period. */
export function mnliText(document: Dict): PyValue {
  const hypothesis = strip(textOf(document, 'hypothesis'));
  const end = hypothesis.endsWith('.') ? '' : '.';
  return `${textOf(document, 'premise')}\nQuestion: ${hypothesis}${end} True, False or Neither?\nAnswer:`;
}

export const arithmeticDocument = (document: Dict): Dict =>
  new Map<string, PyValue>([
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
  return new Map<string, PyValue>([...document, ['text', text], ['options', options]]);
}

/** ARC for instructed models: questions with four choices, whose labels are letters. */
export function fourChoices(document: Dict): Dict | undefined {
  const choices = dictOf(fieldOf(document, 'choices'), 'choices');
  const labels = fieldOf(choices, 'label');
  if (!isList(labels)) throw new HookProblem('choices.label: expected a list');
  if (labels.length !== EXAM_LETTERS.length) return undefined;
  const key = textOf(document, 'answerKey');
  const place = EXAM_LETTERS.includes(key)
    ? key
    : /^[1-4]$/.test(key)
      ? EXAM_LETTERS.charAt(Number(key) - 1)
      : undefined;
  if (place === undefined) throw new HookProblem(`answerKey: expected a letter or a number from 1 to 4, found ${key}`);
  return new Map<string, PyValue>([
    ...document,
    ['choices', new Map<string, PyValue>([...choices, ['label', [...EXAM_LETTERS]]])],
    ['answerKey', place],
  ]);
}

// GPQA: four choices in an order that Python's own generator draws.

const RIGHT = 'Correct Answer';
const ANSWERS = ['Incorrect Answer 1', 'Incorrect Answer 2', 'Incorrect Answer 3', RIGHT];

export interface GpqaForm {
  /** The leaderboard's form loses what stands in brackets. */
  readonly dropsNotes?: boolean;
  /** The forms that generate have a list of choices too. */
  readonly hasList?: boolean;
}

export const gpqaDocument =
  ({ dropsNotes = false, hasList = false }: GpqaForm) =>
  (document: Dict, random: PythonRandom): Dict => {
    const read = (column: string): string => {
      if (fieldOf(document, column) === null) return ' ';
      const text = strip(textOf(document, column)).replaceAll(' [title]', '. ');
      return (dropsNotes ? withoutNotes(text) : text).replaceAll('  ', ' ');
    };
    const choices = ANSWERS.map(read);
    random.shuffle(choices);
    const right = choices.indexOf(read(RIGHT));
    return new Map<string, PyValue>([
      ...document,
      ...choices.map((choice, i): [string, PyValue] => [`choice${i + 1}`, choice]),
      ...(hasList ? ([['choices', choices]] as const) : []),
      ['answer', `(${'ABCD'.charAt(right)})`],
    ]);
  };

// MMLU-Pro in both forms, and TruthfulQA's score over all choices.

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
/** How many options a prompt that asks for reasoning shows. */
const MAX_OPTIONS = 10;

const optionsOf = (document: Dict): readonly string[] => {
  const options = textsOf(fieldOf(document, 'options'), 'options');
  if (options.length > LETTERS.length) throw new HookProblem(`${options.length} options, and no letters for them`);
  return options;
};

/** The leaderboard's form: letters are the choices. */
export const lettersText = (document: Dict): PyValue =>
  `${textOf(document, 'question')}\n${optionsOf(document)
    .map((option, i) => `${LETTERS.charAt(i)}. ${option}\n`)
    .join('')}Answer:`;
export const lettersChoices = (document: Dict): PyValue => optionsOf(document).map((_, i) => LETTERS.charAt(i));

/** The form that asks for reasoning, of questions and of shots. */
export const reasoningText = (document: Dict): PyValue =>
  `Question:\n${textOf(document, 'question')}\nOptions:\n${optionsOf(document)
    .slice(0, MAX_OPTIONS)
    .map((option, i) => `${LETTERS.charAt(i)}. ${strip(option)}\n`)
    .join('')}Answer: Let's think step by step.`;
export const reasoningTarget = (document: Dict): PyValue =>
  textOf(document, 'cot_content').replaceAll("A: Let's think step by step. ", '');

/** Keeps the questions of one category. */
export const ofCategory =
  (category: string) =>
  (document: Dict): Dict | undefined =>
    fieldOf(document, 'category') === category ? document : undefined;

/** Keeps the questions whose column has this value, in the spelling of Python's names. */
export const ofColumn =
  (column: string, value: string) =>
  (document: Dict): Dict | undefined =>
    textOf(document, column).toLowerCase().replaceAll(' ', '_') === value ? document : undefined;

/** OpenAI's MMMLU: some subjects are names of files. */
export const ofSubject =
  (subject: string) =>
  (document: Dict): Dict | undefined => {
    const written = fieldOf(document, 'Subject');
    const [name] = typeof written === 'string' ? written.split(/_test(?:\.csv|-)/) : [];
    return name === subject ? document : undefined;
  };

/** BIG-bench has questions without choices among the others. */
export function withChoices(document: Dict): Dict | undefined {
  const choices = fieldOf(document, 'multiple_choice_targets');
  if (!isList(choices)) throw new HookProblem('multiple_choice_targets: expected a list');
  return choices.length > 0 ? document : undefined;
}

/** NumPy's sum of up to 128 numbers: from 8 on, eight sums side by side. Scores are compared to the last bit. */
function numpySum(values: readonly number[]): number {
  if (values.length < 8 || values.length > 128) return values.reduce((sum, value) => sum + value, 0);
  const sums = values.slice(0, 8);
  const whole = values.length - (values.length % 8);
  for (let i = 8; i < whole; i++) sums[i % 8]! += values[i]!;
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = sums;
  return values.slice(whole).reduce((sum, value) => sum + value, a + b + (c + d) + (e + f + (g + h)));
}

/** The share of probability that the true choices have. */
export function truthfulShare(document: Dict, logLikelihoods: readonly number[]): ReadonlyMap<string, Scored> {
  const labels = fieldOf(dictOf(fieldOf(document, 'mc2_targets'), 'mc2_targets'), 'labels');
  if (!isList(labels) || !labels.every(isInt) || labels.length !== logLikelihoods.length)
    throw new HookProblem(`mc2_targets.labels: expected ${logLikelihoods.length} whole numbers`);
  const probabilities = logLikelihoods.map(Math.exp);
  const sum = numpySum(probabilities);
  const shares = probabilities.map((each) => each / sum);
  return new Map([['acc', numpySum(shares.filter((_, i) => Number(labels[i]) === 1))]]);
}

// TruthfulQA with answers in the model's own words: how much more alike to true answers than to false ones.

const NO_COMMENT = 'I have no comment.';

/** Answers that are not empty, each with a period at its end. */
const sentences = (document: Dict, name: string): string[] =>
  textsOf(fieldOf(document, name), name)
    .map(strip)
    .filter((answer) => answer !== '')
    .map((answer) => (answer.endsWith('.') ? answer : `${answer}.`));

export function truthfulDocument(document: Dict): Dict {
  const right = sentences(document, 'correct_answers');
  return new Map<string, PyValue>([
    ...document,
    ['question', strip(textOf(document, 'question'))],
    ['correct_answers', right.includes(NO_COMMENT) ? right : [...right, NO_COMMENT]],
    ['incorrect_answers', sentences(document, 'incorrect_answers')],
  ]);
}

/** Sentences on lines of their own. */
const lined = (text: string): string => text.replaceAll(' . ', '.\n');

const MEASURES: Readonly<Record<string, (text: string, answer: string) => number>> = {
  bleu,
  rouge1: (text, answer) => rougeN(text, answer, 1) * 100,
  rouge2: (text, answer) => rougeN(text, answer, 2) * 100,
  rougeL: (text, answer) => rougeSum(lined(text), lined(answer)) * 100,
};

/** Of each measure: the most for a true answer, whether that is more than for a false one, and by how much. */
export function truthfulScores(document: Dict, [text = '']: readonly string[]): ReadonlyMap<string, Scored> {
  const answers = ['correct_answers', 'incorrect_answers'].map((name) => textsOf(fieldOf(document, name), name));
  if (answers.some((each) => each.length === 0)) throw new HookProblem('there are no true or no false answers');
  return new Map(
    Object.entries(MEASURES).flatMap(([name, of]): [string, Scored][] => {
      const [right, wrong] = answers.map((each) => Math.max(...each.map((answer) => of(text, answer))));
      return [
        [`${name}_max`, right!],
        [`${name}_acc`, right! > wrong! ? 1 : 0],
        [`${name}_diff`, right! - wrong!],
      ];
    }),
  );
}
