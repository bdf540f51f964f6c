/**
 * `npm run bench:serving`: what each technique of serving gains in time, and costs in answers. The 8B shape on one GPU
 * of 141 GB, from a bundle, in about eight minutes (--rows 1,5,2,3 and --rows 1,4,6 are parts of it: all rows are
 * compared with the first):
 *
 *   ./tilewright quantize models/demo -o demo-int4 --group 32 --calibration examples/everyday.jsonl --samples 8
 *   ./node/node dist/bench/serving.js --target cuda --model llama-8b --gptq llama-8b-gptq --trained models/demo \
 *     --trained-gptq demo-int4 --requests 256 --rounds 1 --spread 0.7 --challenge arc_challenge_test.jsonl.gz
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { deviceModelOf } from '../driver/devices/deviceModel.js';
import { openModel } from '../driver/functions.js';
import type { KvCache } from '../driver/precision.js';
import { Engine } from '../engine/engine.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { DeviceModel } from '../engine/device.js';
import { run } from '../library/index.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, decimal, list, oneOf, runProgram, whole } from './command.js';
import { initOf, modelPath, openRandomModel } from './inputs.js';
import { promptOf, requestLengths, type RequestLengths } from './requestLengths.js';
import { paddedExecutor, timedExecutor, writeRepeated } from './servingInputs.js';

/** A checkpoint as it is, and with its heads repeated. */
interface ServedWeights {
  readonly name: string;
  readonly own: string;
  readonly repeated: string;
  readonly precision: 'auto' | 'int4';
  /** Whether it has weights of its own, so that answers mean something. */
  readonly isTrained: boolean;
  /** The checkpoint that accuracies are of, where it has none. */
  readonly judged?: ServedWeights;
}

interface Served {
  /** From all requests to the end of each, ascending. */
  readonly latencies: readonly number[];
  readonly seconds: number;
  readonly cpuSeconds: number;
  /** Of the calls, each from its first kernel to its last. */
  readonly deviceSeconds: number;
}

/** A file of questions, and the task that reads it. */
interface AccuracyQuestions {
  readonly task: string;
  readonly data: string;
}

/** A model of one or more rows, whose contexts may be padded. */
interface OpenedWeights {
  readonly model: (isPadded: boolean) => DeviceModel;
  readonly vocabSize: number;
  /** Milliseconds on the device of each call that has ended. */
  readonly busy: readonly number[];
  readonly close: () => Promise<void>;
}

/** Rows with one key are served by one model. */
const keyOf = ({ isRepeated, kvCache }: ServingRow): string => `${isRepeated} ${kvCache}`;

const pagesFor = (tokens: number): number => Math.ceil(tokens / PAGE_TOKENS);

/** Lengths that fit `context`: half of it at most for either side. */
const lengthsOf = ({ requests, spread }: ServingOptions, context: number): readonly RequestLengths[] =>
  requestLengths(requests, spread).map(({ prompt, answer }) => ({
    prompt: Math.min(prompt, context >> 1),
    answer: Math.min(answer, context >> 1),
  }));

async function open(
  { isRepeated, kvCache }: ServingRow,
  weights: ServedWeights,
  options: ServingOptions,
  context: number,
): Promise<OpenedWeights> {
  const { target, threads } = options;
  const pages = lengthsOf(options, context).reduce((sum, { prompt, answer }) => sum + pagesFor(prompt + answer), 0);
  const cacheTokens = pages * PAGE_TOKENS;
  const { checkpoint, executor } = await openRandomModel({
    model: isRepeated ? weights.repeated : weights.own,
    ...(weights.isTrained ? { init: { kind: 'checkpoint' } } : {}),
    ...{ target, threads, precision: weights.precision, cacheTokens, kvCache, feeds: true, script: 'bench:serving' },
  });
  await executor.prepare?.();
  const busy: number[] = [];
  const timed = timedExecutor(executor, busy);
  const model = (isPadded: boolean): DeviceModel => {
    const served = isPadded ? paddedExecutor(timed, context) : timed;
    return deviceModelOf({ executor: served, checkpoint }, cacheTokens, { feeds: true });
  };
  return { model, vocabSize: checkpoint.config.vocabSize, busy, close: () => executor.close() };
}

