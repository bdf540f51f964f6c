/** From the command line to files: configuration, layout, tokenizer, weights. */
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { describeModel } from '../../models/config.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { findTokenizer } from '../../models/tokenizer/formats.js';
import { defined } from '../../system/defined.js';
import { fileSize, readJsonObject } from '../../system/read.js';
import { packageRoot } from '../data.js';
import { layOut, type MadeCheckpoint } from './layout.js';
import type { CheckpointOptions } from './options.js';
import { writeCheckpoint } from './write.js';

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
  const checkpoint = layOut(model, dtype, options.fileBytes);
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
