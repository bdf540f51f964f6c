/** Device code that rounds matrices to codes of E4M3, with a scale for each row, in one reading of their elements. */
import { ERROR_STEPS, SCALE_STEPS } from '../../ir/rowScale.js';
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
 * Codes and scales of the rows of a range (ir/rowScale.ts); job.part says which of them are written. Elements are read
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
