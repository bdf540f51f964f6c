/** Checkpoints of every supported way of quantization, with seeded weights, and the weights that they mean. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeModel } from '../../models/config.js';
import type { Json } from '../../models/model/model.js';
import type { TensorPart } from '../../models/model/tensors.js';
import {
  awqWriter,
  float,
  gptqWriter,
  packedWriter,
  plainWriter,
  type StoredBytes,
  type Writer,
} from './quantizeMatrix.js';

export interface QuantizedFormat {
  readonly config: Json;
  readonly write: Writer;
  /** Its configuration is a file of its own. */
  readonly file?: string;
}

const gptq = (config: Json): Json => ({ quant_method: 'gptq', bits: 4, group_size: 32, desc_act: false, ...config });
const compressed = (format: string, weights: Json): Json => ({
  quant_method: 'compressed-tensors',
  format,
  quantization_status: 'compressed',
  ignore: ['lm_head'],
  config_groups: {
    group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'int', symmetric: true, ...weights } },
  },
});
const SCALAR = float('F32', [], Float64Array.of(0.25));

/** E4M3 with a scale for each matrix, and one for its inputs. */
const staticFp8 = plainWriter({
  code: 'F8_E4M3',
  block: 'matrix',
  dtype: 'F32',
  scale: 'weight_scale',
  shape: () => [],
  more: { input_scale: SCALAR },
});

export const FORMATS: Readonly<Record<string, QuantizedFormat>> = {
  'gptq, asymmetric': {
    config: gptq({ sym: false }),
    write: gptqWriter({ bits: 4, size: 32, isSymmetric: false, dtype: 'F16', version: 1 }),
  },
  'gptq by activation': {
    config: gptq({ sym: true, desc_act: true }),
    write: gptqWriter({ bits: 4, size: 32, isSymmetric: true, dtype: 'F16', version: 1, isOrdered: true }),
  },
  'gptq version 2, whole rows': {
    config: gptq({ sym: false, group_size: -1, checkpoint_format: 'gptq_v2' }),
    write: gptqWriter({ bits: 4, size: -1, isSymmetric: false, dtype: 'BF16', version: 2, hasIndex: false }),
  },
  'gptq of 8 bits, in a file': {
    config: { bits: 8, group_size: 32, desc_act: false, sym: false },
    file: 'quantize_config.json',
    write: gptqWriter({ bits: 8, size: 32, isSymmetric: false, dtype: 'F16', version: 1 }),
  },
  'gptq of 2 bits': {
    config: gptq({ bits: 2 }),
    write: gptqWriter({ bits: 2, size: 32, isSymmetric: false, dtype: 'F16', version: 1 }),
  },
  awq: {
    config: { quant_method: 'awq', bits: 4, group_size: 32, zero_point: true, version: 'gemm' },
    write: awqWriter({ bits: 4, size: 32, isSymmetric: false, dtype: 'F16' }),
  },
  'compressed int4': {
    config: compressed('pack-quantized', { num_bits: 4, strategy: 'group', group_size: 32 }),
    write: packedWriter({ bits: 4, size: 32, isSymmetric: true, dtype: 'BF16' }),
  },
  'compressed int4 by activation': {
    config: compressed('pack-quantized', {
      num_bits: 4,
      strategy: 'group',
      group_size: 32,
      symmetric: false,
      actorder: 'group',
    }),
    write: packedWriter({ bits: 4, size: 32, isSymmetric: false, dtype: 'BF16', isOrdered: true }),
  },
  'compressed int8': {
    config: compressed('pack-quantized', { strategy: 'channel', symmetric: false }),
    write: packedWriter({ bits: 8, size: -1, isSymmetric: false, dtype: 'F32' }),
  },
  'compressed int8 in bytes': {
    config: compressed('int-quantized', { strategy: 'channel' }),
    write: plainWriter({ code: 'I8', block: 'row', dtype: 'BF16', scale: 'weight_scale', shape: (rows) => [rows, 1] }),
  },
  'compressed FP8': {
    config: compressed('float-quantized', { type: 'float', strategy: 'channel' }),
    write: plainWriter({
      code: 'F8_E4M3',
      block: 'row',
      dtype: 'BF16',
      scale: 'weight_scale',
      shape: (rows) => [rows, 1],
    }),
  },
  'FP8, static': {
    config: { quant_method: 'fp8', activation_scheme: 'static', ignored_layers: ['lm_head'] },
    write: staticFp8,
  },
  'FP8 of ModelOpt, in a file': {
    config: {
      producer: { name: 'modelopt' },
      quantization: { quant_algo: 'FP8', kv_cache_quant_algo: 'FP8', exclude_modules: ['lm_head'] },
    },
    file: 'hf_quant_config.json',
    write: staticFp8,
  },
  'FP8 of projections': {
    config: { quant_method: 'fp8', activation_scheme: 'dynamic' },
    write: plainWriter({
      code: 'F8_E4M3',
      block: 'projection',
      dtype: 'F32',
      scale: 'weight_scale',
      shape: (rows) => [rows],
    }),
  },
  'FP8 in blocks of 128': {
    config: { quant_method: 'fp8', fmt: 'e4m3', activation_scheme: 'dynamic', weight_block_size: [128, 128] },
    write: plainWriter({
      code: 'F8_E4M3',
      block: [128, 128],
      dtype: 'F32',
      scale: 'weight_scale_inv',
      shape: (rows, columns) => [rows, columns],
    }),
  },
  'FP8 in blocks': {
    config: { quant_method: 'fp8', activation_scheme: 'dynamic', weight_block_size: [24, 40] },
    write: plainWriter({
      code: 'F8_E4M3',
      block: [24, 40],
      dtype: 'F32',
      scale: 'weight_scale_inv',
      shape: (rows, columns) => [rows, columns],
    }),
  },
};

