/** What a page shows of a sample: texts before its choices, the choices, the right one. The file is untrusted. */
import type { Block } from '../../evaluate/compare/findRuns.js';
import { type Answered, requestsOf } from '../../evaluate/compare/readSamples.js';
import { codePointLength } from '../../python/value.js';
import { isRecord } from '../../system/json.js';
import type { QuestionText } from '../document/questions.js';

/** Characters of a text that a page holds. */
const MAX_TEXT = 1 << 20;
/** Of texts together in a question. */
const MAX_QUESTION = 1 << 21;
const MAX_CHOICES = 200;
const MAX_OUTPUTS = 20;

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value);

/** With which all of them begin, up to a space. */
function commonBeginning(texts: readonly string[]): string {
  const [first = '', ...others] = texts;
  let length = first.length;
  for (const other of others) {
    let i = 0;
    while (i < length && i < other.length && first[i] === other[i]) i++;
    length = i;
  }
  if (texts.every((text) => text.length === length)) return first;
  while (length > 0 && !/\s/.test(first[length - 1]!)) length--;
  return first.slice(0, length);
}

/** Cuts texts so that a question stays within its bounds, and counts what is left out. */
class Cutter {
  left = 0;
  #room = MAX_QUESTION;

  take(text: string): string {
    const most = Math.min(MAX_TEXT, this.#room);
    this.#room -= Math.min(text.length, most);
    if (text.length <= most) return text;
    this.left += text.length - most;
    return text.slice(0, most);
  }
}

/** Texts before the choices and of each: where contexts differ, choices begin where they do. */
export function partsOf({ choices, lls }: Answered, sample: Block): { context: string; choices: string[] } {
  const requests = requestsOf(sample).slice(0, MAX_CHOICES);
  const before = requests.map(([first]) => textOf(first));
  if (lls === undefined) return { context: before[0] ?? '', choices: [] };
  const [contexts, own] = [before.slice(0, choices), requests.slice(0, choices)];
  const context = commonBeginning(contexts);
  return { context, choices: own.map(([, second], i) => contexts[i]!.slice(context.length) + textOf(second)) };
}

/** Texts of a document that are shorter may be anywhere, as names of subjects are. */
const MIN_OWN = 30;
/** Looking for hostile texts takes their length times that of the context: so much of both is looked at. */
const [MAX_OWN, MAX_FIELDS, MAX_CONTEXT] = [80, 8, 1 << 16];

/** Where a document's own texts begin in its context, behind an empty line: what stands before them are examples. */
function endOfShots(context: string, doc: unknown): number {
  if (!isRecord(doc)) return 0;
  const skipped = Math.max(0, context.length - MAX_CONTEXT);
  const searched = context.slice(skipped);
  const begins = Object.values(doc)
    .filter((value): value is string => typeof value === 'string' && value.trim().length >= MIN_OWN)
    .slice(0, MAX_FIELDS)
    .map((value) => searched.lastIndexOf(value.trim().slice(0, MAX_OWN)))
    .filter((at) => at >= 0);
  const end = begins.length === 0 ? -1 : searched.lastIndexOf('\n\n', Math.min(...begins));
  return end < 0 ? 0 : skipped + end + 2;
}

export function questionText(answered: Answered, sample: Block): Omit<QuestionText, 'outputs'> {
  const { context, choices } = partsOf(answered, sample);
  const cutter = new Cutter();
  const target = sample['target'];
  const has = answered.lls === undefined && target !== undefined;
  return {
    context: cutter.take(context),
    shots: endOfShots(context, sample['doc']),
    choices: choices.map((choice) => cutter.take(choice)),
    ...(has ? { target: cutter.take(textOf(target)) } : {}),
    ...(cutter.left > 0 ? { cut: cutter.left } : {}),
  };
}

/** Texts that a run generated, cut. */
export const cutOutputs = (texts: readonly string[]): string[] => {
  const cutter = new Cutter();
  return texts.slice(0, MAX_OUTPUTS).map((text) => cutter.take(text));
};

const index = (value: unknown, choices: number): number => {
  const text = typeof value === 'number' || typeof value === 'string' ? String(value).trim() : '';
  const number = /^\d{1,4}$/.test(text) ? Number(text) : NaN;
  return number < choices ? number : -1;
};

/** The right choice, from 0; -1 where the sample does not say. */
export function goldOf(answered: Answered, sample: Block): number {
  const { choices, lls } = answered;
  if (lls === undefined || choices < 2) return -1;
  const doc = isRecord(sample['doc']) ? sample['doc'] : {};
  // Numbers that are themselves choices (arithmetic) are found as texts first.
  const target = textOf(sample['target']).trim();
  const texts = partsOf(answered, sample).choices.map((text) => text.trim());
  const asText = texts.indexOf(target);
  if (asText >= 0 && texts.lastIndexOf(target) === asText) return asText;
  const stated = index(sample['target'], choices);
  return stated >= 0 ? stated : index(doc['gold'], choices);
}

/** Of the context, in characters. */
export const contextLength = (answered: Answered, sample: Block): number =>
  codePointLength(partsOf(answered, sample).context);
