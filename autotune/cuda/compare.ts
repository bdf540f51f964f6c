/** Device code that compares a candidate's results with the reference's, and the tolerances it applies. */
import { FORMATS } from '../../ir/storage.js';
import type { LaunchShape } from '../../ir/cuda.js';
import type { BufferDecl, GemmKernel, Kernel, KernelModule } from '../../ir/kernel.js';
import { isFloat, type BufferDType } from '../../ir/types.js';

/**
 * Name of the compilation unit and its entry. Parameters: job, expected, actual, found; then, for tail bytes, the bf16
 * numbers they extend, expected and actual.
 */
export const COMPARE_SYMBOL = 'tw_compare';
const THREADS = 256;
const MAX_GRID_Y = 32_768;

export const COMPARE_SOURCE = String.raw`// Compares a candidate's results with the reference's. Jobs: see compare.ts.

/** Types: 0 f32, 1 f16, 2 bf16, 3 i32, 4 bytes that extend bf16 numbers, 5 e4m3. */
struct tw_compare_job {
  long long stride;
  int rows;
  int columns;
  int type;
  int part;         // columns of a part of the head's results, 4 or 8; 0: plain numbers
  float relative;
  float absolute;
  long long upperStride;   // stride of the bf16 numbers that the bytes extend
};

static __device__ __forceinline__ float tw_value(const void *data, long long index, int type) {
  if (type == 0) return ((const float *)data)[index];
  if (type == 5) {
    const unsigned code = ((const unsigned char *)data)[index], low = code & 0x7fu;
    const float small = (float)(int)low * 0.001953125f;
    const float number = low == 0x7fu ? __uint_as_float(0x7fc00000u)
                                      : low < 8u ? small : __uint_as_float((low << 20) + 0x3c000000u);
    return (code & 0x80u) != 0 ? -number : number;
  }
  const unsigned short bits = ((const unsigned short *)data)[index];
  if (type == 2) return __uint_as_float((unsigned)bits << 16);
  // The exponent's bias differs by 112; the multiplication also handles subnormal numbers.
  const unsigned magnitude = bits & 0x7fffu;
  const float value = magnitude >= 0x7c00u
    ? __uint_as_float(0x7f800000u | (magnitude << 13))
    : __uint_as_float(magnitude << 13) * 5.192296858534828e33f;
  return (bits & 0x8000u) != 0 ? -value : value;
}

static __device__ __forceinline__ float tw_joined(const void *tails, long long index, const void *uppers,
                                                  long long above) {
  const unsigned upper = (unsigned)((const unsigned short *)uppers)[above] << 16;
  return __uint_as_float(upper + (unsigned)(((const signed char *)tails)[index] * 256) + 128u);
}

/** found: number of elements that differ, the first of them (row * columns + column), number of indices that differ. */
extern "C" __global__ void tw_compare(const void *jobs, const void *expected, const void *actual, void *found,
                                      const void *expectedUpper, const void *actualUpper) {
  const tw_compare_job job = *(const tw_compare_job *)jobs;
  unsigned long long *answers = (unsigned long long *)found;
  for (int row = blockIdx.y; row < job.rows; row += gridDim.y) {
    for (int column = blockIdx.x * blockDim.x + threadIdx.x; column < job.columns; column += gridDim.x * blockDim.x) {
      const long long index = (long long)row * job.stride + column;
      bool isSame;
      if (job.type == 3) isSame = ((const int *)expected)[index] == ((const int *)actual)[index];
      else {
        const long long above = (long long)row * job.upperStride + column;
        const bool isJoined = job.type == 4;
        const int type = job.type;
        const float e = isJoined ? tw_joined(expected, index, expectedUpper, above) : tw_value(expected, index, type);
        const float a = isJoined ? tw_joined(actual, index, actualUpper, above) : tw_value(actual, index, type);
        if (job.part != 0) {
          // 2: the column of the maximum; 5: the token that is drawn; 6: its logit.
          const int at = column % job.part;
          if (at == 2 || at == 5) {
            if (e != a) atomicAdd(answers + 2, 1ull);
            continue;
          }
          if (at == 6 && tw_value(expected, index - 1, type) != tw_value(actual, index - 1, type)) continue;
        }
        // Equal infinities agree; a NaN never agrees.
        const bool isFinite = fabsf(e) < __uint_as_float(0x7f800000u);
        isSame = e == a || (isFinite && fabsf(a - e) <= job.absolute + job.relative * fabsf(e));
      }
      if (!isSame) {
        atomicAdd(answers, 1ull);
        atomicMin(answers + 1, (unsigned long long)row * job.columns + column);
      }
    }
  }
}
`;

