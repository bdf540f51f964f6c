/* AVX-512: 16 lanes are one register. */
#pragma once
#include "lib/types.h"

#if defined(__AVX512F__)
TW_FN tw_v tw_load(const float *p) { return *(const tw_vu *)p; }
TW_FN void tw_store(float *p, tw_v x) { *(tw_vu *)p = x; }
TW_FN tw_i tw_loadi(const int32_t *p) { return *(const tw_iu *)p; }
TW_FN tw_v tw_float(tw_i x) { return __builtin_convertvector(x, tw_v); }
TW_FN tw_i tw_int(tw_v x) { return __builtin_convertvector(x, tw_i); }
/* A vector that a loop carries. */
typedef tw_v tw_carried;
TW_FN tw_carried tw_carry(tw_v x) { return x; }
TW_FN tw_v tw_value(tw_carried x) { return x; }
typedef __mmask16 tw_m;
TW_FN tw_m tw_le(tw_v a, tw_v b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ); }
TW_FN tw_m tw_lt(tw_v a, tw_v b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
TW_FN tw_m tw_eq(tw_v a, tw_v b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
TW_FN tw_m tw_nonzero(tw_v a) { return _mm512_cmp_ps_mask((__m512)a, _mm512_setzero_ps(), _CMP_NEQ_UQ); }
TW_FN tw_m tw_lti(tw_i a, tw_i b) { return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b); }
TW_FN tw_m tw_lei(tw_i a, tw_i b) { return _mm512_cmple_epi32_mask((__m512i)a, (__m512i)b); }
TW_FN tw_m tw_and(tw_m a, tw_m b) { return (tw_m)(a & b); }
TW_FN tw_m tw_or(tw_m a, tw_m b) { return (tw_m)(a | b); }
TW_FN tw_m tw_not(tw_m a) { return (tw_m)~a; }
TW_FN tw_m tw_setm(int x) { return (tw_m)(x ? 0xffff : 0); }
TW_FN tw_v tw_select(tw_m m, tw_v a, tw_v b) { return (tw_v)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a); }
TW_FN tw_i tw_selecti(tw_m m, tw_i a, tw_i b) { return (tw_i)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a); }
TW_FN tw_v tw_max(tw_v a, tw_v b) { return tw_select(tw_or(tw_lt(b, a), tw_not(tw_eq(a, a))), a, b); }
TW_FN tw_v tw_min(tw_v a, tw_v b) { return tw_select(tw_or(tw_lt(a, b), tw_not(tw_eq(a, a))), a, b); }
TW_FN tw_v tw_sqrt(tw_v a) { return (tw_v)_mm512_sqrt_ps((__m512)a); }
TW_FN tw_v tw_fma(tw_v a, tw_v b, tw_v c) { return (tw_v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
/* To the nearest integer, ties to even. */
TW_FN tw_v tw_round(tw_v x) { return (tw_v)_mm512_roundscale_ps((__m512)x, 8); }
/* x·2^n for integers n. */
TW_FN tw_v tw_scale(tw_v x, tw_v n) { return (tw_v)_mm512_scalef_ps((__m512)x, (__m512)n); }
/* By intrinsics: compilers turn the conversion of a vector into twice as many instructions. */
TW_FN tw_v tw_load_bf16(const uint16_t *p) {
  return (tw_v)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
}
TW_FN void tw_store_high(uint16_t *p, tw_i x) { *(tw_hu *)p = __builtin_convertvector(x >> 16, tw_h); }
TW_FN tw_v tw_load_f16(const uint16_t *p) { return (tw_v)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
TW_FN void tw_store_f16(uint16_t *p, tw_v x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)x, 0)); }
TW_FN void tw_transpose(tw_v *x) {
  __m512 *r = (__m512 *)x, t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    const __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  for (int j = 0; j < 4; j++) {
    const __m512 a = _mm512_shuffle_f32x4(t[j], t[j + 4], 0x88), b = _mm512_shuffle_f32x4(t[j], t[j + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(t[j + 8], t[j + 12], 0x88),
                 d = _mm512_shuffle_f32x4(t[j + 8], t[j + 12], 0xdd);
    r[j] = _mm512_shuffle_f32x4(a, c, 0x88);
    r[j + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[j + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[j + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}
#endif
