/**
 * Runs generated CUDA without a GPU: each kernel's text as C++ over fibres (test/support/cudaWarp), block after block.
 */
import type { LibraryHandle } from 'koffi';
import { emitCudaKernel } from '../../../codegen/cuda/index.js';
import type { CudaKernelText, CudaSchedule, GridExtent } from '../../../ir/cuda.js';
import { extentIn, type Extents } from '../../../ir/extents.js';
import { everyExtent } from '../../../ir/function.js';
import { type Grouped, type GroupSize, packGroups, roundToGroups } from '../../../ir/groups.js';
import type { BufferDecl, KernelModule, WeightDecl } from '../../../ir/kernel.js';
import { logicalWeight, type RawTensor } from '../../../ir/kernelInterpreter.js';
import { packMicroscaled } from '../../../ir/microscaled.js';
import { packedBytes, packedDepth, physicalToLogical, sourceRows } from '../../../ir/packing.js';
import { elementAt, ROW_PAD, rowStride } from '../../../ir/plan.js';
import { isBlockFormat } from '../../../ir/storage.js';
import { DTYPE_BYTES, roundUp } from '../../../ir/types.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import { compileOverFibres, loadOverFibres } from '../../support/cudaWarp/compile.js';
import { bodyOf, includesText, openUnit } from '../../support/cudaWarp/units.js';
import { aligned, packWeight, put, take } from '../harness.js';
import { mapArguments } from './emulateHopper.js';

const koffi = loadKoffi();

/** NaN in every float type, −1 as an index. */
const GUARD = 0xff;

/** Every buffer is copied so that it ends where readable memory ends: reading past it ends the process. */
const FENCED = `
#include <sys/mman.h>
#include <unistd.h>
struct tw_fenced { unsigned char *pages, *at; size_t pages_size, size; };
static tw_fenced tw_fence(const void *from, size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t padded = (size + 15) / 16 * 16, used = (padded + page - 1) / page * page;
  void *mapped = mmap(0, used + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned char *pages = (unsigned char *)mapped;
  if (mapped == MAP_FAILED || mprotect(pages + used, page, PROT_NONE) != 0) abort();
  tw_fenced fenced = { pages, pages + used - padded, used + page, size };
  memcpy(fenced.at, from, size);
  return fenced;
}
`;

const DRIVER = `
extern "C" int RUN(void **from, const unsigned long long *sizes, const int *extents, int grid_x, int grid_y,
                          int threads, int cluster, int backwards) {
  tw_fenced fenced[COUNT];
  void *p[COUNT];
  for (int i = 0; i < COUNT; i++) { fenced[i] = tw_fence(from[i], sizes[i]); p[i] = fenced[i].at; }
  tw_late_copies = 1;
  tw_backwards = backwards;
  const int ended = tw_run_grid(grid_x, grid_y, threads, [&] { SYMBOL(ARGUMENTS); }, cluster);
  for (int i = 0; i < COUNT; i++) {
    memcpy(from[i], fenced[i].at, fenced[i].size);
    munmap(fenced[i].pages, fenced[i].pages_size);
  }
  return ended;
}
`;

type Run = (
  p: Buffer,
  sizes: Buffer,
  extents: Int32Array,
  x: number,
  y: number,
  threads: number,
  cluster: number,
  backwards: number,
) => number;

/**
 * Libraries by what was compiled: the text of a kernel and the boxes of its tensor maps. Kernels of one symbol may
 * differ in the names of parameters.
 */
const compiled = new Map<string, { readonly library: LibraryHandle; readonly run: string }>();
const keyOf = ({ source, tensorMaps }: CudaKernelText): string => JSON.stringify([source, tensorMaps]);

/** Names of the extents that a kernel takes, in order, as its head declares them. */
export const extentsOf = ({ source, symbol }: CudaKernelText): readonly string[] =>
  [...new RegExp(`\\b${symbol}\\(\\s*((?:int \\w+,\\s*)*)`).exec(source)![1]!.matchAll(/int (\w+),/g)].map(
    ([, name]) => name!,
  );

/** A kernel's own text, without its includes, for warp.h. */
function overFibres(kernel: CudaKernelText): string {
  // Dynamic shared memory is that of warp.h. Blocks that run one by one do not share static shared memory.
  const own = bodyOf(kernel.source);
  return own.replaceAll(/extern __shared__[^;]*;/g, '').replaceAll('__shared__', 'TW_SHARED_STATIC');
}

