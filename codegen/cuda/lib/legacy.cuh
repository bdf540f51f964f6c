/* What kernels call that are still printed whole. Goes with the last of them. */
#pragma once
#include "lib/copy.cuh"
#include "lib/global.cuh"
#include "lib/pairs.cuh"
#include "lib/warp.cuh"

namespace tw {

using tw_map = TensorMap;
#define TW_FN __device__ __forceinline__
#if defined(__CUDA_ARCH__)
#define TW_PTX 1
#else
#define TW_PTX 0
#endif

using tw_f2 = float2;
using tw_f4 = float4;
using tw_i2 = int2;
using tw_b2 = uchar2;
using tw_u2 = uint2;
using tw_u4 = uint4;

TW_FN float tw_inf() { return __int_as_float(0x7f800000); }
TW_FN float tw_nan() { return __int_as_float(0x7fc00000); }
/* A NaN is kept, whichever operand it is. */
TW_FN float tw_max(float a, float b) { return a > b || a != a ? a : b; }
TW_FN float tw_min(float a, float b) { return a < b || a != a ? a : b; }
TW_FN int tw_least(int a, int b) { return a < b ? a : b; }

/* Arithmetic that is never contracted to a fused multiply-add, whatever the compiler was told. */
#if TW_PTX
TW_FN float tw_add(float a, float b) { return __fadd_rn(a, b); }
TW_FN float tw_sub(float a, float b) { return __fsub_rn(a, b); }
TW_FN float tw_mul(float a, float b) { return __fmul_rn(a, b); }
#else
TW_FN float tw_add(float a, float b) { return a + b; }
TW_FN float tw_sub(float a, float b) { return a - b; }
TW_FN float tw_mul(float a, float b) { return a * b; }
#endif

/* 16-bit floats as bits, rounded to nearest even; NaN stays NaN. */
TW_FN float tw_from_bf16(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
TW_FN unsigned short tw_to_bf16(float x) {
#if TW_PTX
  unsigned short h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  const unsigned u = __float_as_uint(x);
  return (unsigned short)((x == x ? u + 0x7fffu + ((u >> 16) & 1u) : u | 0x400000u) >> 16);
#endif
}
TW_FN float tw_from_f16(unsigned short h) {
#if TW_PTX
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
#else
  const unsigned sign = (unsigned)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint((float)fraction * 5.9604644775390625e-8f));
  return __uint_as_float(sign | (exponent == 31u ? 0x7f800000u : (exponent + 112u) << 23) | (fraction << 13));
#endif
}
TW_FN unsigned short tw_to_f16(float x) {
#if TW_PTX
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  const unsigned u = __float_as_uint(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  /* The last bit of ½ + |x| weighs 2^-24, the quantum of binary16 subnormals. */
  if (a < 0x38800000u) return (unsigned short)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u));
  return (unsigned short)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
#endif
}
/* Two neighbours in one word, the first in the low half. */
TW_FN unsigned tw_pack_bf16(float x, float y) {
#if TW_PTX
  unsigned u;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
  return u;
#else
  return (unsigned)tw_to_bf16(x) | (unsigned)tw_to_bf16(y) << 16;
#endif
}
TW_FN unsigned tw_pack_f16(float x, float y) {
#if TW_PTX
  unsigned u;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
  return u;
#else
  return (unsigned)tw_to_f16(x) | (unsigned)tw_to_f16(y) << 16;
#endif
}
TW_FN float tw_round_bf16(float x) { return tw_from_bf16(tw_to_bf16(x)); }

/* The 20 leading bits, and the middle of what shares them. */
TW_FN float tw_round_f20(float x) { return __uint_as_float((__float_as_uint(x) & 0xfffff000u) | 0x800u); }
/*
 * The 24 leading bits and the middle of what shares them; of these bits the eight that bf16 has no room for; and all of
 * them again.
 */
TW_FN float tw_round_f24(float x) { return __uint_as_float((__float_as_uint(x) & 0xffffff00u) | 0x80u); }
TW_FN unsigned tw_tail_f24(float x) { return __float_as_uint(x) >> 8 & 255u; }
TW_FN float tw_join_f24(float upper, unsigned tail) {
  return __uint_as_float(__float_as_uint(upper) + (unsigned)((int)(tail << 24) >> 16) + 0x80u); }
/* Four of the eight bytes of x (0 to 3) and y (4 to 7), as the digits of `which` say, the last digit first. */
TW_FN unsigned tw_bytes(unsigned x, unsigned y, unsigned which) {
#if TW_PTX
  return __byte_perm(x, y, which);
#else
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned from = which >> (4 * i) & 7u;
    r |= ((from < 4 ? x >> (8 * from) : y >> (8 * (from - 4))) & 255u) << (8 * i);
  }
  return r;
