/**
 * One line of samples_*.jsonl for each question, in the layout of the public harness's files. There `arguments` is an
 * object of objects (gen_args_0.arg_0), which Zeno's script reads. Its logger for Weights & Biases takes lists
 * (arguments[0][0]) from memory, before they are written, so no file can serve both.
 */
import { createHash } from 'node:crypto';
import { measure, type QuestionMetrics, type Scores } from './metrics.js';
import type { Question } from './tasks/task.js';

export interface Sample {
  readonly line: string;
  readonly metrics: QuestionMetrics;
  /** Hashes of document, prompt and target, joined. Task hashes are made from these. */
  readonly hashes: string;
}

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** JSON that refuses NaN and infinities, for which JSON.stringify would write null. */
export function toJson(value: unknown, indent?: number): string {
  return JSON.stringify(
    value,
    (key, field: unknown) => {
      if (typeof field === 'number' && !Number.isFinite(field))
        throw new Error(`"${key}" is ${field}: results hold finite numbers only`);
      return field;
    },
    indent,
  );
}

/** Python's str() of a boolean. */
const pythonBool = (value: boolean): string => (value ? 'True' : 'False');

/** Contains nothing that depends on when or how fast the question was scored. */
export function makeSample(question: Question, scores: Scores): Sample {
  const { docId, doc, context, choices, gold, delimiter } = question;
  const metrics = measure(question, scores);
  // The harness writes every leaf of a response as text.
  const responses = scores.ll.map((ll, i) => [numberText(ll, docId), pythonBool(scores.greedy[i] ?? false)]);
  const target = String(gold);
  // The harness hashes the document as json.dumps(doc, indent=2, ensure_ascii=False) prints it.
  const docHash = sha256(JSON.stringify(doc, null, 2)),
    promptHash = sha256(context),
    targetHash = sha256(target);
  // All computed numbers are finite here. Those of a document are as JSON.parse returned them.
  const line = JSON.stringify({
    doc_id: docId,
    doc,
    target,
    arguments: Object.fromEntries(
      choices.map((choice, i) => [`gen_args_${i}`, { arg_0: context, arg_1: delimiter + choice }]),
    ),
    resps: responses.map((response) => [response]),
    filtered_resps: responses,
    filter: 'none',
    metrics: ['acc', 'acc_norm'],
    doc_hash: docHash,
    prompt_hash: promptHash,
    target_hash: targetHash,
    acc: metrics.acc,
    acc_norm: metrics.accNorm,
    is_greedy: scores.greedy,
  });
  return { line: `${line}\n`, metrics, hashes: docHash + promptHash + targetHash };
}

/** The shortest digits that read back as the same double. */
function numberText(value: number, docId: number): string {
  if (!Number.isFinite(value)) throw new Error(`question ${docId} has the log-likelihood ${value}`);
  return String(value);
}
