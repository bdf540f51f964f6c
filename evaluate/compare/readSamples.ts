/**
 * Reads samples_*.jsonl of this program and of versions of lm-evaluation-harness. Of each question numbers and hashes
 * are kept, and no text; callers that need texts get each sample, or read it at its offset. The file is untrusted.
 */
import { createHash } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { UserError } from '../../errors.js';
import { isRecord, parsePythonJson } from '../../system/json.js';
import { type FileLine, FileLines } from '../../system/lines.js';
import { readRange } from '../../system/read.js';
import { counted } from '../../system/text.js';
import type { Item } from '../../tasks/scores/aggregate.js';
import type { Block, TaskFiles } from './findRuns.js';

const MAX_LINE_BYTES = 64 << 20;
const MAX_QUESTIONS = 2_000_000;
const MAX_METRICS = 100;
const MAX_ITEMS = 10_000;
const AGAIN = 'Write it again, or name another run';

export interface Answered {
  readonly docId: number;
  /** Hash of the document: the same question in another run. */
  readonly content: string;
  /** Hash of all requests: the same question, asked in the same way. */
  readonly prompt: string;
  /** Natural logs, one for each request; undefined where texts were generated. */
  readonly lls: Float64Array | undefined;
  /** How many of them are those of choices; others belong to choices without a context. */
  readonly choices: number;
  /** Hash of the generated texts. */
  readonly text: string | undefined;
  /** By the places of names in the set. */
  readonly items: (Item | undefined)[];
  /** Bytes of its line. */
  readonly offset: number;
  readonly length: number;
}

export interface SampleSet {
  readonly path: string;
  /** In the order of the file. */
  readonly questions: ReadonlyMap<number, Answered>;
  /** Metrics with their filters: `acc,none`. */
  readonly keys: readonly string[];
  /** What is amiss with the file, and did not end the reading. */
  readonly notes: readonly string[];
}

/** A sample as it is in the file, with what is kept of it. Called once for each question, in the order of the file. */
export type SampleListener = (question: Answered, sample: Block) => void;

const short = (parts: readonly string[]): string => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('base64').slice(0, 22);
};

/** JSON whose keys are sorted: two writers may differ in their order. */
const stable = (value: unknown): string =>
  Array.isArray(value)
    ? `[${value.map(stable).join()}]`
    : isRecord(value)
      ? `{${Object.keys(value)
          .sort()
          .map((key) => `${JSON.stringify(key)}:${stable(value[key])}`)
          .join()}}`
      : (JSON.stringify(value) ?? 'null');

/** The requests of a sample: lists of what each asks. Versions before 0.4.3 write lists, later ones objects. */
export function requestsOf(sample: Block): readonly (readonly unknown[])[] {
  const { arguments: asked } = sample;
  const all = Array.isArray(asked) ? asked : isRecord(asked) ? Object.values(asked) : [];
  return all.map((each) => (Array.isArray(each) ? each : isRecord(each) ? Object.values(each) : [each]));
}

/** As Python prints a float: `-12.5`, `nan`, `-inf`. */
function numberOf(value: unknown): number {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return NaN;
  const word = /^(-?)inf(?:inity)?$/i.exec(value);
  if (word !== null) return word[1] === '-' ? -Infinity : Infinity;
  return value.trim() === '' ? NaN : Number(value);
}

/** `[ll, greedy]`, or the log-likelihood by itself; responses may be in lists of repeats. */
function likelihoodOf(response: unknown): number {
  let value = response;
  while (Array.isArray(value)) value = (value as unknown[])[0];
  return numberOf(value);
}

const itemOf = (value: unknown): Item | undefined => {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (typeof value === 'number') return value;
  if (value === null) return NaN;
  const isNumbers =
    Array.isArray(value) && value.length <= MAX_ITEMS && value.every((each) => typeof each === 'number');
  return isNumbers ? (value as number[]) : undefined;
};

/** Whether texts were generated: requests then come with settings. */
const isOfTexts = ({ config }: TaskFiles, requests: readonly (readonly unknown[])[]): boolean =>
  config['output_type'] === undefined ? isRecord(requests[0]?.[1]) : config['output_type'] === 'generate_until';

