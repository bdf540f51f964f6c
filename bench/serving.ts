/** `npm run bench:serving`: what each technique of serving gains in time, and costs in answers. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { deviceModelOf } from '../driver/devices/deviceModel.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { openModel } from '../driver/functions.js';
import type { KvCache } from '../driver/precision.js';
import { Engine } from '../engine/engine.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { DeviceModel } from '../engine/device.js';
import { run } from '../library/index.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, decimal, oneOf, runProgram, whole } from './command.js';
import { initOf, modelPath, openRandomModel } from './inputs.js';
import { promptOf, requestLengths, type RequestLengths } from './requestLengths.js';
import { paddedExecutor, writeRepeated } from './servingInputs.js';

/** A checkpoint as it is, and with its heads repeated. */
interface ServedWeights {
  readonly name: string;
  readonly own: string;
  readonly repeated: string;
  readonly precision: 'auto' | 'int4';
  /** Whether it has weights of its own, so that answers mean something. */
  readonly isTrained: boolean;
}

interface Served {
  /** From all requests to the end of each, ascending. */
  readonly latencies: readonly number[];
  readonly seconds: number;
  readonly cpuSeconds: number;
}

/** A file of questions, and the task that reads it. */
interface AccuracyQuestions {
  readonly task: string;
  readonly data: string;
}

/** A row that is ready to serve. */
interface ReadyRow {
  readonly model: DeviceModel;
  readonly vocabSize: number;
  readonly executor: DeviceExecutor;
}

const pagesFor = (tokens: number): number => Math.ceil(tokens / PAGE_TOKENS);

/** Lengths that fit `context`: half of it at most for either side. */
const lengthsOf = ({ requests, spread }: ServingOptions, context: number): readonly RequestLengths[] =>
  requestLengths(requests, spread).map(({ prompt, answer }) => ({
    prompt: Math.min(prompt, context >> 1),
    answer: Math.min(answer, context >> 1),
  }));

async function open(
  row: ServingRow,
  weights: ServedWeights,
  options: ServingOptions,
  context: number,
): Promise<ReadyRow> {
  const { target, threads } = options;
  const pages = lengthsOf(options, context).reduce((sum, { prompt, answer }) => sum + pagesFor(prompt + answer), 0);
  const cacheTokens = pages * PAGE_TOKENS;
  const { checkpoint, executor } = await openRandomModel({
    model: row.isRepeated ? weights.repeated : weights.own,
    ...(weights.isTrained ? { init: { kind: 'checkpoint' } } : {}),
    target,
    threads,
    precision: weights.precision,
    cacheTokens,
    kvCache: row.kvCache,
    script: 'bench:serving',
  });
  const served = row.isPadded ? paddedExecutor(executor, context) : executor;
  const { vocabSize } = checkpoint.config;
  return { model: deviceModelOf({ executor: served, checkpoint }, cacheTokens), vocabSize, executor };
}

/** Serves all requests at once. */
async function serve({ model, vocabSize }: ReadyRow, lengths: readonly RequestLengths[]): Promise<Served> {
  const generator = Engine.of(model);
  const cpu = process.cpuUsage();
  const started = performance.now();
  const latencies = await Promise.all(
    lengths.map(async ({ prompt, answer }, i) => {
      await generator.generate({ prompt: promptOf(i, prompt, vocabSize), maxNewTokens: answer, sampling: {} });
      return (performance.now() - started) / 1000;
    }),
  );
  const { user, system } = process.cpuUsage(cpu);
  const seconds = (performance.now() - started) / 1000;
  return { latencies: latencies.sort((a, b) => a - b), seconds, cpuSeconds: (user + system) / 1e6 };
}

/** `25.59 ± 0.44`, in percent, of the questions in a file. */
async function accuracyOf(
  row: ServingRow,
  weights: ServedWeights,
  { task, data }: AccuracyQuestions,
  options: ServingOptions,
): Promise<string> {
  const { target, threads, limit } = options;
  const { accuracy } = await run({
    model: row.isRepeated ? weights.repeated : weights.own,
    task,
    data,
    target,
    threads,
    precision: weights.precision,
    kvCache: row.kvCache,
    ...defined({ limit }),
  });
  const percent = (share: number): string => (100 * share).toFixed(2);
  return `${percent(accuracy.value)} ± ${percent(accuracy.standardError ?? 0)}`;
}

