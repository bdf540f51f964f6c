/** The metrics of one document, as the harness computes them of the model's answers. */
import { UserError } from '../../errors.js';
import { str } from '../../python/show.js';
import { asInt, codePointLength, type Dict, isList, type PyValue, splitAtSpace } from '../../python/value.js';
import { at, zip } from '../../system/at.js';
import type { OutputType } from '../requests/keys.js';
import type { Item } from './aggregate.js';
import { bleuCounts, chrfCounts, terCounts } from './corpus.js';
import { comparable, isText, type LogLikelihood, type Metric, type Response } from './metrics.js';

/** What is known of a document besides the model's answers. */
export interface Answerable {
  readonly document: Dict;
  /** The right answer: of choices its place, its text or a list of places; else any value, or a list of answers. */
  readonly gold: PyValue;
  /** Whether lists are lists of right answers. */
  readonly hasManyTargets: boolean;
  /** Absent where the task has none. */
  readonly choices: readonly PyValue[] | undefined;
  /** Its text is what is counted where a text is scored as a whole. */
  readonly target: PyValue;
}

/** Values by the names of metrics. */
export type MetricValues = ReadonlyMap<string, Item>;

/** Index of the first maximum, as NumPy has it: NaN is the largest. */
function argmax(values: readonly number[]): number {
  const nan = values.findIndex((value) => Number.isNaN(value));
  return nan < 0 ? Math.max(0, values.indexOf(Math.max(...values))) : nan;
}

function softmax(values: readonly number[]): number[] {
  const most = values.reduce((largest, value) => Math.max(largest, value), -Infinity);
  const powers = values.map((value) => Math.exp(value - most));
  const total = powers.reduce((sum, value) => sum + value, 0);
  return powers.map((value) => value / total);
}

/** The place of a right answer that is no choice. */
const NONE = -100;

/** Places of right choices; NONE for what names no choice. */
function placesOf(gold: PyValue, choices: readonly string[]): readonly number[] {
  const placeOf = (one: PyValue): number => {
    if (typeof one === 'string') return choices.includes(one) ? choices.indexOf(one) : NONE;
    const place = asInt(one);
    // Python counts negative places from the end.
    return place === undefined || place >= choices.length ? NONE : Number(place);
  };
  return isList(gold) ? gold.map(placeOf) : [placeOf(gold)];
}

/** Whether the right answer names no choice: then no choice is right, and the harness logs it. */
export const isGoldMissing = ({ gold, choices = [] }: Pick<Answerable, 'gold' | 'choices'>): boolean =>
  placesOf(gold, choices.map(str)).includes(NONE);

function ofChoices(
  { gold, choices: given = [] }: Answerable,
  answers: readonly LogLikelihood[],
  names: ReadonlySet<string>,
) {
  const choices = given.map(str);
  const lls = answers.slice(0, choices.length).map(({ ll }) => ll);
  const unconditional = answers.slice(choices.length).map(({ ll }) => ll);
  const places = placesOf(gold, choices);
  const [place = NONE] = places;
  const isRight = (values: readonly number[]): number => (places.includes(argmax(values)) ? 1 : 0);
  const greedyAt = (one: number): boolean => answers.at(one)?.isGreedy === true;
  const computed: Readonly<Record<string, () => Item>> = {
    acc: () => isRight(lls),
    f1: () => [place, argmax(lls)],
    mcc: () => [place, argmax(lls)],
    acc_norm: () => isRight(zip(lls, choices).map(([ll, choice]) => ll / codePointLength(choice))),
    acc_bytes: () => isRight(zip(lls, choices).map(([ll, choice]) => ll / Buffer.byteLength(choice))),
    exact_match: () => (places.some((one) => one !== NONE && greedyAt(one)) ? 1 : 0),
    brier_score: () => [place, ...softmax(lls)],
    acc_mutual_info: () => isRight(zip(lls, unconditional).map(([ll, alone]) => ll - alone)),
  };
  return pick(computed, names);
}

const pick = (computed: Readonly<Record<string, () => Item>>, names: ReadonlySet<string>): MetricValues =>
  new Map(Object.entries(computed).flatMap(([name, of]) => (names.has(name) ? [[name, of()] as const] : [])));

function ofRolling({ target }: Answerable, ll: number, names: ReadonlySet<string>): MetricValues {
  const text = str(target);
  // Python's re.split(r"\s+", text) has an empty part where space begins or ends the text.
  const parts = splitAtSpace(`x${text}x`).length;
  const bytes = Buffer.byteLength(text);
  return pick(
    {
      word_perplexity: () => [ll, parts],
      byte_perplexity: () => [ll, bytes],
      bits_per_byte: () => [ll, bytes],
    },
    names,
  );
}

/** What is counted of a text, from which the figure of all texts follows. */
const CORPUS: Readonly<Record<string, (text: string, reference: string) => readonly number[]>> = {
  bleu: bleuCounts,
  chrf: chrfCounts,
  ter: terCounts,
};

/**
 * Right answers as texts. Where a task has one for each document, a list is the text that Python shows of it. Of many,
 * NumPy compares: numbers among texts become texts, and numbers alone equal no text.
 */
function textsOf({ gold, choices, hasManyTargets }: Answerable): readonly string[] {
  const place = choices === undefined ? undefined : asInt(gold);
  const right = place === undefined ? gold : (choices?.at(Number(place)) ?? gold);
  if (choices !== undefined) return isList(right) ? right.map(str) : [str(right)];
  if (!hasManyTargets) return [str(right)];
  // Python's list of a text is its characters.
  const answers = isList(right) ? right : typeof right === 'string' ? [...right] : [right];
  return answers.some((each) => typeof each === 'string') ? answers.map(str) : [];
}

function ofText(of: Answerable, text: string, metrics: readonly Metric[]): MetricValues {
  const golds = textsOf(of);
  return new Map(
    metrics.map(({ name, entry, where }): [string, Item] => {
      if (name === 'bypass') return [name, 0];
      const counts = Object.hasOwn(CORPUS, name) ? CORPUS[name] : undefined;
      if (counts !== undefined) {
        if (golds.length !== 1) throw new UserError(`${where}: ${name} takes one reference, not ${golds.length}`);
        return [name, counts(text, at(golds, 0))];
      }
      const clean = comparable(entry, where);
      const cleaned = clean(text);
      return [name, golds.some((each) => clean(each) === cleaned) ? 1 : 0];
    }),
  );
}

/** Of a document with these answers, of which there is one for each request. */
export function valuesOf(
  type: OutputType,
  of: Answerable,
  responses: readonly Response[],
  metrics: readonly Metric[],
): MetricValues {
  const names = new Set(metrics.map(({ name }) => name));
  const [first] = responses;
  if (type === 'generate_until') return ofText(of, String(first), metrics);
  const answers = responses.filter((response): response is LogLikelihood => !isText(response));
  switch (type) {
    case 'multiple_choice':
      return ofChoices(of, answers, names);
    case 'loglikelihood':
      return pick({ perplexity: () => at(answers, 0).ll, acc: () => (at(answers, 0).isGreedy ? 1 : 0) }, names);
    case 'loglikelihood_rolling':
      return ofRolling(of, at(answers, 0).ll, names);
    default:
      return type satisfies never;
  }
}

/** The place of the first right choice, for figures while a run goes on; undefined for types without one. */
export function placeOfGold(type: OutputType, { gold, choices }: Answerable): number | undefined {
  const [place = NONE] = type === 'multiple_choice' ? placesOf(gold, (choices ?? []).map(str)) : [];
  return place < 0 ? undefined : place;
}
