/** Runs as a page needs them: files, short names, and of each task the samples with what they say of questions. */
import { resolve } from 'node:path';
import { UsageError } from '../../errors.js';
import { type Block, findRun, type RunFiles, type TaskFiles } from '../../evaluate/compare/findRuns.js';
import { type Answered, readSamples, requestsOf, type SampleSet } from '../../evaluate/compare/readSamples.js';
import { argmax } from '../../evaluate/metrics.js';
import { codePointLength } from '../../python/value.js';
import { isRecord } from '../../system/json.js';
import type { QuestionText } from '../document/questions.js';
import { type SearchSize, searchSizeOf } from './searchTree.js';
import { shortNames } from './shortNames.js';

/** Fields of documents that sort questions into categories, such as HellaSwag's activity_label. */

const MAX_FIELDS = 40;
const MAX_VALUES = 500;
const MAX_CHARACTERS = 80;

/** A field that has few values, each of several questions. */
export interface Category {
  readonly field: string;
  readonly values: readonly string[];
  /** By question, in the order of the file: place in `values`; -1 where it has none. */
  readonly places: Int32Array;
}

interface Field {
  readonly values: Map<string, number>;
  readonly places: number[];
}

export class Categories {
  readonly #fields = new Map<string, Field | undefined>();
  #questions = 0;

  take(doc: unknown): void {
    const at = this.#questions++;
    if (!isRecord(doc)) return;
    for (const [name, value] of Object.entries(doc)) {
      if (typeof value !== 'string' || value === '') continue;
      if (!this.#fields.has(name)) {
        if (this.#fields.size >= MAX_FIELDS || name.length > MAX_CHARACTERS) continue;
        this.#fields.set(name, { values: new Map(), places: [] });
      }
      const field = this.#fields.get(name);
      if (field === undefined) continue;
      const known = field.values.get(value);
      const place = known ?? field.values.size;
      if (known === undefined) {
        if (value.length > MAX_CHARACTERS || place >= MAX_VALUES) {
          this.#fields.set(name, undefined); // texts, not categories
          continue;
        }
        field.values.set(value, place);
      }
      while (field.places.length < at) field.places.push(-1);
      field.places.push(place);
    }
  }

  /** Those that say something: more than one value, and on average three questions of each. */
  found(): Category[] {
    const all = this.#questions;
    return [...this.#fields].flatMap(([field, found]) => {
      if (found === undefined || found.values.size < 2 || found.values.size * 3 > found.places.length) return [];
      const places = new Int32Array(all).fill(-1);
      places.set(found.places);
      return [{ field, values: [...found.values.keys()], places }];
    });
  }
}

/** What a page shows of a sample: texts before its choices, the choices, the right one. The file is untrusted. */

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
const [MAX_OWN, MAX_OWN_FIELDS, MAX_CONTEXT] = [80, 8, 1 << 16];

