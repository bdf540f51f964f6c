/**
 * A checkpoint folder as the compiler sees it: its configuration, the location of every tensor, the tokenizer and a
 * fingerprint.
 */
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import { defined } from '../system/defined.js';
import { UserError } from '../errors.js';
import { checkFolder, requireModelAt } from './checkpointPath.js';
import { checkTensors } from './checkTensors.js';
import type { FormatName } from '../ir/storage.js';
import { readRange, withFile } from '../system/read.js';
import type { Json, Model, ModelConfig } from './family/model.js';
import { weightFormat, type TensorLocation } from './family/tensors.js';
import type { WeightFile } from './family/weightFile.js';
import { joinedVectors, placesOf, type StoredTensor } from './family/storedTensors.js';
import { kindOfWeights } from './otherModels.js';
import { quantizedTensors } from './quantized/index.js';
import { settleHead } from './tiedHead.js';
import { findGgufModel } from './weightFiles.js';
import { folderSource, ggufSource, type CheckpointSource, type QuantizedStorage } from './checkpointSource.js';

/** A checkpoint that fits its model, whose tensors are found but not read. */
export interface Checkpoint {
  /** Absolute path of its folder, or of its GGUF file (the first of several). */
  readonly path: string;
  /** Absolute path of its config.json or params.json, or of its GGUF file. */
  readonly configPath: string;
  readonly model: Model;
  /** The model's configuration. */
  readonly config: ModelConfig;
  /** Exactly the tensors of the model; parts in place of tensors that have parts. */
  readonly tensors: ReadonlyMap<string, TensorLocation>;
  /** How its quantized matrices are stored; absent if none is quantized. */
  readonly quantized?: QuantizedStorage;
  /** Absolute paths of the weight files; empty for made-up weights. */
  readonly files: readonly string[];
  /** tokenizer.json, else tokenizer.model, or the GGUF file; undefined if the folder has neither. */
  readonly tokenizerPath: string | undefined;
  /** Where the files contradict each other or themselves, and how that was decided: one line each, for users. */
  readonly warnings: readonly string[];
  /**
   * SHA-256, hexadecimal, of the configuration, the headers, the file sizes and a sample of every tensor (its first,
   * middle and last 256 bytes): the same for a copy elsewhere, another for a fine-tuned sibling. Bytes between the
   * samples are not covered; contents.ts covers all. Reads the files when first called.
   */
  fingerprint(): string;
}

const SAMPLE_BYTES = 256;

function hashFiles(config: ModelConfig, headers: readonly WeightFile[], quantization: Json | undefined): string {
  const hash = createHash('sha256').update(JSON.stringify(config));
  if (quantization !== undefined) hash.update(`\n${JSON.stringify(quantization)}`);
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
 * Opens a Hugging Face folder: config.json and its weights, as safetensors or as torch.save writes them, in one file or
 * in shards that an index names; or a GGUF file, or a folder with one. Reads headers only. A folder's own symbolic
 * links are followed (download caches are made of them); names inside files never leave the folder. Throws UserError:
 * the first line says what is wrong, and further lines list patterns.
 */
export function openCheckpoint(path: string): Checkpoint {
  requireModelAt(path);
  const gguf = findGgufModel(path);
  if (gguf === undefined) checkFolder(path);
  const source = gguf === undefined ? folderSource(resolve(path)) : ggufSource(gguf);
  const { headers, quantization, describedBy, blocks } = source;
  const stated = source.model();
  const notes = stated.note === undefined ? [] : [stated.note];
  const { isOwn, found: held } = settleHead(stated, source.found, quantization !== undefined);
  const modelOf = (described: Model): Model => (isOwn ? (described.tied?.untied() ?? described) : described);
  const checked = modelOf(stated);
  const storedOf = ({ tensors, stored }: Model): Model['tensors'] =>
    stored?.((name) => held.get(name)?.shape) ?? tensors;
  const wanted = { tensors: storedOf(checked), isIgnored: checked.isIgnored };
  const quantized = quantization && quantizedTensors(quantization, held, wanted.tensors);
  const found = quantized?.found ?? held;
  const problems = checkTensors(wanted, found, source.show, describedBy, quantized?.problems);
  if (problems.length > 0) {
    throw new UserError(
      `${source.path}: the weights are not the model that ${describedBy} describes:\n  ` +
        `${[...kindOfWeights(found.keys()), ...problems, ...notes].join('\n  ')}${source.strays()}`,
      source.hint,
    );
  }
  const [first] = checked.tensors;
  const model = modelOf(source.model(floatFormat(found.get(first?.name ?? ''))));
  const { config } = model;
  const tensors = new Map<string, TensorLocation>();
  const expected = storedOf(model);
  for (const { name, parts, partOf } of expected) {
    const stored = found.get(name);
    if (stored === undefined) throw new Error(`${name} passed checkTensors but is missing`);
    if (partOf === undefined) for (const each of placesOf({ ...stored, name }, parts)) tensors.set(each.name, each);
  }
  for (const vector of joinedVectors(expected, found)) tensors.set(vector.name, vector);
  let fingerprint: string | undefined;
  return {
    path: source.path,
    configPath: source.configPath,
    model,
    config,
    tensors,
    ...defined({ quantized: blocks ?? quantized }),
    files: headers.map((header) => header.file),
    tokenizerPath: source.tokenizerPath,
    warnings: isOwn ? [...notes, headWarning(source, stated)] : notes,
    fingerprint: () => (fingerprint ??= hashFiles(config, headers, quantization?.config)),
  };
}

const headWarning = ({ path, describedBy, show }: CheckpointSource, { tied }: Model): string =>
  `${path}: ${describedBy} ties the head to the embedding, but the weights hold both and they differ: ` +
  `the head of the weights is used (${show(tied?.head ?? '')})`;

/** The storage format of a tensor of floats; undefined for another one. */
const floatFormat = (stored: StoredTensor | undefined): FormatName | undefined =>
  stored === undefined || 'encoding' in stored ? undefined : weightFormat(stored.dtype);
