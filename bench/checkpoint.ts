/**
 * `npm run checkpoint:make -- --out DIR`: a checkpoint of made-up weights, LLaMA-33B's shape by default.
 * From a bundle: `checkpoint-make.sh`.
 */
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { UserError } from '../errors.js';
import { describeModel } from '../models/config.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import { findTokenizer } from '../models/tokenizer/formats.js';
import { defined } from '../system/defined.js';
import { clock } from '../system/text.js';
import { quoteForShell } from '../system/process.js';
import { fileSize, readJsonObject } from '../system/read.js';
import { layOut, type MadeCheckpoint, writeCheckpoint } from './checkpointFiles.js';
import type { MadeDType } from './checkpointValues.js';
import { benchCommand, oneOf, runProgram, whole } from './command.js';
import { packageRoot } from './inputs.js';

/** Seconds between lines if a terminal does not overwrite them. */
const LINE_SECONDS = 5;
const BLANK = ' '.repeat(8);
const INTERRUPTED = 130;

const gigabytes = (bytes: number): string => (bytes / 1e9).toFixed(2);

/** Shows progress on stderr: one line that changes, or a line from time to time. */
function progressLine(totalBytes: number): { show(doneBytes: number): void; end(): void } {
  const begin = performance.now();
  const { isTTY } = process.stderr;
  let shown = 0;
  return {
    show: (doneBytes) => {
      const seconds = (performance.now() - begin) / 1000;
      if (doneBytes === 0 || (!isTTY && seconds - shown < LINE_SECONDS)) return;
      shown = seconds;
      const rate = doneBytes / seconds;
      const text =
        `${gigabytes(doneBytes)} of ${gigabytes(totalBytes)} GB, ` +
        `${gigabytes(rate)} GB/s, ${clock((totalBytes - doneBytes) / rate)} left`;
      process.stderr.write(isTTY ? `\r${text}${BLANK}` : `${text}\n`);
    },
    end: () => {
      if (isTTY && shown > 0) process.stderr.write('\n');
    },
  };
}

async function main(options: CheckpointOptions): Promise<void> {
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort());
  process.once('SIGTERM', () => stop.abort());
  const begin = performance.now();
  let line: ReturnType<typeof progressLine> | undefined;
  try {
    const { bytes, files } = await makeCheckpoint(options, {
      signal: stop.signal,
      onPlan: (checkpoint, tokenizer) => {
        console.log(
          `${options.out}: ${gigabytes(checkpoint.bytes)} GB of ${checkpoint.dtype} ` +
            `in ${checkpoint.files.length} files, seed ${options.seed}, tokenizer of ${tokenizer}`,
        );
        line = progressLine(checkpoint.bytes);
      },
      onProgress: (doneBytes) => line?.show(doneBytes),
    });
    line?.end();
    const seconds = (performance.now() - begin) / 1000;
    console.log(
      `${gigabytes(bytes)} GB in ${files.length} files written in ${seconds.toFixed(1)} s, ` +
        `${gigabytes(bytes / seconds)} GB/s\n` +
        `next: tilewright run ${quoteForShell(options.out)} --task hellaswag --data hellaswag_val.jsonl.gz`,
    );
  } catch (error) {
    line?.end();
    if (stop.signal.aborted) {
      process.stderr.write('stopped; what was written is removed\n');
      process.exitCode = INTERRUPTED;
      return;
    }
    throw error;
  }
}

export interface CheckpointOptions {
  /** Path of a folder that holds a config.json. */
  readonly model: string;
  readonly out: string;
  readonly seed: number;
  /** Path of a folder. */
  readonly tokenizer?: string;
  readonly dtype?: MadeDType;
  readonly layers?: number;
  /** The size of a file, bytes. */
  readonly shard: number;
  readonly threads: number;
}

const UNITS: Readonly<Record<string, number>> = { kB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
const MAX_THREADS = 256;
const MAX_LAYERS = 1024;

/** Bytes of `10GB`. */
function size(given: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)([kKMG]i?B)$/.exec(given) ?? [];
  const value = Math.floor(Number(digits) * (UNITS[unit] ?? NaN));
  if (digits === '' || !(value > 0)) throw new InvalidArgumentError('expected a size with its unit, for example 10GB');
  return value;
}

function existing(folder: string): string {
  if (!existsSync(folder)) throw new InvalidArgumentError('no such folder');
  return folder;
}

