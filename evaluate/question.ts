/** What is asked of a model: choices behind a context, or a whole text. */

/** A JSON object as a dataset line holds it. */
export type Doc = Readonly<Record<string, unknown>>;

export interface Question {
  /** Index of the record in its dataset, from 0. */
  readonly docId: number;
  /** Where it is from, for messages; absent for questions of a file. */
  readonly where?: string | undefined;
  /** Its line in the file, from 1; absent for questions from elsewhere. */
  readonly line?: number;
  /** The document as samples_*.jsonl records it: the record, with the fields that the public harness adds. */
  readonly doc: Doc;
  /** Text before every choice. */
  readonly context: string;
  /** Text before each choice, where they differ; `context` is the first of them then. */
  readonly contexts?: readonly string[] | undefined;
  readonly choices: readonly string[];
  /** Index of the correct choice; negative where none is. */
  readonly gold: number;
  /** Text between the context and a choice; not counted in a choice's length. */
  readonly delimiter: string;
  /** The one choice is a text that is scored as a whole, in windows where it is longer than the model's context. */
  readonly isRolling?: boolean | undefined;
}

/** What names a task in journals. */
export interface TaskName {
  readonly name: string;
  /** Version of the public harness's task that has these semantics. */
  readonly version: number | string;
}