/** Sizes in bytes of the job and of the answers. */
export const COMPARE_JOB_BYTES = 40;
export const COMPARE_FOUND_BYTES = 32;

const TYPES: Readonly<Record<Exclude<BufferDType, 'bool'>, number>> = {
  f32: 0,
  f16: 1,
  bf16: 2,
  i32: 3,
  u8: 4,
  e4m3: 5,
  i8: 6,
};

export interface Tolerance {
  readonly relative: number;
  /** In units of the values' root mean square. */
  readonly absolute: number;
}

/** Relative rounding error: half a unit in the last place. */
const ROUNDING = { f16: 2 ** -11, bf16: 2 ** -8, f32: 2 ** -24, e4m3: 2 ** -4 } as const;
/** Deviation, for values of unit scale, when products of 16-bit numbers are summed in f32 in another order. */
const SUMMED = 2 ** -10;
/**
 * The same of products of E4M3, for sums of root mean square σ. Tensor cores align a step of 32 along k, products and
 * the sum so far, to the largest of them, and cut off what is below 2⁻¹³ of its power of two. That takes at most
 * 2⁻¹³·|sum| from the sum, half of it on average and always towards zero, so the cuts of a sum that keeps its sign add
 * up. Sums that end near zero were within 4σ on the way: k/32 steps of 2⁻¹³·4σ/2 are k·2⁻¹⁷ σ. Of its own size a sum
 * that grows evenly loses at most k/32·2⁻¹³/4 = k·2⁻²⁰; twice that is allowed. 2⁻⁶ is for the cuts of the products
 * themselves. A stage of 128 that is left out changes sums by √(128/k) σ, and one in 400 by three times that: more than
 * is allowed as far as k = 22,000.
 */
const narrowSums = (k: number): Tolerance => ({ relative: 2 ** -6 + k * 2 ** -19, absolute: 2 ** -6 + k * 2 ** -17 });
/** Deviation of kernels that add the same f32 numbers in another order. */
const REORDERED = 2 ** -16;

/**
 * How far two correct kernels may differ in `buffer`: two roundings to its type; the order of additions where values
 * are summed over k; in attention, the rounding of probabilities to the operands' type, which the reference keeps in
 * f32.
 */
export function toleranceOf(kernel: Kernel, module: KernelModule, { dtype }: Pick<BufferDecl, 'dtype'>): Tolerance {
  const stored = isFloat(dtype) || dtype === 'e4m3' ? ROUNDING[dtype] : 0;
  const typeOf = (name: string): BufferDType | undefined => module.buffers.find((b) => b.name === name)?.dtype;
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob': {
      const summed = typeOf(kernel.a) === 'e4m3' ? narrowSums(kernel.k) : { relative: SUMMED, absolute: SUMMED };
      // An element made of several sums (gate and up, the pair of a rotation) has the deviations of all.
      const sums = kernel.anchor === 'gemm' && typeOf(kernel.a) === 'e4m3' ? sumsOf(kernel) : 1;
      return { relative: 4 * stored + sums * summed.relative, absolute: 2 * stored + sums * summed.absolute };
    }
    case 'attention': {
      const operand = typeOf(kernel.v);
      // Weights of codes are rounded to binary16.
      const weight = operand === 'e4m3' ? 'f16' : operand;
      const probability = weight === 'f16' || weight === 'bf16' ? ROUNDING[weight] : 0;
      return { relative: 4 * stored + 2 * probability, absolute: 4 * (stored + probability) };
    }
    case 'loop':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
    case 'shrink':
    case 'links':
      return { relative: 4 * stored + REORDERED, absolute: 2 * stored + REORDERED };
    case 'scan':
      return { relative: 64 * (stored + REORDERED), absolute: 64 * (stored + REORDERED) };
    default:
      return kernel satisfies never;
  }
}

