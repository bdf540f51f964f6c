/** Device code that rounds matrices to codes of E4M3, with a scale for each row, in one reading of their elements. */
import { ERROR_STEPS, SCALE_STEPS } from '../../ir/rounding.js';
import { LARGEST } from '../../ir/storage.js';

export const PACK_CODES = 'tw_pack_codes';

/** Threads of a block, which works on a whole row at a time. */
export const CODES_THREADS = 256;
/**
 * Most elements of a row that a block keeps in shared memory: three blocks fit a multiprocessor. Those past them are
 * read again.
 */
export const MAX_KEPT = 16384;

const STEPS = SCALE_STEPS.length;
const STEP_TEXTS = SCALE_STEPS.map((step) => `${step.toExponential()}f`).join(', ');

/** Comes after the text of packKernels.ts, whose functions and jobs it uses. */
export const PACK_CODES_SOURCE = String.raw`
#ifdef __CUDA_ARCH__
/** The first job.kept elements of the block's row. */
extern __shared__ float tw_kept[];

static __device__ __forceinline__ float tw_fma(float a, float b, float c) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}

static __device__ __forceinline__ unsigned tw_largest_of_warp(unsigned own) {
  unsigned largest;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(own));
  return largest;
}

/** Exact below 2^54. */
static __device__ __forceinline__ unsigned long long tw_sum_of_warp(unsigned long long own) {
  unsigned low, high;
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(low) : "r"((unsigned)own & 0x7ffffffu));
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(high) : "r"((unsigned)(own >> 27)));
  return low + ((unsigned long long)high << 27);
}
#else
static inline float tw_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#endif

static __device__ const float tw_steps[${STEPS}] = { ${STEP_TEXTS} };

/** Element at of a row. */
static __device__ __forceinline__ float tw_element(const tw_pack_job &job, const void *jobs, const void *source,
                                                   const void *scale, int row, int at) {
#ifdef __CUDA_ARCH__
  if (at < job.kept) return tw_kept[at];
#endif
  return tw_value(job, jobs, source, scale, row, at);
}

/**
 * Numbers by which many are divided, with their reciprocals in two parts. A quotient from them is the one that IEEE
 * demands (Markstein's theorem: one correction with a reciprocal that is rounded right, of a quotient that is off by
 * less than a unit in its last place) where nothing underflows: for divisors from 2^-60 to 2^60, quotients from 2^-12.
 */
struct tw_divisor {
  float value, reciprocal, rest;
};

static __device__ __forceinline__ tw_divisor tw_divisor_of(float value) {
  const float reciprocal = tw_quotient(1.0f, value);
  return {value, reciprocal, tw_product(tw_fma(-value, reciprocal, 1.0f), reciprocal)};
}

static __device__ __forceinline__ float tw_divided(float a, const tw_divisor &by) {
  const float near = tw_fma(a, by.reciprocal, tw_product(a, by.rest));
  return tw_fma(tw_fma(-near, by.value, a), by.reciprocal, near);
}

/** The distance of a code from 0 to 448 from the nearest that E4M3 has, in whole units of 1 / ${ERROR_STEPS}. */
static __device__ __forceinline__ unsigned tw_error_of(float code) {
  // The last bit of this power of two plus the code is worth the quantum of E4M3 there.
  const unsigned exponent = __float_as_uint(code) & 0x7f800000u;
  const float power = __uint_as_float(exponent > 0x3c800000u ? exponent : 0x3c800000u);
  const float sum = tw_fma(power, 1048576.0f, code);
  const float nearest = tw_fma(power, -1048576.0f, sum);
  const float error = code - nearest;
#ifdef __CUDA_ARCH__
  // 2^23 and a number below it, cut off to an integer.
  float whole;
  asm("fma.rz.f32 %0, %1, %2, %3;" : "=f"(whole) : "f"(__uint_as_float(__float_as_uint(error) & 0x7fffffffu)),
      "f"(${ERROR_STEPS}.0f), "f"(8388608.0f));
  return __float_as_uint(whole) & 0x7fffffu;
#else
  const int whole = (int)(error * ${ERROR_STEPS}.0f);
  return (unsigned)(whole < 0 ? -whole : whole);
#endif
}

/**
 * Sums of squares of errors of the elements that the thread takes, for each candidate of a scale. Where candidates are
 * no divisors for tw_divided, both sides of the quotients are multiplied by a power of two: the quotients stay.
 */
static __device__ __forceinline__ void tw_add_errors(const tw_pack_job &job, const void *jobs, const void *source,
                                                     const void *scale, int row, int from, int step, float least,
                                                     unsigned long long *errors) {
  // Below 2^-59 by 2^96, above 2^59 by 2^-96.
  const float factor = least < 1.7347234759768071e-18f  ? 7.922816251426434e28f
                       : least > 5.764607523034235e17f ? 1.262177448353619e-29f
                                                        : 1.0f;
  tw_divisor by[${STEPS}];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < ${STEPS}; i++) by[i] = tw_divisor_of(tw_product(tw_product(least, tw_steps[i]), factor));
  for (int at = from; at < job.k; at += step) {
    const float value = tw_product(tw_element(job, jobs, source, scale, row, at), factor);
    const float magnitude = __uint_as_float(__float_as_uint(value) & 0x7fffffffu);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < ${STEPS}; i++) {
      const unsigned error = tw_error_of(tw_divided(magnitude, by[i]));
      errors[i] += (unsigned long long)error * error;
    }
  }
}

/**
 * Codes and scales of the rows of a range (ir/rounding.ts); job.part says which of them are written. Elements are read
 * once: a block keeps its row. source, scale: those of tw_pack_rows. scales: f32, by rows of the source in the order of
 * ir/rotaryOrder.
 */
extern "C" __global__ void __launch_bounds__(${CODES_THREADS}, 2)
    tw_pack_codes(const void *jobs, const void *source, void *codes, const void *scale, void *scales) {
  const tw_pack_job job = *(const tw_pack_job *)jobs;
#ifdef __CUDA_ARCH__
  __shared__ unsigned largest[${CODES_THREADS / 32}];
  __shared__ unsigned long long sums[${CODES_THREADS / 32}][${STEPS}];
  __shared__ double costs[${STEPS}];
  const int from = threadIdx.x, step = ${CODES_THREADS}, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#else
  const int from = 0, step = 1;
  if (threadIdx.x != 0) return;
#endif
  for (int row = blockIdx.y; row < job.rows; row += gridDim.y) {
    // Magnitudes have the order of their bits; a NaN is the largest.
    unsigned most = 0;
    for (int at = from; at < job.k; at += step) {
      const float value = tw_value(job, jobs, source, scale, row, at);
#ifdef __CUDA_ARCH__
      if (at < job.kept) tw_kept[at] = value;
#endif
      const unsigned own = __float_as_uint(value) & 0x7fffffffu;
      most = own > most ? own : most;
    }
#ifdef __CUDA_ARCH__
    most = tw_largest_of_warp(most);
    if (lane == 0) largest[warp] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ${CODES_THREADS / 32}; i++) most = largest[i] > most ? largest[i] : most;
#endif
    const float least = tw_quotient(__uint_as_float(most), ${LARGEST.e4m3}.0f);
    float best = least == 0.0f ? 1.0f : least;
    if (least != 0.0f && most < 0x7f800000u) {
      unsigned long long errors[${STEPS}] = {};
      tw_add_errors(job, jobs, source, scale, row, from, step, least, errors);
      double bestCost = 0.0;
#ifdef __CUDA_ARCH__
#pragma unroll
      for (int i = 0; i < ${STEPS}; i++) {
        const unsigned long long sum = tw_sum_of_warp(errors[i]);
        if (lane == 0) sums[warp][i] = sum;
      }
      __syncthreads();
      if (threadIdx.x < ${STEPS}) {
        unsigned long long sum = 0;
        for (int i = 0; i < ${CODES_THREADS / 32}; i++) sum += sums[i][threadIdx.x];
        const double each = (double)tw_product(least, tw_steps[threadIdx.x]);
        costs[threadIdx.x] = (double)sum * (each * each);
      }
      __syncthreads();
#endif
      for (int i = 0; i < ${STEPS}; i++) {
        const float each = tw_product(least, tw_steps[i]);
#ifdef __CUDA_ARCH__
        const double cost = costs[i];
#else
        const double cost = (double)errors[i] * ((double)each * (double)each);
#endif
        if (i == 0 || cost < bestCost) {
          best = each;
          bestCost = cost;
        }
      }
    }
    const int logical = tw_ordered(job.row + row, job.headDim, job.rotated, job.interleaved);
    if ((job.part & TW_SCALES) != 0 && from == 0) ((float *)scales)[logical - job.sourceRow] = best;
    if ((job.part & TW_CODES) != 0) {
      const long long physical = tw_physical(logical, job.pairing, job.width, job.span);
      unsigned *const words = (unsigned *)((unsigned char *)codes + physical * job.stride);
      for (int at = from; at < job.end / 4; at += step) {
        unsigned word = 0;
        for (int i = 0; i < 4; i++) {
          const int column = 4 * at + i;
          const float value = column < job.k ? tw_element(job, jobs, source, scale, row, column) : 0.0f;
          word |= tw_to_e4m3(tw_quotient(value, best)) << (8 * i);
        }
        words[at] = word;
      }
    }
#ifdef __CUDA_ARCH__
    __syncthreads();  // before the next row's elements are kept
#endif
  }
}
`;

