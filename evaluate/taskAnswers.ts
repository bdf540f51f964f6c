/** Figures of tasks and groups, from what a model answered. */
import { createHash } from 'node:crypto';
import { str } from '../python/show.js';
import type { PyValue } from '../python/value.js';
import type { TaskTree } from '../tasks/definition/settings.js';
import { tasksBelow } from '../tasks/definition/settings.js';
import type { DocumentRequests, Request } from '../tasks/requests/task.js';
import { figuresOfGroup, type GroupFigure, type TaskFigures } from '../tasks/scores/aggregate.js';
import type { MetricFigure } from '../tasks/scores/aggregate.js';
import type { Response } from '../tasks/scores/metrics.js';
import { isGoldMissing } from '../tasks/scores/ofDocument.js';
import { type Measured, TaskValues } from '../tasks/scores/ofTask.js';
import { HARNESS_LAYOUT, type ResultsLayout } from './layout.js';
import type { Scores } from './metrics.js';
import type { TokenSource } from './tokenLines.js';
import { numberOf, type TaskFacts } from './windows.js';

/** Answers by the numbers of documents. */
export interface Answers {
  readonly scores: ReadonlyMap<number, Omit<Scores, 'docId'>>;
  /** What tokens_*.jsonl is made of, where it is asked for. */
  readonly tokens?: TokenSource | undefined;
  /** For each request, one text for each repeat. */
  readonly texts: ReadonlyMap<number, readonly (readonly string[])[]>;
}

/** The answers to a document's requests, as they come and with repeats; undefined where there are none yet. */
export function responsesOf(
  { scores, texts }: Answers,
  task: TaskFacts,
  document: DocumentRequests,
): readonly (readonly Response[])[] | undefined {
  const number = numberOf(task, document);
  if (task.scores.type === 'generate_until') return texts.get(number);
  const found = scores.get(number);
  if (found === undefined) return undefined;
  // The windows of a text are one answer.
  if (task.scores.type === 'loglikelihood_rolling')
    return [[{ ll: found.ll.reduce((sum, ll) => sum + ll, 0), isGreedy: found.greedy.every(Boolean) }]];
  return found.ll.map((ll, i) => [{ ll, isGreedy: found.greedy[i] === true }]);
}

/** A document, what was answered to its requests, and what that came to by each filter. */
export interface AnsweredDocument {
  readonly document: DocumentRequests;
  readonly responses: readonly (readonly Response[])[];
  readonly measured: readonly Measured[];
  readonly hashes: SampleHashes;
}

/** What a task has come to. */
export interface TaskAnswers extends TaskFigures {
  /** Documents whose right answer is not among their choices: they count as wrong. */
  readonly missing: number;
  /** Why figures are left out, by `metric,filter`. */
  readonly problems: ReadonlyMap<string, string>;
  readonly task: TaskFacts;
  /** Documents that were answered, measured or not. */
  readonly answered: number;
  /** Documents of the scored split, before any limit. */
  readonly total: number;
  /** What the harness calls the hash of a task: of the hashes of all its samples, filter by filter. */
  readonly hash: string;
}

/** Joins a task's answers as they come, its documents in their order. It keeps values, and no document. */
export class TaskTally {
  readonly task: TaskFacts;
  readonly #layout: ResultsLayout;
  readonly #values: TaskValues;
  readonly #hash = createHash('sha256');
  /** Of every document, where samples of further filters repeat them. */
  readonly #repeated: Buffer[] = [];
  #documents = 0;
  #missing = 0;

  constructor(task: TaskFacts, layout = HARNESS_LAYOUT) {
    this.task = task;
    this.#layout = layout;
    this.#values = new TaskValues(task.scores);
  }

  /** Documents so far. */
  get documents(): number {
    return this.#documents;
  }

  /** Throws if a document has no answer. */
  add(document: DocumentRequests, answers: Answers): AnsweredDocument {
    const { task } = this;
    const responses = responsesOf(answers, task, document);
    if (responses === undefined) throw new Error(`${task.name}: document ${document.docId} has no answer`);
    const measured = task.scores.measure(document, responses);
    this.#values.add(measured);
    const hashes = hashesOf(document, this.#layout);
    const all = hashes.document + hashes.prompt + hashes.target;
    this.#hash.update(all);
    if (task.scores.filters.length > 1) this.#repeated.push(Buffer.from(all, 'hex'));
    this.#documents++;
    if (task.scores.type === 'multiple_choice' && isGoldMissing(document)) this.#missing++;
    return { document, responses, measured, hashes };
  }

  /** Call once, after all documents. `draws`: samples of bootstrapped errors. */
  finish(total: number, draws?: number): TaskAnswers {
    const figures: ReadonlyMap<string, MetricFigure> = this.#values.figures(draws);
    for (let filter = 1; filter < this.task.scores.filters.length; filter++)
      for (const each of this.#repeated) this.#hash.update(each.toString('hex'));
    return {
      task: this.task,
      total,
      answered: this.#documents,
      missing: this.#missing,
      problems: this.#values.problems,
      documents: this.#values.measured,
      figures,
      hash: this.#hash.digest('hex'),
    };
  }
}

/** A group and what its tasks come to. */
export interface GroupAnswers {
  readonly group: Extract<TaskTree, { readonly kind: 'group' }>;
  readonly depth: number;
  /** Measured documents of all tasks in it. */
  readonly documents: number;
  readonly figures: ReadonlyMap<string, GroupFigure>;
}

/** All groups, inner ones before those around them, as the harness computes them. */
export function answersOfGroups(
  nodes: readonly TaskTree[],
  tasks: ReadonlyMap<string, TaskFigures>,
  depth = 0,
): readonly GroupAnswers[] {
  return nodes.flatMap((group): readonly GroupAnswers[] => {
    if (group.kind === 'task') return [];
    // A task in two groups within this one counts twice.
    const leaves = tasksBelow([group]).map(({ name }) => tasks.get(name)!);
    const own: GroupAnswers = {
      group,
      depth,
      documents: leaves.reduce((sum, { documents }) => sum + documents, 0),
      figures: figuresOfGroup(leaves, group.aggregates),
    };
    return [...answersOfGroups(group.members, tasks, depth + 1), own];
  });
}

/** What a request asks, as the harness's files list it. */
export const argumentsOf = (request: Request): readonly PyValue[] => {
  switch (request.kind) {
    case 'loglikelihood':
      return [request.context, request.continuation];
    case 'loglikelihood_rolling':
      return [request.text];
    case 'generate_until':
      return [request.context, request.settings];
    default:
      return request satisfies never;
  }
};

/** By which the harness tells whether two runs asked the same. */
export interface SampleHashes {
  readonly document: string;
  readonly prompt: string;
  readonly target: string;
}

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function hashesOf({ document, target, requests }: DocumentRequests, layout: ResultsLayout): SampleHashes {
  const [first] = requests;
  return {
    document: sha256(layout.hashed(document)),
    prompt: sha256(first === undefined ? '' : String(argumentsOf(first)[0])),
    target: sha256(str(target)),
  };
}
