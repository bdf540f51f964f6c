/** Emulates one contraction of a layer on made-up values. */
import type { CudaSchedule } from '../../../ir/cuda.js';
import { emulateModule, type EmulateOptions } from './emulate.js';
import type { WgmmaCase } from './wgmmaKernels.js';

/** Values that are exact in 16 bits, so that rounding hides nothing. */
const numbers = (count: number, seed: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => (((i * 7919 + seed * 104_729) % 257) - 128) / 64);

/** Every buffer, as doubles. */
export function emulateLayerGemm(
  { kernel, module }: WgmmaCase,
  rows: number,
  schedule: CudaSchedule,
  options: Pick<EmulateOptions, 'backwards' | 'mutate'> = {},
): ReadonlyMap<string, Float64Array> {
  const inputs = module.buffers.map(({ name, dtype, columns }, i): [string, Float64Array] => {
    const values = numbers(rows * Number(columns), i);
    return [
      name,
      dtype === 'u8' ? values.map((x) => Math.abs(x * 64)) : name === 'parts' ? values.map(Math.abs) : values,
    ];
  });
  const matrix = (seed: number): { rows: number; columns: number; data: Float64Array } => {
    const columns = kernel.segments[0]!.columns;
    return { rows: columns, columns: kernel.k, data: numbers(columns * kernel.k, seed) };
  };
  const tensors = new Map([
    ['a', matrix(3)],
    ['b', matrix(4)],
  ]);
  return emulateModule(module, {
    ...{ sizes: { T: rows, R: 1 }, inputs: new Map(inputs), tensors, schedules: [schedule] },
    ...options,
  }).values;
}
