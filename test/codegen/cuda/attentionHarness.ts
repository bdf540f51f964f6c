/** Runs generated attention without a GPU: its text as C++ over fibres (test/support/cudaWarp), a block at a time. */
import { emitAttention } from '../../../codegen/cuda/attention/index.js';
import { bodyOf, includesText, openUnit } from '../../support/cudaWarp/units.js';
import { CudaOperands } from '../../../codegen/cuda/text/operands.js';
import { parametersOf } from '../../../codegen/signature.js';
import type { CudaAttentionSchedule, CudaKernelText } from '../../../ir/cuda.js';
import { extentIn, type Extents } from '../../../ir/extents.js';
import { type CacheFormat, everyExtent, extentNames } from '../../../ir/function.js';
import type { AttentionKernel, BufferDecl, KernelModule } from '../../../ir/kernel.js';
import type { Mask } from '../../../ir/mask.js';
import { elementAt, ROW_PAD, rowStride } from '../../../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../../../ir/types.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import { defined } from '../../../system/defined.js';
import { loadOverFibres } from '../../support/cudaWarp/compile.js';
import { interfaceOf } from '../../support/interface.js';
import { aligned, put, take } from '../harness.js';
import { blocksOf } from './emulate.js';
import { mapArguments } from './emulateHopper.js';

const koffi = loadKoffi();

const GUARD = 0xff; // NaN in every float type, −1 as an index.
/** Tokens that buffers have room for. */
const CAPACITY = 512;

export interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly dtype: 'f32' | 'bf16' | 'f16';
  readonly out?: 'f32' | 'bf16' | 'f16';
  /** `path`: keys and values lie in states of `cacheRows` rows. */
  readonly mask?: 'column' | 'path' | 'bias';
  readonly cacheRows?: number;
  readonly hasQueryRow?: boolean;
  readonly cap?: number;
  readonly window?: number;
  readonly chunk?: number;
  /** Heads have slopes, the input `slopes`; with a factor, rounded to bf16. */
  readonly sloped?: true;
  readonly slopeFactor?: number;
  /** Keys and values are codes, with scales. */
  readonly scaled?: CacheFormat;
  /** Values are keys, which go on with so many columns: the inputs `qTail` and `kTail`. */
  readonly tail?: number;
  /** Each head has a sink of this type, the input `sink`. */
  readonly sinks?: 'f32' | 'bf16';
}

/** Rows of the states that paths run through, if a shape does not say. */
export const CACHE_ROWS = 1400;

const MASKS: Readonly<Record<NonNullable<Shape['mask']>, Mask>> = {
  column: { kind: 'column', subtreeEnd: 'subtreeEnd' },
  path: { kind: 'path', begin: 'begin', position: 'position', key: 'key' },
  bias: { kind: 'bias', buffer: 'bias' },
};

/** Whether it matters to trees where keys are. */
const hasPlaces = ({ window, chunk, sloped }: Shape): boolean =>
  window !== undefined || chunk !== undefined || sloped === true;

const withReach = (mask: Mask, s: Shape): Mask => {
  if (mask.kind === 'bias' || !hasPlaces(s)) return mask;
  const reach = defined({ window: s.window, chunk: s.chunk });
  return mask.kind === 'path' ? { ...mask, ...reach } : { ...mask, ...reach, position: 'position' };
};

