/**
 * Device code of the runtime itself: weights from the checkpoint's layout into the one that kernels read, and the
 * search for values that are not finite. One text, needing no header, compiled beside the plan's kernels.
 *
 * Every step is an integer operation or one IEEE operation, so that the values are those of runtime/native/pack.cc
 * bit for bit (a NaN stays a NaN; its payload may differ). Products are written in PTX where there is PTX: a compiler
 * flag that flushes denormal numbers must not reach them.
 */

import { FORMATS } from '../../ir/storage.js';
import { PACK_CODES, PACK_CODES_SOURCE, PACK_ENCODED_SOURCE } from './packCodeKernels.js';

/** Name of the text among kernels that are compiled and kept. */
export const PACK_SYMBOL = 'tw_pack';

export const PACK_GROUPS = 'tw_pack_groups';
export const PACK_MICROSCALED = 'tw_pack_microscaled';
/**
 * The kernels of the text. They take pointers, first of all to a job; the search also takes rows and columns before
 * them.
 */
export const PACK_ENTRIES = {
  rows: 'tw_pack_rows',
  find: 'tw_pack_find',
  groups: PACK_GROUPS,
  microscaled: PACK_MICROSCALED,
  codes: PACK_CODES,
} as const;

/** Threads of a block of each kernel. */
export const PACK_THREADS = 256;

/** Of rounded matrices, what a job writes. */
export const PARTS = { codes: 1, scales: 2 } as const;

