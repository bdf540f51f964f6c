/**
 * A checkpoint as the compiler sees it: its configuration, the location of every tensor, the tokenizer and a
 * fingerprint.
 */
import { createHash } from 'node:crypto';
import { basename, resolve } from 'node:path';
import { UserError } from '../errors.js';
import type { FormatName } from '../ir/storage.js';
import { defined } from '../system/defined.js';
import { quote } from '../system/json.js';
import { readRange, withFile } from '../system/read.js';
import {
  configPathOf,
  describeGgufModel,
  loadModel,
  readConfig,
  settleHead,
  textTensor,
  withPrefix,
} from './config.js';
import { readGgufFiles } from './gguf/file.js';
import { blockSchemes, describeGguf, ggufName, inParts, namedTensors, shapedTensors } from './gguf/model.js';
import type { Json, Model, ModelConfig } from './model/model.js';
import { checkFolder, kindOfWeights, requireModelAt } from './model/refusals.js';
import {
  FORMATS_OF,
  joinedVectors,
  placesOf,
  type ShapeOf,
  type StoredTensor,
  type TensorLocation,
  type WeightFile,
  weightFormat,
} from './model/tensors.js';
import {
  type QuantizationConfig,
  quantizedTensors,
  type QuantizedTensors,
  readQuantization,
} from './quantized/index.js';
import { findTokenizer } from './tokenizer/formats.js';
import { mergeParts, partName } from './weights/meta.js';
import { findGgufModel, readWeightFiles } from './weights/weightFiles.js';

// Reads a folder or a GGUF file: the model that it describes, and the tensors that it holds.

/** How quantized matrices are stored. */
export type QuantizedStorage = Pick<QuantizedTensors, 'schemes' | 'scales' | 'activations'>;

/** Where a checkpoint's model and weights are from. */
export interface CheckpointSource {
  readonly path: string;
  readonly configPath: string;
  /** What describes the model, for messages. */
  readonly describedBy: string;
  /** What to do where its weights are not those of the model. */
  readonly hint: string;
  /** The model, where its weights are of this type. */
  readonly model: (dtype?: FormatName) => Model;
  readonly headers: readonly WeightFile[];
  readonly found: ReadonlyMap<string, StoredTensor>;
  /** What a model expects, as these files hold it. Default: as it is. */
  readonly held?: (expected: Model['tensors']) => Model['tensors'];
  /** `found` with the shapes that are expected, where files have others for the same numbers. */
  readonly shaped?: (expected: Model['tensors']) => ReadonlyMap<string, StoredTensor>;
  /** What says how modules are quantized, where several tensors store the matrix of one. */
  readonly quantization?: QuantizationConfig;
  /** Matrices of blocks, of which `found` has the places already. */
  readonly blocks?: QuantizedStorage;
  /** The name of a tensor in its file. */
  readonly show: (name: string) => string;
  /** What to say of files that nothing names. */
  readonly strays: () => string;
  readonly tokenizerPath: string | undefined;
}

const shown = (name: string): string => quote(name, 120).slice(1, -1);

/** Parts of a model as Meta publishes it carry no number of parts: nothing says that the last one is missing. */
const hintOf = (headers: readonly WeightFile[]): string =>
  headers.some(({ file }) => file.endsWith('.pth'))
    ? `if the model is published in more parts, download ${partName(headers.length)} and those behind it; ` +
      'else download params.json and the weights again'
    : 'compare config.json with the weights, or download both again from one revision';

/** The model of a folder. Throws UserError if it is not supported or its files cannot be read. */
export function folderSource(dir: string): CheckpointSource {
  const checked = loadModel(dir); // An unsupported architecture is reported before anything about its weights.
  const configPath = configPathOf(dir);
  const quantization = readQuantization(dir, readConfig(configPath), configPath);
  const { headers, strays, isInParts } = readWeightFiles(dir);
  return {
    path: dir,
    configPath,
    describedBy: basename(configPath),
    hint: hintOf(headers),
    model: (dtype) => (dtype === undefined ? checked : loadModel(dir, dtype)),
    headers,
    found: isInParts
      ? mergeParts(headers, shapesOf(checked))
      : withPrefix(tensorsOf(headers, checked.isWrapped === true), checked),
    ...defined({ quantization }),
    show: shown,
    strays,
    tokenizerPath: findTokenizer(dir),
  };
}

