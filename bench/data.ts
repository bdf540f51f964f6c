/** Questions to measure on: HellaSwag if it is available, otherwise the bundled everyday set. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadDataset, type Question, taskByName, tokenizeDataset, type TokenizedQuestion } from '../evaluate/index.js';
import { openTokenizer } from '../models/tokenizer/tokenizer.js';

export interface BenchData {
  readonly name: string;
  readonly questions: readonly TokenizedQuestion[];
}

/** The question without the activity label before its context, as some programs ask it. */
export function withoutLabel(question: Question): Question {
  const label = `${String(question.doc['activity_label'])}: `;
  return question.context.startsWith(label) ? { ...question, context: question.context.slice(label.length) } : question;
}

/** The folder that holds package.json. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  return folder;
}

/**
 * Tokenized by `tokenizer` (a folder), or else by a LLaMA-like one of 32,000 pieces if one is found, or else by the
 * demo's. `change` is made to every question before.
 */
export async function benchData(
  data: string | undefined,
  tokenizer: string | undefined,
  count: number,
  change = (question: Question): Question => question,
): Promise<BenchData> {
  const root = packageRoot();
  const first = (paths: readonly string[]): string => paths.find((path) => existsSync(path)) ?? paths.at(-1)!;
  const path =
    data ?? first([join(root, '../shared/data/hellaswag_val.jsonl.gz'), join(root, 'examples/everyday.jsonl')]);
  const folder = tokenizer ?? first([join(root, '../shared/checkpoints/gqa-4m'), join(root, 'models/demo')]);
  const { spec } = openTokenizer(folder);
  const moduleUrl = new URL('../models/tokenizer.js', import.meta.url).href;
  const dataset = await loadDataset({ path, task: taskByName('hellaswag'), limit: count });
  const changed = { ...dataset, questions: dataset.questions.map(change) };
  const loaded = await tokenizeDataset(changed, { tokenizer: { moduleUrl, spec }, workers: 0 });
  return { name: path.split('/').at(-1)!, questions: loaded.tokenized };
}
