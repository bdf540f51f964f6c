/* Rows in codes of 8 bits, 32 of which have a scale; sums of 16 codes each, and of all of them times the scale. */
#pragma once
#include "lib/vectors.h"
/* Features that the processor decides about. TW_PLAIN_BYTES leaves them out, to prove what remains. */
#if defined(TW_PLAIN_BYTES)
#define TW_SUPPORTS(feature) 0
#else
#define TW_SUPPORTS(feature) __builtin_cpu_supports(feature)
#endif
typedef struct {
  float scale;
  int32_t low, high;
  float sum;
} tw_group;
typedef int32_t tw_quad __attribute__((aligned(1), may_alias));
/*
 * Of 32 neighbours: the bits of the largest magnitude, which are ordered as magnitudes are, NaN and infinity last; and
 * codes, x·inverse to the nearest integer, ties to even, with their sums.
 */
#if defined(__AVX512F__)
TW_FN __m512i tw_magnitude(const float *x) {
  return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}
TW_FN int32_t tw_largest(const float *x, int64_t n) {
  __m512i m = tw_magnitude(x);
  for (int64_t i = 16; i < n; i += 16) m = _mm512_max_epi32(m, tw_magnitude(x + i));
  return _mm512_reduce_max_epi32(m);
}
TW_FN int32_t tw_codes16(__m512 x, float inverse, int8_t *codes) {
  const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
  const __m512i c = _mm512_max_epi32(n, _mm512_set1_epi32(-127));
  _mm_storeu_si128((__m128i *)codes, _mm512_cvtsepi32_epi8(c));
  return _mm512_reduce_add_epi32(c);
}
TW_FN void tw_codes(const float *x, float inverse, int8_t *codes, int32_t *low, int32_t *high) {
  *low = tw_codes16(_mm512_loadu_ps(x), inverse, codes);
  *high = tw_codes16(_mm512_loadu_ps(x + 16), inverse, codes + 16);
}
/* The same of rows in bf16. */
TW_FN int32_t tw_largest_bf16(const uint16_t *x, int64_t n) {
  __m512i m = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 32)
    m = _mm512_max_epu16(m, _mm512_and_si512(_mm512_loadu_si512(x + i), _mm512_set1_epi16(0x7fff)));
  const __m512i halves = _mm512_max_epu32(_mm512_slli_epi32(m, 16), _mm512_and_si512(m, _mm512_set1_epi32(-65536)));
  return _mm512_reduce_max_epi32(halves);
}
TW_FN void tw_codes_bf16(const uint16_t *x, float inverse, int8_t *codes, int32_t *low, int32_t *high) {
  *low = tw_codes16((__m512)tw_load_bf16(x), inverse, codes);
  *high = tw_codes16((__m512)tw_load_bf16(x + 16), inverse, codes + 16);
}
#elif defined(__AVX2__)
TW_FN __m256i tw_magnitude(const float *x) {
  return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
}
TW_FN int32_t tw_largest(const float *x, int64_t n) {
  __m256i m = tw_magnitude(x), o = tw_magnitude(x + 8);
  for (int64_t i = 16; i < n; i += 16) {
    m = _mm256_max_epi32(m, tw_magnitude(x + i));
    o = _mm256_max_epi32(o, tw_magnitude(x + i + 8));
  }
  m = _mm256_max_epi32(m, o);
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
TW_FN __m256i tw_codes8(const float *x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}
TW_FN void tw_codes(const float *x, float inverse, int8_t *codes, int32_t *low, int32_t *high) {
  const __m256 by = _mm256_set1_ps(inverse);
  const __m256i a = _mm256_packs_epi32(tw_codes8(x, by), tw_codes8(x + 8, by));
  const __m256i b = _mm256_packs_epi32(tw_codes8(x + 16, by), tw_codes8(x + 24, by));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i c =
      _mm256_max_epi8(_mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order), _mm256_set1_epi8(-127));
  _mm256_storeu_si256((__m256i *)codes, c);
  __m256i s = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), c), _mm256_set1_epi16(1));
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
  *low = _mm_cvtsi128_si32(_mm256_castsi256_si128(s));
  *high = _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1));
}
#else
TW_FN int32_t tw_largest(const float *x, int64_t n) {
  int32_t m = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, x + i, 4);
    m = (bits & 0x7fffffff) > m ? bits & 0x7fffffff : m;
  }
  return m;
}
TW_FN int32_t tw_codes16(const float *x, float inverse, int8_t *codes) {
  const tw_v scaled = tw_select(tw_setm(inverse != 0.0f), tw_load(x) * tw_set1(inverse), tw_set1(0.0f));
  const tw_i n = tw_int(tw_round(scaled));
  int32_t sum = 0;
  for (int l = 0; l < 16; l++) {
    codes[l] = (int8_t)n[l];
    sum += n[l];
  }
  return sum;
}
TW_FN void tw_codes(const float *x, float inverse, int8_t *codes, int32_t *low, int32_t *high) {
  *low = tw_codes16(x, inverse, codes);
  *high = tw_codes16(x + 16, inverse, codes + 16);
}
#endif
#if !defined(__AVX512F__)
TW_FN int32_t tw_largest_bf16(const uint16_t *x, int64_t n) {
  uint16_t m = 0;
  for (int64_t i = 0; i < n; i++) {
    const uint16_t magnitude = x[i] & 0x7fff;
    m = magnitude > m ? magnitude : m;
  }
  return (int32_t)m << 16;
}
TW_FN void tw_codes_bf16(const uint16_t *x, float inverse, int8_t *codes, int32_t *low, int32_t *high) {
  float wide[32];
  tw_store(wide, tw_load_bf16(x));
  tw_store(wide + 16, tw_load_bf16(x + 16));
  tw_codes(wide, inverse, codes, low, high);
}
#endif
/* Codes of even places, and of odd ones, as 16-bit numbers, each pair in the place of its quad. */
typedef int16_t tw_s16 __attribute__((vector_size(32)));
TW_FN void tw_pairs(const int8_t *codes, int8_t *even, int8_t *odd) {
  tw_s16 c;
  memcpy(&c, codes, 32);
  const tw_s16 e = (c << 8) >> 8, o = c >> 8;
  memcpy(even, &e, 32);
  memcpy(odd, &o, 32);
}
#if defined(__AVX2__)
/*
 * 32 codes of which no pair has a sum above 128, whatever its sign: the larger one of such a pair gives up what is too
 * much. Quads that did go to a list: their places, from `first` on, and what was taken off. Returns how many.
 */
