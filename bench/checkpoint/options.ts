/** The command line of the checkpoint maker. */
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../../errors.js';
import { packageRoot } from '../data.js';
import type { MadeDType } from './values.js';

export const USAGE = `checkpoint:make --out DIR [--model llama-33b] [--seed 1] [--tokenizer DIR]
                [--dtype bf16|f16] [--layers N] [--shard 10GB] [--threads N]

Writes a checkpoint of made-up weights in the files that a real one has (config.json, *.safetensors with their index,
tokenizer), to measure how weights are loaded. The same seed gives the same bytes on every machine.

  --out        a new folder
  --model      folder of a config.json, or one below bench/models
  --seed       whole number
  --tokenizer  folder whose tokenizer is copied; by default the model's own, else the demonstration model's
  --dtype      of the weights; by default what config.json names
  --layers     another number of layers than the model's
  --shard      most bytes of a weight file: 10GB, 500MB
  --threads    by default all processors`;

export interface CheckpointOptions {
  /** Path of a folder that holds a config.json. */
  readonly model: string;
  readonly out: string;
  readonly seed: number;
  /** Path of a folder. */
  readonly tokenizer: string | undefined;
  readonly dtype: MadeDType | undefined;
  readonly layers: number | undefined;
  /** The size of a file, bytes. */
  readonly fileBytes: number;
  readonly threads: number;
}

const HINT = 'look at the options: npm run checkpoint:make -- --help';
const UNITS: Readonly<Record<string, number>> = { kB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
const MAX_THREADS = 256;
const MAX_LAYERS = 1024;

function whole(name: string, text: string, least: number, most: number): number {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : NaN;
  if (!(value >= least && value <= most))
    throw new UserError(`--${name} ${JSON.stringify(text)}: expected a whole number from ${least} to ${most}`, HINT);
  return value;
}

function size(name: string, text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)([kKMG]i?B)$/.exec(text) ?? [];
  const value = Math.floor(Number(digits) * (UNITS[unit] ?? NaN));
  if (digits === '' || !(value > 0))
    throw new UserError(
      `--${name} ${JSON.stringify(text)}: expected a size with its unit`,
      'for example: --shard 10GB',
    );
  return value;
}

function folderOf(name: string, folder: string): string {
  if (!existsSync(folder)) throw new UserError(`--${name} ${folder}: no such folder`, HINT);
  return folder;
}

/** `undefined` if help was asked for. Throws UserError. */
export function parseCheckpointOptions(args: readonly string[]): CheckpointOptions | undefined {
  let values;
  try {
    ({ values } = parseArgs({
      args: [...args],
      options: {
        model: { type: 'string', default: 'llama-33b' },
        out: { type: 'string' },
        seed: { type: 'string', default: '1' },
        tokenizer: { type: 'string' },
        dtype: { type: 'string' },
        layers: { type: 'string' },
        shard: { type: 'string', default: '10GB' },
        threads: { type: 'string', default: String(availableParallelism()) },
        help: { type: 'boolean', default: false },
      },
    }));
  } catch (error) {
    throw new UserError(error instanceof Error ? error.message : String(error), HINT, { cause: error });
  }
  if (values.help) return undefined;
  const { dtype, model, out, tokenizer, layers } = values;
  if (out === undefined || out === '')
    throw new UserError(
      '--out is missing: where the checkpoint goes',
      'for example: npm run checkpoint:make -- --out llama-33b',
    );
  if (dtype !== undefined && dtype !== 'bf16' && dtype !== 'f16')
    throw new UserError(`--dtype ${JSON.stringify(dtype)}: expected bf16 or f16`, HINT);
  const bundled = join(packageRoot(), 'bench/models', model);
  return {
    out,
    dtype,
    model: /^[\w.-]+$/.test(model) && existsSync(bundled) ? bundled : folderOf('model', model),
    seed: whole('seed', values.seed, 0, Number.MAX_SAFE_INTEGER),
    tokenizer: tokenizer === undefined ? undefined : folderOf('tokenizer', tokenizer),
    layers: layers === undefined ? undefined : whole('layers', layers, 1, MAX_LAYERS),
    fileBytes: size('shard', values.shard),
    threads: Math.min(MAX_THREADS, whole('threads', values.threads, 1, 1 << 16)),
  };
}