/** Most products of which one element of a result is made. */
const sumsOf = ({ segments }: GemmKernel): number =>
  Math.max(...segments.map(({ pairing }) => (pairing.kind === 'none' ? 1 : 2)));

/** Number of indices of maxima that may differ: near ties are decided by the order of additions. */
export const tiesAllowed = (count: number): number => Math.max(4, Math.ceil(count / 200));

export interface CompareJob {
  readonly bytes: Uint8Array;
  readonly launch: LaunchShape;
}

export interface ComparedBuffer {
  readonly dtype: BufferDType;
  readonly rows: number;
  readonly columns: number;
  readonly stride: number;
  /** Stride of the bf16 numbers that the bytes extend. */
  readonly upperStride?: number;
  readonly tolerance: Tolerance;
  /** Root mean square of the reference's finite values; for tail bytes, of the bf16 numbers that they extend. */
  readonly scale: number;
  /** Columns of a part of the head's results (partWidth); 0: plain numbers. */
  readonly part: 0 | 4 | 8;
}

/** Throws for booleans, because no kernel writes them. */
export function compareJob({
  dtype,
  rows,
  columns,
  stride,
  upperStride = 0,
  tolerance,
  scale,
  part,
}: ComparedBuffer): CompareJob {
  if (dtype === 'bool') throw new Error('No kernel writes booleans.');
  const view = new DataView(new ArrayBuffer(COMPARE_JOB_BYTES));
  view.setBigInt64(0, BigInt(stride), true);
  [rows, columns, TYPES[dtype], part].forEach((value, i) => view.setInt32(8 + 4 * i, value, true));
  view.setFloat32(24, tolerance.relative, true);
  view.setFloat32(28, tolerance.absolute * scale, true);
  view.setBigInt64(32, BigInt(upperStride), true);
  return {
    bytes: new Uint8Array(view.buffer),
    launch: {
      threads: THREADS,
      sharedBytes: 0,
      cluster: 1,
      gridX: { kind: 'constant', count: Math.min(64, Math.ceil(columns / THREADS)) },
      gridY: { kind: 'constant', count: Math.min(Math.max(rows, 1), MAX_GRID_Y) },
    },
  };
}

/** Initial answers: no difference found. */
export const nothingFound = (): BigUint64Array => new BigUint64Array([0n, 2n ** 64n - 1n, 0n, 0n]);

/** Decodes 16-bit or 32-bit floats. */
function numbersOf(bytes: ArrayBuffer, dtype: 'f32' | 'f16' | 'bf16' | 'e4m3'): Float32Array {
  if (dtype === 'e4m3') return Float32Array.from(FORMATS.e4m3.decode(new Uint8Array(bytes)));
  if (dtype === 'f32') return new Float32Array(bytes);
  const halves = new Uint16Array(bytes);
  if (dtype === 'bf16') return new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
  return Float32Array.from(halves, (half) => {
    const exponent = (half >> 10) & 31,
      fraction = half & 1023;
    const magnitude =
      exponent === 31
        ? fraction === 0
          ? Infinity
          : NaN
        : exponent === 0
          ? fraction * 2 ** -24
          : (1 + fraction / 1024) * 2 ** (exponent - 15);
    return half >> 15 === 1 ? -magnitude : magnitude;
  });
}

/** Root mean square of a sample's finite values; 0 if none. Rows of `columns` elements, `stride` elements apart. */
export function scaleOf(bytes: ArrayBuffer, dtype: BufferDType, columns: number, stride: number): number {
  if (!isFloat(dtype) && dtype !== 'e4m3') return 0;
  let sum = 0,
    count = 0;
  numbersOf(bytes, dtype).forEach((value, i) => {
    if (i % stride >= columns || !Number.isFinite(value)) return;
    sum += value * value;
    count++;
  });
  return count === 0 ? 0 : Math.sqrt(sum / count);
}
