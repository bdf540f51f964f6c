/** Contractions of a layer with adapters: a shrink kernel and the product that goes on with what it leaves. */
import type { CudaGemmSchedule, CudaLoopSchedule, ShrinkRows } from '../../../ir/cuda.js';
import type { GemmKernel, KernelModule, ShrinkKernel, WeightDecl } from '../../../ir/kernel.js';
import { interpretModule, type RawTensor } from '../../../ir/kernelInterpreter.js';
import { sourceRows } from '../../../ir/packing.js';
import { FORMATS } from '../../../ir/storage.js';
import { type AdapterSlots } from '../../../ir/adapterRows.js';
import { attachAdapters } from '../../../passes/attachAdapters.js';
import {
  arrangeModule,
  type Arranged,
  type EmulateOptions,
  emulateModule,
  loadEmulator,
  remembered,
} from './emulate.js';
import { layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';

export interface AdapterCase {
  readonly shrink: ShrinkKernel;
  readonly kernel: GemmKernel;
  /** Both kernels, in order. */
  readonly module: KernelModule;
  /** The product without adapters. */
  readonly base: WgmmaCase;
}

export interface AdapterShape {
  readonly hidden: number;
  readonly inter: number;
  readonly headDim: number;
  readonly half?: 'bf16' | 'f16';
}

/** `base` with adapters in slots. */
export function withAdapters(base: WgmmaCase, asked: AdapterSlots): AdapterCase {
  const { module } = base;
  const lowered = { ...module, constants: module.constants ?? [], states: module.states ?? [] };
  const attached = attachAdapters(lowered, asked, { layout: 'kmajor', format: 'bf16' });
  const [shrink, kernel] = attached.kernels;
  if (shrink?.anchor !== 'shrink' || kernel?.anchor !== 'gemm') throw new Error('no adapters are attached');
  return { shrink, kernel, module: attached, base };
}

export const adapterCase = (
  which: LayerGemm,
  { hidden, inter, headDim, half }: AdapterShape,
  asked: AdapterSlots,
): AdapterCase => withAdapters(layerGemm(which, hidden, inter, headDim, half), asked);

/** A row's numbers depend on the row alone, so that a row can be computed in other company. */
const numbers = (row: number, count: number, seed: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => (((i * 7919 + row * 15_485_863 + seed * 104_729) % 257) - 128) / 64);

export interface RowsOfAdapters {
  /** The slot of each row. */
  readonly slots: readonly number[];
  /** The number of each row, which says its values. Default: its place. */
  readonly rows?: readonly number[];
  /**
   * Whether what is shrunk is small beside its first and last terms, which are equal but for their signs: it then shows
   * in which order all are added.
   */
  readonly cancels?: boolean;
}

const LARGE = 2 ** 20;

function matrix(rows: number, columns: number, seed: number, by = 1): Float64Array {
  const all = new Float64Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    numbers(row, columns, seed).forEach((x, i) => (all[row * columns + i] = x * by));
  }
  return all;
}

/** Contents of a weight with slots. Factors differ in every slot, and are small as those of adapters are. */
function slotValues(decl: WeightDecl, seed: number): Float64Array {
  const count = decl.slots?.count ?? 1;
  const rows = sourceRows(decl) * count;
  if (decl.slots?.holds === 'scale') return Float64Array.from({ length: rows }, (_, i) => 2 ** -(2 + (i % 3)));
  const format = FORMATS[decl.format];
  return format.decode(format.encode(matrix(rows, decl.k, seed, 1 / 16)));
}

function weightValues({ module, base }: AdapterCase) {
  const columns = base.kernel.segments[0]!.columns;
  const tensor = (seed: number): RawTensor => ({
    rows: columns,
    columns: base.kernel.k,
    data: matrix(columns, base.kernel.k, seed, 1 / 8),
  });
  const slots = new Map(
    module.weights.flatMap((decl, i) => (decl.slots === undefined ? [] : [[decl.name, slotValues(decl, 11 + i)]])),
  );
  const tensors = new Map([
    ['a', tensor(3)],
    ['b', tensor(4)],
  ]);
  return { tensors, slots };
}
const weightsOf = remembered(weightValues);

