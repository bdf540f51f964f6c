/**
 * Documents of tasks in windows: those that are read, tokenized, planned and scored together, and then let go. So
 * memory is that of a window, however many documents there are, and scoring begins before the rest is read. Where
 * windows end follows from the documents alone, never from time, so a run that is resumed has the same ones.
 */
import { createHash } from 'node:crypto';
import { valueOf } from '../python/literal.js';
import type { Dict } from '../python/value.js';
import { Pause } from '../system/text.js';
import type { TaskSettings, TaskNode } from '../tasks/definition/settings.js';
import type { DocumentRequests, OpenTask, Request } from '../tasks/requests/task.js';
import { placeOfGold } from '../tasks/scores/ofDocument.js';
import { TaskScores } from '../tasks/scores/ofTask.js';
import type { Dataset } from './dataset.js';
import { type FileTask, settingsOfFileTask } from './fileTasks.js';
import type { Question } from './question.js';

/** A task whose last document was read. */
export interface EndedTask {
  readonly task: TaskFacts;
  /** Documents of the scored split, before any limit; may have to read on to know. */
  readonly total: () => Promise<number>;
}

export interface TaskWindow {
  /** In the order of the tasks, each with its documents in this window. */
  readonly tasks: readonly RunTask[];
  /** All documents of these tasks are in this window or those before. */
  readonly ended: readonly EndedTask[];
  /** What is to be scored; documents that only ask for texts have no question in it. */
  readonly dataset: Dataset;
  /** Documents of this window. */
  readonly documents: number;
  /** Its size as a share of the largest window. */
  readonly fullness: number;
  readonly isLast: boolean;
}

/** Sizes of windows. */
export interface WindowBounds {
  /** So many documents, if there are no more, are one window. */
  readonly whole: number;
  /** Documents of the first window of more: few, so that scoring begins soon. Each has twice as many as its former. */
  readonly first: number;
  /** Documents at most. */
  readonly most: number;
  /** Characters of prompts, at which a window ends, too. */
  readonly characters: number;
}

/**
 * A window that is half full ends with a task, so small windows hold whole tasks where those are small. What they lose
 * by computing shots again that they share is a few thousandths.
 */
export const WINDOWS: WindowBounds = { whole: 1024, first: 128, most: 8192, characters: 1 << 24 };

/** What a window may hold. */
type WindowSize = { readonly documents: number; readonly characters: number };

/** Documents of a small window may be so much longer than those that fill the largest. */
const LONGER = 4;

const sizeOf = ({ most, characters }: WindowBounds, documents: number): WindowSize => ({
  documents,
  characters: Math.min(1, (LONGER * documents) / most) * characters,
});

/** A task to read. */
export type Leaf = TaskNode & { readonly scores: TaskScores };

export interface WindowOptions {
  readonly open: (leaf: Leaf) => Promise<OpenTask>;
  /** What becomes of a document before it is used. */
  readonly write?: ((document: DocumentRequests) => Promise<DocumentRequests>) | undefined;
  /** A text that the tokenizer puts first as a token; see datasetOfTasks. */
  readonly begin?: string | undefined;
  /** Whether a task has no more documents than these; by default it has not. */
  readonly readsAll?: ((leaf: Leaf, documents: number) => boolean) | undefined;
  readonly bounds?: WindowBounds | undefined;
  /** Called for each document; ends the reading if it throws. */
  readonly onDocument?: ((documents: number) => void) | undefined;
}

/** Characters that a document holds; requests with one context share it. */
function charactersOf({ requests }: DocumentRequests): number {
  let sum = 0,
    before = '';
  for (const request of requests) {
    const text = request.kind === 'loglikelihood_rolling' ? request.text : request.context;
    if (text !== before) sum += text.length;
    before = text;
  }
  return sum;
}

/** A window that is being filled. */
class Filling {
  readonly #tasks: { readonly task: TaskFacts; readonly documents: DocumentRequests[] }[] = [];
  readonly ended: EndedTask[] = [];
  documents = 0;
  #characters = 0;

