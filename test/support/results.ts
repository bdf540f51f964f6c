/** Folders of results for tests of pages: questions with choices, as runs write them. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const DATE = '2026-01-31T10-20-30.123000';

export interface SampleOf {
  readonly id?: number;
  readonly context?: string;
  readonly choices?: readonly string[];
  readonly lls: readonly (number | string)[];
  readonly gold?: number;
  /** More fields of the document. */
  readonly doc?: object;
  /** More fields of the line. */
  readonly more?: object;
}

/** A line of a file of samples. */
export function sampleOf(i: number, of: SampleOf): object {
  const { id = i, lls, gold = 0, doc = {}, more = {} } = of;
  const { context = `Question ${id}`, choices = lls.map((_, c) => `choice ${c} of ${id}`) } = of;
  const numbers = lls.map(Number);
  const best = numbers.reduce((at, each, c) => (each > numbers[at]! ? c : at), 0);
  return {
    doc_id: id,
    doc: { query: context, choices, gold, ...doc },
    target: String(gold),
    arguments: Object.fromEntries(
      choices.map((choice, c) => [`gen_args_${c}`, { arg_0: context, arg_1: ` ${choice}` }]),
    ),
    resps: lls.map((each) => [[String(each), 'False']]),
    filtered_resps: lls.map((each) => [String(each), 'False']),
    filter: 'none',
    metrics: ['acc'],
    acc: best === gold ? 1 : 0,
    ...more,
  };
}

/** Writes a run of tasks into `folder`: samples, and results with their accuracies. Returns the folder. */
export function writeRun(
  folder: string,
  tasks: Readonly<Record<string, readonly SampleOf[]>>,
  results: object = {},
): string {
  mkdirSync(folder, { recursive: true });
  const blocks: Record<string, object> = {};
  for (const [task, all] of Object.entries(tasks)) {
    const lines = all.map((each, i) => sampleOf(i, each));
    writeFileSync(
      join(folder, `samples_${task}_${DATE}.jsonl`),
      lines.map((line) => `${JSON.stringify(line)}\n`).join(''),
    );
    const right = lines.filter((line) => (line as { acc?: number }).acc === 1).length;
    const share = right / lines.length;
    const error = Math.sqrt((share * (1 - share)) / Math.max(1, lines.length - 1));
    blocks[task] = { alias: task, sample_len: lines.length, 'acc,none': share, 'acc_stderr,none': error };
  }
  writeFileSync(
    join(folder, `results_${DATE}.json`),
    JSON.stringify({ results: blocks, model_name: 'made', higher_is_better: {}, ...results }),
  );
  return folder;
}

/** Top-level fields of results_*.json that differ between equal runs. All others are the same to the byte. */
export const VOLATILE_FIELDS = [
  'date',
  'start_time',
  'end_time',
  'total_evaluation_time_seconds',
  'throughput',
] as const;
