/**
 * A checkpoint folder as the compiler sees it: its configuration, the location of every tensor, the tokenizer and a
 * fingerprint.
 */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { checkTensors } from './checkTensors.js';
import { loadModel, readModel } from './config.js';
import { isRecord, quote } from '../system/json.js';
import { fileSize, readJsonObject, readRange, withFile } from '../system/read.js';
import { findDuplicateKey } from './jsonKeys.js';
import type { Model, ModelConfig } from './family/model.js';
import { readSafetensorsHeader, type SafetensorsEntry, type SafetensorsHeader } from './safetensors.js';
import { partShape, weightFormat, type FileTensor, type TensorLocation, type TensorPart } from './family/tensors.js';
import { findTokenizer } from './tokenizer.js';

export {
  type ConstantTensor,
  type ExpectedTensor,
  type FileTensor,
  type RandomTensor,
  type TensorLocation,
} from './family/tensors.js';

export interface Checkpoint {
  /** Absolute path. */
  readonly dir: string;
  /** Absolute path of its config.json. */
  readonly configPath: string;
  readonly model: Model;
  /** The model's configuration. */
  readonly config: ModelConfig;
  /** Exactly the tensors of the model; parts in place of tensors that have parts. */
  readonly tensors: ReadonlyMap<string, TensorLocation>;
  /** Absolute paths of the weight files; empty for made-up weights. */
  readonly files: readonly string[];
  /** tokenizer.json, else tokenizer.model; undefined if the folder has neither. */
  readonly tokenizerPath: string | undefined;
  /**
   * SHA-256, hexadecimal, of the configuration, the headers, the file sizes and a sample of every tensor (its first,
   * middle and last 256 bytes): the same for a copy elsewhere, another for a fine-tuned sibling. Bytes between the
   * samples are not covered; contents.ts covers all. Reads the files when first called.
   */
  fingerprint(): string;
}

const SINGLE = 'model.safetensors';
export const INDEX = `${SINGLE}.index.json`;
const INDEX_BYTES = 32 << 20;
const MAX_TENSORS = 1 << 18;
const SHARD = /^(?!\.)[\w.-]{1,200}\.safetensors$/;
const MAX_SHARDS = 4096;
const SAMPLE_BYTES = 256;
const DOWNLOAD =
  'download it again: hf download <repository> --include "*.safetensors" "*.json" "tokenizer.model" ' +
  '--local-dir <folder>';

/** The error for a folder without weights; it names weight files of another kind. */
function noWeights(dir: string): UserError {
  let names: string[];
  try {
    names = readdirSync(dir);
  } catch {
    return new UserError(
      `${dir}: the folder does not exist or is not readable`,
      'give the folder of a Hugging Face checkpoint: config.json and *.safetensors',
    );
  }
  const other = names.find((name) => /\.(bin|pth|pt|gguf|safetensors)$/.test(name));
  return new UserError(
    `${dir}: found neither ${SINGLE} nor ${INDEX}${other === undefined ? '' : `; ${quote(other)} cannot be read`}`,
    other !== undefined && !other.endsWith('.safetensors')
      ? 'use a safetensors copy of the model (most repositories hold one)'
      : DOWNLOAD,
  );
}

/** weight_map of an index file: tensor → shard. Shard names contain no path, so none points outside the folder. */
function readIndex(path: string): ReadonlyMap<string, string> {
  const { value, text } = readJsonObject(path, INDEX_BYTES, DOWNLOAD);
  const map = value['weight_map'];
  if (!isRecord(map)) throw new UserError(`${path}: weight_map: expected an object, got ${quote(map)}`, DOWNLOAD);
  const duplicate = findDuplicateKey(text);
  if (duplicate !== undefined) throw new UserError(`${path}: the key ${quote(duplicate, 120)} occurs twice`, DOWNLOAD);
  const entries = Object.entries(map);
  if (entries.length > MAX_TENSORS)
    throw new UserError(`${path}: names ${entries.length} tensors, more than the limit of ${MAX_TENSORS}`, DOWNLOAD);
  const shards = new Map<string, string>();
  for (const [tensor, shard] of entries) {
    if (typeof shard !== 'string' || !SHARD.test(shard)) {
      throw new UserError(
        `${path}: tensor ${quote(tensor, 120)}: ${quote(shard)} is not the name of a .safetensors file in this folder`,
        DOWNLOAD,
      );
    }
    shards.set(tensor, shard);
  }
  const count = new Set(shards.values()).size;
  if (count === 0 || count > MAX_SHARDS)
    throw new UserError(`${path}: names ${count} files; expected 1 to ${MAX_SHARDS}`, DOWNLOAD);
  return shards;
}

