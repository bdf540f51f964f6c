/* Half a register of 16-bit floats, for tiles of AVX2, which plans for AVX-512 may contain. */
#pragma once
#include "lib/types.h"

#if defined(__AVX2__)
TW_FN __m256 tw_load8_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
TW_FN __m256 tw_load8_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
#endif

/*
 * AVX2: 16 lanes are two registers. Every function works on halves: compilers compare and convert vectors wider than a
 * register lane by lane, and pass them through memory where they are not taken apart.
 */
#if defined(__AVX2__) && !defined(__AVX512F__)
typedef union { tw_v v; tw_i i; __m256 f[2]; __m256i n[2]; } tw_halves;
#define TW_F(x, half) (((const tw_halves){ .v = (x) }).f[half])
#define TW_N(x, half) (((const tw_halves){ .i = (x) }).n[half])
TW_FN tw_v tw_join(__m256 a, __m256 b) { const tw_halves r = { .f = { a, b } }; return r.v; }
TW_FN tw_i tw_joini(__m256i a, __m256i b) { const tw_halves r = { .n = { a, b } }; return r.i; }

TW_FN tw_v tw_load(const float *p) { return tw_join(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
TW_FN void tw_store(float *p, tw_v x) { _mm256_storeu_ps(p, TW_F(x, 0)); _mm256_storeu_ps(p + 8, TW_F(x, 1)); }
TW_FN tw_i tw_loadi(const int32_t *p) {
  return tw_joini(_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 8)));
}
TW_FN tw_v tw_float(tw_i x) { return tw_join(_mm256_cvtepi32_ps(TW_N(x, 0)), _mm256_cvtepi32_ps(TW_N(x, 1))); }
TW_FN tw_i tw_int(tw_v x) { return tw_joini(_mm256_cvttps_epi32(TW_F(x, 0)), _mm256_cvttps_epi32(TW_F(x, 1))); }
/* A vector that a loop carries: its halves stay in registers, where a tw_v would go through memory. */
typedef struct { __m256 f[2]; } tw_carried;
TW_FN tw_carried tw_carry(tw_v x) { return (tw_carried){ { TW_F(x, 0), TW_F(x, 1) } }; }
TW_FN tw_v tw_value(tw_carried x) { return tw_join(x.f[0], x.f[1]); }

typedef tw_i tw_m;
#define TW_COMPARE(a, b, how) \
  ((tw_m)tw_join(_mm256_cmp_ps(TW_F(a, 0), TW_F(b, 0), how), _mm256_cmp_ps(TW_F(a, 1), TW_F(b, 1), how)))
TW_FN tw_m tw_le(tw_v a, tw_v b) { return TW_COMPARE(a, b, _CMP_LE_OQ); }
TW_FN tw_m tw_lt(tw_v a, tw_v b) { return TW_COMPARE(a, b, _CMP_LT_OQ); }
TW_FN tw_m tw_eq(tw_v a, tw_v b) { return TW_COMPARE(a, b, _CMP_EQ_OQ); }
TW_FN tw_m tw_nonzero(tw_v a) { return TW_COMPARE(a, tw_set1(0.0f), _CMP_NEQ_UQ); }
TW_FN tw_m tw_and(tw_m a, tw_m b) { return a & b; }
TW_FN tw_m tw_or(tw_m a, tw_m b) { return a | b; }
TW_FN tw_m tw_not(tw_m a) { return ~a; }
TW_FN tw_m tw_setm(int x) { return tw_seti(x ? -1 : 0); }
TW_FN tw_m tw_lti(tw_i a, tw_i b) {
  return tw_joini(_mm256_cmpgt_epi32(TW_N(b, 0), TW_N(a, 0)), _mm256_cmpgt_epi32(TW_N(b, 1), TW_N(a, 1)));
}
TW_FN tw_m tw_lei(tw_i a, tw_i b) { return tw_not(tw_lti(b, a)); }
TW_FN tw_v tw_select(tw_m m, tw_v a, tw_v b) {
  const tw_v t = (tw_v)m;
  return tw_join(_mm256_blendv_ps(TW_F(b, 0), TW_F(a, 0), TW_F(t, 0)),
      _mm256_blendv_ps(TW_F(b, 1), TW_F(a, 1), TW_F(t, 1)));
}
TW_FN tw_i tw_selecti(tw_m m, tw_i a, tw_i b) { return (tw_i)tw_select(m, (tw_v)a, (tw_v)b); }

