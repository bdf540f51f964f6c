/* Vectors of 16 lanes on every target: one register with AVX-512, several below it. */
#pragma once
#include "lib/vectors256.h"
#include "lib/vectors512.h"
#include "lib/vectorsPortable.h"

/* Lanes below n. */
TW_FN tw_m tw_first(int32_t n) { return tw_lti(tw_lane, tw_seti(n)); }
TW_FN tw_v tw_mask_float(tw_m m) { return tw_select(m, tw_set1(1.0f), tw_set1(0.0f)); }

/* Sum of the lanes, always in this order: upper half to lower half, until one is left. */
TW_FN float tw_sum(tw_v x) {
  union { tw_v v; tw_v8 h[2]; } a = { x };
  union { tw_v8 v; tw_v4 h[2]; } b = { a.h[0] + a.h[1] };
  const tw_v4 c = b.h[0] + b.h[1];
  return (c[0] + c[2]) + (c[1] + c[3]);
}
/* The largest lane, and the largest of p[0..n); NaN if there is one. */
TW_FN float tw_s_most(float a, float b) { return b > a || b != b ? b : a; }
TW_FN float tw_most(tw_v x) {
  float most = x[0];
  for (int i = 1; i < 16; i++) most = tw_s_most(most, x[i]);
  return most;
}
TW_FN float tw_most_of(const float *p, int64_t n) {
  float most = p[0];
  for (int64_t i = 1; i < n; i++) most = tw_s_most(most, p[i]);
  return most;
}
/* Sum of p[0..n), always in this order: lane l takes elements l, l + 16, … */
TW_LOOP float tw_sum_of(const float *p, int64_t n) {
  tw_carried sum = tw_carry(tw_set1(0.0f));
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) sum = tw_carry(tw_value(sum) + tw_load(p + i));
  if (i < n) {
    float t[16] = { 0 };
    memcpy(t, p + i, (size_t)(n - i) * 4);
    sum = tw_carry(tw_value(sum) + tw_load(t));
  }
  return tw_sum(tw_value(sum));
}
/* The greatest lane of x, which holds no NaN, and the least of `at` among the lanes that hold it. */
typedef struct { float value; int32_t at; } tw_place;
TW_FN tw_place tw_greatest(tw_v x, tw_i at) {
#if defined(__AVX2__)
  union { tw_v v; __m256 h[2]; } a = { x };
  __m256 m = _mm256_max_ps(a.h[0], a.h[1]);
  m = _mm256_max_ps(m, _mm256_permute2f128_ps(m, m, 1));
  m = _mm256_max_ps(m, _mm256_permute_ps(m, 0x4e));
  m = _mm256_max_ps(m, _mm256_permute_ps(m, 0xb1));
  const float value = _mm256_cvtss_f32(m);
  union { tw_i v; __m256i h[2]; } b = { tw_selecti(tw_eq(x, tw_set1(value)), at, tw_seti(INT32_MAX)) };
  __m256i n = _mm256_min_epi32(b.h[0], b.h[1]);
  n = _mm256_min_epi32(n, _mm256_permute2x128_si256(n, n, 1));
  n = _mm256_min_epi32(n, _mm256_shuffle_epi32(n, 0x4e));
  n = _mm256_min_epi32(n, _mm256_shuffle_epi32(n, 0xb1));
  return (tw_place){ value, _mm_cvtsi128_si32(_mm256_castsi256_si128(n)) };
#else
  tw_place r = { x[0], at[0] };
  for (int l = 1; l < 16; l++) {
    if (x[l] > r.value || (x[l] == r.value && at[l] < r.at)) r = (tw_place){ x[l], at[l] };
  }
  return r;
#endif
}
TW_FN tw_i tw_bf16_bits(tw_v x) {
  const tw_i b = tw_bits(x);
  const tw_i r = b + tw_seti(0x7fff) + ((b >> 16) & tw_seti(1));
  return tw_selecti(tw_eq(x, x), r, b | tw_seti(0x400000));
}
TW_FN tw_v tw_round_bf16(tw_v x) { return tw_from_bits(tw_bf16_bits(x) & tw_seti(-65536)); }
TW_FN tw_v tw_round_f20(tw_v x) { return tw_from_bits((tw_bits(x) & tw_seti(-4096)) | tw_seti(0x800)); }
TW_FN void tw_store_bf16(uint16_t *p, tw_v x) { tw_store_high(p, tw_bf16_bits(x)); }
TW_FN tw_v tw_load_f32(const float *p) { return tw_load(p); }
TW_FN void tw_store_f32(float *p, tw_v x) { tw_store(p, x); }
TW_FN float tw_s_load_f32(const float *p) { float f; memcpy(&f, p, 4); return f; }
TW_FN tw_v tw_load_i32(const int32_t *p) { return tw_float(tw_loadi(p)); }
TW_FN void tw_store_i32(int32_t *p, tw_v x) { *(tw_iu *)p = tw_int(x); }
TW_FN float tw_s_load_i32(const int32_t *p) { return (float)*p; }
TW_FN tw_v tw_load_bool(const uint8_t *p) { return tw_float(__builtin_convertvector(*(const tw_bu *)p, tw_i)); }
TW_FN void tw_store_bool(uint8_t *p, tw_v x) {
  *(tw_bu *)p = __builtin_convertvector(tw_int(tw_mask_float(tw_nonzero(x))), tw_b);
}
TW_FN float tw_s_load_bool(const uint8_t *p) { return (float)*p; }
/* E4M3: the nearest code, to even; ±448 for what is larger. Subnormal codes count steps of 2^-9. */
TW_FN tw_i tw_e4m3_bits(tw_v x) {
  const tw_i b = tw_bits(x), a = b & tw_seti(0x7fffffff);
  const tw_i normal = ((a + tw_seti(0x7ffff) + ((a >> 20) & tw_seti(1))) >> 20) - tw_seti(120 << 3);
  const tw_i small = tw_bits(tw_from_bits(a) + tw_set1(16384.0f)) - tw_seti(0x46800000);
  const tw_i code = tw_selecti(tw_lti(a, tw_seti(0x3c800000)), small, normal);
  const tw_i bounded = tw_selecti(tw_lti(tw_seti(0x43e00000), a), tw_seti(0x7e), code);
  return tw_selecti(tw_eq(x, x), bounded, tw_seti(0x7f)) | ((b >> 24) & tw_seti(0x80));
}
TW_FN void tw_store_e4m3(uint8_t *p, tw_v x) { *(tw_bu *)p = __builtin_convertvector(tw_e4m3_bits(x), tw_b); }
TW_FN void tw_s_store_e4m3(uint8_t *p, float x) { *p = (uint8_t)tw_e4m3_bits(tw_set1(x))[0]; }
TW_FN tw_v tw_load_e4m3(const uint8_t *p) {
  const tw_i c = __builtin_convertvector(*(const tw_bu *)p, tw_i), a = c & tw_seti(0x7f);
  const tw_i normal = tw_selecti(tw_lti(a, tw_seti(0x7f)), (a << 20) + tw_seti(120 << 23), tw_seti(0x7fc00000));
  const tw_v x = tw_select(tw_lti(a, tw_seti(8)), tw_float(a) * tw_set1(0x1p-9f), tw_from_bits(normal));
  return tw_from_bits(tw_bits(x) | ((c & tw_seti(0x80)) << 24));
}
TW_FN float tw_s_load_e4m3(const uint8_t *p) {
  const uint8_t t[16] = { *p };
  return tw_load_e4m3(t)[0];
}
/* int8: the nearest, to even; ±127 for what is larger. */
TW_FN void tw_store_i8(int8_t *p, tw_v x) {
  const tw_v n = tw_round(tw_max(tw_set1(-127.0f), tw_min(tw_set1(127.0f), x)));
  *(tw_bu *)p = __builtin_convertvector(tw_int(n), tw_b);
}
TW_FN void tw_s_store_i8(int8_t *p, float x) {
  int8_t t[16];
  tw_store_i8(t, tw_set1(x));
  *p = t[0];
}
TW_FN tw_v tw_load_i8(const int8_t *p) {
  const tw_i c = __builtin_convertvector(*(const tw_bu *)p, tw_i);
  return tw_float((c ^ tw_seti(0x80)) - tw_seti(0x80));
}
TW_FN float tw_s_load_i8(const int8_t *p) { return (float)*p; }
TW_FN void tw_s_store_f32(float *p, float x) { *p = x; }
TW_FN void tw_s_store_i32(int32_t *p, float x) { *p = (int32_t)x; }
TW_FN void tw_s_store_bool(uint8_t *p, float x) { *p = x != 0.0f; }
TW_FN void tw_s_store_f16(uint16_t *p, float x) { *p = tw_s_to_f16(x); }
TW_FN void tw_s_store_bf16(uint16_t *p, float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  *p = (uint16_t)((x == x ? u + 0x7fffu + ((u >> 16) & 1u) : u | 0x400000u) >> 16);
}
TW_FN float tw_s_round_f20(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  u = (u & 0xfffff000u) | 0x800u;
  memcpy(&x, &u, 4);
  return x;
}
TW_FN float tw_s_round_bf16(float x) { uint16_t h; tw_s_store_bf16(&h, x); return tw_s_load_bf16(&h); }