#endif
}

/* Loads and stores of one element, and of two at an even column. */
TW_FN float tw_load_f32(const f32 *p) { return load(p); }
TW_FN float tw_load_bf16(const bf16 *p) { return load(p); }
TW_FN float tw_load_f16(const f16 *p) { return load(p); }
TW_FN float tw_load_e4m3(const e4m3 *p) { return load(p); }
TW_FN float tw_load_i8(const i8 *p) { return load(p); }
TW_FN float tw_load_i32(const i32 *p) { return load(p); }
TW_FN float tw_load_bool(const flag *p) { return load(p); }
TW_FN unsigned tw_load_u8(const u8 *p) { return load(p); }
TW_FN tw_f2 tw_load2_f32(const f32 *p) { return load2(p); }
TW_FN tw_f2 tw_load2_bf16(const bf16 *p) { return load2(p); }
TW_FN tw_f2 tw_load2_f16(const f16 *p) { return load2(p); }
TW_FN tw_f2 tw_load2_e4m3(const e4m3 *p) { return load2(p); }
TW_FN tw_f2 tw_load2_i8(const i8 *p) { return load2(p); }
TW_FN tw_f2 tw_load2_i32(const i32 *p) { return load2(p); }
TW_FN tw_f2 tw_load2_bool(const flag *p) { return load2(p); }
TW_FN tw_b2 tw_load2_u8(const u8 *p) { return load2(p); }
TW_FN void tw_store_f32(f32 *p, float x) { store(p, x); }
TW_FN void tw_store_bf16(bf16 *p, float x) { store(p, x); }
TW_FN void tw_store_f16(f16 *p, float x) { store(p, x); }
TW_FN void tw_store_e4m3(e4m3 *p, float x) { store(p, x); }
TW_FN void tw_store_i8(i8 *p, float x) { store(p, x); }
TW_FN void tw_store_i32(i32 *p, float x) { store(p, x); }
TW_FN void tw_store_bool(flag *p, float x) { store(p, x); }
TW_FN void tw_store_u8(u8 *p, unsigned x) { store(p, x); }
TW_FN void tw_store2_f32(f32 *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_bf16(bf16 *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_f16(f16 *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_e4m3(e4m3 *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_i8(i8 *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_i32(i32 *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_bool(flag *p, float x, float y) { store2(p, x, y); }
TW_FN void tw_store2_u8(u8 *p, unsigned x, unsigned y) { store2(p, x, y); }

/* a / b for a b of at least 1 (1 + exp x): within 2 ulp, and 0 where b overflows its fast range. */
TW_FN float tw_div_sigmoid(float a, float b) {
#if TW_PTX
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

/*
 * Angles in double: x = q·π/2 + r with π/2 in two parts, the first short enough that q times it is exact (|x| < 2^30).
 */
TW_FN double tw_sin_quarter(double x, int quarter) {
  const double q = (x * 0.63661977236758134308 + 6755399441055744.0) - 6755399441055744.0;
  const double r = (x - q * 1.57079632673412561417) - q * 6.07710050650619224932e-11;
  const double z = r * r;
  const double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 +
      z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800)))));
  const double c = 1.0 + z * (-0.5 + z * (1.0 / 24 +
      z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
  const int k = (int)q + quarter;
  const double v = (k & 1) ? c : s;
  return (k & 2) ? -v : v;
}
TW_FN double tw_sin(double x) { return tw_sin_quarter(x, 0); }
TW_FN double tw_cos(double x) { return tw_sin_quarter(x, 1); }

/*
 * Where a kernel may start while its predecessor ends: waits until that one's results are there. Before that it lets
 * its own successor start, whose blocks take the room that is left and fetch what they need of weights and inputs. A
 * kernel has ended only after it has waited, so what a wait promises holds for all kernels before.
 */
TW_FN void tw_await_previous() {
#if TW_PTX && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}

/* Sum over a warp, the same in every lane, always in the same order. */
TW_FN float tw_warp_sum(float x) {
  for (int w = 16; w > 0; w /= 2) x += __shfl_xor_sync(0xffffffffu, x, w);
  return x;
}
/*
 * Sum of the n parts of a row by a whole warp, always in this order: lane l takes parts 4l … 4l + 3, adds them in
 * pairs, then goes on 128 parts further. Four loads of 16 bytes are in flight at a time; what lies past n is read, not
 * added.
 */
TW_FN float tw_row_sum(const float *p, int n) {
  if (n == 1) return *p;
  float sum = 0.0f;
  for (int first = 4 * (int)(threadIdx.x % 32); first < n; first += 512) {
    tw_f4 x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = first + 128 * i < n ? *(const tw_f4 *)(p + first + 128 * i) : tw_f4{
      0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int left = n % 4 == 0 ? 4 : n - first - 128 * i;
      sum += (x[i].x + (left > 1 ? x[i].y : 0.0f)) + ((left > 2 ? x[i].z : 0.0f) + (left > 3 ? x[i].w : 0.0f));
    }
  }
  return tw_warp_sum(sum);
}
/*
 * Sums of a block of columns have one order everywhere, that of a tensor core's accumulator: thread t of four adds its
 * columns 2t, 2t + 1, 8 + 2t, 8 + 2t + 1, …, then the four are added in pairs.
 */
TW_FN float tw_quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
TW_FN float tw_quad_max(float x) {
  x = tw_max(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return tw_max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
/* The largest of each `width` lanes (16 or 32), in all of them. */
TW_FN float tw_block_max(float x, int width) {
  for (int by = 1; by < width; by *= 2) x = tw_max(x, __shfl_xor_sync(0xffffffffu, x, by));
  return x;
}
/* The largest of the n parts of a row, by a whole warp, with the loads of a sum. */
TW_FN float tw_row_max(const float *p, int n) {
  float most = *p;
  if (n == 1) return most;
  for (int first = 4 * (int)(threadIdx.x % 32); first < n; first += 512) {
    tw_f4 x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = first + 128 * i < n ? *(const tw_f4 *)(p + first + 128 * i) : tw_f4{
      most, most, most, most };
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int left = n % 4 == 0 ? 4 : n - first - 128 * i;
      most = tw_max(most, tw_max(tw_max(x[i].x, left > 1 ? x[i].y : most), tw_max(
        left > 2 ? x[i].z : most, left > 3 ? x[i].w : most)));
    }
  }
  return tw_block_max(most, 32);
}
/* The same sum where lane l of a warp holds column l: of each `width` columns (16 or 32), in all of their lanes. */
TW_FN float tw_block_sum(float x, int width) {
  const int first = (int)(threadIdx.x % 32) / width * width + 2 * (int)(threadIdx.x % 4);
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < width; j += 8) {
    sum += __shfl_sync(0xffffffffu, x, first + j);
    sum += __shfl_sync(0xffffffffu, x, first + j + 1);
  }
  return tw_quad_sum(sum);
}

/*
 * E4M3: a sign, 4 bits of exponent with bias 7, 3 of the fraction; no infinity. Rounded to nearest even, ±448 what is
 * larger; NaN stays NaN. Two neighbours lie in the low half of a word, the first in its low byte.
 */
TW_FN unsigned tw_to_e4m3(float x) {
  const unsigned u = __float_as_uint(x), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fu;
  if (a >= 0x43e00000u) return sign | 0x7eu;
  /* The last bit of 2^14 + |x| weighs 2^-9, the quantum of subnormals. */
  if (a < 0x3c800000u) return sign | (__float_as_uint(tw_add(__uint_as_float(a), 16384.0f)) - 0x46800000u);
  return sign | ((a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20);
}
TW_FN unsigned tw_pack_e4m3(float x, float y) {
#if TW_PTX && __CUDA_ARCH__ >= 900
  unsigned short h;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(y), "f"(x));
  return h;
#else
  return tw_to_e4m3(x) | tw_to_e4m3(y) << 8;
#endif
}
TW_FN float tw_from_e4m3(unsigned char h) {
  const unsigned sign = (unsigned)(h & 0x80u) << 24, a = h & 0x7fu;
  if (a < 8u) return __uint_as_float(sign | __float_as_uint(tw_mul((float)(int)a, 0.001953125f)));
  return __uint_as_float(sign | (a == 0x7fu ? 0x7fc00000u : (a << 20) + 0x3c000000u));
}
/*
 * int8: rounded to the nearest, to even, ±127 what is larger. NaN has no code: it becomes 0, and the scale beside it is
 * NaN. Two neighbours lie in the low half of a word, the first in its low byte.
 */
TW_FN unsigned tw_to_i8(float x) {
  const float bounded = x != x ? 0.0f : tw_max(-127.0f, tw_min(127.0f, x));
  /* The last bit of 1.5 · 2^23 weighs 1. */
  return (unsigned)(int)tw_sub(tw_add(bounded, 12582912.0f), 12582912.0f) & 255u;
}
TW_FN unsigned tw_pack_i8(float x, float y) { return tw_to_i8(x) | tw_to_i8(y) << 8; }

}  // namespace tw