/** Headers of all shards. Each tensor must be in the file that the index names, and in no other. */
function readShards(dir: string): SafetensorsHeader[] {
  const index = readIndex(join(dir, INDEX));
  const counts = new Map<string, number>();
  for (const shard of index.values()) counts.set(shard, (counts.get(shard) ?? 0) + 1);
  const shards = [...counts.keys()].sort();
  const missing = shards.filter((shard) => fileSize(join(dir, shard)) === undefined);
  if (missing.length > 0) {
    const tensors = missing.reduce((sum, shard) => sum + (counts.get(shard) ?? 0), 0);
    throw new UserError(
      `${dir}: ${missing.length} of the ${shards.length} files that ${INDEX} names ` +
        `${missing.length === 1 ? 'is' : 'are'} missing: ` +
        `${missing.slice(0, 4).join(', ')}${missing.length > 4 ? ', …' : ''} (${tensors} tensors)`,
      DOWNLOAD,
    );
  }
  return shards.map((shard) => {
    const header = readSafetensorsHeader(join(dir, shard));
    for (const { name } of header.entries) {
      const home = index.get(name);
      if (home !== shard && !name.endsWith('rotary_emb.inv_freq')) {
        throw new UserError(
          `${header.file}: holds tensor ${quote(name, 120)}, which ${INDEX} ` +
            `${home === undefined ? 'does not name' : `places in ${home}`}`,
          DOWNLOAD,
        );
      }
    }
    const held = new Set(header.entries.map((entry) => entry.name));
    for (const [name, home] of index) {
      if (home === shard && !held.has(name)) {
        throw new UserError(
          `${header.file}: tensor ${quote(name, 120)}, which ${INDEX} places there, is not in it`,
          DOWNLOAD,
        );
      }
    }
    return header;
  });
}

/** Weight files that the index does not name. They are mentioned when tensors are missing. */
function strayShards(dir: string, headers: readonly SafetensorsHeader[]): string {
  const read = new Set(headers.map((header) => header.file));
  const stray = readdirSync(dir).filter((name) => /^model-.*\.safetensors$/.test(name) && !read.has(join(dir, name)));
  return stray.length === 0
    ? ''
    : `\n  in the folder, but not named by ${INDEX}: ${stray
        .slice(0, 4)
        .map((name) => quote(name))
        .join(', ')}${stray.length > 4 ? ', …' : ''}`;
}

function hashFiles(config: ModelConfig, headers: readonly SafetensorsHeader[]): string {
  const hash = createHash('sha256').update(JSON.stringify(config));
  for (const header of headers) {
    hash.update(`\n${header.sizeBytes} ${header.headerHash}\n`);
    withFile(header.file, (fd) => {
      for (const { offset, byteLength } of header.entries) {
        const size = Math.min(SAMPLE_BYTES, byteLength);
        const middle = Math.floor((byteLength - size) / 2);
        for (const start of [0, middle, byteLength - size]) hash.update(readRange(fd, offset + start, size));
      }
    });
  }
  return hash.digest('hex');
}

/**
 * Opens a Hugging Face folder: config.json and model.safetensors, or model.safetensors.index.json and its shards. Reads
 * headers only. A folder's own symbolic links are followed (download caches are made of them); names inside files never
 * leave the folder. Throws UserError: the first line says what is wrong, and further lines list patterns.
 */