const NUMBERS_SOURCE = String.raw`// Weights into the layout of kernels; the search for values that are not finite.
// Jobs: see packJob.ts.

/** Storage formats by the code that jobs give them. */
enum tw_format {
  TW_F32 = ${FORMATS.f32.code},
  TW_F16 = ${FORMATS.f16.code},
  TW_BF16 = ${FORMATS.bf16.code},
  TW_E4M3 = ${FORMATS.e4m3.code},
};

/** What tw_pack_codes writes: bits. */
enum tw_part { TW_CODES = ${PARTS.codes}, TW_SCALES = ${PARTS.scales} };

/** A range of rows of one source of a weight. */
struct tw_pack_job {
  unsigned long long start;    // random: hash of the seed
  unsigned long long first;    // flat index, in the source, of the range's first element
  int rows;                    // of the range
  int row;                     // its first row among the stacked sources
  int k;
  int stride;                  // elements from row to row of the weight; columns from k on are zero
  int kind;                    // 0 stored, 1 random, 2 constant, 3 encoded: a tw_encoded follows the job
  int sourceFormat;
  int targetFormat;
  int pairing;                 // 0 none, 1 rotate, 2 interleave
  int width;                   // lanes of a pairing
  int span;                    // rotate: rows of a head; interleave: rows of each source
  float factor;                // random: deviation times sqrt(3) / 65536; constant: the value
  int isScaled;
  int headDim;                 // rows are read by heads of so many elements in another order; 0: as they are
  int rotated;                 // elements of a head that are turned
  int interleaved;             // whether neighbours are pairs
  float added;                 // to every value
  int column;                  // the first column of the range
  int end;                     // behind its last column, or behind the padding of a row
  int rowStride;               // stored: elements from row to row
  int columnStride;            // and from column to column
  int part;                    // of tw_pack_codes: tw_part
  int sourceRow;               // of tw_pack_codes: the source's first row among the stacked sources
  int kept;                    // of tw_pack_codes: elements of a row for which there is shared memory
};

/** The first columns of the first rows of a buffer. */
struct tw_find_job {
  long long stride;
  int format;                  // the one with the buffer's element type
  int allowsNegativeInfinity;
  int index;                   // into found
};

static __device__ __forceinline__ float tw_product(float a, float b) {
#ifdef __CUDA_ARCH__
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
#else
  return a * b;
#endif
}

static __device__ __forceinline__ unsigned long long tw_mix(unsigned long long z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/** Round to nearest, ties to even; a NaN stays one (its top mantissa bit is set, so that truncation cannot lose it). */
static __device__ __forceinline__ unsigned tw_to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded;
}

/** Round to nearest, ties to even; NaN stays NaN, what is too large becomes infinite. */
static __device__ __forceinline__ unsigned tw_to_f16(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned sign = (bits >> 16) & 0x8000u;
  const unsigned magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16
  if (magnitude < 0x38800000u) {
    // Below 2^-14 one unit is 2^-24: shift the mantissa, its leading bit written out, and round what falls off.
    const unsigned exponent = magnitude >> 23;
    if (exponent < 102u) return sign;  // below 2^-25, half of the smallest half
    const unsigned mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const unsigned shift = 126u - exponent;
    const unsigned kept = mantissa >> shift;
    const unsigned rest = mantissa & ((1u << shift) - 1u);
    const unsigned half = 1u << (shift - 1u);
    return sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u));
  }
  const unsigned rebased = magnitude - 0x38000000u;
  return sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13);
}

static __device__ __forceinline__ float tw_from_f16(unsigned half) {
  const unsigned sign = (half & 0x8000u) << 16;
  const unsigned magnitude = half & 0x7fffu;
  const unsigned normal = (magnitude << 13) + (112u << 23);  // from bias 15 to bias 127
  const unsigned special = (magnitude << 13) | 0x7f800000u;
  const unsigned subnormal = __float_as_uint(tw_product((float)(int)magnitude, 5.9604644775390625e-8f));  // 2^-24
  return __uint_as_float(sign | (magnitude >= 0x7c00u ? special : magnitude < 0x0400u ? subnormal : normal));
}

static __device__ __forceinline__ float tw_quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  float quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#else
  return a / b;
#endif
}

/** Round to nearest, ties to even, what is larger than 448 to 448; NaN stays NaN. */
static __device__ __forceinline__ unsigned tw_to_e4m3(float value) {
  const unsigned bits = __float_as_uint(value), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;
  // The last bit of 2^14 + |x| weighs 2^-9, the quantum of subnormals.
  if (magnitude < 0x3c800000u) return sign | (__float_as_uint(__uint_as_float(magnitude) + 16384.0f) - 0x46800000u);
  return sign | ((magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20);
}

/** Bits of the stored element nearest to value, and the value of such bits. */
static __device__ __forceinline__ unsigned tw_encode(float value, int format) {
  if (format == TW_E4M3) return tw_to_e4m3(value);
  return format == TW_F32 ? __float_as_uint(value) : format == TW_F16 ? tw_to_f16(value) : tw_to_bf16(value);
}

static __device__ __forceinline__ float tw_decode(unsigned bits, int format) {
  return format == TW_F32 ? __uint_as_float(bits) : format == TW_F16 ? tw_from_f16(bits) : __uint_as_float(bits << 16);
}

static __device__ __forceinline__ unsigned tw_load(const void *data, long long index, int format) {
  return format == TW_F32 ? ((const unsigned *)data)[index] : ((const unsigned short *)data)[index];
}

static __device__ __forceinline__ void tw_store(void *data, long long index, unsigned bits, int format) {
  if (format == TW_F32) ((unsigned *)data)[index] = bits;
  else if (format == TW_E4M3) ((unsigned char *)data)[index] = (unsigned char)bits;
  else ((unsigned short *)data)[index] = (unsigned short)bits;
}

static __device__ __forceinline__ float tw_round(float value, int format) {
  return format == TW_F32 ? value : tw_decode(tw_encode(value, format), format);
}

/** Nearly normal: the sum of four uniform 16-bit parts of a hash of (seed, index), at most 3.46 deviations from 0. */
static __device__ __forceinline__ float tw_random(unsigned long long start, unsigned long long index, float factor) {
  const unsigned long long h = tw_mix(start + index * 0x9e3779b97f4a7c15ull);
  const int sum = (int)((h & 0xffffu) + ((h >> 16) & 0xffffu) + ((h >> 32) & 0xffffu) + (h >> 48));
  return tw_product((float)(sum - 131070), factor);
}

/** The row that a stored row is in the order of ir/rotaryOrder: the inverse of storedRow. */
static __device__ __forceinline__ int tw_ordered(int row, int headDim, int rotated, int interleaved) {
  if (headDim == 0) return row;
  const int at = row % headDim, half = headDim / 2, turned = rotated / 2;
  int pair, second;
  if (at >= rotated) {
    second = at - rotated >= half - turned ? 1 : 0;
    pair = at - rotated - second * (half - turned) + turned;
  } else {
    second = interleaved ? at % 2 : at >= turned ? 1 : 0;
    pair = interleaved ? at / 2 : at - second * turned;
  }
  return row - at + second * half + pair;
}

/** Where a row of the stacked sources lies in the weight: the inverse of physicalToLogical (ir/packing.ts). */
static __device__ __forceinline__ long long tw_physical(int row, int pairing, int width, int span) {
  if (pairing == 0) return row;
  // rotate: both halves of a head; interleave: both sources. Lanes of the second follow those of the first.
  const int group = pairing == 1 ? row / span * span : 0;
  const int within = row - group;
  const int part = pairing == 1 ? span / 2 : span;
  const int second = within >= part ? 1 : 0;
  const int lane = within - second * part;
  return (long long)group + (long long)(lane / width) * 2 * width + second * width + lane % width;
}
`;