/** The fastest round of each of these rows, which take turns. */
async function fastest(
  rows: readonly ServingRow[],
  weights: ServedWeights,
  options: ServingOptions,
  context: number,
): Promise<readonly Served[]> {
  const lengths = lengthsOf(options, context);
  const ready: ReadyRow[] = [];
  const best: Served[] = [];
  try {
    for (const row of rows) ready.push(await open(row, weights, options, context));
    for (let round = 0; round <= options.rounds; round++)
      for (const [i, own] of ready.entries()) {
        const served = await serve(own, lengths);
        // The first round warms up.
        if (round > 0 && served.seconds < (best[i]?.seconds ?? Infinity)) best[i] = served;
      }
  } finally {
    for (const { executor } of ready) await executor.close();
  }
  return best;
}

const sum = (values: readonly number[]): number => values.reduce((all, each) => all + each, 0);

async function measure(weights: ServedWeights, options: ServingOptions, context: number): Promise<void> {
  const lengths = lengthsOf(options, context);
  const isHost = options.target === 'cpu';
  // The memory of a device holds the weights once.
  const groups = isHost ? [SERVING_ROWS] : SERVING_ROWS.map((row) => [row]);
  const best: Served[] = [];
  for (const rows of groups) best.push(...(await fastest(rows, weights, options, context)));
  const tokens = sum(lengths.map(({ answer }) => answer));
  const asked = [
    { task: 'arc_challenge', data: options.challenge },
    { task: 'arc_easy', data: options.easy },
  ];
  // Padding is no part of what a checkpoint means.
  const known = new Map<string, string>();
  for (const [i, row] of SERVING_ROWS.entries()) {
    const { latencies, seconds, cpuSeconds } = at(best, i);
    const ratioOf = ({ seconds: wall, cpuSeconds: work }: Served): number => (isHost ? work : wall);
    const accuracies: string[] = [];
    for (const { task, data } of asked) {
      const key = `${row.isRepeated} ${row.kvCache} ${task}`;
      const isAsked = data !== undefined && weights.isTrained;
      const text = !isAsked ? '–' : (known.get(key) ?? (await accuracyOf(row, weights, { task, data }, options)));
      known.set(key, text);
      accuracies.push(text);
    }
    const cells = [
      weights.name,
      row.name,
      (sum(latencies) / latencies.length).toFixed(2),
      at(latencies, Math.ceil(0.95 * latencies.length) - 1).toFixed(2),
      (tokens / seconds).toFixed(0),
      ...(isHost ? [(tokens / cpuSeconds).toFixed(0)] : []),
      (ratioOf(at(best, 0)) / ratioOf(at(best, i))).toFixed(2),
      ...accuracies,
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
}

const repeatedFolder = (checkpoint: Checkpoint, folder: string, name: string): string => {
  const target = join(folder, name);
  writeRepeated(checkpoint, target);
  return target;
};

async function main(options: ServingOptions): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-serving-'));
  try {
    const given: (Pick<ServedWeights, 'name' | 'precision'> & { readonly model: string })[] = [
      { name: '16 bits', model: options.model, precision: 'auto' },
    ];
    const precision = options.target === 'cuda' ? 'int4' : 'auto';
    if (options.gptq !== undefined) given.push({ name: 'GPTQ', model: options.gptq, precision });
    const opened = given.map(({ model, ...rest }, i) => {
      const own = modelPath(model);
      const known = openModel(own, own === model ? { kind: 'checkpoint' } : initOf(own));
      const isTrained = own === model;
      return { ...rest, own, repeated: repeatedFolder(known, folder, `repeated${i}`), isTrained, known };
    });
    const { maxPositions } = at(opened, 0).known.config;
    const context = Math.min(options.context, maxPositions);
    const lengths = lengthsOf(options, context);
    console.log(
      `${options.model}, ${options.target}: ${lengths.length} requests, ` +
        `${sum(lengths.map(({ prompt }) => prompt))} tokens of prompts and ` +
        `${sum(lengths.map(({ answer }) => answer))} new ones, contexts padded to ${context} keys\n`,
    );
    const columns = [
      'weights',
      'row',
      'mean s',
      '95 % s',
      'tokens/s',
      ...(options.target === 'cpu' ? ['tokens a CPU second'] : []),
      '× baseline',
      'ARC-Challenge',
      'ARC-Easy',
    ];
    console.log(`| ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length)}`);
    for (const weights of opened) await measure(weights, options, context);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export interface ServingOptions {
  readonly model: string;
  readonly gptq?: string;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly requests: number;
  readonly rounds: number;
  readonly spread: number;
  readonly context: number;
  readonly challenge?: string;
  readonly easy?: string;
  readonly limit?: number;
}

export const servingCommand = (): Command =>
  benchCommand(
    'bench:serving',
    'What an FP8 cache with a slot filter, grouped queries, and attention over valid blocks give a service, each ' +
      'alone and all together, with weights of 16 bits and of GPTQ. Kernels have no worse twins: what is off is ' +
      'off in the input. All requests are made at once; their lengths are lognormal, with the means of ' +
      'conversations (215 tokens of prompt, 198 of answer) and the same for every row. Prints the mean time of a ' +
      "request and its 95th percentile, new tokens a second, how many times as many as the baseline's, and the " +
      "accuracy with its standard error. Rows take turns; times are those of each one's fastest round. On a CPU a " +
      'column counts tokens for a second of its processors, to which other programs add little.',
  )
    .requiredOption(
      '--model <path>',
      'folder of a checkpoint of 16 bits, or one below bench/models, whose weights are made up',
    )
    .option(
      '--gptq <path>',
      'the same, quantized (tilewright quantize); --target cuda keeps its 4 bits, cpu decodes them',
    )
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cpu')
    .option('--threads <n>', 'threads that compute on a CPU', whole(1, 1024), 2)
    .option('--requests <n>', 'requests, all at once', whole(1, 10_000), 32)
    .option('--rounds <n>', 'times that every row serves them', whole(1, 1000), 3)
    .option('--spread <x>', 'standard deviation of the logarithm of a length', decimal(0, 3), 1.1)
    .option(
      '--context <n>',
      "keys of a padded context, at most the model's context; longer requests are cut",
      whole(64, 1 << 20),
      2048,
    )
    .option('--challenge <file>', 'questions of ARC-Challenge, for the accuracy')
    .option('--easy <file>', 'questions of ARC-Easy')
    .option('--limit <n>', 'questions of each (default: all)', whole(1, 1_000_000))
    .addHelpText('after', `\nThe rows:\n\n${describeServingRows()}`);

/** The configurations that the ablation of serving compares. */

export interface ServingRow {
  readonly name: string;
  /** For the help of the benchmark, and its documentation. */
  readonly meaning: string;
  /** Whether keys and values have a head for each head of queries: the same function, without grouping. */
  readonly isRepeated: boolean;
  readonly kvCache: KvCache;
  /** Whether every query reads as many keys as the longest context may have. */
  readonly isPadded: boolean;
}

const BASELINE = { isRepeated: true, kvCache: '16bit', isPadded: true } as const;

export const SERVING_ROWS: readonly ServingRow[] = [
  {
    ...BASELINE,
    name: 'baseline',
    meaning: 'heads of keys and values repeated for each head of queries, contexts padded, a cache of 16 bits',
  },
  {
    ...BASELINE,
    kvCache: 'fp8',
    name: '+ FP8 cache, slot filter',
    meaning: 'the baseline with --kv-cache fp8; slots of −1 are not written, in any row',
  },
  { ...BASELINE, isRepeated: false, name: '+ grouped queries', meaning: 'the baseline with the heads as they are' },
  {
    ...BASELINE,
    isPadded: false,
    name: '+ valid blocks, two-step softmax',
    meaning: 'the baseline without padding: queries list the keys that they see, and read them a chunk after another',
  },
  { isRepeated: false, kvCache: 'fp8', isPadded: false, name: 'all', meaning: 'the three of them together' },
];

/** A line for each row with what it is. */
export const describeServingRows = (): string =>
  SERVING_ROWS.map(({ name, meaning }) => `  ${name}\n      ${meaning}`).join('\n');

await runProgram(import.meta.url, servingCommand, main);
