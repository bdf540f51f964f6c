/**
 * Every document of a run, made again from its data, beside its recorded samples: what a line holds must be
 * what the document and the recorded answers make, to the byte. Figures are computed again from all of them.
 */
import { parseJsonValue } from '../../python/literal.js';
import { str } from '../../python/show.js';
import { isDict, type PyValue } from '../../python/value.js';
import type { DocumentRequests } from '../../tasks/requests/task.js';
import { isText, type Response } from '../../tasks/scores/metrics.js';
import { type Answers, type TaskAnswers, TaskTally, sha256 } from '../taskAnswers.js';
import type { ResultsLayout } from '../layout.js';
import { sampleLines } from '../samples.js';
import { numberOf, type TaskFacts } from '../windows.js';
import { answersIn, compareLines, type HashesInLine } from './compareLines.js';
import type { Findings } from './findings.js';
import { type RecordedSamples, sampleOf } from './recordedSamples.js';

export type RecordedAnswers = readonly (readonly Response[])[];

/** `doc_id` in the samples. */
export const docIdOf = ({ index, docId }: DocumentRequests): number => index ?? docId;

/** The hashes of what a line holds, as a run makes them. */
function hashesInLine(line: string, { hashed }: ResultsLayout): HashesInLine | undefined {
  let sample: PyValue;
  try {
    sample = parseJsonValue(line);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  const inside = (value: PyValue | undefined, name: string): PyValue | undefined =>
    value !== undefined && isDict(value) ? value.get(name) : undefined;
  const prompt = inside(inside(inside(sample, 'arguments'), 'gen_args_0'), 'arg_0');
  const [document, target] = [inside(sample, 'doc'), inside(sample, 'target')];
  if (document === undefined || prompt === undefined || target === undefined) return undefined;
  return { document: sha256(hashed(document)), prompt: sha256(String(prompt)), target: sha256(str(target)) };
}

/** Recorded answers in the form in which computed ones come. */
function answersOf(number: number, recorded: RecordedAnswers): Answers {
  const texts = recorded.map((all) => all.filter(isText));
  const first = recorded.flatMap(([each]) => (each === undefined || isText(each) ? [] : [each]));
  const scores = { ll: first.map(({ ll }) => ll), greedy: first.map(({ isGreedy }) => isGreedy) };
  return { scores: new Map([[number, scores]]), texts: new Map([[number, texts]]) };
}

/** A task of which documents are compared. */
interface OfTask {
  readonly tally: TaskTally;
  /** Undefined where none were written. */
  readonly samples: RecordedSamples | undefined;
  /** Every document had its answers. */
  isWhole: boolean;
  readonly seen: Set<number>;
}

export class DocumentCheck {
  readonly #findings: Findings;
  readonly #samples: ReadonlyMap<string, RecordedSamples | undefined>;
  readonly #layout: ResultsLayout;
  readonly #tasks = new Map<string, OfTask>();
  readonly #finished: TaskAnswers[] = [];
  #isWhole = true;

  constructor(findings: Findings, samples: ReadonlyMap<string, RecordedSamples | undefined>, layout: ResultsLayout) {
    this.#findings = findings;
    this.#samples = samples;
    this.#layout = layout;
  }

  /** What the tasks have come to; undefined where a document has no answers. */
  get finished(): readonly TaskAnswers[] | undefined {
    return this.#isWhole ? this.#finished : undefined;
  }

  #of(task: TaskFacts): OfTask {
    const known = this.#tasks.get(task.name);
    if (known !== undefined) return known;
    const samples = this.#samples.get(task.name);
    if (samples === undefined) this.#findings.leaveOut('samples', `${task.name} has no samples beside the results`);
    const made: OfTask = {
      tally: new TaskTally(task, this.#layout),
      samples,
      isWhole: samples !== undefined,
      seen: new Set(),
    };
    this.#tasks.set(task.name, made);
    return made;
  }

  /** Compares a document with its samples; what was answered, where that is recorded. */
  document(task: TaskFacts, document: DocumentRequests): RecordedAnswers | undefined {
    const of = this.#of(task);
    const { samples } = of;
    if (samples === undefined) return undefined;
    const place = { task: task.name, doc: docIdOf(document) };
    of.seen.add(place.doc);
    this.#findings.compared('data');
    const [first] = task.scores.filters;
    const recorded = this.#recorded(task, document, samples.line(first?.name ?? '', place.doc)?.text);
    if (recorded === undefined) {
      of.isWhole = false;
      return undefined;
    }
    const hashed = (line: string): HashesInLine | undefined => hashesInLine(line, this.#layout);
    const made = of.tally.add(document, answersOf(numberOf(task, document), recorded));
    for (const [i, computed] of sampleLines(made, this.#layout).entries()) {
      const line = samples.line(task.scores.filters[i]?.name ?? '', place.doc);
      this.#findings.compared('samples');
      this.#findings.compared('metrics', made.measured[i]?.values.size ?? 0);
      if (line === undefined) this.#missing(place);
      else
        for (const { check, field, ...values } of compareLines(line.text, computed.trimEnd(), hashed))
          this.#findings.differ(check, field, { ...place, ...values });
    }
    return recorded;
  }

  #missing(place: { readonly task: string; readonly doc: number }): void {
    this.#findings.differ('samples', 'line', { ...place, recorded: undefined, computed: 'a sample' });
  }

  #recorded(task: TaskFacts, document: DocumentRequests, line: string | undefined): RecordedAnswers | undefined {
    const place = { task: task.name, doc: docIdOf(document) };
    if (line === undefined) {
      this.#missing(place);
      return undefined;
    }
    const { type, repeats } = task.scores;
    const isTexts = type === 'generate_until';
    const sample = sampleOf(line);
    const found = answersIn(sample, { requests: document.requests.length, isTexts });
    if (found?.every((all) => all.length === (isTexts ? repeats : 1)) === true) return found;
    const expected = `${document.requests.length} answers`;
    this.#findings.differ('samples', 'resps', { ...place, recorded: sample?.['resps'], computed: expected });
    return undefined;
  }

  /** Call behind a task's last document. `total`: documents of the split. */
  finish(task: TaskFacts, total: number, draws: number): void {
    const { tally, samples, isWhole, seen } = this.#of(task);
    if (samples !== undefined) this.#strays(task.name, samples, seen);
    if (isWhole) this.#finished.push(tally.finish(total, draws));
    else this.#isWhole = false;
  }

  /** Lines that are not where the run would have written them, and those of documents that it does not have. */
  #strays(task: string, samples: RecordedSamples, seen: ReadonlySet<number>): void {
    for (const { number, doc, problem } of samples.strays)
      this.#findings.differ('samples', `line ${number} ${problem}`, {
        ...(doc === undefined ? { task } : { task, doc }),
        ...{ recorded: `line ${number}`, computed: undefined },
      });
    for (const filter of samples.filters)
      for (const doc of samples.documentsBy(filter))
        if (!seen.has(doc))
          this.#findings.differ('samples', 'line of a document that the run does not have', {
            ...{ task, doc, recorded: 'a sample', computed: undefined },
          });
  }
}