/** The model whose first GGUF file is `file`, which says all of it. Throws UserError as folderSource does. */
export function ggufSource(file: string): CheckpointSource {
  const headers = readGgufFiles(file);
  const described = describeGguf(headers);
  const { json, modules, ways, apart } = described;
  const found = namedTensors(headers, described);
  const schemes = blockSchemes(found);
  return {
    path: file,
    configPath: file,
    describedBy: 'its metadata',
    hint: 'download the file again, or convert the model again with a current converter',
    // Where weights are quantized, those of the published checkpoint were not: nearly all are in bf16.
    model: (dtype = 'bf16') => describeGgufModel(json, file, dtype, ways),
    headers,
    found,
    held: (expected) => inParts(expected, apart),
    shaped: (expected) => shapedTensors(expected, found),
    ...(schemes.size === 0 ? {} : { blocks: { schemes, scales: new Map() } }),
    show: (name) => shown(ggufName(name, modules)),
    strays: () => '',
    tokenizerPath: file,
  };
}

/** The tensors of files that hold each tensor once, by the names of a model that may lie within a multimodal one. */
function tensorsOf(files: readonly WeightFile[], isWrapped: boolean): ReadonlyMap<string, StoredTensor> {
  const found = new Map<string, StoredTensor>();
  for (const { file, entries } of files)
    for (const entry of entries) {
      const name = isWrapped ? textTensor(entry.name) : entry.name;
      if (name === undefined) continue;
      if (isWrapped && found.has(name))
        throw new UserError(`${file}: two tensors are ${quote(name, 120)} of the language model`);
      found.set(name, { ...entry, file });
    }
  return found;
}

function shapesOf({ tensors }: Model): ShapeOf {
  const shapes = new Map(tensors.map(({ name, shape }) => [name, shape]));
  return (name) => shapes.get(name);
}

// Compares the tensors in a checkpoint's files with those that the model needs, and reports differences in few lines.

