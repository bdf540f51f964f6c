/**
 * Tasks whose documents are the questions of a file: HellaSwag, ARC, and any multiple-choice set. Each is a task
 * definition, with the keys of a task file, and a reader of its records; the data are local.
 */
import { UsageError, UserError } from '../errors.js';
import { capitalize, strip } from '../python/value.js';
import type { TaskSettings } from '../tasks/definition/settings.js';
import { withoutMarkup } from '../tasks/hooks/markup.js';
import type { Doc, Question, TaskName } from './question.js';

/** A task of questions in a file: a definition with a reader of its records. */
export interface FileTask extends TaskName {
  readonly version: number;
  /** The fields that a record must have, in one line, for messages. */
  readonly schema: string;
  /** Reads a record. `where` is `file:line`. Throws UserError if the record is not a question of this task. */
  read(record: unknown, docId: number, where: string): Question;
}

/** The error for a malformed record: its place, what is wrong, and what the task expects. */
export function badRecord(task: Pick<FileTask, 'name' | 'schema'>, where: string, problem: string): UserError {
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
  task: Pick<FileTask, 'name' | 'schema'>,
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

const HELLASWAG = {
  name: 'hellaswag',
  version: 1,
  schema:
    '{"activity_label": text, "ctx_a": text, "ctx_b": text, "endings": [text, ...], "label": 0 to 3 or "0" to "3"}',
};

/** With the text preparation of the public harness's task hellaswag (version 1.0). */
function readHellaswag(record: unknown, docId: number, where: string): Question {
  if (!isObject(record)) throw badRecord(HELLASWAG, where, `expected a JSON object, found ${shown(record)}`);
  const text = (field: string): string => {
    const value = record[field];
    if (typeof value !== 'string') throw badRecord(HELLASWAG, where, `"${field}" must be text, found ${shown(value)}`);
    return value;
  };
  const { endings, label } = record;
  if (endings === undefined) throw badRecord(HELLASWAG, where, 'the question has no choices (no "endings")');
  if (!isStringArray(endings))
    throw badRecord(HELLASWAG, where, `"endings" must be a list of texts, found ${shown(endings)}`);
  // Python's int() allows white space around the digits.
  const gold =
    typeof label === 'number'
      ? label
      : typeof label === 'string' && /^\d+$/.test(strip(label))
        ? Number(strip(label))
        : undefined;
  if (gold === undefined) {
    throw badRecord(HELLASWAG, where, `"label" must be a number, found ${shown(label)} (the test split has no labels)`);
  }
  const query = withoutMarkup(`${text('activity_label')}: ${text('ctx_a')} ${capitalize(text('ctx_b'))}`);
  const choices = endings.map(withoutMarkup);
  checkChoices(HELLASWAG, where, choices, gold);
  return { docId, doc: { ...record, query, choices, gold }, context: query, choices, gold, delimiter: ' ' };
}

export const hellaswag: FileTask = { ...HELLASWAG, read: readHellaswag };

const ARC_SCHEMA =
  '{"question": text, "choices": {"text": [...], "label": [...]}, "answerKey": label} (Hugging Face) or ' +
  '{"question": {"stem": text, "choices": [{"text", "label"}, ...]}, "answerKey": label} (AI2)';

interface ArcFields {
  readonly stem: string;
  readonly texts: readonly string[];
  readonly labels: readonly string[];
}

/** Undefined if the record does not have the schema of AI2. */
function fieldsOfAi2(record: Doc): ArcFields | undefined {
  const { question } = record;
  if (!isObject(question) || typeof question['stem'] !== 'string') return undefined;
  const choices = question['choices'] ?? [];
  if (!Array.isArray(choices)) return undefined;
  const texts: string[] = [],
    labels: string[] = [];
  for (const choice of choices as readonly unknown[]) {
    if (!isObject(choice) || typeof choice['text'] !== 'string' || typeof choice['label'] !== 'string')
      return undefined;
    texts.push(choice['text']);
    labels.push(choice['label']);
  }
  return { stem: question['stem'], texts, labels };
}

/** Undefined if the record does not have the Hugging Face schema. */
function fieldsOfHuggingFace(record: Doc): ArcFields | undefined {
  const { question, choices } = record;
  if (typeof question !== 'string') return undefined;
  if (choices === undefined) return { stem: question, texts: [], labels: [] };
  if (!isObject(choices) || !isStringArray(choices['text']) || !isStringArray(choices['label'])) return undefined;
  return { stem: question, texts: choices['text'], labels: choices['label'] };
}

/** ARC easy and challenge, from AI2's original files or from the Hugging Face form of the same records. */
function arcTask(name: string): FileTask {
  const task = { name, version: 1, schema: ARC_SCHEMA };
  function read(record: unknown, docId: number, where: string): Question {
    if (!isObject(record)) throw badRecord(task, where, `expected a JSON object, found ${shown(record)}`);
    const fields = fieldsOfAi2(record) ?? fieldsOfHuggingFace(record);
    if (fields === undefined) throw badRecord(task, where, '"question" and "choices" match neither schema of ARC');
    const { stem, texts, labels } = fields;
    if (texts.length !== labels.length) {
      throw badRecord(task, where, `${texts.length} choices but ${labels.length} labels`);
    }
    const { answerKey } = record;
    // Labels are A–E or 1–5. The key is compared with them unchanged.
    const gold = typeof answerKey === 'string' ? labels.indexOf(answerKey) : -1;
    if (gold < 0 && texts.length > 0) {
      throw badRecord(task, where, `"answerKey" ${shown(answerKey)} is not among the labels ${labels.join(', ')}`);
    }
    checkChoices(task, where, texts, gold);
    // Always recorded in the Hugging Face form, so that the sample files of both schemas agree.
    const { question: _question, choices: _choices, ...others } = record;
    const doc = { ...others, question: stem, choices: { text: texts, label: labels } };
    return { docId, doc, context: `Question: ${stem}\nAnswer:`, choices: texts, gold, delimiter: ' ' };
  }
  return { ...task, read };
}

export const arcEasy = arcTask('arc_easy');
export const arcChallenge = arcTask('arc_challenge');

const MULTIPLE_CHOICE = {
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

/**
 * Any multiple-choice question set, one JSON object per line:
 *
 *   "context" or "question"  text before every choice, used as it stands ("context" wins where both are present)
 *   "choices"                list of texts, each scored after the context and one space
 *   "label" or "answer"      the right choice: a number from 0, the same in quotes, or a capital letter, A the first
 *
 * Other fields are kept in the sample file.
 */
function readMultipleChoice(record: unknown, docId: number, where: string): Question {
  if (!isObject(record)) throw badRecord(MULTIPLE_CHOICE, where, `expected a JSON object, found ${shown(record)}`);
  const { choices } = record;
  const context = record['context'] ?? record['question'];
  if (typeof context !== 'string') {
    throw badRecord(MULTIPLE_CHOICE, where, `"context" or "question" must be text, found ${shown(context)}`);
  }
  if (choices === undefined) throw badRecord(MULTIPLE_CHOICE, where, 'the question has no choices (no "choices")');
  if (!isStringArray(choices))
    throw badRecord(MULTIPLE_CHOICE, where, `"choices" must be a list of texts, found ${shown(choices)}`);
  const label = record['label'] ?? record['answer'];
  const gold = readLabel(label);
  if (gold === undefined) {
    throw badRecord(
      MULTIPLE_CHOICE,
      where,
      `"label" or "answer" must be a number from 0 or a letter, found ${shown(label)}`,
    );
  }
  checkChoices(MULTIPLE_CHOICE, where, choices, gold);
  return { docId, doc: record, context, choices, gold, delimiter: ' ' };
}

export const multipleChoice: FileTask = { ...MULTIPLE_CHOICE, read: readMultipleChoice };

export const FILE_TASKS: readonly FileTask[] = [hellaswag, arcEasy, arcChallenge, multipleChoice];

/** Throws UserError that lists the known names. */
export function fileTaskByName(name: string): FileTask {
  const task = FILE_TASKS.find((candidate) => candidate.name === name);
  if (task === undefined) {
    throw new UsageError(`unknown task "${name}"`, `Tasks: ${FILE_TASKS.map((known) => known.name).join(', ')}`);
  }
  return task;
}

const METRICS = ['acc', 'acc_norm'].map(
  (metric) =>
    new Map<string, string | boolean>([
      ['metric', metric],
      ['aggregation', 'mean'],
      ['higher_is_better', true],
    ]),
);

/** The keys that a task file would have. Prompts are those of the reader. */
export const settingsOfFileTask = ({ name, version }: FileTask): TaskSettings =>
  new Map(
    Object.entries({
      ...{ task: name, output_type: 'multiple_choice', metric_list: METRICS },
      metadata: new Map([['version', version]]),
    }).map(([key, value]) => [key, { value, where: `--task ${name}: ${key}` }]),
  );