const VALUES_SOURCE = String.raw`
/** An element of the range before it is rounded to the weight's format, at column job.column + at. */
static __device__ __forceinline__ float tw_value(const tw_pack_job &job, const void *jobs, const void *source,
                                                 const void *scale, int row, int at) {
  const int column = job.column + at;
  if (column >= job.k) return 0.0f;
  const long long index = (long long)row * job.k + column;
  const long long place = (long long)row * job.rowStride + (long long)at * job.columnStride;
  float value;
  if (job.kind == 0) value = tw_decode(tw_load(source, place, job.sourceFormat), job.sourceFormat);
  else if (job.kind == 3) value = tw_decoded(tw_encoded_of(jobs), source, row, column);
  else if (job.kind == 1) value = tw_round(tw_random(job.start, job.first + index, job.factor), job.sourceFormat);
  else value = tw_round(job.factor, job.sourceFormat);
  if (job.added != 0.0f) value += job.added;
  if (job.isScaled != 0) value = tw_product(value, ((const float *)scale)[column]);
  return value;
}

/** source: the elements of the range, aligned, read where kind is 0 or 3. scale: k factors, read where isScaled. */
extern "C" __global__ void tw_pack_rows(const void *jobs, const void *source, void *weight, const void *scale) {
  const tw_pack_job job = *(const tw_pack_job *)jobs;
  for (int row = blockIdx.y; row < job.rows; row += gridDim.y) {
    const int logical = tw_ordered(job.row + row, job.headDim, job.rotated, job.interleaved);
    const long long target = tw_physical(logical, job.pairing, job.width, job.span) * job.stride;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < job.end - job.column; at += gridDim.x * blockDim.x) {
      const float value = tw_value(job, jobs, source, scale, row, at);
      tw_store(weight, target + job.column + at, tw_encode(value, job.targetFormat), job.targetFormat);
    }
  }
}

/** found[job.index] = min(found[job.index], row * columns + column) over all bad elements. */
extern "C" __global__ void tw_pack_find(int rows, int columns, const void *jobs, const void *data, void *found) {
  const tw_find_job job = *(const tw_find_job *)jobs;
  const unsigned exponent = job.format == TW_F32 ? 0x7f800000u : job.format == TW_F16 ? 0x7c00u : 0x7f80u;
  const unsigned negativeInfinity = exponent | (job.format == TW_F32 ? 0x80000000u : 0x8000u);
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    for (int column = blockIdx.x * blockDim.x + threadIdx.x; column < columns; column += gridDim.x * blockDim.x) {
      const long long index = (long long)row * job.stride + column;
      const unsigned bits = tw_load(data, index, job.format);
      const bool isAllowed = job.allowsNegativeInfinity != 0 && bits == negativeInfinity;
      const bool isBad = (bits & exponent) == exponent && !isAllowed;
      if (isBad) atomicMin((unsigned long long *)found + job.index, (unsigned long long)row * columns + column);
    }
  }
}
`;