/** Where a document's own texts begin in its context, behind an empty line: what stands before them are examples. */
function endOfShots(context: string, doc: unknown): number {
  if (!isRecord(doc)) return 0;
  const skipped = Math.max(0, context.length - MAX_CONTEXT);
  const searched = context.slice(skipped);
  const begins = Object.values(doc)
    .filter((value): value is string => typeof value === 'string' && value.trim().length >= MIN_OWN)
    .slice(0, MAX_OWN_FIELDS)
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

/** What a run answered to a question: its choice, its margin, its values of metrics. */

/** The most likely choice, from 0; -1 where there are fewer than two, or one is no number. */
export function chosenOf({ lls, choices }: Answered): number {
  if (lls === undefined || choices < 2) return -1;
  const own = lls.subarray(0, choices);
  return own.some((each) => Number.isNaN(each) || each === Infinity) ? -1 : argmax([...own]);
}

/** By how much the right choice, or else the most likely one, exceeds the best other one, in nats; null without one. */
export function marginOf(answered: Answered, gold: number): number | null {
  const chosen = chosenOf(answered);
  if (chosen < 0) return null;
  const place = gold >= 0 ? gold : chosen;
  let other = -Infinity;
  for (let i = 0; i < answered.choices; i++) if (i !== place) other = Math.max(other, answered.lls![i]!);
  const margin = answered.lls![place]! - other;
  return Number.isFinite(margin) ? margin : null;
}

/** Metrics of which every value is 0 or 1, by their places in the set. */
export function binaryMetrics({ keys, questions }: SampleSet): { readonly key: string; readonly place: number }[] {
  const all = [...questions.values()];
  return keys.flatMap((key, place) => {
    const isBinary = all.every(({ items }) => items[place] === 0 || items[place] === 1 || items[place] === undefined);
    return isBinary && all.some(({ items }) => items[place] !== undefined) ? [{ key, place }] : [];
  });
}

/** `acc`, or `exact_match (strict-match)` where answers are read in several ways. */
export function metricName(key: string): string {
  const [metric = '', filter = 'none'] = key.split(/,(.*)/s);
  return filter === 'none' ? metric : `${metric} (${filter})`;
}

const MAX_RUNS = 20;

/** A task of a run, with samples. Lists are by question, in the order of the file. */
export interface LoadedTask {
  readonly files: TaskFiles;
  readonly set: SampleSet;
  /** The right choice, from 0; -1 where it is not known. */
  readonly golds: readonly number[];
  /** Of contexts, in characters. */
  readonly lengths: readonly number[];
  readonly categories: readonly Category[];
  /** By number of the question. */
  readonly texts: ReadonlyMap<number, Omit<QuestionText, 'outputs'>>;
  /** Of questions that were searched, by number; and how many searches are not as they are written. */
  readonly searches: ReadonlyMap<number, SearchSize>;
  readonly unread: number;
}

export interface LoadedRun {
  /** A short name that no other run of the page has. */
  readonly name: string;
  readonly files: RunFiles;
  /** Tasks whose samples are there. */
  readonly tasks: ReadonlyMap<string, LoadedTask>;
}

/** Texts that a page may hold in all, in characters: later questions have none. */
const MAX_TEXTS = 1 << 28;

/** Reads the samples of all runs, texts included, while there is room for them. */
class Loader {
  #room = MAX_TEXTS;

  task(files: TaskFiles, path: string): LoadedTask {
    const golds: number[] = [];
    const lengths: number[] = [];
    const categories = new Categories();
    const texts = new Map<number, Omit<QuestionText, 'outputs'>>();
    const searches = new Map<number, SearchSize>();
    let unread = 0;
    const set = readSamples(files, path, (answered, sample) => {
      golds.push(goldOf(answered, sample));
      lengths.push(contextLength(answered, sample));
      categories.take(sample['doc']);
      const searched = searchSizeOf(sample);
      if (searched === 'unread') unread++;
      else if (searched !== undefined) searches.set(answered.docId, searched);
      const text = questionText(answered, sample);
      const size = text.context.length + text.choices.reduce((sum, each) => sum + each.length, 0);
      if (size > this.#room) return;
      this.#room -= size;
      texts.set(answered.docId, text);
    });
    return { files, set, golds, lengths, texts, categories: categories.found(), searches, unread };
  }
}

/** Model and arithmetic, the folder where these are the same, and numbers where these are. */
function namesOf(runs: readonly RunFiles[]): string[] {
  // Other programs name a model by its path.
  const called = shortNames(runs.map(({ model }) => model));
  const models = runs.map(({ arithmetic }, i) =>
    arithmetic === undefined ? called[i]! : `${called[i]!}, ${arithmetic}`,
  );
  const isUnique = (names: readonly string[], name: string): boolean =>
    names.filter((each) => each === name).length < 2;
  const folders = shortNames(runs.map(({ path }) => resolve(path)));
  const named = models.map((name, i) => (isUnique(models, name) ? name : `${folders[i]!} (${name})`));
  return named.map((name, i) => (isUnique(named, name) ? name : `${i + 1}: ${name}`));
}

/** Each a folder of results, a results_*.json or a samples_*.jsonl. Throws UserError. */
export function loadRuns(paths: readonly string[]): LoadedRun[] {
  if (paths.length > MAX_RUNS)
    throw new UsageError(`${paths.length} runs are more than a page can show`, `give at most ${MAX_RUNS}`);
  const files = paths.map(findRun);
  const names = namesOf(files);
  const loader = new Loader();
  return files.map((each, i) => ({
    files: each,
    name: names[i]!,
    tasks: new Map(
      [...each.tasks].flatMap(([task, of]) =>
        of.samplesPath === undefined ? [] : [[task, loader.task(of, of.samplesPath)] as const],
      ),
    ),
  }));
}
