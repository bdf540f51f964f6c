/*
 * Vectors of the C compiler alone, by quarters of 4 lanes, which most processors have registers for. Compilers compare
 * and convert wider vectors lane by lane.
 */
#pragma once
#include "lib/types.h"

#if !defined(__AVX2__)
typedef int32_t tw_i4 __attribute__((vector_size(16)));
typedef float tw_vu4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t tw_iu4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef union { tw_v v; tw_i i; tw_v4 f[4]; tw_i4 n[4]; } tw_quarters;
/* A function of 16 lanes: `expression` gives a quarter from quarter q of x and y. */
#define TW_QUARTERS(type, member, part, expression) \
  tw_quarters r; \
  for (int q = 0; q < 4; q++) r.part[q] = (type)(expression); \
  return r.member;

TW_FN tw_v tw_load(const float *p) { TW_QUARTERS(tw_v4, v, f, ((const tw_vu4 *)p)[q]) }
TW_FN void tw_store(float *p, tw_v x) {
  const tw_quarters a = { .v = x };
  for (int q = 0; q < 4; q++) ((tw_vu4 *)p)[q] = a.f[q];
}
TW_FN tw_i tw_loadi(const int32_t *p) { TW_QUARTERS(tw_i4, i, n, ((const tw_iu4 *)p)[q]) }
TW_FN tw_v tw_float(tw_i x) {
  const tw_quarters a = { .i = x };
  TW_QUARTERS(tw_v4, v, f, __builtin_convertvector(a.n[q], tw_v4))
}
TW_FN tw_i tw_int(tw_v x) {
  const tw_quarters a = { .v = x };
  TW_QUARTERS(tw_i4, i, n, __builtin_convertvector(a.f[q], tw_i4))
}
/* A vector that a loop carries: its quarters stay in registers, where a tw_v would go through memory. */
typedef struct { tw_v4 f[4]; } tw_carried;
TW_FN tw_carried tw_carry(tw_v x) {
  const tw_quarters a = { .v = x };
  return (tw_carried){ { a.f[0], a.f[1], a.f[2], a.f[3] } };
}
TW_FN tw_v tw_value(tw_carried x) { TW_QUARTERS(tw_v4, v, f, x.f[q]) }

typedef tw_i tw_m;
#define TW_COMPARE(name, type, member, part, operator) \
  TW_FN tw_m name(type x, type y) { \
    const tw_quarters a = { .member = x }, b = { .member = y }; \
    TW_QUARTERS(tw_i4, i, n, a.part[q] operator b.part[q]) \
  }
TW_COMPARE(tw_le, tw_v, v, f, <=)
TW_COMPARE(tw_lt, tw_v, v, f, <)
TW_COMPARE(tw_eq, tw_v, v, f, ==)
TW_COMPARE(tw_ne, tw_v, v, f, !=)
TW_COMPARE(tw_lti, tw_i, i, n, <)
TW_COMPARE(tw_lei, tw_i, i, n, <=)
TW_FN tw_m tw_nonzero(tw_v a) { return tw_ne(a, tw_set1(0.0f)); }
TW_FN tw_m tw_and(tw_m a, tw_m b) { return a & b; }
TW_FN tw_m tw_or(tw_m a, tw_m b) { return a | b; }
TW_FN tw_m tw_not(tw_m a) { return ~a; }
TW_FN tw_m tw_setm(int x) { return tw_seti(x ? -1 : 0); }
TW_FN tw_v tw_select(tw_m m, tw_v a, tw_v b) { return (tw_v)(((tw_i)a & m) | ((tw_i)b & ~m)); }
TW_FN tw_i tw_selecti(tw_m m, tw_i a, tw_i b) { return (a & m) | (b & ~m); }
TW_FN tw_v tw_max(tw_v a, tw_v b) { return tw_select(tw_or(tw_lt(b, a), tw_not(tw_eq(a, a))), a, b); }
TW_FN tw_v tw_min(tw_v a, tw_v b) { return tw_select(tw_or(tw_lt(a, b), tw_not(tw_eq(a, a))), a, b); }
TW_FN tw_v tw_sqrt(tw_v a) { tw_v r; for (int l = 0; l < 16; l++) r[l] = __builtin_sqrtf(a[l]); return r; }
TW_FN tw_v tw_fma(tw_v a, tw_v b, tw_v c) { return a * b + c; }
/* To the nearest integer, ties to even: adding 1.5·2^23 rounds. x is clamped to what tw_scale takes. */
TW_FN tw_v tw_round(tw_v x) {
  return tw_min(tw_max(x, tw_set1(-130.0f)), tw_set1(130.0f)) + tw_set1(12582912.0f) - tw_set1(12582912.0f);
}
/* x·2^n for integers n from −130 to 130, by two halves of 2^n. NaN: anything. */
TW_FN tw_v tw_scale(tw_v x, tw_v n) {
  const tw_i i = tw_int(tw_select(tw_eq(n, n), n, tw_set1(0.0f)));
  const tw_i h = i >> 1;
  return x * tw_from_bits((h + tw_seti(127)) << 23) * tw_from_bits((i - h + tw_seti(127)) << 23);
}
TW_FN tw_v tw_load_bf16(const uint16_t *p) {
  return (tw_v)(__builtin_convertvector(*(const tw_hu *)p, tw_i) << 16);
}
TW_FN void tw_store_high(uint16_t *p, tw_i x) { *(tw_hu *)p = __builtin_convertvector(x >> 16, tw_h); }
TW_FN tw_v tw_load_f16(const uint16_t *p) {
  tw_v r;
  for (int l = 0; l < 16; l++) r[l] = tw_s_load_f16(p + l);
  return r;
}
TW_FN void tw_store_f16(uint16_t *p, tw_v x) { for (int l = 0; l < 16; l++) p[l] = tw_s_to_f16(x[l]); }
TW_FN void tw_transpose(tw_v *x) {
  float t[16][16];
  for (int i = 0; i < 16; i++) for (int j = 0; j < 16; j++) t[j][i] = x[i][j];
  memcpy(x, t, sizeof(t));
}
#endif
