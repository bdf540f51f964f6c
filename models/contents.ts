/** The files of a checkpoint as a whole: digests of their bytes, and copies of all that a model needs. */
import { basename, join } from 'node:path';
import { defined } from '../system/defined.js';
import { UserError } from '../errors.js';
import { digestFile } from '../system/digest.js';
import { fileSize } from '../system/read.js';
import type { Checkpoint } from './checkpoint.js';
import { QUANTIZATION_FILES } from './quantized/index.js';
import { tokenizerFileNames } from './tokenizer/formats.js';
import { INDEXES, isSingleFile } from './weights/weightFiles.js';

/** SHA-256, hexadecimal, by name of each weight file. Empty for made-up weights. */
export type Contents = Readonly<Record<string, string>>;

export interface ContentsOptions {
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
  readonly signal?: AbortSignal | undefined;
}

type Files = Pick<Checkpoint, 'path' | 'configPath' | 'files'>;

/** What is read of a checkpoint beside its configuration and weights; each may be missing. */
const BESIDE: readonly string[] = [
  ...INDEXES,
  'tokenizer.json',
  'tokenizer.model',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'chat_template.jinja',
  'chat_template.json',
  'generation_config.json',
  ...QUANTIZATION_FILES,
];

/** What other programs read of a checkpoint beside all that. */
const OTHERS_READ: readonly string[] = [
  'vocab.json',
  'merges.txt',
  'preprocessor_config.json',
  'processor_config.json',
];

/** Absolute paths of what lies beside configuration and weights, for a folder with other weights of the model. */
export const besideWeights = ({ path: dir }: Pick<Checkpoint, 'path'>): readonly string[] =>
  [
    ...new Set([
      ...BESIDE.filter((name) => !INDEXES.includes(name) && !QUANTIZATION_FILES.includes(name)),
      ...OTHERS_READ,
      ...tokenizerFileNames(dir),
    ]),
  ]
    .map((name) => join(dir, name))
    .filter((path) => fileSize(path) !== undefined);

interface ContentPart {
  readonly name: string;
  readonly path: string;
  readonly sizeBytes: number;
}

function part(name: string, path: string): ContentPart {
  const sizeBytes = fileSize(path);
  if (sizeBytes === undefined) throw new UserError(`${path}: no such file`, 'download the checkpoint again');
  return { name, path, sizeBytes };
}

const weightParts = ({ files }: Files): readonly ContentPart[] => files.map((path) => part(basename(path), path));

function otherParts({ path: dir, configPath, files }: Files): readonly ContentPart[] {
  if (files.includes(configPath)) return []; // A GGUF file describes its model itself.
  const isIndexed = files.some((path) => !isSingleFile(path));
  const names = BESIDE.filter((name) => isIndexed || !INDEXES.includes(name));
  const beside = [...new Set([...names, ...tokenizerFileNames(dir)])]
    .map((name) => join(dir, name))
    .filter((path) => fileSize(path) !== undefined);
  const described = basename(configPath) === 'params.json' ? 'params.json' : 'config.json';
  return [part(described, configPath), ...beside.map((path) => part(basename(path), path))];
}

async function readParts(
  parts: readonly ContentPart[],
  { onProgress, signal }: ContentsOptions,
  copyTo?: string,
): Promise<ReadonlyMap<string, string>> {
  const totalBytes = parts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const digests = new Map<string, string>();
  let doneBytes = 0;
  for (const { name, path, sizeBytes } of parts) {
    const digest = await digestFile(path, {
      sizeBytes,
      signal,
      onBytes: (count) => onProgress?.((doneBytes += count), totalBytes),
      ...defined({ copyTo: copyTo === undefined ? undefined : join(copyTo, name) }),
    });
    digests.set(name, digest);
  }
  return digests;
}

/** Digests of all bytes of the weight files: at the speed of the disk, a minute or so for 65 GB. */
export const readContents = async (checkpoint: Files, options: ContentsOptions = {}): Promise<Contents> =>
  Object.fromEntries(await readParts(weightParts(checkpoint), options));

/** Copies all that a model needs of its checkpoint into the empty folder `dir`. */
export async function copyCheckpoint(checkpoint: Files, dir: string, options: ContentsOptions = {}): Promise<Contents> {
  const weights = weightParts(checkpoint);
  const digests = await readParts([...otherParts(checkpoint), ...weights], options, dir);
  return Object.fromEntries(weights.map(({ name }) => [name, digests.get(name)!]));
}

/** Throws UserError where a weight file does not have the bytes that `expected` says. */
export async function verifyContents(
  checkpoint: Files,
  expected: Contents,
  options: ContentsOptions & { readonly hint?: string },
): Promise<void> {
  const found = await readContents(checkpoint, options);
  const shown = (digest: string | undefined): string => `${(digest ?? 'absent').slice(0, 12)}…`;
  for (const name of new Set([...Object.keys(expected), ...Object.keys(found)])) {
    if (found[name] !== expected[name])
      throw new UserError(
        `${checkpoint.files.find((path) => basename(path) === name) ?? name}: its bytes are not those that the ` +
          `artifact was compiled with (SHA-256 ${shown(found[name])}, expected ${shown(expected[name])})`,
        options.hint,
      );
  }
}