/** `0–31`, or `0–3,7,9–12` */
function ranges(sorted: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (sorted[j + 1] === (sorted[j] ?? 0) + 1) j++;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}–${sorted[j]}`);
    i = j + 1;
  }
  return parts.length > 8 ? `${parts.slice(0, 8).join(',')},…` : parts.join(',');
}

const LAYER = /^([\w.]{1,100}\.layers|blk)\.(\d{1,6})\.([\w.]{1,200})$/;
const PATTERN_LINES = 10;
/** If more tensors than this are missing from the same layers, they are printed as one line. */
const SUFFIXES_SHOWN = 3;

export interface Problem {
  readonly tensor: string;
  /** Equal for tensors with the same fault. */
  readonly text: string;
}

/** One line for each pattern: `model.layers.{0–31}.self_attn.q_proj.weight: missing`. */
function groupByPattern(problems: readonly Problem[]): string[] {
  const lines: string[] = [];
  /** Groups layers by (suffix, text), then suffixes by (layers, text). */
  const bySuffix = new Map<string, { prefix: string; suffix: string; text: string; layers: number[] }>();
  for (const { tensor, text } of problems) {
    const match = LAYER.exec(tensor);
    if (match === null) {
      lines.push(`${tensor}: ${text}`);
      continue;
    }
    const [, prefix = '', layer = '', suffix = ''] = match;
    const key = `${prefix}\n${suffix}\n${text}`;
    const group = bySuffix.get(key) ?? { prefix, suffix, text, layers: [] };
    bySuffix.set(key, group);
    group.layers.push(Number(layer));
  }
  const byLayers = new Map<string, { prefix: string; layers: string; text: string; suffixes: string[] }>();
  for (const { prefix, suffix, text, layers } of bySuffix.values()) {
    const printed = ranges(layers.sort((a, b) => a - b));
    const key = `${prefix}\n${layers.join(',')}\n${text}`;
    const group = byLayers.get(key) ?? { prefix, layers: printed, text, suffixes: [] };
    byLayers.set(key, group);
    group.suffixes.push(suffix);
  }
  for (const { prefix, layers, text, suffixes } of byLayers.values()) {
    const where = `${prefix}.{${layers}}`;
    if (suffixes.length > SUFFIXES_SHOWN)
      lines.push(`${where}.{${suffixes.slice(0, SUFFIXES_SHOWN).join(', ')}, … ${suffixes.length} in all}: ${text}`);
    else lines.push(...suffixes.map((suffix) => `${where}.${suffix}: ${text}`));
  }
  return lines.length > PATTERN_LINES
    ? [...lines.slice(0, PATTERN_LINES), `… and ${lines.length - PATTERN_LINES} more`]
    : lines;
}

/**
 * The reasons why `found` is not a checkpoint of `model`: missing tensors, wrong shapes, element types that cannot be
 * weights, and tensors (biases, say) that the model would leave unread and so compute a different result. Grouped by
 * pattern in a few lines; empty if there are none. `found` maps a name to its safetensors dtype and shape; `show` makes
 * a name printable, as the files have it. `describedBy`: what says how large they are. Problems that were `told` before
 * are printed with the others.
 */
export function checkTensors(
  model: Pick<Model, 'tensors' | 'isIgnored'>,
  found: ReadonlyMap<string, { readonly dtype: string; readonly shape: readonly number[] }>,
  show: (name: string) => string = (name) => name,
  describedBy = 'config.json',
  told: readonly Problem[] = [],
): string[] {
  const problems = [...told];
  const known = new Set<string>();
  for (const { name, shape, missingHint } of model.tensors) {
    known.add(name);
    const entry = found.get(name);
    if (entry === undefined)
      problems.push({ tensor: show(name), text: missingHint === undefined ? 'missing' : `missing (${missingHint})` });
    else if (entry.shape.length !== shape.length || entry.shape.some((extent, i) => extent !== shape[i])) {
      problems.push({
        tensor: show(name),
        text: `shape [${entry.shape.slice(0, 8).join(', ')}], but ${describedBy} requires [${shape.join(', ')}]`,
      });
    } else if (weightFormat(entry.dtype) === undefined) {
      problems.push({
        tensor: show(name),
        text: `element type ${entry.dtype} is not supported; supported: ${Object.keys(FORMATS_OF).join(', ')}`,
      });
    }
  }
  for (const name of found.keys()) {
    if (!known.has(name) && !model.isIgnored(name))
      problems.push({ tensor: show(name), text: 'not a tensor of this model' });
  }
  return groupByPattern(problems);
}

// A checkpoint folder as the compiler sees it: its configuration, the location of every tensor, the tokenizer and a
// fingerprint.

/** What says which texts the tokens of a checkpoint are. */
export type TokenMeaning = Pick<Checkpoint, 'path' | 'tokenizerPath' | 'config'>;

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
  /** The checkpoint of its draft model, where it has one that names tokens of its own (models/draft). */
  readonly draftModel?: TokenMeaning;
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

/** What fingerprints cover of a configuration. One key keeps a former spelling, so that earlier results compare. */
export const configText = (config: ModelConfig): string =>
  JSON.stringify(config).replace('"isNormalized":', '"isNormalised":');

function hashFiles(config: ModelConfig, headers: readonly WeightFile[], quantization: Json | undefined): string {
  const hash = createHash('sha256').update(configText(config));
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
  const all = source.shaped?.(source.held?.(stated.tensors) ?? stated.tensors) ?? source.found;
  const { isOwn, found: held } = settleHead(stated, all, quantization !== undefined);
  const modelOf = (described: Model): Model =>
    described.withHead?.((name) => held.get(name)?.shape) ??
    (isOwn ? (described.tied?.untied() ?? described) : described);
  const checked = modelOf(stated);
  const storedOf = ({ tensors, stored }: Model): Model['tensors'] => {
    const own = stored?.((name) => held.get(name)?.shape) ?? tensors;
    return source.held?.(own) ?? own;
  };
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
