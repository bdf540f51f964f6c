/**
 * A checkpoint folder as the compiler sees it: its configuration, the location of every tensor, the tokenizer and a
 * fingerprint.
 */
import { createHash } from 'node:crypto';
import { basename, dirname, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { checkFolder } from './checkpointPath.js';
import { checkTensors } from './checkTensors.js';
import { configPathOf, describeGgufModel, loadModel, readConfig, readModel } from './config.js';
import { groupOf, type GroupSize } from '../ir/groups.js';
import type { FormatName } from '../ir/storage.js';
import { quote } from '../system/json.js';
import { readRange, withFile } from '../system/read.js';
import type { Json, Model, ModelConfig } from './family/model.js';
import { partShape, weightFormat, type ExpectedTensor, type ShapeOf, type TensorLocation } from './family/tensors.js';
import type { WeightFile } from './family/weightFile.js';
import { readGgufFiles } from './gguf/files.js';
import { describeGguf } from './gguf/settings.js';
import { blockSchemes, ggufName, namedTensors } from './gguf/tensorNames.js';
import { partName } from './meta/partFiles.js';
import { mergeParts } from './meta/parts.js';
import { joinedVectors, placesOf, type StoredTensor } from './family/storedTensors.js';
import {
  quantisedTensors,
  readQuantisation,
  type QuantisationConfig,
  type QuantisedTensors,
} from './quantised/index.js';
import { settleHead } from './tiedHead.js';
import { findTokenizer } from './tokenizerFiles.js';
import { findGgufModel, readWeightFiles } from './weightFiles.js';
import { withPrefix } from './baseModel.js';
import { textTensor } from './wrapper.js';

export {
  type ConstantTensor,
  type ExpectedTensor,
  type FileTensor,
  type RandomTensor,
  type TensorLocation,
} from './family/tensors.js';

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
  /** How its quantised matrices are stored; absent if none is quantised. */
  readonly quantised?: Pick<QuantisedTensors, 'schemes' | 'scales' | 'activations'>;
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

function hashFiles(config: ModelConfig, headers: readonly WeightFile[], quantisation: Json | undefined): string {
  const hash = createHash('sha256').update(JSON.stringify(config));
  if (quantisation !== undefined) hash.update(`\n${JSON.stringify(quantisation)}`);
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

/** Where a checkpoint's model and weights are from. */
interface Source {
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
  /** What says how modules are quantised, where several tensors store the matrix of one. */
  readonly quantisation?: QuantisationConfig;
  /** Matrices of blocks, of which `found` has the places already. */
  readonly blocks?: NonNullable<Checkpoint['quantised']>;
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

function folderSource(dir: string): Source {
  const checked = loadModel(dir); // An unsupported architecture is reported before anything about its weights.
  const configPath = configPathOf(dir);
  const quantisation = readQuantisation(dir, readConfig(configPath), configPath);
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
    ...(quantisation === undefined ? {} : { quantisation }),
    show: shown,
    strays,
    tokenizerPath: findTokenizer(dir),
  };
}

/** The model whose first GGUF file is `file`, which says all of it. */
function ggufSource(file: string): Source {
  const headers = readGgufFiles(file);
  const { json, modules, ways } = describeGguf(headers);
  const found = namedTensors(headers, modules);
  const schemes = blockSchemes(found);
  return {
    path: file,
    configPath: file,
    describedBy: 'its metadata',
    hint: 'download the file again, or convert the model again with a current converter',
    // Where weights are quantised, those of the published checkpoint were not: nearly all are in bf16.
    model: (dtype = 'bf16') => describeGgufModel(json, file, dtype, ways),
    headers,
    found,
    ...(schemes.size === 0 ? {} : { blocks: { schemes, scales: new Map() } }),
    show: (name) => shown(ggufName(name, modules)),
    strays: () => '',
    tokenizerPath: file,
  };
}

/**
 * Opens a Hugging Face folder: config.json and its weights, as safetensors or as torch.save writes them, in one file or
 * in shards that an index names; or a GGUF file, or a folder with one. Reads headers only. A folder's own symbolic
 * links are followed (download caches are made of them); names inside files never leave the folder. Throws UserError:
 * the first line says what is wrong, and further lines list patterns.
 */
export function openCheckpoint(path: string): Checkpoint {
  const gguf = findGgufModel(path);
  if (gguf === undefined) checkFolder(path);
  const source = gguf === undefined ? folderSource(resolve(path)) : ggufSource(gguf);
  const { headers, quantisation, describedBy, blocks } = source;
  const stated = source.model();
  const notes = stated.note === undefined ? [] : [stated.note];
  const { isOwn, found: held } = settleHead(stated, source.found, quantisation !== undefined);
  const modelOf = (described: Model): Model => (isOwn ? (described.tied?.untied() ?? described) : described);
  const checked = modelOf(stated);
  const storedOf = ({ tensors, stored }: Model): Model['tensors'] =>
    stored?.((name) => held.get(name)?.shape) ?? tensors;
  const wanted = { tensors: storedOf(checked), isIgnored: checked.isIgnored };
  const quantised = quantisation && quantisedTensors(quantisation, held, wanted.tensors);
  const found = quantised?.found ?? held;
  const problems = checkTensors(wanted, found, source.show, describedBy, quantised?.problems);
  if (problems.length > 0) {
    throw new UserError(
      `${source.path}: the weights are not the model that ${describedBy} describes:\n  ` +
        `${[...problems, ...notes].join('\n  ')}${source.strays()}`,
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
    ...(quantised === undefined ? {} : { quantised }),
    ...(blocks === undefined ? {} : { quantised: blocks }),
    files: headers.map((header) => header.file),
    tokenizerPath: source.tokenizerPath,
    warnings: isOwn ? [...notes, headWarning(source, stated)] : notes,
    fingerprint: () => (fingerprint ??= hashFiles(config, headers, quantisation?.config)),
  };
}

const headWarning = ({ path, describedBy, show }: Source, { tied }: Model): string =>
  `${path}: ${describedBy} ties the head to the embedding, but the weights hold both and they differ: ` +
  `the head of the weights is used (${show(tied?.head ?? '')})`;

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

/** The storage format of a tensor of floats; undefined for another one. */
const floatFormat = (stored: StoredTensor | undefined): FormatName | undefined =>
  stored === undefined || 'encoding' in stored ? undefined : weightFormat(stored.dtype);

function shapesOf({ tensors }: Model): ShapeOf {
  const shapes = new Map(tensors.map(({ name, shape }) => [name, shape]));
  return (name) => shapes.get(name);
}

/** Tensors of layers, whose names have a number: the head and embeddings of quantised models are floats. */
const IN_LAYER = /\.\d+\./;
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

/** What is made up for a checkpoint whose matrices are stored in another way. */
function madeUpNote(quantisation: QuantisationConfig | undefined, format: FormatName): string | undefined {
  if (quantisation === undefined || quantisation.group !== undefined) return undefined;
  const { activations } = quantisation;
  const advice =
    activations === undefined ? '' : `; for about the speed of the checkpoint add --quantize ${activations}`;
  return `the configuration is of quantised weights, and those that are made up are ${format}${advice}`;
}

/**
 * The checkpoint of `--init random:SEED`: a model with the shapes of config.json whose weights are in no file. Norm
 * weights change nothing. Matrices and biases are random with the seed FNV-1a 64 of "SEED:name". Both have the
 * configuration's element type. `path` is a config.json or its folder; a tokenizer beside it is used. Throws UserError
 * if it is not supported.
 */
export function describeRandomCheckpoint(path: string, seed: number | bigint): Checkpoint {
  if (path.endsWith('.gguf'))
    throw new UserError(
      `${path}: made-up weights need a config.json, and a GGUF file brings its own`,
      'give a config.json, or drop the made-up weights',
    );
  const isFile = path.endsWith('.json');
  if (!isFile) checkFolder(path);
  const dir = resolve(isFile ? dirname(path) : path);
  const model = isFile ? readModel(resolve(path)) : loadModel(dir);
  const { config } = model;
  const { dtype: format } = config;
  const configPath = isFile ? resolve(path) : configPathOf(dir);
  const quantisation = readQuantisation(dir, readConfig(configPath), configPath);
  const groupsOf = ({ name, shape, role }: ExpectedTensor): { readonly group?: GroupSize } => {
    const [, k = 0] = shape;
    const { group } = quantisation ?? {};
    const size =
      group === undefined || role !== 'matrix' || shape.length !== 2 ? undefined : groupOf(group < 0 ? k : group, k);
    return size === undefined || !IN_LAYER.test(name) ? {} : { group: size };
  };
  const tensors = new Map<string, TensorLocation>();
  for (const expected of model.tensors) {
    const { name: stored, shape: whole, role, neutral = 1, parts, partOf } = expected;
    if (partOf !== undefined) {
      const { name, rows } = partOf;
      tensors.set(name, { kind: 'constant', name, format, shape: [rows], value: neutral });
      continue;
    }
    const pieces = parts?.map((part) => ({ name: part.name, shape: partShape(part, whole) }));
    for (const { name, shape } of pieces ?? [{ name: stored, shape: whole }])
      tensors.set(
        name,
        role === 'norm'
          ? { kind: 'constant', name, format, shape, value: neutral }
          : {
              kind: 'random',
              name,
              format,
              shape,
              seed: fnv1a64(`${seed}:${name}`),
              scale: RANDOM_SCALE,
              ...groupsOf(expected),
            },
      );
  }
  const fingerprint = createHash('sha256')
    .update(`random ${seed}\n${JSON.stringify(config)}`)
    .digest('hex');
  return {
    path: dir,
    configPath,
    model,
    config,
    tensors,
    files: [],
    tokenizerPath: findTokenizer(dir),
    warnings: [model.note, madeUpNote(quantisation, format)].filter((line) => line !== undefined),
    fingerprint: () => fingerprint,
  };
}