/** Comes after the functions and jobs that it uses. */
const PACK_GROUPS_SOURCE = String.raw`
/**
 * Weights in groups: the codes of a range of rows, or with isScaled the words of their scales. stride: columns of a
 * group. end: rows of the weight. source: codes as f32, or the words; or what is encoded. Made-up codes are uniform,
 * around 8.
 */
extern "C" __global__ void tw_pack_groups(const void *jobs, const void *source, void *weight, const void *) {
  const tw_pack_job job = *(const tw_pack_job *)jobs;
  const int inBlock = 128 / job.stride, words = 128 + 8 * inBlock;
  const int count = job.isScaled != 0 ? job.k / job.stride : job.k / 8;
  const unsigned made = (tw_to_bf16(tw_product(job.factor, 8192.0f)) << 16) | 8u;
  for (int row = blockIdx.y; row < job.rows; row += gridDim.y) {
    const int logical = tw_ordered(job.row + row, job.headDim, job.rotated, job.interleaved);
    const long long physical = tw_physical(logical, job.pairing, job.width, job.span);
    unsigned *const blocks = (unsigned *)weight + physical / 8 * words;
    const long long next = (long long)(job.end / 8) * words;
    const int within = (int)(physical % 8);
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
      if (job.isScaled != 0) {
        const unsigned bits = job.kind == 0   ? ((const unsigned *)source)[(long long)row * count + at]
                              : job.kind == 3 ? tw_scale_word(tw_encoded_of(jobs), source, row, at)
                                              : made;
        blocks[at / inBlock * next + 128 + within * inBlock + at % inBlock] = bits;
        continue;
      }
      const int first = at / 16 * 128 + at % 4 * 32 + at % 16 / 4 * 2;
      unsigned bits = 0;
      for (int i = 0; i < 8; i++) {
        const long long index = (long long)row * job.k + first + i / 2 * 8 + i % 2;
        const unsigned code =
            job.kind == 0   ? (unsigned)(int)((const float *)source)[index]
            : job.kind == 3 ? (unsigned)(int)tw_decoded(tw_encoded_of(jobs), source, row, first + i / 2 * 8 + i % 2)
                            : (unsigned)(tw_mix(job.start + (job.first + index) * 0x9e3779b97f4a7c15ull) >> 60);
        bits |= code << (4 * (i / 2) + 16 * (i % 2));
      }
      blocks[at / 16 * next + within * 16 + at % 16] = bits;
    }
  }
}
`;

/** Comes after the functions and jobs that it uses. */
const PACK_MICROSCALED_SOURCE = String.raw`
/** The nearest code of E2M1; of two equally near ones the even one. */
static __device__ __forceinline__ unsigned tw_to_e2m1(float value) {
  const unsigned bits = __float_as_uint(value);
  const float magnitude = __uint_as_float(bits & 0x7fffffffu);
  return (bits >> 28 & 8u) | ((magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
                              (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f));
}

/**
 * Microscaled weights (ir/microscaled.ts): the codes and powers of a range of rows. end: rows of the weight. source,
 * scale: those of tw_pack_rows.
 */
extern "C" __global__ void tw_pack_microscaled(const void *jobs, const void *source, void *weight, const void *scale) {
  const tw_pack_job job = *(const tw_pack_job *)jobs;
  for (int row = blockIdx.y; row < job.rows; row += gridDim.y) {
    const int logical = tw_ordered(job.row + row, job.headDim, job.rotated, job.interleaved);
    const long long physical = tw_physical(logical, job.pairing, job.width, job.span);
    const int within = (int)(physical % 16), half = within / 8, lanes = within % 8 * 4;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < job.k / 32; at += gridDim.x * blockDim.x) {
      float own[32];
      unsigned most = 0;
      for (int i = 0; i < 32; i++) {
        own[i] = tw_value(job, jobs, source, scale, row, 32 * at + i);
        const unsigned magnitude = __float_as_uint(own[i]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
      }
      // A quarter of the largest magnitude's power of two. Values are divided in two steps: 2^128 is no float.
      const int exponent = most < 0x00800000u ? 1 : (int)(most >> 23);
      const bool isNumber = most < 0x41800000u;  // 16
      const float divisor = __uint_as_float((unsigned)(254 - exponent) << 23);
      unsigned char *const block = (unsigned char *)weight + (at / 2 * (long long)(job.end / 16) + physical / 16) * 544;
      for (int q = 0; q < 4; q++) {
        unsigned word = 0;
        for (int i = 0; i < 8; i++) {
          const float value = tw_product(tw_product(own[i / 2 * 8 + 2 * q + i % 2], divisor), 4.0f);
          const unsigned code = isNumber ? tw_to_e2m1(value) : 0u;
          const unsigned places = i / 2 == 0   ? (code & 7u) << 6 | (code & 8u) << 12
                                  : i / 2 == 1 ? (code & 7u) << 3 | (code & 8u) << 9
                                  : i / 2 == 2 ? (code & 7u) | (code & 8u) << 6
                                               : (code & 3u) << 10 | (code & 12u) << 11;
          word |= places << (16 * (i % 2));
        }
        ((unsigned *)block)[(lanes + q) * 4 + 2 * half + at % 2] = word;
      }
      const int power = !isNumber ? 255 : most == 0 ? 253 : exponent + 124;
      block[512 + lanes + 2 * half + at % 2] = (unsigned char)power;
    }
  }
}
`;

export const PACK_SOURCE =
  NUMBERS_SOURCE +
  PACK_ENCODED_SOURCE +
  VALUES_SOURCE +
  PACK_GROUPS_SOURCE +
  PACK_MICROSCALED_SOURCE +
  PACK_CODES_SOURCE;