/** Numbers from −1 to 1, by a linear congruence. */
function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
}

/** Tensors, one behind another, as a safetensors file. */
export function safetensorsOf(tensors: ReadonlyMap<string, StoredBytes>): Buffer {
  const header: Record<string, object> = {};
  let at = 0;
  for (const [name, { dtype, shape, bytes }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, ...[...tensors.values()].map(({ bytes }) => bytes)]);
}

export interface WrittenCheckpoint {
  /** Stored tensors by name. */
  readonly tensors: ReadonlyMap<string, StoredBytes>;
  /** The values that each tensor of the model means, by name, and its shape. */
  readonly meant: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>;
}

/** What every tool leaves as it is. */
const FLOATS = /embed|lm_head|\.gate\.weight$/;

/** Makes up the weights of a model, and stores its matrices so; embeddings, head and routers (`floats`) stay floats. */
export function quantizedTensors(config: Json, write: Writer, seed: number, floats = FLOATS): WrittenCheckpoint {
  const tensors = new Map<string, StoredBytes>();
  const meant = new Map<string, { shape: readonly number[]; values: Float32Array }>();
  const next = dice(seed);
  for (const { name, shape, role, parts = [], partOf: whole } of describeModel(config, 'config.json').tensors) {
    const count = shape.reduce((product, extent) => product * extent, 1);
    const k = shape.at(-1) ?? 1;
    const values = Float32Array.from({ length: count }, (_, i) =>
      // The first row is positive: its zero points are 0.
      role === 'norm' ? 1 + 0.3 * next() : (2 / Math.sqrt(k)) * (i < k ? Math.abs(next()) + 0.01 : next()),
    );
    if (role !== 'matrix' || shape.length !== 2 || floats.test(name)) {
      tensors.set(name, float('F32', shape, Float64Array.from(values)));
      meant.set(whole?.name ?? name, { shape, values });
      for (const part of parts) meant.set(part.name, partOf(part, shape.length === 1 ? 1 : k, values));
      continue;
    }
    const projections =
      parts.length === 0 ? [shape[0]!] : parts.map((part) => ('rows' in part ? part.rows : shape[0]!));
    const packed = write({ rows: shape[0]!, k, values, projections });
    for (const [suffix, tensor] of Object.entries(packed.tensors))
      tensors.set(`${name.slice(0, -'.weight'.length)}.${suffix}`, tensor);
    meant.set(name, { shape, values: packed.values });
    for (const part of parts) meant.set(part.name, partOf(part, k, packed.values));
  }
  return { tensors, meant };
}

function partOf(part: TensorPart, k: number, values: Float32Array): { shape: number[]; values: Float32Array } {
  const made = (shape: number[], at: (row: number, column: number) => number) => ({
    shape,
    values: Float32Array.from(
      { length: shape.reduce((product, extent) => product * extent, 1) },
      (_, i) => values[at(Math.floor(i / (shape[1] ?? 1)), i % (shape[1] ?? 1))]!,
    ),
  });
  if ('element' in part) return made([part.rows], (row) => (part.first + row) * k + part.element);
  if ('width' in part)
    return made([values.length / k, part.width], (row, column) => row * k + part.column + column * (part.step ?? 1));
  if ('columns' in part)
    return made(
      [part.rows, part.columns],
      (row, column) => (part.first + column) * k + part.from + row * (part.step ?? 1),
    );
  const { first, rows, stride, count } = part;
  const row = (i: number): number => first + Math.floor(i / rows) * stride + (i % rows);
  return made([rows * count, ...(k === 1 ? [] : [k])], (i, column) => row(i) * k + column);
}

/** Writes configuration and weights into a folder. */
export function writeQuantized(
  dir: string,
  config: Json,
  { config: own, file }: QuantizedFormat,
  weights: Buffer,
): void {
  const inConfig = file === undefined ? { quantization_config: own } : {};
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...config, ...inConfig }));
  if (file !== undefined) writeFileSync(join(dir, file), JSON.stringify(own));
  writeFileSync(join(dir, 'model.safetensors'), weights);
}
