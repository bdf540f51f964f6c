/** Checkpoints whose weights are made up: a model of a configuration without files of weights. */
import { createHash } from 'node:crypto';
import { dirname, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { groupOf } from '../ir/groups.js';
import type { FormatName } from '../ir/storage.js';
import { isFolder } from '../system/read.js';
import { type Checkpoint, configText } from './checkpoint.js';
import { configPathOf, loadModel, readConfig, readModel } from './config.js';
import { checkFolder } from './model/refusals.js';
import { type ExpectedTensor, partShape, type RandomTensor, type TensorLocation } from './model/tensors.js';
import { type QuantizationConfig, readQuantization } from './quantized/index.js';
import { findTokenizer } from './tokenizer/formats.js';

/** Tensors of layers, whose names have a number: the head and embeddings of quantized models are floats. */
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
function madeUpNote(quantization: QuantizationConfig | undefined, format: FormatName): string | undefined {
  if (quantization === undefined || quantization.group !== undefined || quantization.isMicroscaled === true)
    return undefined;
  const { activations } = quantization;
  const advice =
    activations === undefined ? '' : `; for about the speed of the checkpoint add --quantize ${activations}`;
  return `the configuration is of quantized weights, and those that are made up are ${format}${advice}`;
}

/** How a made-up matrix is stored, where the configuration says that it is no floats. */
type MadeUpStorage = Pick<RandomTensor, 'group' | 'isMicroscaled'>;

/** Where the tensors of made-up weights are: nowhere. `seed`, `format`: as describeRandomCheckpoint says. */
export function randomTensors(
  wanted: readonly ExpectedTensor[],
  seed: number | bigint,
  format: FormatName,
  storedOf: (tensor: ExpectedTensor) => MadeUpStorage = () => ({}),
): ReadonlyMap<string, TensorLocation> {
  const tensors = new Map<string, TensorLocation>();
  for (const expected of wanted) {
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
              ...storedOf(expected),
            },
      );
  }
  return tensors;
}

/**
 * The checkpoint of `--init random:SEED`: a model with the shapes of config.json whose weights are in no file. Norm
 * weights change nothing. Matrices and biases are random with the seed FNV-1a 64 of "SEED:name". Both have the
 * configuration's element type. `path` is a config.json or its folder; a tokenizer beside it is used. Throws UserError
 * if it is not supported.
 */
export function describeRandomCheckpoint(path: string, seed: number | bigint): Checkpoint {
  if (path.endsWith('.gguf') && !isFolder(path))
    throw new UserError(
      `${path}: made-up weights need a config.json, and a GGUF file brings its own`,
      'give a config.json, or drop the made-up weights',
    );
  const isFile = path.endsWith('.json') && !isFolder(path);
  if (!isFile) checkFolder(path);
  const dir = resolve(isFile ? dirname(path) : path);
  const model = isFile ? readModel(resolve(path)) : loadModel(dir);
  const { config } = model;
  const { dtype: format } = config;
  const configPath = isFile ? resolve(path) : configPathOf(dir);
  const quantization = readQuantization(dir, readConfig(configPath), configPath);
  const storedOf = ({ name, shape, role }: ExpectedTensor): MadeUpStorage => {
    const [, k = 0] = shape;
    const { group, isMicroscaled } = quantization ?? {};
    if (isMicroscaled === true) return role === 'matrix' && IN_LAYER.test(name) ? { isMicroscaled: true } : {};
    const size =
      group === undefined || role !== 'matrix' || shape.length !== 2 ? undefined : groupOf(group < 0 ? k : group, k);
    return size === undefined || !IN_LAYER.test(name) ? {} : { group: size };
  };
  const tensors = randomTensors(model.tensors, seed, format, storedOf);
  const fingerprint = createHash('sha256')
    .update(`random ${seed}\n${configText(config)}`)
    .digest('hex');
  return {
    path: dir,
    configPath,
    model,
    config,
    tensors,
    files: [],
    tokenizerPath: findTokenizer(dir),
    warnings: [model.note, madeUpNote(quantization, format)].filter((line) => line !== undefined),
    fingerprint: () => fingerprint,
  };
}
