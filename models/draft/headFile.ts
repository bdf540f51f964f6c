/**
 * Folders of draft heads: what their config.json says, in the layouts in which they are published, and their tensors by
 * one set of names. Files are hostile: sizes are checked against those of the model that the head drafts for.
 */
import { createHash } from 'node:crypto';
import { basename, dirname, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import type { FormatName } from '../../ir/storage.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { isFolder, readRange, withFile } from '../../system/read.js';
import { type Checkpoint, checkTensors } from '../checkpoint.js';
import { configPathOf, readConfig } from '../config.js';
import { type DecoderConfig, parseDecoderConfig } from '../decoder/config.js';
import { ConfigReader } from '../decoder/reader.js';
import { columnsName } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';
import { type ExpectedTensor, placesOf, type StoredTensor, type TensorLocation } from '../model/tensors.js';
import { randomTensors } from '../randomCheckpoint.js';
import { readWeightFiles } from '../weights/weightFiles.js';

/** EAGLE 1 and 2 (arXiv:2401.15077, 2406.16858), and EAGLE 3 (arXiv:2503.01840). */
export type HeadKind = 'eagle' | 'eagle3';

export const HEAD_HINT =
  'use a head that was made for this model, or generate without a model that drafts: --draft suffix';

export interface HeadFile {
  readonly kind: HeadKind;
  readonly path: string;
  /** The path of config.json, which starts messages about it. */
  readonly where: string;
  /** What it says, with what it nests for its layer. */
  readonly json: Json;
  /** Whether it is a file of the library `speculators`. */
  readonly isSpeculators: boolean;
  /** Its tensors by the names of this file; undefined: they are made up with `seed`. */
  readonly found: ReadonlyMap<string, StoredTensor> | undefined;
  readonly seed: number | bigint;
}

/** The name of a tensor, of those that published heads have for it. Their layer is `layer` here. */
const nameOf = (name: string): string =>
  name
    .replace(/^model\./, '')
    .replace(/^(?:midlayer|layers\.0|transformer)\./, 'layer.')
    .replace(/^fusion_fc\./, 'fc.')
    .replace(/^pre_lm_head_layernorm\./, 'hidden_states_layernorm.');

function tensorsIn(dir: string): ReadonlyMap<string, StoredTensor> {
  const found = new Map<string, StoredTensor>();
  for (const { file, entries } of readWeightFiles(dir).headers)
    for (const entry of entries) {
      const name = nameOf(entry.name);
      if (found.has(name)) throw new UserError(`${file}: two tensors are ${quote(name, 120)} of the head`, HEAD_HINT);
      found.set(name, { ...entry, file });
    }
  return found;
}

/** The kind of head that a config.json names; undefined where it names none. Throws UserError for other speculators. */
function kindIn(json: Json, where: string): HeadKind | undefined {
  const { speculators_config: config } = json;
  const stated = json['speculators_model_type'] ?? (isRecord(config) ? config['algorithm'] : undefined);
  if (isGiven(stated)) {
    if (stated === 'eagle' || stated === 'eagle3') return stated;
    throw new UserError(
      `${where}: it is a speculator of the kind ${quote(stated)}; those that are supported are eagle and eagle3`,
      HEAD_HINT,
    );
  }
  const classes = json['architectures'];
  const name: unknown = Array.isArray(classes) ? classes[0] : undefined;
  if (typeof name === 'string' && /eagle/i.test(name)) return /eagle3/i.test(name) ? 'eagle3' : 'eagle';
  return ['eagle_config', 'draft_vocab_size'].some((key) => isGiven(json[key])) ? 'eagle3' : undefined;
}

/** What a file of `speculators` says of the layer, beside what it says of the head. */
function flattened(json: Json, where: string): Json {
  const layer = json['transformer_layer_config'];
  if (!isRecord(layer))
    throw new UserError(`${where}: transformer_layer_config: expected an object, got ${quote(layer)}`);
  const { transformer_layer_config: _, architectures: __, ...outer } = json;
  return { ...layer, ...outer };
}

/**
 * The draft head at `path`, a folder or a config.json; undefined if it is none. `seed`: its weights are made up. Throws
 * UserError for a head of a kind that is not supported.
 */
export function readHeadFile(path: string, seed?: number | bigint): HeadFile | undefined {
  const isFile = path.endsWith('.json') && !isFolder(path);
  if (!isFile && !isFolder(path)) return undefined;
  const dir = resolve(isFile ? dirname(path) : path);
  const where = isFile ? resolve(path) : configPathOf(dir);
  if (basename(where) === 'params.json') return undefined;
  const json = readConfig(where);
  const named = kindIn(json, where);
  if (named === undefined && (seed !== undefined || json['num_hidden_layers'] !== 1)) return undefined;
  const found = seed === undefined ? tensorsIn(dir) : undefined;
  // Published EAGLE heads say that they are models of one layer, and nothing else.
  const kind = named ?? (found?.has('fc.weight') === true ? 'eagle' : undefined);
  if (kind === undefined) return undefined;
  const isSpeculators = isRecord(json['transformer_layer_config']) || isGiven(json['speculators_model_type']);
  if (isGiven(json['quantization_config']))
    throw new UserError(`${where}: quantization_config: heads of quantized weights are not supported`, HEAD_HINT);
  const own = isSpeculators ? flattened(json, where) : json;
  return { kind, path: dir, where, json: own, isSpeculators, found, seed: seed ?? 0 };
}

/** Throws UserError: what a head is, and what its model is. */
export const misfit = (where: string, problem: string): UserError =>
  new UserError(`${where}: cannot draft: ${problem}`, HEAD_HINT);

/** The one layer of a head, of LLaMA's kind. Throws UserError, one line. */
export function headLayer({ json, where, found }: HeadFile, target: Checkpoint): DecoderConfig {
  const read = new ConfigReader({ ...json, vocab_size: target.config.vocabSize }, where);
  const config = parseDecoderConfig(read, 'f32', {
    architecture: 'LlamaForCausalLM',
    maxPositions: target.config.maxPositions,
    differences: {
      biased: read.biases(),
      ...(found?.has('layer.self_attn.q_norm.weight') === true ? { qkNorm: 'head' } : {}),
    },
  });
  if (config.layers !== 1) throw misfit(where, `it has ${config.layers} layers; heads of one layer are supported`);
  return config;
}

const matrix = (name: string, rows: number, columns: number): ExpectedTensor => ({
  name,
  shape: [rows, columns],
  role: 'matrix',
});
export const headNorm = (module: string, width: number): ExpectedTensor => ({
  name: `${module}.weight`,
  shape: [width],
  role: 'norm',
});

/** A matrix whose columns are multiplied in `count` parts of `width` each. */
export const inColumns = (name: string, rows: number, width: number, count: number): ExpectedTensor => ({
  ...matrix(name, rows, width * count),
  parts: Array.from({ length: count }, (_, i) => ({ name: columnsName(name, i), column: i * width, width })),
});

export { matrix as headMatrix };

/** The tensors of a head's layer, whose queries, keys and values are made of `inputs` rows beside each other. */
export function layerTensors(config: DecoderConfig, inputs: 1 | 2): readonly ExpectedTensor[] {
  const { hiddenSize: hidden, intermediateSize: inner, heads, kvHeads, headDim, biased, qkNorm } = config;
  const sizes = {
    q: ['self_attn.q_proj', heads * headDim, hidden],
    k: ['self_attn.k_proj', kvHeads * headDim, hidden],
    v: ['self_attn.v_proj', kvHeads * headDim, hidden],
    o: ['self_attn.o_proj', hidden, heads * headDim],
    gate: ['mlp.gate_proj', inner, hidden],
    up: ['mlp.up_proj', inner, hidden],
    down: ['mlp.down_proj', hidden, inner],
  } as const;
  return [
    ...Object.entries(sizes).flatMap(([name, [module, rows, columns]]): ExpectedTensor[] => {
      const weight = `layer.${module}.weight`;
      const isJoined = inputs === 2 && ['q', 'k', 'v'].includes(name);
      return [
        isJoined ? inColumns(weight, rows, columns, inputs) : matrix(weight, rows, columns),
        ...(biased.some((each) => each === name)
          ? [{ name: `layer.${module}.bias`, shape: [rows], role: 'bias' } as const]
          : []),
      ];
    }),
    ...(qkNorm === undefined ? [] : ['q', 'k'].map((name) => headNorm(`layer.self_attn.${name}_norm`, headDim))),
    headNorm('layer.post_attention_layernorm', hidden),
  ];
}

/** Tensors of files that say nothing that a head reads. */
const IGNORED = /(?:rotary_emb\.inv_freq|^t2d|^d2t)$/;

/**
 * Where the tensors of a head are. `isIgnored`: those that its files may hold beside them. Throws UserError where its
 * files are not those of the head that config.json describes.
 */
export function locate(
  { path, where, found, seed }: HeadFile,
  tensors: readonly ExpectedTensor[],
  format: FormatName,
  isIgnored: (name: string) => boolean = () => false,
): ReadonlyMap<string, TensorLocation> {
  if (found === undefined) return randomTensors(tensors, seed, format);
  const weights = new Map([...found].filter(([name]) => !IGNORED.test(name)));
  const problems = checkTensors({ tensors, isIgnored }, weights, undefined, `${basename(where)} with its model`);
  if (problems.length > 0)
    throw new UserError(`${path}: the weights are not a head for this model:\n  ${problems.join('\n  ')}`, HEAD_HINT);
  const places = tensors.flatMap(({ name, parts }) => placesOf({ ...weights.get(name)!, name }, parts));
  return new Map(places.map((place) => [place.name, place]));
}

/** Bytes of each number of a table of tokens. */
const INTEGERS: Readonly<Record<string, 4 | 8>> = { I64: 8, I32: 4 };

/**
 * The tokens of a model's vocabulary that the rows of a head stand for: i + d2t[i] for row i. Undefined where the head
 * has all of them. Made-up heads stand for tokens evenly apart. Throws UserError where a token is out of range.
 */
export function tokensOfRows(
  { found, path, where }: HeadFile,
  rows: number,
  vocabSize: number,
): readonly number[] | undefined {
  if (found === undefined)
    return rows === vocabSize
      ? undefined
      : Array.from({ length: rows }, (_, row) => Math.floor((row * vocabSize) / rows));
  const stored = found.get('d2t');
  if (stored === undefined) {
    if (rows === vocabSize) return undefined;
    throw misfit(where, `its head has ${rows} tokens of ${vocabSize}, and d2t does not say which`);
  }
  const size = Object.hasOwn(INTEGERS, stored.dtype) ? INTEGERS[stored.dtype] : undefined;
  if (size === undefined || !('file' in stored) || stored.shape.length !== 1 || stored.shape[0] !== rows)
    throw new UserError(
      `${path}: d2t: expected ${rows} whole numbers, got ${stored.dtype}[${stored.shape.slice(0, 8).join(', ')}]`,
      HEAD_HINT,
    );
  const bytes = withFile(stored.file, (fd) => readRange(fd, stored.offset, rows * size));
  if (bytes.length !== rows * size) throw new UserError(`${stored.file}: d2t: the file ends within it`, HEAD_HINT);
  return Array.from({ length: rows }, (_, row) => {
    const offset = size === 8 ? Number(bytes.readBigInt64LE(row * 8)) : bytes.readInt32LE(row * 4);
    const token = row + offset;
    if (token >= 0 && token < vocabSize) return token;
    throw new UserError(
      `${path}: d2t: row ${row} stands for token ${token}, and the model has ${vocabSize}`,
      HEAD_HINT,
    );
  });
}

/** SHA-256, hexadecimal, of a table of tokens, which identifies a head beside its tensors. */
export const digestOf = (tokens: readonly number[] | undefined): string | null =>
  tokens === undefined ? null : createHash('sha256').update(tokens.join()).digest('hex');