/** The texts of a sample, for each request one for each repeat. */
export function textsOf(line: Buffer, where: string): readonly string[] {
  const sample = parsePythonJson(line.toString('utf8'), where, AGAIN);
  const responses = isRecord(sample) && Array.isArray(sample['resps']) ? (sample['resps'] as unknown[]) : [];
  return responses.flat(1).map((each) => (typeof each === 'string' ? each : JSON.stringify(each)));
}

/** The line of a question again. */
export function lineOf(path: string, { offset, length }: Answered): Buffer {
  const fd = openSync(path, 'r');
  try {
    return readRange(fd, offset, length);
  } finally {
    closeSync(fd);
  }
}

/** Filters of a task by its figures, in their order: `strict-match` of `exact_match,strict-match`. */
const filtersOf = (figures: Block): readonly string[] => [
  ...new Set(Object.keys(figures).flatMap((key) => /^[^,]+,(.+)$/.exec(key)?.[1] ?? [])),
];

/** Names of metrics that figures list, where lines do not. */
const metricsOf = (figures: Block): readonly string[] => [
  ...new Set(Object.keys(figures).flatMap((key) => /^(.+?)(?<!_stderr),/.exec(key)?.[1] ?? [])),
];

class Reader {
  readonly questions = new Map<number, Answered>();
  readonly keys: string[] = [];
  readonly #task: TaskFiles;
  readonly #path: string;
  readonly #places = new Map<string, number>();
  readonly #seen = new Map<number, number>();
  readonly #filters: readonly string[];
  readonly #metrics: readonly string[];

  readonly #onQuestion: SampleListener | undefined;

  constructor(task: TaskFiles, path: string, onQuestion: SampleListener | undefined) {
    this.#task = task;
    this.#path = path;
    this.#onQuestion = onQuestion;
    this.#filters = filtersOf(task.figures);
    this.#metrics = metricsOf(task.figures);
  }

  take(line: FileLine): void {
    const where = `${this.#path}:${line.number}`;
    const sample = parsePythonJson(line.bytes.toString('utf8'), where, AGAIN);
    const docId = isRecord(sample) ? sample['doc_id'] : undefined;
    if (!isRecord(sample) || typeof docId !== 'number' || !Number.isSafeInteger(docId) || docId < 0)
      throw new UserError(`${where}: not a sample: it has no number "doc_id"`, AGAIN);
    // A line for each filter; before filters were named, in the order of the figures.
    const times = this.#seen.get(docId) ?? 0;
    this.#seen.set(docId, times + 1);
    const named = sample['filter'];
    const filter = typeof named === 'string' ? named : (this.#filters[times] ?? 'none');
    const question = this.questions.get(docId) ?? this.#begin(docId, sample, line, where);
    const listed = Array.isArray(sample['metrics']) ? (sample['metrics'] as unknown[]) : this.#metrics;
    for (const metric of listed.slice(0, MAX_METRICS)) {
      if (typeof metric !== 'string' || !Object.hasOwn(sample, metric)) continue;
      const place = this.#place(`${metric},${filter}`, where);
      if (question.items[place] !== undefined) throw new UserError(`${where}: question ${docId} comes twice`, AGAIN);
      question.items[place] = itemOf(sample[metric]);
    }
  }

  #place(key: string, where: string): number {
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    if (this.keys.length >= MAX_METRICS) throw new UserError(`${where}: more than ${MAX_METRICS} metrics`, AGAIN);
    this.#places.set(key, this.keys.length);
    return this.keys.push(key) - 1;
  }

  #begin(docId: number, sample: Block, line: FileLine, where: string): Answered {
    if (this.questions.size >= MAX_QUESTIONS)
      throw new UserError(`${where}: more than ${MAX_QUESTIONS} questions`, 'Compare parts of it');
    const requests = requestsOf(sample);
    const isText = isOfTexts(this.#task, requests);
    const { filtered_resps: filtered, resps } = sample;
    const responses = Array.isArray(filtered) && !isText ? filtered : Array.isArray(resps) ? resps : [];
    const { doc, doc_hash: hash } = sample;
    // Settings of a search are those of its whole run.
    const isSearch = sample['search'] !== undefined;
    const prompt = short([stable(isSearch ? requests.map(([text]) => text) : requests)]);
    const content = doc !== undefined ? short([stable(doc)]) : typeof hash === 'string' ? short([hash]) : prompt;
    const metrics: readonly unknown[] = Array.isArray(sample['metrics']) ? sample['metrics'] : [];
    const isDoubled = metrics.includes('acc_mutual_info') && responses.length % 2 === 0;
    const question: Answered = {
      docId,
      content,
      prompt,
      items: [],
      lls: isText ? undefined : Float64Array.from(responses as unknown[], likelihoodOf),
      choices: isDoubled ? responses.length / 2 : responses.length,
      text: isText ? short([stable(resps)]) : undefined,
      offset: line.offset,
      length: line.bytes.length,
    };
    this.questions.set(docId, question);
    this.#onQuestion?.(question, sample);
    return question;
  }
}