/** Kernels without tensor maps as a library in `folder` that the fake driver executes (hostKernels.h). */
export function hostLibrary(kernels: Iterable<CudaKernelText>, folder: string): string {
  const all = [...kernels];
  const texts = all.map((kernel) => {
    const { symbol, parameters, launch } = kernel;
    const sizes = extentsOf(kernel).map((_, i) => `sizes[${i}]`);
    const pointers = parameters.map((_, i) => `tw_pointer{ p[${i}] }`);
    const call = `${symbol}(${[...sizes, ...pointers].join(', ')})`;
    return `namespace tw::of_${symbol} {
${overFibres(kernel)}
extern "C" void host_${symbol}(const int *sizes, const unsigned *grid, void **p) {
  if (!tw_run_grid(grid[0], grid[1], ${launch.threads}, [&] { ${call}; }, ${launch.cluster})) abort();
}
}`;
  });
  return compileOverFibres([includesText(all.map(({ source }) => source)), ...texts].join('\n'), folder);
}

const ownSymbol = ({ symbol }: CudaKernelText, i: number): string => `${symbol}_of_${i}`;

/** All kernels that no library has yet as one: the prelude once, each kernel's own text in a namespace. */
function compile(kernels: readonly CudaKernelText[]): (kernel: CudaKernelText) => Run {
  const missing = [...new Map(kernels.map((kernel) => [keyOf(kernel), kernel])).values()].filter(
    (kernel) => !compiled.has(keyOf(kernel)),
  );
  const texts = missing.map((kernel, i) => {
    const { parameters, tensorMaps } = kernel;
    const symbol = ownSymbol(kernel, i);
    const text = overFibres(kernel).replaceAll(kernel.symbol, symbol);
    const names = extentsOf(kernel);
    const extents = names.map((_, i) => `extents[${i}]`);
    const maps = mapArguments(tensorMaps, ROW_PAD, (name) => `extents[${names.indexOf(name)}]`);
    const pointers = [...parameters.map((_, i) => `tw_pointer{ p[${i}] }`), ...maps].join(', ');
    const driver = DRIVER.replaceAll('SYMBOL', symbol)
      .replace('RUN', `run_${symbol}`)
      .replace('ARGUMENTS', [...extents, pointers].join(', '))
      .replaceAll('COUNT', String(parameters.length));
    return `namespace tw::of_${symbol} {\n${text}\n${driver}\n}`;
  });
  if (missing.length > 0) {
    const library = loadOverFibres([FENCED, includesText(missing.map(({ source }) => source)), ...texts].join('\n'));
    missing.forEach((kernel, i) => compiled.set(keyOf(kernel), { library, run: `run_${ownSymbol(kernel, i)}` }));
  }
  return (kernel) => {
    const { library, run } = compiled.get(keyOf(kernel))!;
    const parameters = 'void *p, void *sizes, void *extents, int x, int y, int threads, int cluster, int backwards';
    return library.func(`int ${run}(${parameters})`) as Run;
  };
}

export interface EmulateOptions {
  readonly sizes: Extents;
  readonly inputs: ReadonlyMap<string, Float64Array>;
  readonly tensors?: ReadonlyMap<string, RawTensor>;
  /** Of weights with slots, their logical matrices one behind another. Default: zeros. */
  readonly slots?: ReadonlyMap<string, Float64Array>;
  /** Weights as they lie in memory, by name, which are not packed again. Filled with those that it lacks. */
  readonly packed?: Map<string, Buffer>;
  readonly schedules: readonly CudaSchedule[];
  /** The capacity of every extent. Default: the size of the first, rounded up to whole tiles. */
  readonly tokensCapacity?: number;
  /** Runs the fibres of a block from last to first. */
  readonly backwards?: boolean;
  readonly multiprocessors?: number;
  /** Breaks the text of every kernel, and of its headers but lib/ (openUnit), in a way that must be noticed. */
  readonly mutate?: (source: string) => string;
}

export interface Emulated {
  /** Dense values of every buffer, as doubles. */
  readonly values: ReadonlyMap<string, Float64Array>;
  readonly emitted: readonly CudaKernelText[];
}

/** The same values by other codes: every zero point is as far from 8 as the codes of its group allow. */
function withOtherZeros(matrix: Grouped, group: GroupSize): Grouped {
  const [codes, zeros] = [matrix.codes.slice(), matrix.zeros.slice()];
  zeros.forEach((zero, i) => {
    const own = codes.subarray(i * group, (i + 1) * group);
    const by = i % 2 === 0 ? 15 - Math.max(...own) : -Math.min(...own);
    own.forEach((code, at) => (own[at] = code + by));
    zeros[i] = Math.max(0, Math.min(15, zero + by));
    if (zeros[i] !== zero + by) throw new Error('a zero point outside its range');
  });
  return { ...matrix, codes, zeros };
}

