/** Compiles generated kernels with the system compiler and runs them beside the float64 interpreter. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LibraryHandle } from 'koffi';
import {
  compilerFlags,
  emitKernel,
  type EmittedKernel,
  emitTranslationUnit,
  includeFlags,
} from '../../codegen/cpu/index.js';
import { extentIn, type Extents } from '../../ir/extents.js';
import { everyExtent, extentNames } from '../../ir/function.js';
import type { BufferDecl, KernelModule, WeightDecl } from '../../ir/kernel.js';
import { logicalWeight, type RawTensor } from '../../ir/kernelInterpreter.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { type CpuIsa, type CpuSchedule, ROW_PAD, rowStride } from '../../ir/plan.js';
import { roundToF16, roundToI8 } from '../../ir/round.js';
import { roundToBf16 } from '../../ir/scalar.js';
import { FORMATS, isBlockFormat } from '../../ir/storage.js';
import { type BufferDType, DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { loadKoffi } from '../../runtime/cuda/loadKoffi.js';
import { quickCc, runFolder } from '../support/runFolder.js';

const koffi = loadKoffi();

const FLAGS = readFileSync('/proc/cpuinfo', 'utf8');
const hasFlags = (...names: string[]): boolean => names.every((name) => new RegExp(`\\b${name}\\b`).test(FLAGS));

/** Instruction sets that can run here; amx by emulation if the machine has no tiles. */
export const RUNNABLE: readonly CpuIsa[] = [
  'portable',
  ...(hasFlags('avx2', 'fma', 'f16c') ? ['avx2' as const] : []),
  ...(hasFlags('avx512f', 'avx512bw', 'avx512dq', 'avx512vl') ? ['avx512' as const, 'amx' as const] : []),
];

const DRIVER = `
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
typedef struct { tw_kernel kernel; const tw_launch *launch; int32_t worker, workers; } tw_test_job;
static void *tw_test_thread(void *p) { tw_test_job *j = p; j->kernel(j->launch, j->worker, j->workers); return 0; }
#if defined(__AMX_TILE__)
/* Linux lets a process use tiles once it has asked: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
extern long syscall(long number, ...);
static void tw_test_ask(void) { syscall(158, 0x1023l, 18l); }
#else
static void tw_test_ask(void) {}
#endif
double tw_test_run(tw_kernel kernel, void *const *buffers, const int64_t *extents, int32_t count, int64_t scratch,
                   int32_t workers) {
  int64_t next[TW_COUNTERS] = { 0 };
  tw_launch launch = { .buffers = buffers, .scratch_bytes = scratch, .next = next };
  memcpy(launch.extents, extents, (size_t)count * sizeof *extents);
  if (scratch > 0) {
    launch.scratch = aligned_alloc(4096, (size_t)(scratch * workers));
    /* NaN in every type of floats, and large as a whole number. */
    for (int64_t i = 0; i < scratch * workers / 4; i++) ((int32_t *)launch.scratch)[i] = 0x7fc07fc0;
  }
  tw_test_ask();
  pthread_t threads[64];
  tw_test_job jobs[64];
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int w = 1; w < workers; w++) {
    jobs[w] = (tw_test_job){ kernel, &launch, w, workers };
    pthread_create(&threads[w], 0, tw_test_thread, &jobs[w]);
  }
  kernel(&launch, 0, workers);
  for (int w = 1; w < workers; w++) pthread_join(threads[w], 0);
  clock_gettime(CLOCK_MONOTONIC, &b);
  free(launch.scratch);
  return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
`;

