/** The journal of a search: a line for each problem that is finished. */
import { JournalFile, type EntryKind, type RunIdentity } from '../evaluate/journal.js';
import { readResult } from '../search/readResult.js';
import type { ProblemResult } from '../search/result.js';

interface KeptProblem {
  /** Place among the problems, from 0. */
  readonly index: number;
  readonly id: string;
  readonly result: ProblemResult;
}

const kindOf = (ids: readonly string[]): EntryKind<KeptProblem> => ({
  mark: 'search',
  version: 1,
  noun: 'problem',
  parse: ({ doc_id: index, id, result: written }) => {
    if (typeof index !== 'number' || typeof id !== 'string' || ids[index] !== id) return undefined;
    const result = readResult(written);
    return result && { index, id, result };
  },
  // JSON prints a double with enough digits to read back the same double.
  print: ({ index, id, result }) => ({ doc_id: index, id, result }),
});

export class SearchJournal extends JournalFile<KeptProblem> {
  /** Problems that were finished when it was opened, by their places. */
  readonly done: ReadonlyMap<number, ProblemResult>;

  /** `ids`: of all problems. Throws UserError as journals do. */
  constructor(path: string, identity: RunIdentity, resume: boolean, ids: readonly string[]) {
    super(path, identity, resume, kindOf(ids));
    this.done = new Map(this.entries.map(({ index, result }) => [index, result]));
  }
}

/** As `journalPath`; a run of the same name has another journal. */
export const searchJournalName = (task: string): string => `search_${task}`;