/** A weight's bytes as ir/packing.ts describes them. */
export function packForGpu(decl: WeightDecl, logical: Float64Array): Buffer {
  const { format, group, k } = decl;
  const order = physicalToLogical(decl);
  if (group !== undefined) {
    const words = packGroups(withOtherZeros(roundToGroups(logical, group), group), order, k, group);
    const bytes = aligned(words.byteLength, 0);
    bytes.set(new Uint8Array(words.buffer));
    return bytes;
  }
  if (format === 'mxfp4') {
    const bytes = packMicroscaled(logical, order, k, decl.experts);
    const memory = aligned(bytes.length, 0);
    memory.set(bytes);
    return memory;
  }
  if (decl.layout !== 'kmajor' || format === 'u4' || isBlockFormat(format)) return packWeight(decl, logical);
  const bytes = aligned(packedBytes(decl, order.length), 0);
  const stride = packedDepth(decl);
  order.forEach((from, p) => {
    if (from >= 0) for (let k = 0; k < decl.k; k++) put(bytes, p * stride + k, format, logical[from * decl.k + k]!);
  });
  return bytes;
}

/** The same of a weight with slots, whose matrices follow one another. */
export function packSlots(decl: WeightDecl, given: Float64Array | undefined): Buffer {
  const { slots, ...one } = decl;
  const count = slots?.count ?? 1;
  const elements = sourceRows(decl) * decl.k;
  const logical = given ?? new Float64Array(count * elements);
  if (logical.length !== count * elements) throw new Error(`${decl.name} has ${logical.length} elements`);
  const packed = Array.from({ length: count }, (_, slot) =>
    packForGpu(one, logical.subarray(slot * elements, (slot + 1) * elements)),
  );
  const bytes = aligned(
    packed.reduce((sum, { length }) => sum + length, 0),
    0,
  );
  packed.reduce((at, each) => at + (bytes.set(each, at), each.length), 0);
  return bytes;
}

/** Remembers of each object what was computed of it. */
export function remembered<Of extends object, Value>(compute: (of: Of) => Value): (of: Of) => Value {
  const known = new WeakMap<Of, Value>();
  return (of) => {
    const value = known.get(of) ?? compute(of);
    known.set(of, value);
    return value;
  };
}

export function blocksOf(extent: GridExtent, sizes: Extents, multiprocessors: number, cluster = 1): number {
  if (extent.kind === 'constant') return extent.count;
  const tiles = Math.ceil(extentIn(extent.extent, sizes) / extent.per) * extent.times;
  if (extent.kind === 'tiles') return tiles;
  const clusters = Math.floor(Math.min(tiles, multiprocessors * extent.blocksPerMultiprocessor) / cluster);
  return Math.max(1, clusters) * cluster;
}

/**
 * Runs one of a library's kernels on the memory of its parameters, which it changes. Throws if its threads wait for
 * ever.
 */
export type Emulator = (
  text: CudaKernelText,
  memory: ReadonlyMap<string, Buffer>,
  sizes: Extents,
  options?: Pick<EmulateOptions, 'backwards' | 'multiprocessors'>,
) => void;

/** Compiles kernels, each once in a test file. */
export function loadEmulator(kernels: readonly CudaKernelText[]): Emulator {
  const run = compile(kernels);
  return (text, memory, sizes, options = {}) => {
    const { launch, parameters, symbol } = text;
    const [table, sizesTable] = [Buffer.alloc(parameters.length * 8), Buffer.alloc(parameters.length * 8)];
    parameters.forEach((name, at) => {
      table.writeBigUInt64LE(koffi.address(memory.get(name)!), at * 8);
      sizesTable.writeBigUInt64LE(BigInt(memory.get(name)!.length), at * 8);
    });
    const multiprocessors = options.multiprocessors ?? 3 * launch.cluster;
    const x = blocksOf(launch.gridX, sizes, multiprocessors, launch.cluster);
    const y = blocksOf(launch.gridY, sizes, multiprocessors);
    if (
      run(text)(
        table,
        sizesTable,
        Int32Array.from(extentsOf(text), (name) => extentIn(name, sizes)),
        x,
        y,
        launch.threads,
        launch.cluster,
        options.backwards === true ? 1 : 0,
      ) === 0
    ) {
      throw new Error(`${symbol}: threads wait for each other for ever, at a barrier that not all of them reach.`);
    }
  };
}

