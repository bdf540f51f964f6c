/** ARC easy and challenge, from AI2's original files or from the Hugging Face form of the same records. */
import { badRecord, checkChoices, type Doc, isObject, isStringArray, type Question, shown, type Task } from './task.js';

const SCHEMA =
  '{"question": text, "choices": {"text": [...], "label": [...]}, "answerKey": label} (Hugging Face) or ' +
  '{"question": {"stem": text, "choices": [{"text", "label"}, ...]}, "answerKey": label} (AI2)';

interface Fields {
  readonly stem: string;
  readonly texts: readonly string[];
  readonly labels: readonly string[];
}

/** Undefined if the record does not have the original schema. */
function originalFields(record: Doc): Fields | undefined {
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
function huggingFaceFields(record: Doc): Fields | undefined {
  const { question, choices } = record;
  if (typeof question !== 'string') return undefined;
  if (choices === undefined) return { stem: question, texts: [], labels: [] };
  if (!isObject(choices) || !isStringArray(choices['text']) || !isStringArray(choices['label'])) return undefined;
  return { stem: question, texts: choices['text'], labels: choices['label'] };
}

function arcTask(name: string): Task {
  const task = { name, version: 1, schema: SCHEMA };
  function read(record: unknown, docId: number, where: string): Question {
    if (!isObject(record)) throw badRecord(task, where, `expected a JSON object, found ${shown(record)}`);
    const fields = originalFields(record) ?? huggingFaceFields(record);
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