// Device code that decodes elements of encoded matrices (ir/encoding.ts) from the bytes of their files.

/** Types of codes and of scales, by the number that a job gives them. */
export const CODE_NUMBERS = { u2: 0, u4: 1, u8: 2, i8: 3, e4m3: 4, e5m2: 5, e2m1: 6 } as const;
export const SCALE_NUMBERS = { f32: 0, f16: 1, bf16: 2, e8m0: 3 } as const;
/** Blocks of ggml; 0: codes with scales. */
export const BLOCK_NUMBERS = { q8_0: 1, q4_0: 2, q4_k: 3, q5_k: 4, q6_k: 5, mxfp4: 6 } as const;
/** What is read of a matrix. */
export const READ_NUMBERS = { values: 0, codes: 1, scales: 2, 'row scales': 3 } as const;

/** Comes before tw_value of packKernels.ts. The arithmetic is that of runtime/native/encoded.cc. */
export const PACK_ENCODED_SOURCE = String.raw`
/** Codes of [rows, columns], several in a word. Strides count words. */
struct tw_grid {
  long long at;                // bytes from the staged ones to where row 0 of the whole matrix would be
  int type;
  int bits;
  int wordBytes;
  int inWord;
  int isAlongRow;              // neighbours of a word lie in a row, or in a column
  int rowStride;
  int columnStride;
  int rowStep;                 // of codes: rows from one of a range to the next
  unsigned char shifts[32];    // bits below each of the neighbours
};

/** A matrix, of which a range is staged; behind the job of its range. */
struct tw_encoded {
  tw_grid codes;
  tw_grid zeros;
  long long scalesAt;
  int scaleType;
  int blockRows;               // of a scale
  int blockColumns;
  int scaleRowStride;
  int scaleColumnStride;
  int hasZeros;
  int zero;                    // added to a stored zero point modulo its range; or the zero point of all codes
  int block;                   // 0: codes with scales; ggml's blocks, which lie at codes.at, rowStride bytes a row
  int row;                     // of the matrix: the first of the range
  int reads;                   // 0 values, 1 codes, 2 words of scales and zero points, 3 scales of rows
  int group;                   // columns of such a word
  int isDamaged;               // set where a scale is none
};

static __device__ __forceinline__ tw_encoded *tw_encoded_of(const void *jobs) {
  return (tw_encoded *)((char *)jobs + sizeof(tw_pack_job));
}

static __device__ __forceinline__ unsigned tw_code_at(const tw_grid &grid, const char *source, int row, int column) {
  const int along = grid.isAlongRow != 0 ? column : row;
  const long long wordRow = grid.isAlongRow != 0 ? row : row / grid.inWord;
  const long long wordColumn = grid.isAlongRow != 0 ? column / grid.inWord : column;
  const long long index = wordRow * grid.rowStride + wordColumn * grid.columnStride;
  const unsigned word = grid.wordBytes == 1 ? ((const unsigned char *)(source + grid.at))[index]
                                            : ((const unsigned *)(source + grid.at))[index];
  return word >> grid.shifts[along % grid.inWord] & ((1u << grid.bits) - 1u);
}

static __device__ __forceinline__ float tw_number_of(unsigned code, int type) {
  const unsigned sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
  if (type == 5) return tw_from_f16(code << 8);
  if (type == 6) {
    const unsigned own = code & 7u;
    const unsigned bits = own < 2u ? own * 0x3f000000u : (own << 22) + 0x3f000000u;
    return __uint_as_float((code & 8u) << 28 | bits);
  }
  if (type != 4) return (float)(type == 3 ? (int)(signed char)code : (int)code);
  if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
  if (magnitude < 8u) return __uint_as_float(sign | __float_as_uint(tw_product((float)(int)magnitude, 0.001953125f)));
  return __uint_as_float(sign | ((magnitude << 20) + 0x3c000000u));
}

/** Whether it is finite and not zero. */
static __device__ __forceinline__ bool tw_is_scale(float value) {
  const unsigned bits = __float_as_uint(value);
  return (bits & 0x7f800000u) != 0x7f800000u && (bits & 0x7fffffffu) != 0;
}

/** 2^(code - 127). */
static __device__ __forceinline__ float tw_power_of(tw_encoded *matrix, unsigned code) {
  if (code == 255u) matrix->isDamaged = 1;
  return __uint_as_float(code == 255u ? 0x7fc00000u : code == 0 ? 0x00400000u : code << 23);
}

/** The scale and the zero point of an element. */
static __device__ __forceinline__ void tw_affine(tw_encoded *matrix, const char *source, int row, int column,
                                                 float *scale, int *zero) {
  const int down = row / matrix->blockRows, across = column / matrix->blockColumns;
  const long long index = (long long)down * matrix->scaleRowStride + (long long)across * matrix->scaleColumnStride;
  const char *scales = source + matrix->scalesAt;
  const int type = matrix->scaleType;
  if (type == 0) *scale = ((const float *)scales)[index];
  else if (type == 1) *scale = tw_from_f16(((const unsigned short *)scales)[index]);
  else if (type == 2) *scale = __uint_as_float((unsigned)((const unsigned short *)scales)[index] << 16);
  else *scale = tw_power_of(matrix, ((const unsigned char *)scales)[index]);
  if (!tw_is_scale(*scale)) matrix->isDamaged = 1;
  *zero = matrix->zero;
  if (matrix->hasZeros == 0) return;
  const unsigned code = tw_code_at(matrix->zeros, source, down, across) + (unsigned)matrix->zero;
  const unsigned own = code & ((1u << matrix->zeros.bits) - 1u);
  *zero = matrix->zeros.type == 3 ? (int)(signed char)own : (int)own;
}

static __device__ __forceinline__ float tw_half_at(tw_encoded *matrix, const unsigned char *at) {
  const unsigned half = at[0] | (unsigned)at[1] << 8;
  if ((half & 0x7c00u) == 0x7c00u) matrix->isDamaged = 1;
  return tw_from_f16(half);
}

/** An element of a block of ggml. */
static __device__ __forceinline__ float tw_block_value(tw_encoded *matrix, const char *source, int row, int column) {
  const unsigned char *rows =
      (const unsigned char *)source + matrix->codes.at + (long long)row * matrix->codes.rowStride;
  if (matrix->block <= 2) {
    const int i = column % 32;
    const unsigned char *block = rows + (long long)(column / 32) * (matrix->block == 1 ? 34 : 18);
    const float d = tw_half_at(matrix, block);
    if (matrix->block == 1) return tw_product(d, (float)(int)(signed char)block[2 + i]);
    return tw_product(d, (float)((block[2 + i % 16] >> (i < 16 ? 0 : 4) & 15) - 8));
  }
  const int unit = column % 256 / 32, i = column % 32;
  if (matrix->block == 6) {
    const unsigned char *block = rows + (long long)(column / 32) * 17;
    return tw_product(tw_number_of(block[1 + i % 16] >> (i < 16 ? 0 : 4) & 15u, 6), tw_power_of(matrix, block[0]));
  }
  if (matrix->block == 5) {
    const unsigned char *block = rows + (long long)(column / 256) * 210;
    const int half = unit / 4, quarter = unit % 4;
    const int low = block[64 * half + 32 * (quarter & 1) + i] >> (quarter < 2 ? 0 : 4) & 15;
    const int high = block[128 + 32 * half + i] >> 2 * quarter & 3;
    const float scale = (float)(int)(signed char)block[192 + 2 * unit + i / 16];
    return tw_product(tw_product(tw_half_at(matrix, block + 208), scale), (float)((low | high << 4) - 32));
  }
  const bool isFive = matrix->block == 4;
  const unsigned char *block = rows + (long long)(column / 256) * (isFive ? 176 : 144);
  const unsigned char *s = block + 4;
  const int scale = unit < 4 ? s[unit] & 63 : (s[unit + 4] & 15) | s[unit - 4] >> 6 << 4;
  const int minimum = unit < 4 ? s[unit + 4] & 63 : s[unit + 4] >> 4 | s[unit] >> 6 << 4;
  const int low = block[(isFive ? 48 : 16) + 32 * (unit / 2) + i] >> (unit % 2 == 0 ? 0 : 4) & 15;
  const int code = isFive ? low | (block[16 + i] >> unit & 1) << 4 : low;
  const float factor = tw_product(tw_half_at(matrix, block), (float)scale);
  const float offset = tw_product(tw_half_at(matrix, block + 2), (float)minimum);
  return tw_product(factor, (float)code) - offset;
}

/** What is read of element (row, column) of a range. */
static __device__ __forceinline__ float tw_decoded(tw_encoded *matrix, const void *staged, int row, int column) {
  const char *source = (const char *)staged;
  row = row * matrix->codes.rowStep + matrix->row;
  if (matrix->block != 0) return tw_block_value(matrix, source, row, column);
  const float code =
      matrix->reads < 2 ? tw_number_of(tw_code_at(matrix->codes, source, row, column), matrix->codes.type) : 0.0f;
  if (matrix->reads == 1) return code;
  float scale;
  int zero;
  tw_affine(matrix, source, row, column, &scale, &zero);
  return matrix->reads == 3 ? scale : tw_product(code - (float)zero, scale);
}

/** The word of a group of a row: its scale with the zero point in the lowest bits, which are free (ir/groups.ts). */
static __device__ __forceinline__ unsigned tw_scale_word(tw_encoded *matrix, const void *staged, int row, int group) {
  float scale;
  int zero;
  const int own = row * matrix->codes.rowStep + matrix->row;
  tw_affine(matrix, (const char *)staged, own, group * matrix->group, &scale, &zero);
  const unsigned bits = __float_as_uint(scale);
  if ((bits & 255u) != 0 || (unsigned)zero > 15u) matrix->isDamaged = 1;
  return bits | (unsigned)zero;
}
`;
