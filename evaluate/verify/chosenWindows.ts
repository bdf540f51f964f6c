/** Of all documents of a run those that are computed again, in as few windows as hold them. */
import type { DocumentRequests } from '../../tasks/requests/task.js';
import type { Question } from '../question.js';
import { numberOf, type RunTask, type TaskFacts } from '../windows.js';
import type { EndedTask, TaskWindow } from '../windows.js';

export interface WindowReader {
  /** Takes every document in order; whether it is computed again. */
  readonly document: (task: TaskFacts, document: DocumentRequests) => boolean;
  /** Takes every task behind its last document. */
  readonly ended: (task: EndedTask) => Promise<void>;
}

/** Documents of a window. */
const MAX_DOCUMENTS = 4096;

/** A window that is being filled. */
class Filling {
  readonly #tasks: { readonly task: TaskFacts; readonly documents: DocumentRequests[] }[] = [];
  readonly #questions: Question[] = [];
  documents = 0;

  add(task: TaskFacts, document: DocumentRequests, question: Question | undefined): void {
    const last = this.#tasks.at(-1);
    if (last?.task.name === task.name) last.documents.push(document);
    else this.#tasks.push({ task, documents: [document] });
    if (question !== undefined) this.#questions.push(question);
    this.documents++;
  }

  window(isLast: boolean): TaskWindow {
    const tasks = this.#tasks.map(({ task, documents }): RunTask => ({ ...task, documents }));
    const { documents } = this;
    // Nothing is kept of them, so that nothing has to name them.
    const dataset = { questions: this.#questions, docs: [{ first: 0, end: documents }], total: documents, sha256: '' };
    return { tasks, ended: [], dataset, documents, fullness: documents / MAX_DOCUMENTS, isLast };
  }
}

/** No window where no document is chosen. */
export async function* chosenWindows(
  all: AsyncGenerator<TaskWindow>,
  reader: WindowReader,
): AsyncGenerator<TaskWindow> {
  let filling = new Filling();
  try {
    for await (const { tasks, ended, dataset } of all) {
      const questions = new Map(dataset.questions.map((question) => [question.docId, question]));
      for (const { documents, ...task } of tasks)
        for (const document of documents) {
          if (!reader.document(task, document)) continue;
          if (filling.documents === MAX_DOCUMENTS) {
            yield filling.window(false);
            filling = new Filling();
          }
          filling.add(task, document, questions.get(numberOf(task, document)));
        }
      for (const each of ended) await reader.ended(each);
    }
    if (filling.documents > 0) yield filling.window(true);
  } finally {
    await all.return(undefined);
  }
}