  add(task: TaskFacts, document: DocumentRequests): void {
    const last = this.#tasks.at(-1);
    if (last?.task === task) last.documents.push(document);
    else this.#tasks.push({ task, documents: [document] });
    this.documents++;
    this.#characters += charactersOf(document);
  }

  /** How full it is: from 0 to 1, but for its last document. */
  fullness({ documents, characters }: WindowSize): number {
    return Math.max(this.documents / documents, this.#characters / characters);
  }

  async window({ begin, bounds = WINDOWS }: WindowOptions, isLast: boolean): Promise<TaskWindow> {
    const tasks = this.#tasks.map(({ task, documents }): RunTask => ({ ...task, documents }));
    const { ended, documents } = this;
    const fullness = this.fullness(sizeOf(bounds, bounds.most));
    return { tasks, ended, dataset: await datasetOfTasks(tasks, begin), documents, fullness, isLast };
  }
}

/** What is read of tasks: their documents in order and, behind those of each, its end. */
type Entry = { readonly task: TaskFacts; readonly document: DocumentRequests } | { readonly ended: EndedTask };

async function* entriesOf(leaves: readonly Leaf[], options: WindowOptions): AsyncGenerator<Entry> {
  const { write, readsAll = () => true, onDocument } = options;
  const pause = new Pause();
  let first = 0;
  for (const leaf of leaves) {
    const { name, settings, scores } = leaf;
    const opened = await options.open(leaf);
    const task: TaskFacts = { name, settings, scores, shots: opened.shots, first };
    let count = 0;
    for await (const read of opened.documents()) {
      // Before anything is handed out: the receiver may make and write documents, too.
      const document = write === undefined ? read : await write(read);
      count++;
      onDocument?.(first + count);
      yield { task, document };
      if (pause.isDue) await pause.take();
    }
    first += count;
    yield { ended: { task, total: async () => (readsAll(leaf, count) ? count : opened.total()) } };
  }
}

/** Takes entries until there are more than one window may hold alone; whether that was all. */
async function begin(
  entries: AsyncGenerator<Entry>,
  bounds: WindowBounds,
): Promise<{ readonly held: Entry[]; readonly isAll: boolean }> {
  const held: Entry[] = [];
  const size = sizeOf(bounds, bounds.whole);
  let documents = 0,
    characters = 0;
  for (;;) {
    const { done, value } = await entries.next();
    if (done === true) return { held, isAll: true };
    held.push(value);
    if (!('document' in value)) continue;
    if (documents >= size.documents || characters >= size.characters) return { held, isAll: false };
    documents++;
    characters += charactersOf(value.document);
  }
}

/** Those that are held, which are let go as they are taken, then all others. */
async function* behind<T>(held: T[], others: AsyncIterable<T>): AsyncGenerator<T> {
  while (held.length > 0) yield held.shift()!;
  yield* others;
}

/** Reads tasks one after another. At least one window, with no documents where there are none. */
export async function* taskWindows(leaves: readonly Leaf[], options: WindowOptions): AsyncGenerator<TaskWindow> {
  const { bounds = WINDOWS } = options;
  const entries = entriesOf(leaves, options);
  try {
    const { held, isAll } = await begin(entries, bounds);
    let filling = new Filling();
    let documents = isAll ? bounds.whole : bounds.first,
      isFull = false;
    for await (const entry of behind(held, entries)) {
      const size = sizeOf(bounds, documents);
      if ('ended' in entry) {
        filling.ended.push(entry.ended);
        // Tasks share little with each other: the end of one is a good end of a window.
        isFull ||= !isAll && filling.fullness(size) >= 0.5;
        continue;
      }
      if (isFull) {
        yield await filling.window(options, false);
        [filling, isFull, documents] = [new Filling(), false, Math.min(2 * documents, bounds.most)];
      }
      filling.add(entry.task, entry.document);
      isFull = !isAll && filling.fullness(sizeOf(bounds, documents)) >= 1;
    }
    yield await filling.window(options, true);
  } finally {
    // Whoever stops taking windows ends the reading.
    await entries.return(undefined);
  }
}

/** A task that is being run. */
export interface TaskFacts {
  readonly name: string;
  readonly settings: TaskSettings;
  readonly scores: TaskScores;
  /** Shots in force. */
  readonly shots: number;
  /** The number of its first document among those of all tasks. */
  readonly first: number;
}

/** A task with some of its documents, one after another. */
export interface RunTask extends TaskFacts {
  readonly documents: readonly DocumentRequests[];
}

/** Counted from the first document of the first task. */
export const numberOf = ({ first }: Pick<RunTask, 'first'>, { docId }: Pick<DocumentRequests, 'docId'>): number =>
  first + docId;

type Scored = Exclude<Request, { readonly kind: 'generate_until' }>;
const isScored = (request: Request): request is Scored => request.kind !== 'generate_until';

/** Undefined for a document that only asks for texts. */
function questionOf(task: RunTask, document: DocumentRequests, begin: string | undefined): Question | undefined {
  const requests = document.requests.filter(isScored);
  const [first] = requests;
  if (first === undefined) return undefined;
  const shared = {
    docId: numberOf(task, document),
    where: `${task.name}, document ${document.index ?? document.docId}`,
    doc: {},
    gold: placeOfGold(task.scores.type, document) ?? -1,
    delimiter: '',
  };
  if (first.kind === 'loglikelihood_rolling') return { ...shared, context: '', choices: [first.text], isRolling: true };
  const pairs = requests.flatMap((each) => (each.kind === 'loglikelihood' ? [each] : []));
  const contexts = pairs.map((each) =>
    begin !== undefined && each.context.startsWith(begin) ? each.context.slice(begin.length) : each.context,
  );
  const [context = ''] = contexts;
  const areAlike = contexts.every((each) => each === context);
  return {
    ...shared,
    context,
    ...(areAlike ? {} : { contexts }),
    choices: pairs.map(({ continuation }) => continuation),
  };
}

/**
 * What is to be scored of documents whose numbers follow each other. Its hash covers every request. `begin`: a text
 * that the tokenizer puts first as a token; where a prompt writes it, it is left out, so that it comes once.
 */
export async function datasetOfTasks(tasks: readonly RunTask[], begin?: string): Promise<Dataset> {
  const pause = new Pause();
  const hash = createHash('sha256');
  const questions: Question[] = [];
  let first: number | undefined;
  let total = 0;
  for (const task of tasks) {
    hash.update(`${JSON.stringify([task.name, task.documents[0]?.docId ?? 0, task.documents.length])}\n`);
    for (const document of task.documents) {
      first ??= numberOf(task, document);
      const requests = document.requests.map((request) =>
        request.kind === 'generate_until' ? { ...request, settings: [...request.settings] } : request,
      );
      hash.update(`${JSON.stringify(requests)}\n`);
      const question = questionOf(task, document, begin);
      if (question !== undefined) questions.push(question);
      total++;
      if (pause.isDue) await pause.take();
    }
  }
  const from = first ?? 0;
  return { questions, docs: [{ first: from, end: from + total }], total, sha256: hash.digest('hex') };
}

/** A question of a file as a document of its task. */
const documentOf = ({ docId, doc, context, choices, gold, delimiter }: Question): DocumentRequests => ({
  docId,
  // Made when it is asked for: all questions of a file are held at once.
  get document() {
    return valueOf(doc) as Dict;
  },
  ...{ target: gold, gold, choices, hasManyTargets: false },
  get requests() {
    return choices.map((choice): Request => ({ kind: 'loglikelihood', context, continuation: delimiter + choice }));
  },
});

/** The questions of a file, which are one window. */
export function windowOfFile(task: Omit<TaskFacts, 'shots' | 'first'>, dataset: Dataset): TaskWindow {
  const { name, settings, scores } = task;
  const facts: TaskFacts = { name, settings, scores, shots: 0, first: 0 };
  return {
    tasks: [{ ...facts, documents: dataset.questions.map(documentOf) }],
    ended: [{ task: facts, total: async () => dataset.total }],
    dataset,
    documents: dataset.questions.length,
    fullness: 1,
    isLast: true,
  };
}

/** A task of a file's questions, as tasks of the public harness are. */
export function leafOfFile(task: FileTask): Leaf {
  const settings = settingsOfFileTask(task);
  return { kind: 'task', name: task.name, settings, scores: new TaskScores(settings) };
}