/* The instruction gives its second operand where one is NaN. A NaN on the left takes one more. */
#define TW_EXTREME(which, a, b) \
  _mm256_blendv_ps(_mm256_##which##_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q))
TW_FN tw_v tw_max(tw_v a, tw_v b) {
  return tw_join(TW_EXTREME(max, TW_F(a, 0), TW_F(b, 0)), TW_EXTREME(max, TW_F(a, 1), TW_F(b, 1)));
}
TW_FN tw_v tw_min(tw_v a, tw_v b) {
  return tw_join(TW_EXTREME(min, TW_F(a, 0), TW_F(b, 0)), TW_EXTREME(min, TW_F(a, 1), TW_F(b, 1)));
}
TW_FN tw_v tw_sqrt(tw_v a) { return tw_join(_mm256_sqrt_ps(TW_F(a, 0)), _mm256_sqrt_ps(TW_F(a, 1))); }
TW_FN tw_v tw_fma(tw_v a, tw_v b, tw_v c) {
  return tw_join(_mm256_fmadd_ps(TW_F(a, 0), TW_F(b, 0), TW_F(c, 0)),
      _mm256_fmadd_ps(TW_F(a, 1), TW_F(b, 1), TW_F(c, 1)));
}
/* To the nearest integer, ties to even. x is clamped to what tw_scale takes; NaN stays. */
TW_FN __m256 tw_round8(__m256 x) {
  return _mm256_round_ps(_mm256_min_ps(_mm256_set1_ps(130.0f), _mm256_max_ps(_mm256_set1_ps(-130.0f), x)), 8);
}
TW_FN tw_v tw_round(tw_v x) { return tw_join(tw_round8(TW_F(x, 0)), tw_round8(TW_F(x, 1))); }
/* x·2^n for integers n from −130 to 130, by two halves of 2^n. NaN: anything. */
TW_FN __m256 tw_scale8(__m256 x, __m256 n) {
  const __m256i i = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(h, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
TW_FN tw_v tw_scale(tw_v x, tw_v n) {
  return tw_join(tw_scale8(TW_F(x, 0), TW_F(n, 0)), tw_scale8(TW_F(x, 1), TW_F(n, 1)));
}

TW_FN tw_v tw_load_bf16(const uint16_t *p) { return tw_join(tw_load8_bf16(p), tw_load8_bf16(p + 8)); }
/* The upper 16 bits of each lane. */
TW_FN void tw_store_high(uint16_t *p, tw_i x) {
  const __m256i pairs = _mm256_packus_epi32(_mm256_srli_epi32(TW_N(x, 0), 16), _mm256_srli_epi32(TW_N(x, 1), 16));
  _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(pairs, 0xd8));
}
TW_FN tw_v tw_load_f16(const uint16_t *p) { return tw_join(tw_load8_f16(p), tw_load8_f16(p + 8)); }
TW_FN void tw_store_f16(uint16_t *p, tw_v x) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(TW_F(x, 0), 0));
  _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(TW_F(x, 1), 0));
}

/* 8×8 floats turned over their diagonal. */
TW_FN void tw_transpose8(__m256 *r) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int j = 0; j < 4; j++) {
    r[j] = _mm256_permute2f128_ps(t[j], t[j + 4], 0x20);
    r[j + 4] = _mm256_permute2f128_ps(t[j], t[j + 4], 0x31);
  }
}
/* 16×16 floats turned over their diagonal: four blocks of 8×8, of which two change places. */
TW_FN void tw_transpose(tw_v *x) {
  float *p = (float *)x;
  for (int i = 0; i < 16; i += 8) {
    for (int j = i; j < 16; j += 8) {
      __m256 a[8], b[8];
      for (int l = 0; l < 8; l++) {
        a[l] = _mm256_loadu_ps(p + (i + l) * 16 + j);
        b[l] = _mm256_loadu_ps(p + (j + l) * 16 + i);
      }
      tw_transpose8(a);
      tw_transpose8(b);
      for (int l = 0; l < 8; l++) {
        _mm256_storeu_ps(p + (j + l) * 16 + i, a[l]);
        _mm256_storeu_ps(p + (i + l) * 16 + j, b[l]);
      }
    }
  }
}
#endif
