/** Datasets: JSON lines of questions. */
import { createHash } from 'node:crypto';
import { UserError } from '../errors.js';
import { isDeeperThan, MAX_JSON_DEPTH, parsePythonJson } from '../system/json.js';
import { type Line, type LineBounds, nameOf, readLines } from '../system/lines.js';
import { badRecord, type FileTask } from './fileTasks.js';
import type { Question } from './question.js';
import { chooseDocs, type ClosedRange, needsTotal, printDocs, type Selection } from './selection.js';

const WORDS = { noun: 'dataset', flag: '--data', item: 'question', command: 'run' } as const;

export interface Dataset {
  /** The chosen questions, in the order of the file. */
  readonly questions: readonly Question[];
  /** Their numbers: ascending, disjoint ranges. */
  readonly docs: readonly ClosedRange[];
  /** Number of questions in the file. */
  readonly total: number;
  /** Hex SHA-256 of the decompressed text: the same for a file and its .gz. */
  readonly sha256: string;
}

export interface DatasetOptions extends Selection {
  /** A file, a pipe, or `-` for the standard input. */
  readonly path: string;
  readonly task: FileTask;
  readonly bounds?: LineBounds;
  readonly signal?: AbortSignal | undefined;
}

/** A value with the words NaN or Infinity in it, as Python writes them; undefined for other texts. */
function pythonJson(text: string): unknown {
  if (!/NaN|Infinity/.test(text)) return undefined;
  try {
    return parsePythonJson(text, '');
  } catch (error) {
    if (error instanceof UserError) return undefined;
    throw error;
  }
}

function parse(task: FileTask, line: Line, where: string): unknown {
  // Checked here, because a value that can be parsed may still be too deep to print into the samples.
  if (isDeeperThan(line.text, MAX_JSON_DEPTH))
    throw badRecord(task, where, `the line is nested more than ${MAX_JSON_DEPTH} deep`);
  try {
    return JSON.parse(line.text);
  } catch (error) {
    const python = pythonJson(line.text);
    if (python !== undefined) return python;
    throw badRecord(task, where, `the line is not JSON (${error instanceof Error ? error.message : String(error)})`);
  }
}

/** Refuses a range that starts after the last question; next to other ranges the mistake would go unnoticed. */
function checkRanges({ docs = [], path, task }: DatasetOptions, total: number): void {
  if (total === 0)
    throw new UserError(`${nameOf(path)} holds no questions`, `Each line of ${task.name} is ${task.schema}`);
  const behind = docs.find(({ first }) => first >= total);
  if (behind === undefined) return;
  throw new UserError(
    `--docs ${printDocs([behind])} starts after the last question: ${nameOf(path)} has ${total} (0 to ${total - 1})`,
    `Example: --docs 0:${total} (all of them)`,
  );
}

/**
 * Reads the chosen questions and the rest of the file. Lines outside the selection are counted and hashed, but not
 * parsed. Throws UserError with `file:line`.
 */
export async function loadDataset(options: DatasetOptions): Promise<Dataset> {
  const { path, task, bounds, signal } = options;
  const hash = createHash('sha256');
  const name = nameOf(path);
  const read = (line: Line, docId: number): Question => {
    const where = `${name}:${line.number}`;
    return { ...task.read(parse(task, line, where), docId, where), line: line.number };
  };
  const questions: Question[] = [];
  /** All lines, if the selection depends on the number of lines. */
  const held: Line[] | undefined = needsTotal(options) ? [] : undefined;
  const early = held === undefined ? chooseDocs(options) : [];
  let total = 0,
    range = 0;
  for await (const line of readLines(path, WORDS, { bounds, signal, onBytes: (chunk) => hash.update(chunk) })) {
    const docId = total++;
    held?.push(line);
    while (docId >= (early[range]?.end ?? Infinity)) range++;
    if (docId >= (early[range]?.first ?? Infinity)) questions.push(read(line, docId));
  }
  checkRanges(options, total);
  const docs = chooseDocs(options, total);
  if (held !== undefined)
    for (const { first, end } of docs)
      for (const [i, line] of held.slice(first, end).entries()) questions.push(read(line, first + i));
  return { questions, docs, total, sha256: hash.digest('hex') };
}

/** A dataset whose records are in memory. */

/** A record as a line of a dataset file holds it. */
export type DatasetRecord = Readonly<Record<string, unknown>>;

/** The record as the line of a file would hold it; so that a file and its records give one dataset. */
function lineOf(task: FileTask, record: DatasetRecord, where: string): string {
  let line: string | undefined;
  try {
    line = JSON.stringify(record) as string | undefined;
  } catch (error) {
    throw badRecord(task, where, `the record cannot be written as JSON (${String(error)})`);
  }
  if (line === undefined) throw badRecord(task, where, 'the record cannot be written as JSON');
  if (isDeeperThan(line, MAX_JSON_DEPTH))
    throw badRecord(task, where, `the record is nested more than ${MAX_JSON_DEPTH} deep`);
  return line;
}

/** The chosen questions. Throws UserError that names the record as `data[3]`. */
export function datasetOfRecords(
  records: readonly DatasetRecord[],
  { task, ...selection }: Selection & { readonly task: FileTask },
): Dataset {
  if (records.length === 0)
    throw new UserError('data: there are no questions', `Each record of ${task.name} is ${task.schema}`);
  const hash = createHash('sha256');
  const lines = records.map((record, i) => lineOf(task, record, `data[${i}]`));
  for (const line of lines) hash.update(`${line}\n`);
  const docs = chooseDocs(selection, records.length);
  const questions = docs.flatMap(({ first, end }) =>
    lines.slice(first, end).map((line, i) => task.read(JSON.parse(line), first + i, `data[${first + i}]`)),
  );
  return { questions, docs, total: records.length, sha256: hash.digest('hex') };
}
