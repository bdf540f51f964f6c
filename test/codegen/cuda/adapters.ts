/** Contractions whose rows have adapters: second factors beside the weights of emulateLayerGemm's kernels. */
import type { CudaSchedule } from '../../../ir/cuda.js';
import type { GemmKernel, WeightDecl } from '../../../ir/kernel.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import { sourceRows } from '../../../ir/packing.js';
import { arrangeModule, type Arranged, emulateModule, type EmulateOptions, remembered } from './emulate.js';
import { valuesOf } from './emulateLayerGemm.js';
import type { WgmmaCase } from './wgmmaKernels.js';

export interface Adapters {
  readonly slots: number;
  readonly rank: number;
}

/** The case with room for adapters of 16 bits beside the segments that `has` accepts. */
export function withAdapters(
  { kernel, module }: WgmmaCase,
  { slots, rank }: Adapters,
  has: (segment: number) => boolean = () => true,
): WgmmaCase {
  let parts = 0;
  const weights: WeightDecl[] = [];
  const { dtype } = module.buffers.find(({ name }) => name === kernel.a)!;
  const stored = { layout: 'kmajor', format: dtype === 'f16' ? 'f16' : 'bf16' } as const;
  const segments = kernel.segments.map((segment, i) => {
    const beside = module.weights.find(({ name }) => name === segment.weight)!;
    const part = parts;
    parts += beside.sources.length;
    if (!has(i)) return segment;
    const weight = `${segment.weight}_second`;
    const { sources, pairing } = beside;
    weights.push({ ...stored, name: weight, sources, pairing, k: rank, slots: { count: slots, holds: 'b' } });
    return { ...segment, adapter: { weight, part } };
  });
  const all = module.weights.flatMap(({ name, sources }) =>
    kernel.segments.some(({ weight }) => weight === name) ? sources : [],
  );
  const ofSlots = { pairing: { kind: 'none' } } as const;
  const first: WeightDecl = {
    ...{ ...ofSlots, ...stored, name: 'first', k: kernel.k },
    slots: { count: slots, holds: 'a' },
    sources: all.map(({ tensor }) => ({ tensor, rows: rank })),
  };
  const scale: WeightDecl = {
    ...{ ...ofSlots, name: 'scale', layout: 'rows', format: 'f32', k: 1 },
    slots: { count: slots, holds: 'scale' },
    sources: all.map(({ tensor }) => ({ tensor, rows: 1 })),
  };
  const rows = { slot: 'slot', slots, rank, shrunk: 'shrunk', first: { weight: 'first', scale: 'scale' } };
  const own: GemmKernel = { ...kernel, segments, adapter: rows };
  return {
    kernel: own,
    module: {
      ...module,
      buffers: [
        ...module.buffers,
        { name: 'slot', dtype: 'i32', rows: kernel.rows, columns: 1, space: 'arena' },
        { name: 'shrunk', dtype, rows: kernel.rows, columns: parts * rank, space: 'arena' },
      ],
      weights: [...module.weights, ...weights, first, scale],
      kernels: [own],
    },
  };
}

/** Small numbers that are exact in 16 bits. */
const numbers = (count: number, seed: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => (((i * 6007 + seed * 15_485_863) % 61) - 30) / 32);

/** Values for rows of these slots. What was shrunk of a row without one is NaN. */
export function adapterValues(
  own: WgmmaCase,
  slotOf: readonly number[],
): Pick<EmulateOptions, 'sizes' | 'inputs' | 'tensors'> & { readonly slots: ReadonlyMap<string, Float64Array> } {
  const { sizes, inputs, tensors } = valuesOf(own, slotOf.length);
  const shrunk = own.module.buffers.find(({ name }) => name === 'shrunk');
  const columns = Number(shrunk?.columns ?? 0);
  const slots = own.module.weights.flatMap((weight, i) =>
    weight.slots === undefined
      ? []
      : [[weight.name, numbers(weight.slots.count * sourceRows(weight) * weight.k, i)] as const],
  );
  const left = numbers(slotOf.length * columns, 11);
  return {
    sizes,
    tensors,
    inputs: new Map([
      ...inputs,
      ['slot', Float64Array.from(slotOf)],
      ['shrunk', left.map((x, i) => (slotOf[Math.floor(i / columns)]! < 0 ? NaN : x))],
    ]),
    slots: new Map(slots),
  };
}

/** Every buffer, as doubles. */
export const emulateAdapted = (
  own: WgmmaCase,
  slotOf: readonly number[],
  schedule: CudaSchedule,
  options: Pick<EmulateOptions, 'backwards' | 'mutate' | 'multiprocessors'> = {},
): ReadonlyMap<string, Float64Array> =>
  emulateModule(own.module, { ...adapterValues(own, slotOf), schedules: [schedule], ...options }).values;

const packedOf = remembered((_: WgmmaCase) => new Map<string, Buffer>());

/** The contraction under one schedule, and its memory, for running it on a GPU. */
export const arrangeAdapted = (own: WgmmaCase, slotOf: readonly number[], schedule: CudaSchedule): Arranged =>
  arrangeModule(own.module, { ...adapterValues(own, slotOf), schedules: [schedule], packed: packedOf(own) });

/** The same in float64, rounded where kernels round. */
export function interpretAdapted(own: WgmmaCase, slotOf: readonly number[]): ReadonlyMap<string, Float64Array> {
  const { sizes, inputs, tensors, slots } = adapterValues(own, slotOf);
  return interpretModule(own.module, { sizes, buffers: inputs, tensors: tensors!, weights: slots, round: true });
}
