/**
 * Any multiple-choice question set, one JSON object per line:
 *
 *   "context" or "question"  text before every choice, used as it stands ("context" wins where both are present)
 *   "choices"                list of texts, each scored after the context and one space
 *   "label" or "answer"      the right choice: a number from 0, the same in quotes, or a capital letter, A the first
 *
 * Other fields are kept in the sample file.
 */
import { badRecord, checkChoices, isObject, isStringArray, type Question, shown, type Task } from './task.js';

const task = {
  name: 'multiple_choice',
  version: 1,
  schema:
    '{"context" or "question": text, "choices": [text, ...], "label" or "answer": number from 0, or letter from A}',
};

function readLabel(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  if (/^\d{1,6}$/.test(value)) return Number(value);
  return /^[A-Z]$/.test(value) ? value.charCodeAt(0) - 65 : undefined;
}

function read(record: unknown, docId: number, where: string): Question {
  if (!isObject(record)) throw badRecord(task, where, `expected a JSON object, found ${shown(record)}`);
  const { choices } = record;
  const context = record['context'] ?? record['question'];
  if (typeof context !== 'string') {
    throw badRecord(task, where, `"context" or "question" must be text, found ${shown(context)}`);
  }
  if (choices === undefined) throw badRecord(task, where, 'the question has no choices (no "choices")');
  if (!isStringArray(choices))
    throw badRecord(task, where, `"choices" must be a list of texts, found ${shown(choices)}`);
  const label = record['label'] ?? record['answer'];
  const gold = readLabel(label);
  if (gold === undefined) {
    throw badRecord(task, where, `"label" or "answer" must be a number from 0 or a letter, found ${shown(label)}`);
  }
  checkChoices(task, where, choices, gold);
  return { docId, doc: record, context, choices, gold, delimiter: ' ' };
}

export const multipleChoice: Task = { ...task, read };