const PATH_BUFFERS: readonly BufferDecl[] = [
  { name: 'begin', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
  { name: 'position', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
  { name: 'key', dtype: 'i32', rows: 'C', columns: 1, space: 'input' },
];

/** A module of one attention kernel. Its widths leave padding between columns and stride. */
export function attentionModule(s: Shape): { module: KernelModule; kernel: AttentionKernel } {
  const { heads, kvHeads, headDim, dtype, out = dtype, mask = 'column', hasQueryRow = false } = s;
  const { cacheRows = CACHE_ROWS } = s;
  const rows = hasQueryRow ? 'R' : 'T';
  const isPath = mask === 'path';
  const kernel: AttentionKernel = {
    name: 'attend',
    path: 'layers.0.attention',
    anchor: 'attention',
    rows,
    ops: [],
    q: 'q',
    k: 'k',
    v: s.tail === undefined ? 'v' : 'k',
    out: 'out',
    heads,
    kvHeads,
    headDim,
    scale: 1 / Math.sqrt(headDim),
    ...(s.cap === undefined ? {} : { cap: s.cap }),
    mask: withReach(MASKS[mask], s),
    ...(s.sloped === undefined ? {} : { slopes: 'slopes', ...defined({ slopeFactor: s.slopeFactor }) }),
    ...(s.scaled !== undefined ? { scales: { k: 'kScale', v: 'vScale' } } : {}),
    ...(s.sinks === undefined ? {} : { sink: 'sink' }),
    ...(s.tail === undefined ? {} : { tail: { q: 'qTail', k: 'kTail', headDim: s.tail } }),
    ...(hasQueryRow ? { queryRow: 'row' } : {}),
  };
  const keyRows = isPath ? cacheRows : 'T';
  const stored = s.scaled ?? dtype;
  const scales = s.scaled !== undefined ? ['kScale', 'vScale'] : [];
  const buffers: BufferDecl[] = [
    { name: 'q', dtype, rows: 'T', columns: heads * headDim, space: 'arena' },
    { name: 'k', dtype: stored, rows: keyRows, columns: kvHeads * headDim, space: 'arena' },
    ...(s.tail === undefined
      ? [{ name: 'v', dtype: stored, rows: keyRows, columns: kvHeads * headDim, space: 'arena' } as const]
      : [
          { name: 'qTail', dtype, rows: 'T', columns: heads * s.tail, space: 'arena' } as const,
          { name: 'kTail', dtype, rows: keyRows, columns: s.tail, space: 'arena' } as const,
        ]),
    { name: 'out', dtype: out, rows, columns: heads * headDim, space: 'arena' },
    { name: 'subtreeEnd', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
    { name: 'bias', dtype: 'f32', rows: 'T', columns: 'T', space: 'arena' },
    { name: 'row', dtype: 'i32', rows: 'R', columns: 1, space: 'input' },
    ...(s.sinks === undefined
      ? []
      : [{ name: 'sink', dtype: s.sinks, rows: heads, columns: 1, space: 'arena' } as const]),
    ...(s.sloped === undefined
      ? []
      : [{ name: 'slopes', dtype: 'f32', rows: heads, columns: 1, space: 'arena' } as const]),
    // States of scales lie in blocks (passes/packStates).
    ...scales.map((name): BufferDecl => ({
      ...{ name, dtype: 'f32', rows: keyRows, columns: kvHeads, space: 'arena' },
      ...(isPath ? { isBlocked: true } : {}),
    })),
    ...(isPath ? PATH_BUFFERS : hasPlaces(s) ? PATH_BUFFERS.filter(({ name }) => name === 'position') : []),
  ];
  const scoring = interfaceOf(buffers);
  const extents = isPath ? [...scoring.extents, { name: 'C', counts: 'keys' }] : scoring.extents;
  return { module: { interface: { ...scoring, extents }, buffers, weights: [], kernels: [kernel] }, kernel };
}

export interface Generated extends Pick<CudaKernelText, 'source' | 'launch' | 'parameters' | 'symbol' | 'tensorMaps'> {
  /** The prelude and the kernel: a whole translation unit. */
  readonly text: string;
  /** Extents that the kernel takes, in order. */
  readonly extents: readonly string[];
}

export function generate(s: Shape, schedule: CudaAttentionSchedule, tokensCapacity: number): Generated {
  const { module, kernel } = attentionModule(s);
  const parameters = parametersOf(kernel, module);
  const operands = new CudaOperands(kernel, module, parameters, everyExtent(module.interface, tokensCapacity));
  const symbol = 'k_attention_test';
  const { source, launch, tensorMaps } = emitAttention(kernel, operands, schedule, symbol);
  const extents = extentNames(module.interface);
  return {
    source,
    launch,
    parameters,
    tensorMaps,
    symbol,
    extents,
    text: source,
  };
}

const DRIVER = `
extern "C" int run_SYMBOL(void **p, const int *e, int grid_x, int grid_y, int threads, int cluster, int late,
                          int backwards) {
  tw_late_copies = late;
  tw_backwards = backwards;
  return tw_run_grid(grid_x, grid_y, threads, [&] { SYMBOL(ARGUMENTS); }, cluster);
}
`;

type Run = (
  p: Buffer,
  extents: Buffer,
  x: number,
  y: number,
  threads: number,
  cluster: number,
  late: number,
  backwards: number,
) => number;

const compiled = new Map<string, Run>();

/**
 * Compiles kernels as one library: the prelude once, each kernel's own text in a namespace. Kernels that are already
 * compiled are not compiled again.
 */
function compile(
  kernels: readonly Pick<Generated, 'text' | 'parameters' | 'extents' | 'symbol' | 'tensorMaps'>[],
): void {
  const missing = kernels.filter(({ text }) => !compiled.has(text));
  const texts = missing.map(({ text, parameters, extents, tensorMaps }, i) => {
    // Dynamic shared memory is that of warp.h. Blocks run one by one and share no static shared memory.
    const own = bodyOf(text)
      .replaceAll(/extern __shared__[^;]*;/g, '')
      .replaceAll('__shared__', 'TW_SHARED_STATIC');
    const maps = mapArguments(tensorMaps, ROW_PAD, (name) => `e[${extents.indexOf(name)}]`);
    const values = [
      ...extents.map((_, at) => `e[${at}]`),
      ...parameters.map((_, at) => `tw_pointer{ p[${at}] }`),
      ...maps,
    ].join(', ');
    const driver = DRIVER.replace('ARGUMENTS', values).replace('run_SYMBOL', `run_${i}`);
    const unit = `${own}\n${driver}`.replaceAll(/SYMBOL|\bk_attention_test\b/g, `k_${i}`);
    return `namespace tw::of_${i} {\n${unit}\n}`;
  });
  if (missing.length === 0) return;
  const library = loadOverFibres([includesText(missing.map(({ text }) => text)), ...texts].join('\n'));
  missing.forEach(({ text }, i) => {
    compiled.set(
      text,
      library.func(
        `int run_${i}(void *p, void *e, int x, int y, int threads, int cluster, int late, int backwards)`,
      ) as Run,
    );
  });
}

/** What `emulate` would otherwise compile one by one. */
export function prepare(
  list: readonly { readonly s: Shape; readonly plan: CudaAttentionSchedule; readonly capacity?: number }[],
): void {
  const all = list.map(({ s, plan, capacity }) => generate(s, plan, capacity ?? CAPACITY));
  compile([...new Map(all.map((each) => [each.text, each])).values()]);
}

export interface AttentionData {
  readonly T: number;
  /** Dense inputs by buffer name: q, k, v, and those of the mask and row if the kernel reads them. */
  readonly inputs: ReadonlyMap<string, Float64Array>;
}

export interface EmulationOptions {
  readonly tokensCapacity?: number;
  /** When copies take effect: as late as they may, or at once. */
  readonly late?: boolean;
  readonly backwards?: boolean;
  /** How many blocks a grid has that goes from tile to tile. Default: 1. */
  readonly multiprocessors?: number;
  /** Breaks the kernel's text in a way that the emulation must notice. */
  readonly mutate?: (text: string) => string;
}

export interface Emulated {
  readonly out: Float64Array;
  /** Every buffer as the kernel saw it, rounded. */
  readonly buffers: ReadonlyMap<string, Float64Array>;
}

/** The sizes of a call. */
export const sizesOf = ({ T, inputs }: AttentionData): Extents => ({
  T,
  R: inputs.get('row')?.length ?? 0,
  C: inputs.get('key')?.length ?? 0,
});

/** Extents of a buffer in elements. */
function extents(
  decl: BufferDecl,
  data: AttentionData,
  capacity: number,
): { rows: number; columns: number; stride: number; bytes: number; at: (i: number) => number } {
  const sizes = sizesOf(data);
  const extent = (dim: BufferDecl['rows']): number => extentIn(dim, sizes);
  const [rows, columns] = [extent(decl.rows), extent(decl.columns)];
  const most = { T: capacity, R: capacity, C: capacity };
  const stride = rowStride(decl, most, DTYPE_BYTES[decl.dtype]);
  return {
    ...{ rows, columns, stride, bytes: roundUp(Math.max(rows, 1), ROW_PAD) * stride * DTYPE_BYTES[decl.dtype] },
    at: (i) => elementAt(decl, stride, Math.floor(i / columns), i % columns),
  };
}

/**
 * Every buffer as it lies on a device, with NaN wherever there is no data, and the data as a kernel sees it, rounded.
 */
export function layOut(
  s: Shape,
  data: AttentionData,
  capacity: number,
): { memory: ReadonlyMap<string, Buffer>; buffers: ReadonlyMap<string, Float64Array> } {
  const memory = new Map<string, Buffer>();
  const buffers = new Map<string, Float64Array>();
  for (const decl of attentionModule(s).module.buffers) {
    const { rows, columns, bytes: size, at: placeOf } = extents(decl, data, capacity);
    const bytes = aligned(size, GUARD);
    memory.set(decl.name, bytes);
    const given = data.inputs.get(decl.name);
    if (given === undefined) continue;
    const seen = new Float64Array(rows * columns);
    for (let i = 0; i < seen.length; i++) {
      // It is there already.
      if (Number.isNaN(given[i])) {
        seen[i] = NaN;
        continue;
      }
      const at = placeOf(i);
      put(bytes, at, decl.dtype, given[i]!);
      seen[i] = take(bytes, at, decl.dtype);
    }
    buffers.set(decl.name, seen);
  }
  return { memory, buffers };
}

/** The dense result. Throws if the kernel wrote outside it. */
export function readOut(s: Shape, data: AttentionData, capacity: number, result: Buffer): Float64Array {
  const decl = attentionModule(s).module.buffers.find(({ name }) => name === 'out')!;
  const { rows, columns, stride, at } = extents(decl, data, capacity);
  const size = DTYPE_BYTES[decl.dtype];
  for (let row = 0; row * stride * size < result.length; row++) {
    const from = row < rows ? columns : 0;
    if (result.subarray((row * stride + from) * size, (row + 1) * stride * size).some((byte) => byte !== GUARD)) {
      throw new Error(
        `the kernel wrote row ${row} of its result from column ${from} on, outside its [${rows}, ${columns}]`,
      );
    }
  }
  return Float64Array.from({ length: rows * columns }, (_, i) => take(result, at(i), decl.dtype));
}

/**
 * Runs a generated kernel on its whole grid. Memory around the data holds NaN. Throws if the kernel writes past its
 * result.
 */
export function emulate(
  s: Shape,
  schedule: CudaAttentionSchedule,
  data: AttentionData,
  options: EmulationOptions = {},
): Emulated {
  const capacity = options.tokensCapacity ?? CAPACITY;
  const { text: intact, launch, parameters, extents: names, symbol, tensorMaps } = generate(s, schedule, capacity);
  const open = options.mutate === undefined ? intact : openUnit(intact);
  const text = options.mutate?.(open) ?? open;
  if (options.mutate !== undefined && text === open) throw new Error('the mutation changed nothing');
  const { memory, buffers } = layOut(s, data, capacity);
  const table = Buffer.alloc(parameters.length * 8);
  parameters.forEach((name, i) => table.writeBigUInt64LE(koffi.address(memory.get(name)!), i * 8));
  const sizes = sizesOf(data);
  compile([{ text, parameters, extents: names, symbol, tensorMaps }]);
  const counts = Buffer.from(Int32Array.from(names, (name) => extentIn(name, sizes)).buffer);
  const ended = compiled.get(text)!(
    table,
    counts,
    blocksOf(launch.gridX, sizes, options.multiprocessors ?? 1),
    blocksOf(launch.gridY, sizes, 1),
    launch.threads,
    launch.cluster,
    options.late === false ? 0 : 1,
    options.backwards === true ? 1 : 0,
  );
  if (ended === 0)
    throw new Error('the threads of a block wait for each other for ever, or use a bad address (see standard error)');
  return { out: readOut(s, data, capacity, memory.get('out')!), buffers };
}