/** Serves all these requests at once. */
async function serve(opened: OpenedWeights, isPadded: boolean, lengths: readonly RequestLengths[]): Promise<Served> {
  const { vocabSize, busy } = opened;
  const generator = Engine.of(opened.model(isPadded));
  const before = busy.length;
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
  return {
    ...{ latencies: latencies.sort((a, b) => a - b), seconds, cpuSeconds: (user + system) / 1e6 },
    deviceSeconds: sum(busy.slice(before)) / 1000,
  };
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

/** Requests of a first round, which warms up. */
const WARM_UP = 32;

/** The fastest round of each of these rows, which take turns. */
async function fastest(
  rows: readonly ServingRow[],
  weights: ServedWeights,
  options: ServingOptions,
  context: number,
): Promise<readonly Served[]> {
  const lengths = lengthsOf(options, context);
  const opened = new Map<string, OpenedWeights>();
  const best: Served[] = [];
  try {
    for (const row of rows)
      if (!opened.has(keyOf(row))) opened.set(keyOf(row), await open(row, weights, options, context));
    for (let round = 0; round <= options.rounds; round++)
      for (const [i, row] of rows.entries()) {
        const asked = round === 0 ? lengths.slice(0, WARM_UP) : lengths;
        const served = await serve(opened.get(keyOf(row))!, row.isPadded, asked);
        if (round > 0 && served.seconds < (best[i]?.seconds ?? Infinity)) best[i] = served;
      }
  } finally {
    for (const { close } of opened.values()) await close();
  }
  return best;
}

const sum = (values: readonly number[]): number => values.reduce((all, each) => all + each, 0);

/** Rows that are served together: all on a CPU, those of one model where a device has memory for its weights once. */
function groupsOf(rows: readonly ServingRow[], target: BenchTarget): readonly (readonly ServingRow[])[] {
  if (target === 'cpu') return [rows];
  const keys = [...new Set(rows.map(keyOf))];
  return keys.map((key) => rows.filter((row) => keyOf(row) === key));
}

async function measure(weights: ServedWeights, options: ServingOptions, context: number): Promise<void> {
  const { target, trained } = options;
  const lengths = lengthsOf(options, context);
  const rows = options.rows?.map((number) => at(SERVING_ROWS, number - 1)) ?? SERVING_ROWS;
  const best = new Map<ServingRow, Served>();
  for (const group of groupsOf(rows, target)) {
    const served = await fastest(group, weights, options, context);
    group.forEach((row, i) => best.set(row, at(served, i)));
  }
  const tokens = sum(lengths.map(({ answer }) => answer));
  const asked = [
    { task: 'arc_challenge', data: options.challenge },
    { task: 'arc_easy', data: options.easy },
  ];
  const judged = weights.isTrained ? weights : weights.judged;
  const workOf = ({ seconds, cpuSeconds }: Served): number => (target === 'cpu' ? cpuSeconds : seconds);
  const first = best.get(rows[0]!)!;
  // Padding is no part of what a checkpoint means.
  const known = new Map<string, string>();
  for (const row of rows) {
    const served = best.get(row)!;
    const { latencies, seconds, cpuSeconds, deviceSeconds } = served;
    const accuracies: string[] = [];
    for (const { task, data } of asked) {
      const key = `${keyOf(row)} ${task}`;
      const isAsked = data !== undefined && judged !== undefined;
      const text = !isAsked ? '–' : (known.get(key) ?? (await accuracyOf(row, judged, { task, data }, options)));
      known.set(key, text);
      accuracies.push(text);
    }
    const cells = [
      weights.name,
      row.name,
      (sum(latencies) / latencies.length).toFixed(2),
      at(latencies, Math.ceil(0.95 * latencies.length) - 1).toFixed(2),
      (tokens / seconds).toFixed(0),
      (target === 'cpu' ? tokens / cpuSeconds : tokens / deviceSeconds).toFixed(0),
      (workOf(first) / workOf(served)).toFixed(2),
      ...(target === 'cpu' ? [] : [(first.deviceSeconds / deviceSeconds).toFixed(2)]),
      ...accuracies,
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
  if (trained !== undefined && !weights.isTrained) console.log(`(accuracies are those of ${trained})`);
}

const repeatedFolder = (checkpoint: Checkpoint, folder: string, name: string): string => {
  const target = join(folder, name);
  writeRepeated(checkpoint, target);
  return target;
};

/** A checkpoint and its twin with repeated heads, in `folder`. */
function weightsOf(model: string, folder: string, name: string): ServedWeights & { readonly known: Checkpoint } {
  const own = modelPath(model);
  const known = openModel(own, own === model ? { kind: 'checkpoint' } : initOf(own));
  const repeated = repeatedFolder(known, folder, `repeated-${name.replace(' ', '-')}`);
  return { ...{ name, precision: 'auto', own, repeated, isTrained: own === model }, known };
}

async function main(options: ServingOptions): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-serving-'));
  try {
    const opened: (ServedWeights & { readonly known: Checkpoint })[] = [];
    const take = (name: string, model: string, trained: string | undefined, precision: 'auto' | 'int4'): void => {
      const judged =
        trained === undefined ? {} : { judged: { ...weightsOf(trained, folder, `${name} judged`), precision } };
      opened.push({ ...weightsOf(model, folder, name), precision, ...judged });
    };
    take('16 bits', options.model, options.trained, 'auto');
    if (options.gptq !== undefined)
      take('GPTQ', options.gptq, options.trainedGptq, options.target === 'cuda' ? 'int4' : 'auto');
    const { maxPositions } = at(opened, 0).known.config;
    const context = Math.min(options.context, maxPositions);
    const lengths = lengthsOf(options, context);
    console.log(
      `${options.model}, ${options.target}: ${lengths.length} requests, ` +
        `${sum(lengths.map(({ prompt }) => prompt))} tokens of prompts and ` +
        `${sum(lengths.map(({ answer }) => answer))} new ones, contexts padded to ${context} keys\n`,
    );
    const columns = [
      ...['weights', 'row', 'mean s', '95 % s', 'tokens/s'],
      ...(options.target === 'cpu'
        ? ['tokens a CPU second', '× baseline']
        : ['tokens a second of the device', '× baseline', '× on the device']),
      ...['ARC-Challenge', 'ARC-Easy'],
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
  readonly trained?: string;
  readonly trainedGptq?: string;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly requests: number;
  readonly rounds: number;
  readonly spread: number;
  readonly context: number;
  /** Numbers of rows, from 1. */
  readonly rows?: readonly number[];
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
      'column counts tokens for a second of its processors, to which other programs add little; on a GPU one counts ' +
      'them for a second from first kernels to last ones, without what the host does between calls.',
  )
    .requiredOption(
      '--model <path>',
      'folder of a checkpoint of 16 bits, or one below bench/models, whose weights are made up',
    )
    .option(
      '--gptq <path>',
      'the same, quantized (tilewright quantize); --target cuda keeps its 4 bits, cpu decodes them',
    )
    .option('--trained <path>', 'a trained checkpoint for the accuracies, where the weights of --model are made up')
    .option('--trained-gptq <path>', 'the same, quantized, for those of --gptq')
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
    .option('--rows <list>', 'only these rows, by number', list(whole(1, SERVING_ROWS.length)))
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
  {
    ...BASELINE,
    kvCache: 'int8',
    name: '+ int8 cache, slot filter',
    meaning: 'the baseline with --kv-cache int8',
  },
  { ...BASELINE, isRepeated: false, name: '+ grouped queries', meaning: 'the baseline with the heads as they are' },
  {
    ...BASELINE,
    isPadded: false,
    name: '+ valid blocks, two-step softmax',
    meaning: 'the baseline without padding: queries list the keys that they see, and read them a chunk after another',
  },
  {
    isRepeated: false,
    kvCache: 'fp8',
    isPadded: false,
    name: 'all',
    meaning: 'the FP8 cache, grouped queries and valid blocks together',
  },
];

/** A line for each row with what it is. */
export const describeServingRows = (): string =>
  SERVING_ROWS.map(({ name, meaning }, i) => `  ${i + 1}. ${name}\n      ${meaning}`).join('\n');

await runProgram(import.meta.url, servingCommand, main);
