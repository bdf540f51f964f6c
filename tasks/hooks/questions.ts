/** MMLU-Pro in both forms, and TruthfulQA's score over all choices. */
import { strip } from '../../python/text.js';
import { isInt, isList, type Dict, type Value } from '../../python/value.js';
import { dictOf, fieldOf, HookProblem, textOf, textsOf, type Scored } from './hook.js';

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
/** How many options a prompt that asks for reasoning shows. */
const MAX_OPTIONS = 10;

const optionsOf = (document: Dict): readonly string[] => {
  const options = textsOf(fieldOf(document, 'options'), 'options');
  if (options.length > LETTERS.length) throw new HookProblem(`${options.length} options, and no letters for them`);
  return options;
};

/** The leaderboard's form: letters are the choices. */
export const lettersText = (document: Dict): Value =>
  `${textOf(document, 'question')}\n${optionsOf(document)
    .map((option, i) => `${LETTERS.charAt(i)}. ${option}\n`)
    .join('')}Answer:`;
export const lettersChoices = (document: Dict): Value => optionsOf(document).map((_, i) => LETTERS.charAt(i));

/** The form that asks for reasoning, of questions and of shots. */
export const reasoningText = (document: Dict): Value =>
  `Question:\n${textOf(document, 'question')}\nOptions:\n${optionsOf(document)
    .slice(0, MAX_OPTIONS)
    .map((option, i) => `${LETTERS.charAt(i)}. ${strip(option)}\n`)
    .join('')}Answer: Let's think step by step.`;
export const reasoningTarget = (document: Dict): Value =>
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
