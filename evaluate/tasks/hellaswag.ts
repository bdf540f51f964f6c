/** HellaSwag, with the text preparation of the public harness's task hellaswag (version 1.0). */
import { capitalize, strip } from '../../python/value.js';
import { badRecord, checkChoices, isObject, isStringArray, type Question, shown, type Task } from './task.js';

const task = {
  name: 'hellaswag',
  version: 1,
  schema:
    '{"activity_label": text, "ctx_a": text, "ctx_b": text, "endings": [text, ...], "label": 0 to 3 or "0" to "3"}',
};

/**
 * Removes each `[`, what follows, and the next `]`, within a line: Python's re.sub(r'\[.*?\]', '', text), whose `.`
 * stops at \n only. A scan, because the regular expression takes quadratic time on a text of only opening brackets.
 */
function removeBracketed(text: string): string {
  let kept = '',
    from = 0,
    close = -1,
    lineEnd = -1;
  for (let open = text.indexOf('['); open >= 0;) {
    if (close < open) close = text.indexOf(']', open);
    if (close < 0) break;
    if (lineEnd < open) lineEnd = text.indexOf('\n', open);
    if (lineEnd < 0) lineEnd = text.length;
    if (lineEnd < close) {
      open = text.indexOf('[', lineEnd);
      continue;
    }
    kept += text.slice(from, open);
    from = close + 1;
    open = text.indexOf('[', from);
  }
  return kept + text.slice(from);
}

/** Removes WikiHow markup. The order of the steps and the single pass over double spaces are part of the metric. */
export function preprocess(text: string): string {
  return removeBracketed(strip(text).replaceAll(' [title]', '. ')).replaceAll('  ', ' ');
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
  if (!isStringArray(endings))
    throw badRecord(task, where, `"endings" must be a list of texts, found ${shown(endings)}`);
  // Python's int() allows white space around the digits.
  const gold =
    typeof label === 'number'
      ? label
      : typeof label === 'string' && /^\d+$/.test(strip(label))
        ? Number(strip(label))
        : undefined;
  if (gold === undefined) {
    throw badRecord(task, where, `"label" must be a number, found ${shown(label)} (the test split has no labels)`);
  }
  const query = preprocess(`${text('activity_label')}: ${text('ctx_a')} ${capitalize(text('ctx_b'))}`);
  const choices = endings.map(preprocess);
  checkChoices(task, where, choices, gold);
  return { docId, doc: { ...record, query, choices, gold }, context: query, choices, gold, delimiter: ' ' };
}

export const hellaswag: Task = { ...task, read };
