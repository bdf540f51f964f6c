/** Questions to measure on: HellaSwag if it is available, otherwise the bundled everyday set. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type OpenedModel, openOrCompile } from '../driver/compile/open.js';
import { loadExecutor } from '../driver/devices/loadReplica.js';
import type { DeviceExecutor } from '../driver/executor.js';
import type { WeightInit } from '../driver/names.js';
import type { KvCache, Precision } from '../driver/precision.js';
import type { Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { loadDataset } from '../evaluate/dataset.js';
import { tokenizeDataset } from '../evaluate/evaluate.js';
import { fileTaskByName } from '../evaluate/fileTasks.js';
import type { Question } from '../evaluate/question.js';
import type { TokenizedQuestion } from '../evaluate/tokenize.js';
import type { CpuIsa } from '../ir/plan.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import { openTokenizer } from '../models/tokenizer/tokenizer.js';
import type { BenchTarget } from './command.js';

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
  const moduleUrl = new URL('../models/tokenizer/tokenizer.js', import.meta.url).href;
  const dataset = await loadDataset({ path, task: fileTaskByName('hellaswag'), limit: count });
  const changed = { ...dataset, questions: dataset.questions.map(change) };
  const loaded = await tokenizeDataset(changed, { tokenizer: { moduleUrl, spec }, workers: 0 });
  return { name: path.split('/').at(-1)!, questions: loaded.tokenized };
}

/** Models with made-up weights for benchmarks of whole calls: compiled and loaded in this process. */

const ignore = (): void => undefined;
const print = (line: string): void => {
  console.error(line);
};
/** Notes and warnings on the standard error, and no progress. */
const ui: Ui = { phase: ignore, step: ignore, run: ignore, table: ignore, note: print, detail: print, warn: print };

export interface RandomModelOptions {
  /** Folder of a config.json, or one below bench/models; or a GGUF file, which is read with its weights. */
  readonly model: string;
  readonly target: BenchTarget;
  /** Threads that compute on a CPU. */
  readonly threads: number;
  /** Default: auto. */
  readonly precision?: Precision;
  /** Instruction set on a CPU; by default the best that it has. */
  readonly isa?: CpuIsa;
  /** Tokens whose keys and values are kept. */
  readonly cacheTokens: number;
  readonly kvCache?: KvCache;
  /** Tokens of the largest call; by default as `run` has it. */
  readonly batchTokens?: number;
  /** A call of `step` takes tokens that the one before it has drawn. */
  readonly feeds?: boolean;
  /** `step` chooses tokens from whole rows of logits where it is asked to. */
  readonly logits?: boolean;
  /** Slots for adapters. Default: none. */
  readonly adapters?: AdapterSlots;
  /** A draft model or head, named as `model` is. */
  readonly draftModel?: string;
  /** Default: made-up weights. */
  readonly init?: WeightInit;
  /** The npm script, for messages. */
  readonly script: string;
}

/** Throws UserError. The caller closes the executor. */
export async function openRandomModel(
  options: RandomModelOptions,
): Promise<Pick<OpenedModel, 'model' | 'checkpoint'> & { readonly executor: DeviceExecutor }> {
  const { model: name, threads, script, draftModel, ...compiling } = options;
  const drafts = draftModel === undefined ? {} : { draftModel: modelPath(draftModel) };
  const { model, checkpoint } = await openOrCompile(
    { model: modelPath(name), init: initOf(name), precision: 'auto', ...compiling, ...drafts },
    detectMachine(),
    ui,
  );
  const executor = await loadExecutor(checkpoint, model, { threads, rebuild: () => `npm run ${script}` }, ui);
  return { model, checkpoint, executor };
}

/** A folder of a config.json: `model` as it is, or one below bench/models. */
export function modelPath(model: string): string {
  const bundled = join(packageRoot(), 'bench', 'models', model);
  return existsSync(bundled) ? bundled : model;
}

/** Weights are made up, except those of a GGUF file. */
export const initOf = (model: string): WeightInit =>
  model.endsWith('.gguf') ? { kind: 'checkpoint' } : { kind: 'random', seed: 1 };
