/**
 * Documents of tasks in windows: those that are read, tokenised, planned and scored together, and then let go. So
 * memory is that of a window, however many documents there are, and scoring begins before the rest is read. Where
 * windows end follows from the documents alone, never from time, so a run that is resumed has the same ones.
 */
import { setImmediate } from 'node:timers/promises';
import type { TaskNode } from '../../tasks/definition/nodes.js';
import type { DocumentRequests, OpenTask } from '../../tasks/requests/task.js';
import type { TaskScores } from '../../tasks/scores/ofTask.js';
import type { Dataset } from '../dataset.js';
import { datasetOfTasks, type RunTask, type TaskFacts } from './documents.js';

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
  /** Documents of the first window: few, so that scoring begins soon. Each has twice as many as the one before. */
  readonly first: number;
  /** Documents at most. */
  readonly most: number;
  /** Characters of prompts, at which a window ends, too. */
  readonly characters: number;
}

/** What windows lose by computing shots again that they share is below a thousandth. */
export const WINDOWS: WindowBounds = { first: 1024, most: 8192, characters: 1 << 24 };
/** Documents after which other work of this process has its turn. */
const TURN = 32;

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
  fullness(documents: number, characters: number): number {
    return Math.max(this.documents / documents, this.#characters / characters);
  }

  async window({ begin, bounds = WINDOWS }: WindowOptions, isLast: boolean): Promise<TaskWindow> {
    const tasks = this.#tasks.map(({ task, documents }): RunTask => ({ ...task, documents }));
    const { ended, documents } = this;
    const fullness = this.fullness(bounds.most, bounds.characters);
    return { tasks, ended, dataset: await datasetOfTasks(tasks, begin), documents, fullness, isLast };
  }
}

/** Reads tasks one after another. At least one window, with no documents where there are none. */
export async function* taskWindows(leaves: readonly Leaf[], options: WindowOptions): AsyncGenerator<TaskWindow> {
  const { bounds = WINDOWS, write, readsAll = () => true, onDocument } = options;
  let filling = new Filling();
  let size = bounds.first,
    first = 0,
    isFull = false;
  for (const leaf of leaves) {
    const { name, settings, scores } = leaf;
    const opened = await options.open(leaf);
    const task: TaskFacts = { name, settings, scores, shots: opened.shots, first };
    let count = 0;
    for await (const read of opened.documents()) {
      // Before the window is given away: whoever has it may make and write documents, too.
      const document = write === undefined ? read : await write(read);
      if (isFull) {
        yield await filling.window(options, false);
        [filling, isFull, size] = [new Filling(), false, Math.min(2 * size, bounds.most)];
      }
      filling.add(task, document);
      count++;
      onDocument?.(first + count);
      isFull = filling.fullness(size, bounds.characters) >= 1;
      if (count % TURN === 0) await setImmediate();
    }
    first += count;
    filling.ended.push({ task, total: async () => (readsAll(leaf, count) ? count : opened.total()) });
    // Tasks share little with each other: the end of one is a good end of a window.
    isFull ||= filling.fullness(size, bounds.characters) >= 0.5;
  }
  yield await filling.window(options, true);
}
