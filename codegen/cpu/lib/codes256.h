/* Dot products of bytes with AVX2. The empty statement keeps the compiler from adding sums of other steps first. */
#pragma once
#include "lib/codes.h"

#if defined(__AVX2__)
#define TW_Q256_KEEP(x) __asm__("" : "+x"(x))
TW_FN __m256i tw_q256_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
TW_FN __m256i tw_q256_take(__m256i v, int n, int mask) {
  const __m256i shifted = n == 0 ? v : n > 0 ? _mm256_srli_epi16(v, n) : _mm256_slli_epi16(v, -n);
  return _mm256_and_si256(shifted, _mm256_set1_epi8((char)mask));
}
TW_FN __m256 tw_q256_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
TW_FN __m256 tw_q256_bytes(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
TW_FN __m256 tw_q256_signed(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
TW_FN void tw_q256_add(int32_t *p, __m256i x) {
  _mm256_storeu_si256((__m256i *)p, _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)p), x));
}
/* Codes of even places, and of odd ones, as numbers of 16 bits: products of 8-bit codes do not fit 16 bits in pairs. */
#define TW_Q256_EVEN(w) _mm256_and_si256(w, _mm256_set1_epi16(255))
#define TW_Q256_ODD(w) _mm256_srli_epi16(w, 8)
#define TW_Q256_MADD(sum, w, a) \
  do { \
    __m256i product_; \
    __asm__("vpmaddwd %2, %3, %0\n\tvpaddd %0, %1, %1" : "=&x"(product_), "+x"(sum) : "x"(w), "x"(a)); \
  } while (0)
#define TW_Q256_WIDE(sum, w, even, odd) \
  TW_Q256_MADD(sum, TW_Q256_EVEN(w), _mm256_set1_epi32(even)); \
  TW_Q256_MADD(sum, TW_Q256_ODD(w), _mm256_set1_epi32(odd))
/*
 * A row's quad by two vectors of columns. Pairs of products are added in 16 bits, which must hold them. Twelve sums,
 * two vectors, the quad and a product fill sixteen registers, so ones lie in memory.
 */
static const int16_t tw_q256_ones[16] __attribute__((aligned(32))) = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
#define TW_Q256_BYTES(sum0, sum1, w0, w1, a) \
  do { \
    __m256i quad_, product_; \
    __asm__("vpbroadcastd %4, %0\n\tvpmaddubsw %0, %5, %1\n\tvpmaddwd %7, %1, %1\n\tvpaddd %1, %2, %2\n\t" \
            "vpmaddubsw %0, %6, %0\n\tvpmaddwd %7, %0, %0\n\tvpaddd %0, %3, %3" \
            : "=&x"(quad_), "=&x"(product_), "+x"(sum0), "+x"(sum1) \
            : "m"(a), "x"(w0), "x"(w1), "m"(*(const __m256i *)tw_q256_ones)); \
  } while (0)
#define TW_Q256_NARROW(sum0, sum1, w0, w1, a) \
  do { \
    __m256i quad_, product_; \
    __asm__("vpbroadcastd %4, %0\n\tvpmaddubsw %0, %5, %1\n\tvpaddw %1, %2, %2\n\t" \
            "vpmaddubsw %0, %6, %0\n\tvpaddw %0, %3, %3" \
            : "=&x"(quad_), "=&x"(product_), "+x"(sum0), "+x"(sum1) \
            : "m"(a), "x"(w0), "x"(w1)); \
  } while (0)
#define TW_Q256_PART(w, a) _mm256_maddubs_epi16(w, _mm256_set1_epi32(a))
#define TW_Q256_SUM(sum, part) TW_Q256_MADD(sum, part, _mm256_set1_epi16(1))
#endif
