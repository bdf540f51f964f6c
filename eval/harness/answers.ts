/** Figures of tasks and groups, from what a model answered. */
import { tasksBelow, type Node } from '../../tasks/definition/nodes.js';
import { figuresOfGroup, type Figure, type GroupFigure, type TaskFigures } from '../../tasks/scores/groups.js';
import type { Measured } from '../../tasks/scores/ofTask.js';
import type { Response } from '../../tasks/scores/response.js';
import type { Scores } from '../metrics.js';
import { numberOf, type RunTask } from './documents.js';

/** Answers by the numbers of documents. */
export interface Answers {
  readonly scores: ReadonlyMap<number, Pick<Scores, 'll' | 'greedy'>>;
  /** For each request, one text for each repeat. */
  readonly texts: ReadonlyMap<number, readonly (readonly string[])[]>;
}

/** The answers to a document's requests, as they come and with repeats; undefined where there are none yet. */
export function responsesOf(
  { scores, texts }: Answers,
  task: RunTask,
  document: RunTask['documents'][number],
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

/** A task's answers, measured. */
export interface TaskAnswers extends TaskFigures {
  readonly task: RunTask;
  readonly responses: readonly (readonly (readonly Response[])[])[];
  /** Of each document, by filter. */
  readonly measured: readonly (readonly Measured[])[];
}

/** Throws if a document has no answer. `draws`: samples of bootstrapped errors. */
export function answersOfTask(task: RunTask, answers: Answers, draws?: number): TaskAnswers {
  const responses = task.documents.map((document) => {
    const found = responsesOf(answers, task, document);
    if (found === undefined) throw new Error(`${task.name}: document ${document.docId} has no answer`);
    return found;
  });
  const measured = task.documents.map((document, i) => task.scores.measure(document, responses[i]!));
  const figures: ReadonlyMap<string, Figure> = task.scores.figures(measured, draws);
  return { task, responses, measured, documents: task.documents.length, figures };
}

/** A group and what its tasks come to. */
export interface GroupAnswers {
  readonly group: Extract<Node, { readonly kind: 'group' }>;
  readonly depth: number;
  /** Of all tasks in it. */
  readonly documents: number;
  readonly figures: ReadonlyMap<string, GroupFigure>;
}

/** All groups, inner ones before those around them, as the harness computes them. */
export function answersOfGroups(
  nodes: readonly Node[],
  tasks: ReadonlyMap<string, TaskFigures>,
  depth = 0,
): readonly GroupAnswers[] {
  return nodes.flatMap((group): readonly GroupAnswers[] => {
    if (group.kind === 'task') return [];
    const names = new Set(tasksBelow([group]).map(({ name }) => name));
    const leaves = [...names].map((name) => tasks.get(name)!);
    const own: GroupAnswers = {
      group,
      depth,
      documents: leaves.reduce((sum, { documents }) => sum + documents, 0),
      figures: figuresOfGroup(leaves, group.aggregates),
    };
    return [...answersOfGroups(group.members, tasks, depth + 1), own];
  });
}