/** A folder, or one of bench/models by its name. Throws InvalidArgumentError if there is none. */
export function modelFolder(name: string): string {
  const bundled = join(packageRoot(), 'bench/models', name);
  return /^[\w.-]+$/.test(name) && existsSync(bundled) ? bundled : existing(name);
}

export const checkpointCommand = (): Command =>
  benchCommand(
    'checkpoint:make',
    'Writes a checkpoint of made-up weights in the files that a real one has (config.json, *.safetensors with their ' +
      'index, tokenizer), to measure how weights are loaded. The same seed gives the same bytes on every machine.',
  )
    .requiredOption('--out <folder>', 'a new folder', (given) => {
      if (given === '') throw new InvalidArgumentError('expected the path of a new folder');
      return given;
    })
    .addOption(
      new Option('--model <path>', 'folder of a config.json, or one below bench/models')
        .argParser(modelFolder)
        .default(join(packageRoot(), 'bench/models/llama-33b'), 'llama-33b'),
    )
    .option('--seed <n>', 'whole number', whole(0, Number.MAX_SAFE_INTEGER), 1)
    .option(
      '--tokenizer <folder>',
      "folder whose tokenizer is copied; by default the model's own, else the demonstration model's",
      existing,
    )
    .option('--dtype <type>', 'of the weights, bf16 or f16; by default what config.json names', oneOf(['bf16', 'f16']))
    .option('--layers <n>', "another number of layers than the model's", whole(1, MAX_LAYERS))
    .addOption(
      new Option('--shard <size>', 'the largest weight file: 10GB, 500MB').argParser(size).default(1e10, '10GB'),
    )
    .addOption(
      new Option('--threads <n>')
        .argParser((given) => Math.min(MAX_THREADS, whole(1, 1 << 16)(given)))
        .default(Math.min(MAX_THREADS, availableParallelism()), 'all processors'),
    );

/** From the command line to files: configuration, layout, tokenizer, weights. */

const CONFIG_BYTES = 1 << 20;
const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer.model',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
];
const TORCH_NAMES = { bf16: 'bfloat16', f16: 'float16' } as const;

/** The files of a tokenizer that produces no id that the model lacks. Throws UserError. */
function tokenizerFiles(folder: string, vocabSize: number): string[] {
  const { vocabSize: ids } = describeTokenizer(folder);
  if (ids > vocabSize)
    throw new UserError(
      `${folder}: the tokenizer has ids up to ${ids - 1}, the model ${vocabSize} embeddings`,
      'give the tokenizer of such a model: --tokenizer DIR',
    );
  return TOKENIZER_FILES.map((name) => join(folder, name)).filter((path) => fileSize(path) !== undefined);
}

export interface MakeReport {
  /** Describes what is to be written; called once, before it is. */
  readonly onPlan?: (checkpoint: MadeCheckpoint, tokenizer: string) => void;
  readonly onProgress?: (doneBytes: number) => void;
  readonly signal?: AbortSignal;
}

/** Throws UserError. Rejects with the signal's reason if it was aborted. */
export async function makeCheckpoint(
  options: CheckpointOptions,
  { onPlan, ...report }: MakeReport = {},
): Promise<MadeCheckpoint> {
  const path = join(options.model, 'config.json');
  const { value } = readJsonObject(path, CONFIG_BYTES, 'give the folder of a config.json: --model DIR');
  const stated = describeModel(value, path).config;
  const dtype = options.dtype ?? stated.dtype;
  if (dtype === 'f32') throw new UserError(`${path}: names no 16-bit type for the weights`, 'say which: --dtype bf16');
  const { dtype: _dtype, torch_dtype: _torch, ...rest } = value;
  const described = {
    ...rest,
    torch_dtype: TORCH_NAMES[dtype],
    ...defined({ num_hidden_layers: options.layers }),
  };
  const model = describeModel(described, path);
  const checkpoint = layOut(model, dtype, options.shard);
  const folder =
    options.tokenizer ??
    (findTokenizer(options.model) === undefined ? join(packageRoot(), 'models/demo') : options.model);
  const files = tokenizerFiles(folder, model.config.vocabSize);
  onPlan?.(checkpoint, folder);
  await writeCheckpoint({
    checkpoint,
    seed: options.seed,
    config: `${JSON.stringify(described, undefined, 2)}\n`,
    tokenizerFiles: files,
    out: options.out,
    threads: options.threads,
    ...report,
  });
  return checkpoint;
}

await runProgram(import.meta.url, checkpointCommand, main);