/** A module's kernels, the memory that they run on, and the values in it afterwards. */
export interface Arranged {
  readonly emitted: readonly CudaKernelText[];
  readonly memory: ReadonlyMap<string, Buffer>;
  /** Room for this many of the first extent. */
  readonly capacity: number;
  /** Dense values of every buffer, as doubles. Throws if a kernel wrote outside its buffers. */
  readonly values: () => ReadonlyMap<string, Float64Array>;
}

/** Memory that nothing has written holds NaN. */
export function arrangeModule(module: KernelModule, options: EmulateOptions): Arranged {
  const { sizes } = options;
  const leading = extentIn(module.interface.extents[0]!.name, sizes);
  const capacity = everyExtent(module.interface, options.tokensCapacity ?? roundUp(Math.max(64, leading), 64));
  /** Rows, columns and stride of a buffer, and the place of an element in order of rows. */
  const shape = (decl: BufferDecl): { rows: number; columns: number; stride: number; at: (i: number) => number } => {
    const [rows, columns] = [extentIn(decl.rows, sizes), extentIn(decl.columns, sizes)];
    const stride = rowStride(decl, capacity, DTYPE_BYTES[decl.dtype]);
    return { rows, columns, stride, at: (i) => elementAt(decl, stride, Math.floor(i / columns), i % columns) };
  };
  const memory = new Map<string, Buffer>();
  for (const decl of module.buffers) {
    const { rows, stride, at } = shape(decl);
    const bytes = aligned(
      (decl.space === 'weight' ? rows : roundUp(Math.max(rows, 1), ROW_PAD)) * stride * DTYPE_BYTES[decl.dtype],
      GUARD,
    );
    const given = options.inputs.get(decl.name);
    given?.forEach((value, i) => {
      put(bytes, at(i), decl.dtype, value);
    });
    memory.set(decl.name, bytes);
  }
  const constants = (module.constants ?? []).map(
    ({ name, values }) => [name, { rows: values.length, columns: 1, data: Float64Array.from(values) }] as const,
  );
  const tensors = new Map([...(options.tensors ?? []), ...constants]);
  for (const decl of module.weights) {
    const packed =
      options.packed?.get(decl.name) ??
      (decl.slots === undefined
        ? packForGpu(decl, logicalWeight(decl, tensors, true))
        : packSlots(decl, options.slots?.get(decl.name)));
    options.packed?.set(decl.name, packed);
    memory.set(decl.name, packed);
  }
  const emitted = module.kernels.map((kernel, i) => {
    const text = emitCudaKernel(kernel, module, options.schedules[i]!, capacity);
    const { mutate } = options;
    if (mutate === undefined) return text;
    const intact = openUnit(text.source);
    const source = mutate(intact);
    if (source === intact) throw new Error('the mutation changed nothing');
    return { ...text, source };
  });
  const read = (): ReadonlyMap<string, Float64Array> => new Map(module.buffers.map((decl) => [decl.name, dense(decl)]));
  const dense = (decl: BufferDecl): Float64Array => {
    const { rows, columns, stride, at } = shape(decl);
    const bytes = memory.get(decl.name)!;
    const values = Float64Array.from({ length: rows * columns }, (_, i) => take(bytes, at(i), decl.dtype));
    const size = DTYPE_BYTES[decl.dtype];
    // In a block that is not full, rows that are there lie among those that are not.
    const used = decl.isBlocked === true ? roundUp(rows, ROW_PAD) : rows;
    for (let row = 0; row * stride * size < bytes.length; row++) {
      const from = row < used ? columns : 0;
      if (bytes.subarray((row * stride + from) * size, (row + 1) * stride * size).some((byte) => byte !== GUARD)) {
        throw new Error(
          `row ${row} of ${decl.name} was written from column ${from} on, outside its [${rows}, ${columns}]`,
        );
      }
    }
    return values;
  };
  return { emitted, memory, capacity: extentIn(module.interface.extents[0]!.name, capacity), values: read };
}

/** Runs every kernel of `module` in order. Throws if a kernel writes outside its buffers. */
export function emulateModule(module: KernelModule, options: EmulateOptions): Emulated {
  const { emitted, memory, values } = arrangeModule(module, options);
  const run = loadEmulator(emitted);
  for (const text of emitted) run(text, memory, options.sizes, options);
  return { values: values(), emitted };
}
