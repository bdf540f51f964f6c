/** Emulates one contraction of a layer on made-up values. */
import { interpretModule, type RawTensor } from '../../../ir/kernelInterpreter.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import { arrangeModule, emulateModule, type Arranged, type EmulateOptions } from './emulate.js';
import type { WgmmaCase } from './wgmmaKernels.js';

/** Values that are exact in 16 bits, so that rounding hides nothing. */
const numbers = (count: number, seed: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => (((i * 7919 + seed * 104_729) % 257) - 128) / 64);

export function valuesOf(
  { kernel, module }: WgmmaCase,
  rows: number,
): Pick<EmulateOptions, 'sizes' | 'inputs'> & {
  readonly tensors: ReadonlyMap<string, RawTensor>;
} {
  const filled = module.buffers.filter(({ space }) => space !== 'weight');
  const inputs = filled.map(({ name, dtype, columns }, i): [string, Float64Array] => {
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
  return { sizes: { T: rows, R: 1 }, inputs: new Map(inputs), tensors };
}

/** Every buffer, as doubles. */
export const emulateLayerGemm = (
  own: WgmmaCase,
  rows: number,
  schedule: CudaSchedule,
  options: Pick<EmulateOptions, 'backwards' | 'mutate' | 'multiprocessors'> = {},
): ReadonlyMap<string, Float64Array> =>
  emulateModule(own.module, { ...valuesOf(own, rows), schedules: [schedule], ...options }).values;

/** The contraction under one schedule, and its memory, for running it on a GPU. */
export const arrangeLayerGemm = (own: WgmmaCase, rows: number, schedule: CudaSchedule): Arranged =>
  arrangeModule(own.module, { ...valuesOf(own, rows), schedules: [schedule] });

/** The same in float64, rounded where kernels round. */
export function interpretLayerGemm(own: WgmmaCase, rows: number): ReadonlyMap<string, Float64Array> {
  const { sizes, inputs, tensors } = valuesOf(own, rows);
  return interpretModule(own.module, { sizes, buffers: inputs, tensors, round: true });
}
