/** Documents of tasks as one set of questions: those of a window are planned and scored together. */
import { createHash } from 'node:crypto';
import { Pause } from '../../system/parts.js';
import type { Settings } from '../../tasks/definition/settings.js';
import type { DocumentRequests, Request } from '../../tasks/requests/task.js';
import { placeOfGold } from '../../tasks/scores/ofDocument.js';
import type { TaskScores } from '../../tasks/scores/ofTask.js';
import type { Dataset } from '../dataset.js';
import type { Question } from '../tasks/task.js';

/** A task that is being run. */
export interface TaskFacts {
  readonly name: string;
  readonly settings: Settings;
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