/** Compiles C text to a shared object, each text once, and loads it. */
export function compile(source: string, flags: readonly string[]): LibraryHandle {
  const known = LIBRARIES.get(`${flags.join(' ')}\n${source}`);
  if (known !== undefined) return known;
  const dir = join(runFolder(), 'kernels');
  mkdirSync(dir, { recursive: true });
  const key = createHash('sha256').update(flags.join(' ')).update(source).digest('hex').slice(0, 24);
  const [c, so] = [join(dir, `${key}.c`), join(dir, `${key}-${process.pid}.so`)];
  writeFileSync(c, source);
  execFileSync(
    quickCc() ?? 'cc',
    [
      ...flags,
      ...includeFlags(),
      '-Wall',
      '-Wextra',
      '-Wno-unused-variable',
      '-Wno-unused-function',
      '-shared',
      '-fPIC',
      '-pthread',
      '-o',
      so,
      c,
      '-lm',
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const library = koffi.load(so);
  rmSync(so);
  LIBRARIES.set(`${flags.join(' ')}\n${source}`, library);
  return library;
}

const LIBRARIES = new Map<string, LibraryHandle>();

/** A Buffer whose first byte lies on a cache line. */
export function aligned(bytes: number, fill: number): Buffer {
  const whole = Buffer.alloc(bytes + 128, fill);
  const skip = Number((64n - (koffi.address(whole) % 64n)) % 64n);
  return whole.subarray(skip, skip + bytes);
}

const F32 = new Float32Array(1);
const U32 = new Uint32Array(F32.buffer);

function f16Bits(value: number): number {
  const v = Math.abs(roundToF16(value));
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  if (Number.isNaN(value)) return 0x7e00;
  if (v === Infinity) return sign | 0x7c00;
  if (v < 2 ** -14) return sign | (v * 2 ** 24);
  const e = Math.floor(Math.log2(v));
  return sign | ((e + 15) << 10) | ((v / 2 ** e - 1) * 1024);
}

export function put(memory: Buffer, index: number, dtype: BufferDType, value: number): void {
  switch (dtype) {
    case 'f32':
      memory.writeFloatLE(value, index * 4);
      break;
    case 'bf16':
      F32[0] = roundToBf16(value);
      memory.writeUInt16LE(U32[0]! >>> 16, index * 2);
      break;
    case 'f16':
      memory.writeUInt16LE(f16Bits(value), index * 2);
      break;
    case 'i32':
      memory.writeInt32LE(value, index * 4);
      break;
    case 'bool':
      memory.writeUInt8(value === 0 ? 0 : 1, index);
      break;
    case 'e4m3':
      memory[index] = FORMATS.e4m3.encode(Float64Array.of(value))[0]!;
      break;
    case 'i8':
      memory.writeInt8(roundToI8(value), index);
      break;
    case 'u8':
      memory.writeUInt8(value, index);
      break;
    default:
      dtype satisfies never;
  }
}

export function take(memory: Buffer, index: number, dtype: BufferDType): number {
  switch (dtype) {
    case 'f32':
      return memory.readFloatLE(index * 4);
    case 'bf16':
      U32[0] = memory.readUInt16LE(index * 2) << 16;
      return F32[0]!;
    case 'f16': {
      const bits = memory.readUInt16LE(index * 2);
      const sign = bits & 0x8000 ? -1 : 1;
      const [e, f] = [(bits >> 10) & 31, bits & 1023];
      return e === 31
        ? f === 0
          ? sign * Infinity
          : NaN
        : sign * (e === 0 ? f * 2 ** -24 : (1 + f / 1024) * 2 ** (e - 15));
    }
    case 'i32':
      return memory.readInt32LE(index * 4);
    case 'e4m3':
      return FORMATS.e4m3.decode(memory.subarray(index, index + 1))[0]!;
    case 'i8':
      return memory.readInt8(index);
    case 'bool':
    case 'u8':
      return memory.readUInt8(index);
    default:
      return dtype satisfies never;
  }
}

/** The packed bytes of a weight, from its logical matrix [n, k]; those of slots follow one another. */
export function packWeight(decl: WeightDecl, logical: Float64Array): Buffer {
  const { slots, ...matrix } = decl;
  if (slots === undefined) return packMatrix(decl, logical);
  const own = logical.length / slots.count;
  const packed = Array.from({ length: slots.count }, (_, i) =>
    packMatrix(matrix, logical.subarray(i * own, (i + 1) * own)),
  );
  const memory = aligned(packed.length * packed[0]!.length, 0);
  packed.forEach((bytes, i) => memory.set(bytes, i * bytes.length));
  return memory;
}

function packMatrix(decl: WeightDecl, logical: Float64Array): Buffer {
  if (decl.format === 'u4' || decl.format === 'mxfp4') throw new Error('a format of GPUs');
  const { format } = decl;
  const order = physicalToLogical(decl);
  const memory = aligned(packedBytes(decl, order.length), 0);
  if (isBlockFormat(format)) throw new Error('blocks are packed by quadPanels');
  const bytes = DTYPE_BYTES[format];
  if (decl.layout === 'rows') {
    for (let i = 0; i < order.length * decl.k; i++) put(memory, i, format, logical[i]!);
    return memory;
  }
  const deep = roundUp(decl.k, 32);
  const width = format === 'f32' ? 16 : 32;
  for (let p = 0; p < order.length; p++) {
    if (order[p]! < 0) continue;
    for (let k = 0; k < decl.k; k++) {
      const at =
        decl.layout === 'panels'
          ? (Math.floor(p / width) * decl.k + k) * width + (p % width)
          : ((p >> 4) * (deep / 2) + (k >> 1)) * 32 + (p & 15) * 2 + (k & 1);
      put(memory.subarray(at * bytes), 0, format, logical[order[p]! * decl.k + k]!);
    }
  }
  return memory;
}

export interface RunOptions {
  readonly sizes: Extents;
  readonly inputs: ReadonlyMap<string, Float64Array>;
  readonly tensors?: ReadonlyMap<string, RawTensor>;
  readonly weights?: ReadonlyMap<string, Float64Array>;
  /** Weights that are packed already. */
  readonly packed?: ReadonlyMap<string, Uint8Array>;
  readonly schedules: readonly CpuSchedule[];
  /** The capacity of every extent. Default: the size of the first, at least 64. */
  readonly tokensCapacity?: number;
  readonly workers?: number;
  /**
   * Compiles with little optimization, in half the time: for cases beside one that is compiled with the product's own
   * flags.
   */
  readonly isQuick?: boolean;
  /** Without the features that the processor decides about. */
  readonly isPlain?: boolean;
}

export interface RunResult {
  /** Dense values of every buffer but those of declared weights, as doubles. */
  readonly values: ReadonlyMap<string, Float64Array>;
  /** Columns between the last one and the next multiple of 32 that are not zero, by buffer. */
  readonly dirtyPads: readonly string[];
  /** Buffers whose rows from the next multiple of ROW_PAD on were written. */
  readonly overruns: readonly string[];
  readonly emitted: readonly EmittedKernel[];
}

const GUARD = 0xa5;

/** Runs every kernel of `module` in order by generated code. Memory that nothing has written is filled with garbage. */
export function runGenerated(module: KernelModule, options: RunOptions): RunResult {
  const { sizes, workers = 1 } = options;
  const extents = extentNames(module.interface);
  const most = options.tokensCapacity ?? Math.max(64, extentIn(extents[0]!, sizes));
  const capacity = everyExtent(module.interface, most);
  const emitted = module.kernels.map((kernel, i) => emitKernel(kernel, module, options.schedules[i]!, capacity));
  const isas = [...new Set(options.schedules.map((schedule) => schedule.isa))];
  const isEmulated = isas.includes('amx') && !hasFlags('amx_bf16');
  const own = compilerFlags(isEmulated ? isas.map((isa) => (isa === 'amx' ? 'avx512' : isa)) : isas);
  const flags = [
    ...(options.isQuick === true ? own.map((flag) => (flag === '-O3' ? '-Og' : flag)) : own),
    ...(isEmulated ? ['-DTW_EMULATE_AMX'] : []),
    ...(options.isPlain === true ? ['-DTW_PLAIN_BYTES'] : []),
  ];
  const library = compile(emitTranslationUnit(emitted) + DRIVER, flags);
  const run = library.func(
    'double tw_test_run(void *kernel, void *buffers, void *extents, int32_t count, int64_t scratch, int32_t workers)',
  );
  const memory = new Map<string, Buffer>();
  const shape = (decl: BufferDecl): { rows: number; columns: number; stride: number; bytes: number } => {
    const bytes = DTYPE_BYTES[decl.dtype];
    return {
      rows: extentIn(decl.rows, sizes),
      columns: extentIn(decl.columns, sizes),
      stride: rowStride(decl, capacity, bytes),
      bytes,
    };
  };
  for (const decl of module.buffers) {
    const { rows, columns, stride, bytes } = shape(decl);
    const padded = decl.space === 'weight' ? rows : roundUp(rows, ROW_PAD);
    const data = aligned(padded * stride * bytes + 256, GUARD);
    const given = options.inputs.get(decl.name);
    if (given !== undefined) {
      for (let r = 0; r < rows; r++) {
        for (let c = 0; c < columns; c++) put(data, r * stride + c, decl.dtype, given[r * columns + c]!);
        // Kernels write zeros to the padding of their results, and so must whoever provides an input.
        if (columns > 1)
          for (let c = columns; c < Math.min(stride, roundUp(columns, 32)); c++)
            put(data, r * stride + c, decl.dtype, 0);
      }
    }
    memory.set(decl.name, data);
  }
  for (const decl of module.weights) {
    const packed = options.packed?.get(decl.name);
    if (packed !== undefined) {
      // A stream is fetched ahead of its end.
      const bytes = aligned(packed.length, 0);
      bytes.set(packed);
      memory.set(decl.name, bytes);
      continue;
    }
    const logical = options.weights?.get(decl.name) ?? logicalWeight(decl, options.tensors ?? new Map(), true);
    memory.set(decl.name, packWeight(decl, logical));
  }
  const launched = BigInt64Array.from(extents, (name) => BigInt(extentIn(name, sizes)));
  emitted.forEach((kernel) => {
    const table = Buffer.alloc(kernel.parameters.length * 8);
    kernel.parameters.forEach((name, i) => table.writeBigUInt64LE(koffi.address(memory.get(name)!), i * 8));
    const { symbol, scratchBytes } = kernel;
    run(library.symbol(symbol) as unknown, table, launched, extents.length, scratchBytes, workers);
  });
  const values = new Map<string, Float64Array>();
  const dirtyPads: string[] = [];
  const overruns: string[] = [];
  const declared = new Set(module.weights.map(({ name }) => name));
  for (const decl of module.buffers.filter(({ name }) => !declared.has(name))) {
    const { rows, columns, stride, bytes } = shape(decl);
    const data = memory.get(decl.name)!;
    const dense = new Float64Array(rows * columns);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) dense[r * columns + c] = take(data, r * stride + c, decl.dtype);
      const isParts = /^(parts|ssq)|_parts$/.test(decl.name); // Row sums and parts are read by count.
      if (columns > 1 && !isParts)
        for (let c = columns; c < roundUp(columns, 32); c++)
          if (take(data, r * stride + c, decl.dtype) !== 0) dirtyPads.push(decl.name);
    }
    values.set(decl.name, dense);
    const end = (decl.space === 'weight' ? rows : roundUp(rows, ROW_PAD)) * stride * bytes;
    if (data.subarray(end, end + 256).some((byte) => byte !== GUARD)) overruns.push(decl.name);
  }
  return { values, dirtyPads: [...new Set(dirtyPads)], overruns, emitted };
}

/** Deterministic numbers in [−1, 1), from which tests take their data. */
export function randomSource(seed: number): () => number {
  let state = (seed * 2654435761) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 31 - 1;
  };
}

export const randomArray = (random: () => number, length: number, scale = 1): Float64Array =>
  Float64Array.from({ length }, () => Math.fround(random() * scale));
