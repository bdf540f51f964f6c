/** The methods of quantization whose checkpoints can be read. A new one is a file beside these and a line here. */
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { UserError } from '../../errors.js';
import type { FilePart } from '../../ir/encoding.js';
import { defined } from '../../system/defined.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { fileSize, readJsonObject, readRange, withFile } from '../../system/read.js';
import type { Json } from '../model/model.js';
import type { EncodedStored, ExpectedTensor, StoredTensor } from '../model/tensors.js';
import { compressedTensors, fp8, modelopt } from './compressedTensors.js';
import {
  OTHER_WEIGHTS,
  type Quantization,
  type QuantizationMethod,
  QuantizedModule,
  type TensorProblem,
} from './method.js';
import { mxfp4 } from './mxfp4.js';
import { awq, gptq } from './packed.js';

export const METHODS: readonly QuantizationMethod[] = [gptq, awq, compressedTensors, fp8, modelopt, mxfp4];

const SUPPORTED = METHODS.map(({ names }) => names[0]).join(', ');

/** What a configuration of quantized weights says. `fallback`: its method, where it names none. Throws UserError. */
export function readMethod(config: Json, where: string, fallback?: string): Quantization {
  const name = config['quant_method'] ?? fallback;
  const method = METHODS.find(({ names }) => names.some((each) => each === name));
  if (method === undefined)
    throw new UserError(
      `${where}: weights quantized by ${quote(name)} are not supported; supported: ${SUPPORTED}`,
      OTHER_WEIGHTS,
    );
  return method.read(config, where);
}

// Quantized checkpoints: their configuration, and the matrices of their modules as tensors that are encoded. What a
// method calls its tensors stays in this folder.

const CONFIG_BYTES = 1 << 20;
const DOWNLOAD = 'download the checkpoint again';

/**
 * Configurations in files of their own, as older tools write them, whose they are if they do not say, and the key of
 * the object that holds the settings, where they are not the file's own.
 */
const FILES: readonly { readonly file: string; readonly method: string; readonly key?: string }[] = [
  { file: 'quantize_config.json', method: 'gptq' },
  { file: 'quant_config.json', method: 'awq' },
  { file: 'hf_quant_config.json', method: 'modelopt', key: 'quantization' },
];
export const QUANTIZATION_FILES: readonly string[] = FILES.map(({ file }) => file);

/** What a checkpoint says of its quantized weights. */
export interface QuantizationConfig extends Quantization {
  readonly config: Json;
}

/**
 * The configuration of quantized weights of a checkpoint whose config.json is `json`; undefined if there is none.
 * Throws UserError, one line.
 */
export function readQuantization(dir: string, json: Json, path: string): QuantizationConfig | undefined {
  const text = json['text_config'];
  for (const outer of isRecord(text) ? [text, json] : [json]) {
    const [own, older] = [outer['quantization_config'], outer['compression_config']];
    if (isGiven(own) && isGiven(older) && !isDeepStrictEqual(own, older))
      throw new UserError(`${path}: quantization_config and compression_config contradict each other`, OTHER_WEIGHTS);
    for (const key of ['quantization_config', 'compression_config']) {
      const config = outer[key];
      if (isRecord(config)) return { ...readMethod(config, `${path}: ${key}`), config };
      if (isGiven(config))
        throw new UserError(`${path}: ${key}: expected an object, got ${quote(config)}`, OTHER_WEIGHTS);
    }
  }
  for (const { file, method, key } of FILES) {
    const place = join(dir, file);
    if (fileSize(place) === undefined) continue;
    const whole = readJsonObject(place, CONFIG_BYTES, DOWNLOAD).value;
    const config = key === undefined ? whole : whole[key];
    if (!isRecord(config)) throw new UserError(`${place}: ${key}: expected an object, got ${quote(config)}`, DOWNLOAD);
    return { ...readMethod(config, key === undefined ? place : `${place}: ${key}`, method), config };
  }
  return undefined;
}

/** Scales of activations, and of keys and values in a cache. */
const KEPT =
  /\.(?:input_scale|input_scale_ub|input_zero_point|output_scale|k_scale|v_scale|kv_scale|q_scale|prob_output_scale)$/;

export interface QuantizedTensors {
  /** Tensors by name: matrices that are quantized under the names of modules with weights. */
  readonly found: ReadonlyMap<string, StoredTensor>;
  readonly problems: readonly TensorProblem[];
  /** How matrices are stored, and how many are stored so, with how many elements. */
  readonly schemes: ReadonlyMap<string, { readonly matrices: number; readonly elements: number }>;
  /** Scales that are read and not used, by name. */
  readonly scales: ReadonlyMap<string, FilePart>;
  /** What rows of activations become, if that is said. */
  readonly activations?: Quantization['activations'];
}

const WEIGHT = '.weight';
const BIAS_BYTES = 1 << 22;

/** Whether a bias changes nothing: older tools give one to every module. */
function isZero(tensor: StoredTensor | undefined): boolean {
  if (tensor === undefined || !('file' in tensor) || tensor.byteLength > BIAS_BYTES) return false;
  const { file, offset, byteLength } = tensor;
  return withFile(file, (fd) => readRange(fd, offset, byteLength)).every((byte) => byte === 0);
}

/** Finds the matrices that a model expects among the tensors of a quantized checkpoint. */
export function quantizedTensors(
  { matrixOf, activations, hasStacks = false }: Quantization,
  stored: ReadonlyMap<string, StoredTensor>,
  expected: readonly ExpectedTensor[],
): QuantizedTensors {
  const found = new Map(stored);
  const problems: TensorProblem[] = [];
  const schemes = new Map<string, { matrices: number; elements: number }>();
  const names = new Set(expected.map(({ name }) => name));
  for (const { name, shape, role, parts } of expected) {
    const isRead = shape.length === 2 || (shape.length === 3 && hasStacks);
    if (role !== 'matrix' || !name.endsWith(WEIGHT) || !isRead) continue;
    const module = new QuantizedModule(name.slice(0, -WEIGHT.length), stored, shape, parts?.length ?? 1);
    const matrix = matrixOf(module);
    for (const read of module.read) found.delete(read);
    problems.push(...module.problems);
    if (matrix !== undefined && stored.has(name) && !module.read.has(name))
      problems.push({
        tensor: name,
        text: `a second matrix of its module, which is stored quantized (${matrix.scheme})`,
      });
    if (matrix === undefined && module.problems.length === 0) continue;
    // One with problems stays, so that it is not missing as well.
    if (matrix === undefined) {
      found.set(name, { name, dtype: 'F32', shape, tiles: [] });
      continue;
    }
    const bias = name.replace(/\.weight$/, '.bias');
    if (!names.has(bias) && isZero(stored.get(bias))) found.delete(bias);
    const { encoding, parts: places, hasScalePerPart = false, scheme } = matrix;
    const tensor: EncodedStored = { name, dtype: 'F32', shape, encoding, places, hasScalePerPart };
    found.set(name, tensor);
    const { matrices, elements } = schemes.get(scheme) ?? { matrices: 0, elements: 0 };
    schemes.set(scheme, { matrices: matrices + 1, elements: elements + module.rows * module.k });
  }
  const scales = new Map<string, FilePart>();
  for (const [name, tensor] of stored) {
    if (!found.has(name) || !KEPT.test(name) || !('file' in tensor)) continue;
    const { file, offset, byteLength } = tensor;
    scales.set(name, { file, offset, byteLength });
    found.delete(name);
  }
  return { found, problems, schemes, scales, ...defined({ activations }) };
}
