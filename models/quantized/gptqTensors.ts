/** What GPTQ checkpoints hold of a matrix, as this program writes it: version 1 of the format, which gptq.ts reads. */
import type { Json } from '../family/model.js';
import type { WeightEntry } from '../family/weightFile.js';

export interface GptqSettings {
  readonly bits: 4 | 8;
  /** Columns that share a scale; −1: all of a row. */
  readonly group: number;
  readonly isSymmetric: boolean;
  /** Columns were quantized in the order of their inputs' size. */
  readonly isOrdered: boolean;
}

/** `quantization_config` of config.json, and all of quantize_config.json. */
export const gptqConfig = ({ bits, group, isSymmetric, isOrdered }: GptqSettings, facts: Json): Json => ({
  quant_method: 'gptq',
  bits,
  group_size: group,
  sym: isSymmetric,
  desc_act: isOrdered,
  static_groups: false,
  true_sequential: true,
  lm_head: false,
  pack_dtype: 'int32',
  checkpoint_format: 'gptq',
  ...facts,
});

const inWord = ({ bits }: Pick<GptqSettings, 'bits'>): number => 32 / bits;

/** Why a matrix [rows, k] cannot be stored so; undefined if it can. */
export function gptqShapeProblem(rows: number, k: number, settings: Pick<GptqSettings, 'bits'>): string | undefined {
  const count = inWord(settings);
  const odd = [rows, k].find((extent) => extent % count !== 0);
  return odd === undefined ? undefined : `${odd} is no multiple of ${count}, the codes of a word`;
}

/** Tensors of the matrix [rows, k] of a module. */
export function gptqTensors(
  module: string,
  [rows, k]: readonly [number, number],
  settings: GptqSettings,
): readonly Omit<WeightEntry, 'offset'>[] {
  const groups = settings.group === -1 ? 1 : k / settings.group;
  const count = inWord(settings);
  const i32 = (name: string, ...shape: readonly number[]): Omit<WeightEntry, 'offset'> => ({
    name: `${module}.${name}`,
    dtype: 'I32',
    shape,
    byteLength: 4 * shape.reduce((product, extent) => product * extent, 1),
  });
  return [
    i32('qweight', k / count, rows),
    i32('qzeros', groups, rows / count),
    i32('g_idx', k),
    { name: `${module}.scales`, dtype: 'F16', shape: [groups, rows], byteLength: 2 * groups * rows },
  ];
}

/** A matrix [rows, k] as (code − zero)·scale, with a scale for each group and row. */
export interface GptqCodes {
  /** [rows, k] */
  readonly codes: Uint8Array;
  /** [groups, rows]: bits of f16. */
  readonly scales: Uint16Array;
  /** [groups, rows]: 1 to the largest code. */
  readonly zeros: Uint8Array;
  /** Columns as they were quantized; groups are neighbours of that order. */
  readonly order: Int32Array;
}

/** The bytes of a module's tensors, by name within the module. */
export function gptqBytes(
  { codes, scales, zeros, order }: GptqCodes,
  settings: GptqSettings,
): ReadonlyMap<string, Uint8Array> {
  const k = order.length;
  const rows = codes.length / k;
  const { bits, group } = settings;
  const count = inWord(settings);
  const width = group === -1 ? k : group;
  const words = new Uint32Array((k / count) * rows);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < k; column++)
      words[Math.floor(column / count) * rows + row]! |= codes[row * k + column]! << (bits * (column % count));
  const zeroWords = new Uint32Array(zeros.length / count);
  zeros.forEach((zero, i) => {
    zeroWords[Math.floor(i / count)]! |= (zero - 1) << (bits * (i % count));
  });
  const groups = new Int32Array(k);
  order.forEach((column, place) => {
    groups[column] = Math.floor(place / width);
  });
  const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
    new Uint8Array(buffer, byteOffset, byteLength);
  return new Map([
    ['qweight', bytesOf(words)],
    ['qzeros', bytesOf(zeroWords)],
    ['g_idx', bytesOf(groups)],
    ['scales', bytesOf(scales)],
  ]);
}