/** Throws UserError for what is no file of samples. A last line that was cut off is left out, and noted. */
export function readSamples(task: TaskFiles, path: string, onQuestion?: SampleListener): SampleSet {
  const lines = new FileLines(path, { maxLineBytes: MAX_LINE_BYTES, hint: AGAIN });
  const reader = new Reader(task, path, onQuestion);
  const notes: string[] = [];
  try {
    for (let line = lines.next(); line !== undefined; line = lines.next()) {
      if (line.number === 1 && line.bytes[0] === '['.charCodeAt(0))
        throw new UserError(
          `${path}: a list, as lm-evaluation-harness wrote before 0.4.3, and not a sample on each line`,
          'Make lines of it: jq -c ".[]"',
        );
      if (line.bytes.length === 0) continue;
      try {
        reader.take(line);
      } catch (error) {
        if (line.isEnded || !(error instanceof UserError) || reader.questions.size === 0) throw error;
        notes.push(`${path}:${line.number}: the line was cut off: the file is half-written, and what is whole counts`);
      }
    }
  } finally {
    lines.close();
  }
  if (reader.questions.size === 0) throw new UserError(`${path}: holds no samples`, AGAIN);
  const stated = task.figures['sample_len'];
  // 0: nothing was measured.
  if (typeof stated === 'number' && stated !== 0 && stated !== reader.questions.size && notes.length === 0)
    notes.push(`${path}: holds ${counted(reader.questions.size, 'question')}, and its results are of ${stated}`);
  return { path, questions: reader.questions, keys: reader.keys, notes };
}

export interface Pair {
  readonly a: Answered;
  readonly b: Answered;
}

export interface Matched {
  /** In the order of A. */
  readonly pairs: readonly Pair[];
  /** Numbers of questions that only one of them has. */
  readonly onlyA: readonly number[];
  readonly onlyB: readonly number[];
  /** Pairs whose numbers differ: the question sets were numbered differently. */
  readonly renumbered: number;
  /** Questions of equal numbers whose contents differ. */
  readonly otherContent: number;
  /** Pairs whose requests differ: other examples, another template, or another wording. */
  readonly otherPrompt: number;
}

export function matchQuestions(a: SampleSet, b: SampleSet): Matched {
  const partner = new Map<number, Answered>();
  const left: Answered[] = [];
  let otherContent = 0;
  for (const each of b.questions.values()) {
    const same = a.questions.get(each.docId);
    if (same?.content === each.content) partner.set(same.docId, each);
    else left.push(each);
    if (same !== undefined && same.content !== each.content) otherContent++;
  }
  // Questions that come several times are matched in their order.
  const byContent = new Map<string, Answered[]>();
  if (left.length > 0)
    for (const each of [...a.questions.values()].reverse())
      if (!partner.has(each.docId)) {
        const same = byContent.get(each.content);
        if (same === undefined) byContent.set(each.content, [each]);
        else same.push(each);
      }
  const onlyB: number[] = [];
  for (const each of left) {
    const same = byContent.get(each.content)?.pop();
    if (same === undefined) onlyB.push(each.docId);
    else partner.set(same.docId, each);
  }
  const pairs: Pair[] = [];
  const onlyA: number[] = [];
  for (const each of a.questions.values()) {
    const other = partner.get(each.docId);
    if (other === undefined) onlyA.push(each.docId);
    else pairs.push({ a: each, b: other });
  }
  const count = (is: (pair: Pair) => boolean): number => pairs.filter(is).length;
  return {
    pairs,
    onlyA,
    onlyB,
    otherContent,
    renumbered: count((pair) => pair.a.docId !== pair.b.docId),
    otherPrompt: count((pair) => pair.a.prompt !== pair.b.prompt),
  };
}
