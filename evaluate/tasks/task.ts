/** A task reads dataset records as multiple-choice questions. */
import { UserError } from '../../errors.js';

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

export interface Task extends TaskName {
  readonly version: number;
  /** The fields that a record must have, in one line, for messages. */
  readonly schema: string;
  /** Reads a record. `where` is `file:line`. Throws UserError if the record is not a question of this task. */
  read(record: unknown, docId: number, where: string): Question;
}

/** The error for a malformed record: its place, what is wrong, and what the task expects. */
export function badRecord(task: Pick<Task, 'name' | 'schema'>, where: string, problem: string): UserError {
  return new UserError(`${where}: ${problem}`, `Each line of ${task.name} is ${task.schema}`);
}

export const isObject = (value: unknown): value is Doc =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const isStringArray = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string');

/** Short, one-line form of a value for a message. */
export function shown(value: unknown): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** Throws if there are no choices, one is empty, or gold is not the index of a choice. */
export function checkChoices(
  task: Pick<Task, 'name' | 'schema'>,
  where: string,
  choices: readonly string[],
  gold: number,
): void {
  if (choices.length === 0) throw badRecord(task, where, 'the question has no choices');
  const empty = choices.indexOf('');
  if (empty >= 0) throw badRecord(task, where, `choice ${empty} (counted from 0) is empty`);
  if (!Number.isInteger(gold) || gold < 0 || gold >= choices.length) {
    throw badRecord(task, where, `label ${gold} names none of the ${choices.length} choices (labels count from 0)`);
  }
}