function valuesOf(own: AdapterCase, { slots, rows = slots.map((_, i) => i), cancels = false }: RowsOfAdapters) {
  const { module, base } = own;
  const inputs = base.module.buffers
    .filter(({ space }) => space !== 'weight')
    .map(({ name, dtype, columns }, seed): [string, Float64Array] => {
      const width = Number(columns);
      const values = new Float64Array(rows.length * width);
      rows.forEach((row, i) => {
        const left = numbers(row, width, seed);
        if (cancels && name === base.kernel.a) left[width - 1] = left[0] = 1 + (row % 8) / 8;
        values.set(
          dtype === 'u8' ? left.map((x) => Math.abs(x * 64)) : name === 'parts' ? left.map((x) => Math.abs(x)) : left,
          i * width,
        );
      });
      return [name, values];
    });
  const weights = cancels ? weightValues(own) : weightsOf(own);
  for (const { name, k, slots: of } of cancels ? module.weights : []) {
    const values = of?.holds === 'a' ? weights.slots.get(name)! : new Float64Array();
    for (let i = 0; i < values.length; i += k) [values[i], values[i + k - 1]] = [LARGE, -LARGE];
  }
  return {
    sizes: { T: rows.length, R: 1 },
    inputs: new Map<string, Float64Array>([...inputs, ['adapter', Float64Array.from(slots)]]),
    ...weights,
  };
}

export interface AdapterSchedules {
  readonly shrink?: ShrinkRows;
  readonly gemm: CudaGemmSchedule;
}

const shrinkSchedule = (rows: ShrinkRows = 8): CudaLoopSchedule => ({ kind: 'loop', threads: 256, rows });

/** Every buffer after both kernels. */
export const emulateAdapters = (
  own: AdapterCase,
  rows: RowsOfAdapters,
  { shrink, gemm }: AdapterSchedules,
  options: Pick<EmulateOptions, 'backwards' | 'mutate' | 'multiprocessors'> = {},
): ReadonlyMap<string, Float64Array> =>
  emulateModule(own.module, { ...valuesOf(own, rows), schedules: [shrinkSchedule(shrink), gemm], ...options }).values;

/** The product by itself, so many times, with a schedule under which it shrinks its rows. */
const shrinkingModule = ({ module, kernel }: AdapterCase, gemm: CudaGemmSchedule, times: number) => {
  const kernels = Array.from({ length: times }, () => kernel);
  const schedules = kernels.map((): CudaGemmSchedule => ({ ...gemm, adapters: 'shrinks' }));
  return { module: { ...module, kernels }, schedules };
};

/** Every buffer after a product that shrinks its rows, launched `times` times. */
export function emulateShrinking(
  own: AdapterCase,
  rows: RowsOfAdapters,
  gemm: CudaGemmSchedule,
  {
    times = 1,
    ...options
  }: Pick<EmulateOptions, 'backwards' | 'mutate' | 'multiprocessors'> & { readonly times?: number } = {},
): ReadonlyMap<string, Float64Array> {
  const { module, schedules } = shrinkingModule(own, gemm, times);
  return emulateModule(module, { ...valuesOf(own, rows), schedules, ...options }).values;
}

/** How a product runs. */
export interface ProductRun extends Pick<EmulateOptions, 'backwards' | 'multiprocessors'> {
  readonly gemm: CudaGemmSchedule;
}

/** What a shrink kernel and each run of the product leave, from the same memory: compiled together. */
export function emulateEach(
  own: AdapterCase,
  rows: RowsOfAdapters,
  runs: readonly ProductRun[],
): readonly ReadonlyMap<string, Float64Array>[] {
  const module = { ...own.module, kernels: [own.shrink, ...runs.map(() => own.kernel)] };
  const given = { ...valuesOf(own, rows), schedules: [shrinkSchedule(), ...runs.map(({ gemm }) => gemm)] };
  const { emitted, memory, values } = arrangeModule(module, given);
  const outputs = own.kernel.segments.flatMap((segment) => segment.outputs.map(({ buffer }) => memory.get(buffer)!));
  const before = outputs.map((bytes) => Buffer.from(bytes));
  const run = loadEmulator(emitted);
  run(emitted[0]!, memory, given.sizes);
  return runs.map(({ gemm: _, ...options }, i) => {
    outputs.forEach((bytes, at) => before[at]!.copy(bytes));
    run(emitted[i + 1]!, memory, given.sizes, options);
    return values();
  });
}

