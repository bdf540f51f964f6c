/** Checkpoint files made up for tests. */
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UserError } from '../../errors.js';
import { runFolder } from '../support/runFolder.js';

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** The data folder beside the repository. */
export const SHARED = join(ROOT, '..', 'shared');
export const DEMO = join(ROOT, 'models', 'demo');
export const hasShared = existsSync(join(SHARED, 'golden'));

/** Says loudly which tests do not run. */
export function skipReason(what: string): string {
  if (!hasShared) process.stderr.write(`SKIPPED: ${what}: the folder ../shared is not beside the repository\n`);
  return what;
}

/** A new empty folder, removed after the last test of the run. */
export const temporaryFolder = (): string => mkdtempSync(join(runFolder(), 'models-'));

/** The UserError that `run` throws. Fails if it throws something else or nothing. */
export function userError(run: () => unknown): UserError {
  try {
    run();
  } catch (error) {
    if (error instanceof UserError) return error;
    throw error;
  }
  throw new Error('expected a UserError, but nothing was thrown');
}

export interface HeaderEntry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** A safetensors file with this header (an object, or its exact text) and this many bytes of data. */
export function safetensors(header: object | string, data: number | Uint8Array): Buffer {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, typeof data === 'number' ? Buffer.alloc(data) : data]);
}

/** Header entries of BF16 tensors, one directly after another, and the size of their data. */
export function layOut(tensors: Iterable<readonly [name: string, shape: readonly number[]]>): {
  header: Record<string, HeaderEntry>;
  size: number;
} {
  const header: Record<string, HeaderEntry> = {};
  let size = 0;
  for (const [name, shape] of tensors) {
    const end = size + 2 * shape.reduce((a, b) => a * b, 1);
    header[name] = { dtype: 'BF16', shape: [...shape], data_offsets: [size, end] };
    size = end;
  }
  return { header, size };
}

/** A small valid config.json. */
export const SMALL_CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 3,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 10,
  max_position_embeddings: 32,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
} as const;

export function writeJson(dir: string, name: string, value: unknown): string {
  const path = join(dir, name);
  writeFileSync(path, JSON.stringify(value));
  return path;
}