TW_FN int32_t tw_bound(const int8_t *codes, int32_t first, int8_t *bounded, tw_quad *list) {
  const __m256i c = _mm256_loadu_si256((const __m256i *)codes);
  const __m256i pairs = _mm256_abs_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), c));
  uint32_t rest = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi16(pairs, _mm256_set1_epi16(128)));
  _mm256_storeu_si256((__m256i *)bounded, c);
  int32_t count = 0;
  while (rest != 0) {
    const int quad = __builtin_ctz(rest) / 4;
    int8_t off[4] = { 0, 0, 0, 0 };
    for (int i = 4 * quad; i < 4 * quad + 4; i += 2) {
      const int sum = codes[i] + codes[i + 1];
      const int isFirst = sum > 0 ? codes[i] > codes[i + 1] : codes[i] < codes[i + 1];
      if (sum > 128 || sum < -128) off[i % 4 + !isFirst] = (int8_t)(sum > 0 ? sum - 128 : sum + 128);
    }
    for (int i = 0; i < 4; i++) bounded[4 * quad + i] = (int8_t)(codes[4 * quad + i] - off[i]);
    list[2 * count] = first + quad;
    memcpy(list + 2 * count + 1, off, 4);
    count++;
    rest &= ~(15u << (4 * quad));
  }
  return count;
}
#endif
/* The scale of codes, and its inverse. Magnitudes below 2^-100 count as zero. NaN and infinity make the scale NaN. */
TW_FN float tw_inverse(int32_t largest, float *scale) {
  float x;
  memcpy(&x, &largest, 4);
  *scale = largest < 0x7f800000 ? x * (1.0f / 127.0f) : __builtin_nanf("");
  return largest >= 0x0d800000 && largest < 0x7f800000 ? 127.0f / x : 0.0f;
}