/** What a shrink kernel and a product leave, and what the product leaves that shrinks its rows. */
export function emulateBoth(
  own: AdapterCase,
  rows: RowsOfAdapters,
  gemm: CudaGemmSchedule,
  options: Pick<EmulateOptions, 'backwards' | 'multiprocessors'> = {},
): { readonly wanted: ReadonlyMap<string, Float64Array>; readonly got: ReadonlyMap<string, Float64Array> } {
  const [wanted, got] = emulateEach(own, rows, [{ gemm }, { gemm: { ...gemm, adapters: 'shrinks' }, ...options }]);
  return { wanted: wanted!, got: got! };
}

/** The shrink kernel alone. */
export const emulateShrink = (
  own: AdapterCase,
  rows: RowsOfAdapters,
  tile: ShrinkRows,
  options: Pick<EmulateOptions, 'backwards' | 'mutate'> = {},
): Float64Array => {
  const { module, shrink } = own;
  const given = { ...valuesOf(own, rows), schedules: [shrinkSchedule(tile)], ...options };
  return emulateModule({ ...module, kernels: [shrink] }, given).values.get(shrink.out)!;
};

/** The product without adapters, of the same rows. */
export const emulateBase = (
  own: AdapterCase,
  rows: RowsOfAdapters,
  schedule: CudaGemmSchedule,
): ReadonlyMap<string, Float64Array> =>
  emulateModule(own.base.module, { ...valuesOf(own, rows), schedules: [schedule] }).values;

const packedOf = remembered((_: KernelModule) => new Map<string, Buffer>());

/** Both kernels and their memory, for a GPU: weights are packed once for all calls. */
export const arrangeAdapters = (own: AdapterCase, rows: RowsOfAdapters, { shrink, gemm }: AdapterSchedules): Arranged =>
  arrangeModule(own.module, {
    ...{ ...valuesOf(own, rows), schedules: [shrinkSchedule(shrink), gemm] },
    packed: packedOf(own.module),
  });

/** The product that shrinks its rows, and its memory. */
export function arrangeShrinking(own: AdapterCase, rows: RowsOfAdapters, gemm: CudaGemmSchedule): Arranged {
  const { module, schedules } = shrinkingModule(own, gemm, 1);
  return arrangeModule(module, { ...valuesOf(own, rows), schedules, packed: packedOf(own.module) });
}

/** The product without adapters, of the same rows. */
export const arrangeBase = (own: AdapterCase, rows: RowsOfAdapters, schedule: CudaGemmSchedule): Arranged =>
  arrangeModule(own.base.module, {
    ...{ ...valuesOf(own, rows), schedules: [schedule] },
    packed: packedOf(own.base.module),
  });

/** What the product writes, a row at a time. */
export function outputsOf(
  { kernel }: AdapterCase,
  values: ReadonlyMap<string, Float64Array>,
  rows: number,
): Map<string, Float64Array[]> {
  const names = kernel.segments.flatMap(({ outputs }) => outputs.map(({ buffer }) => buffer));
  return new Map(
    names.map((name) => {
      const all = values.get(name)!;
      const width = all.length / rows;
      return [name, Array.from({ length: rows }, (_, row) => all.subarray(row * width, (row + 1) * width))];
    }),
  );
}

/** Both in float64, rounded where kernels round. */
export function interpretAdapters(own: AdapterCase, rows: RowsOfAdapters): ReadonlyMap<string, Float64Array> {
  const { sizes, inputs, tensors, slots } = valuesOf(own, rows);
  return interpretModule(own.module, { sizes, buffers: inputs, tensors, weights: slots, round: true });
}
