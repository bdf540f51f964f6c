/** A dataset whose records are in memory. */
import { createHash } from 'node:crypto';
import { UserError } from '../errors.js';
import { isDeeperThan, MAX_JSON_DEPTH } from '../system/json.js';
import type { Dataset } from './dataset.js';
import { chooseDocs, type Selection } from './selection.js';
import { badRecord, type Task } from './tasks/task.js';

/** A record as a line of a dataset file holds it. */
export type DatasetRecord = Readonly<Record<string, unknown>>;

/** The record as the line of a file would hold it; so that a file and its records give one dataset. */
function lineOf(task: Task, record: DatasetRecord, where: string): string {
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
  { task, ...selection }: Selection & { readonly task: Task },
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