export function openCheckpoint(path: string): Checkpoint {
  const dir = resolve(path);
  const checked = loadModel(dir); // An unsupported architecture is reported before anything about its weights.
  const isSingle = fileSize(join(dir, SINGLE)) !== undefined;
  if (!isSingle && fileSize(join(dir, INDEX)) === undefined) throw noWeights(dir);
  const headers = isSingle ? [readSafetensorsHeader(join(dir, SINGLE))] : readShards(dir);

  const found = new Map<string, SafetensorsEntry & { readonly file: string }>();
  for (const header of headers)
    for (const entry of header.entries) found.set(entry.name, { ...entry, file: header.file });
  const problems = checkTensors(checked, found, (name) => quote(name, 120).slice(1, -1));
  if (problems.length > 0) {
    throw new UserError(
      `${dir}: the weights are not the model that config.json describes:\n  ` +
        `${problems.join('\n  ')}${isSingle ? '' : strayShards(dir, headers)}`,
      'compare config.json with the weights, or download both again from one revision',
    );
  }
  const [first] = checked.tensors;
  const model = loadModel(dir, weightFormat(found.get(first?.name ?? '')?.dtype ?? ''));
  const { config } = model;
  const tensors = new Map<string, FileTensor>();
  for (const { name, parts } of model.tensors) {
    const entry = found.get(name);
    const format = weightFormat(entry?.dtype ?? '');
    if (entry === undefined || format === undefined) throw new Error(`${name} passed checkTensors but is missing`);
    const { shape, file, offset, byteLength } = entry;
    const whole = { kind: 'file', name, format, shape, file, offset, byteLength } as const;
    for (const each of parts?.map((part) => partOf(whole, part)) ?? [whole]) tensors.set(each.name, each);
  }
  let fingerprint: string | undefined;
  return {
    dir,
    configPath: join(dir, 'config.json'),
    model,
    config,
    tensors,
    files: headers.map((header) => header.file),
    tokenizerPath: findTokenizer(dir),
    fingerprint: () => (fingerprint ??= hashFiles(config, headers)),
  };
}

/** A part of a stored tensor as a tensor. */
function partOf(whole: FileTensor, part: TensorPart): FileTensor {
  const rowBytes = whole.byteLength / whole.shape[0]!;
  const { name, first, rows, stride, count } = part;
  return {
    ...whole,
    name,
    shape: partShape(part, whole.shape),
    offset: whole.offset + first * rowBytes,
    byteLength: rows * count * rowBytes,
    ...(count === 1 ? {} : { blocks: { rows, stride } }),
  };
}

/** Standard deviation of made-up matrices: transformers' initializer_range. */
const RANDOM_SCALE = 0.02;
const FNV_OFFSET = 0xcbf29ce484222325n;
const FNV_PRIME = 0x100000001b3n;

/** FNV-1a of the text's UTF-8 bytes, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/). */
export function fnv1a64(text: string): bigint {
  let hash = FNV_OFFSET;
  for (const byte of Buffer.from(text, 'utf8')) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * FNV_PRIME);
  return hash;
}

/**
 * The checkpoint of `--init random:SEED`: a model with the shapes of config.json whose weights are in no file. Norm
 * weights change nothing. Matrices and biases are random with the seed FNV-1a 64 of "SEED:name". Both have the
 * configuration's element type. `path` is a config.json or its folder; a tokenizer beside it is used. Throws UserError
 * if it is not supported.
 */
export function describeRandomCheckpoint(path: string, seed: number | bigint): Checkpoint {
  const isFile = path.endsWith('.json');
  const dir = resolve(isFile ? dirname(path) : path);
  const model = isFile ? readModel(resolve(path)) : loadModel(dir);
  const { config } = model;
  const { dtype: format } = config;
  const tensors = new Map<string, TensorLocation>();
  for (const { name: stored, shape: whole, role, neutral = 1, parts } of model.tensors) {
    const pieces = parts?.map((part) => ({ name: part.name, shape: partShape(part, whole) }));
    for (const { name, shape } of pieces ?? [{ name: stored, shape: whole }])
      tensors.set(
        name,
        role === 'norm'
          ? { kind: 'constant', name, format, shape, value: neutral }
          : { kind: 'random', name, format, shape, seed: fnv1a64(`${seed}:${name}`), scale: RANDOM_SCALE },
      );
  }
  const fingerprint = createHash('sha256')
    .update(`random ${seed}\n${JSON.stringify(config)}`)
    .digest('hex');
  return {
    dir,
    configPath: isFile ? resolve(path) : join(dir, 'config.json'),
    model,
    config,
    tensors,
    files: [],
    tokenizerPath: findTokenizer(dir),
    fingerprint: () => fingerprint,
  };
}
