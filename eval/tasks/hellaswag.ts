/** HellaSwag, with the text preparation of the public harness's task hellaswag (version 1.0). */
import { capitalize, strip } from '../pythonText.js';
import { badRecord, checkChoices, isObject, isStringArray, shown, type Question, type Task } from './task.js';

const task = {
  name: 'hellaswag',
  version: 1,
  schema: '{"activity_label": text, "ctx_a": text, "ctx_b": text, "endings": [text, ...], "label": 0 to 3 or "0" to "3"}',
};

/** WikiHow markup out. The order of the steps and the single pass over double spaces are part of the metric. */
export function preprocess(text: string): string {
  return strip(text)
    .replaceAll(' [title]', '. ')
    // Python's `.` stops at \n only; JavaScript's would also stop at \r, U+2028 and U+2029.
    .replace(/\[[^\n]*?\]/g, '')
    .replaceAll('  ', ' ');
}

function read(record: unknown, docId: number, where: string): Question {
  if (!isObject(record)) throw badRecord(task, where, `expected a JSON object, found ${shown(record)}`);
  const text = (field: string): string => {
    const value = record[field];
    if (typeof value !== 'string') throw badRecord(task, where, `"${field}" must be text, found ${shown(value)}`);
    return value;
  };
  const { endings, label } = record;
  if (endings === undefined) throw badRecord(task, where, 'the question has no choices (no "endings")');
  if (!isStringArray(endings)) throw badRecord(task, where, `"endings" must be a list of texts, found ${shown(endings)}`);
  // Python's int() allows space around the digits.
  const gold = typeof label === 'number' ? label
    : typeof label === 'string' && /^\d+$/.test(strip(label)) ? Number(strip(label)) : undefined;
  if (gold === undefined) {
    throw badRecord(task, where, `"label" must be a number, found ${shown(label)} (the test split has no labels)`);
  }
  const query = preprocess(`${text('activity_label')}: ${text('ctx_a')} ${capitalize(text('ctx_b'))}`);
  const choices = endings.map(preprocess);
  checkChoices(task, where, choices, gold);
  return { docId, doc: { ...record, query, choices, gold }, context: query, choices, gold, delimiter: ' ' };
}

export const hellaswag: Task = { ...task, read };
