/* Dot products of bytes with AVX-512: one instruction with VNNI, and the same sums without it. */
#pragma once
#include "lib/codes.h"

#if defined(__AVX512F__)
#define TW_Q512_KEEP(x) __asm__("" : "+v"(x))
TW_FN __m512i tw_q512_take(__m512i v, int n, int mask) {
  const __m512i shifted = n == 0 ? v : n > 0 ? _mm512_srli_epi16(v, (unsigned)n) : _mm512_slli_epi16(v, (unsigned)-n);
  return _mm512_and_si512(shifted, _mm512_set1_epi8((char)mask));
}
TW_FN __m512 tw_q512_halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
TW_FN __m512 tw_q512_bytes(const uint8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
TW_FN __m512 tw_q512_signed(const uint8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
TW_FN void tw_q512_add(int32_t *p, __m512i x) {
  _mm512_storeu_si512(p, _mm512_add_epi32(_mm512_loadu_si512(p), x));
}
TW_FN __m512i tw_q512_dot(__m512i sum, __m512i w, int32_t a) {
  const __m512i x = _mm512_set1_epi32(a), even = _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8);
  const __m512i low = _mm512_madd_epi16(_mm512_and_si512(w, _mm512_set1_epi16(255)), even);
  const __m512i high = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(x, 8));
  return _mm512_add_epi32(sum, _mm512_add_epi32(low, high));
}
#define TW_DOT_PLAIN(sum, w, a) sum = tw_q512_dot(sum, w, a); TW_Q512_KEEP(sum)
#define TW_DOT_FEATURE(sum, w, a) sum = _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(a))
#endif
