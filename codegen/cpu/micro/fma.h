/*
 * Register tiles of floats, for each instruction set: c[rows][columns] (+)= a·b in order of k, by fused multiply-add,
 * with one accumulator an element.
 *
 *   a   float, element [r][k] at r·row_stride + k·k_stride
 *   b   panels of `panel` columns of f32, bf16 or f16: element [k][n] at
 *       n / panel · panel_stride + k·panel_k + n % panel
 *   c   float, element [r][n] at r·ldc + n
 *
 * A tile is a function of its own (TW_FMA_TILE), so that its accumulators fill the registers.
 */
#pragma once
#include "micro/fmaConfig.h"

#define TW_FMA_TILE(isa, name, ...) \
  TW_TILE void name(const float *a, const void *b, float *c, int64_t depth, int first) { \
    const FmaConfig config = { __VA_ARGS__ }; \
    tw_fma_##isa(config, a, b, c, depth, first, 0, 0, 0); \
  }
#define TW_FETCHING_FMA_TILE(isa, name, ...) \
  TW_TILE void name( \
      const float *a, const void *b, float *c, int64_t depth, int first, const char *far, int64_t far_row, \
      const char *near) { \
    const FmaConfig config = { __VA_ARGS__ }; \
    tw_fma_##isa(config, a, b, c, depth, first, far, far_row, near); \
  }

#if defined(__AVX512F__)
#define TW_OF(name) name##_avx512
#define TW_VECTOR __m512
#define TW_LANES 16
#define TW_REGISTERS 32
#define TW_ZERO() _mm512_setzero_ps()
#define TW_SET _mm512_set1_ps
#define TW_LOAD _mm512_loadu_ps
#define TW_STORE _mm512_storeu_ps
#define TW_FMA _mm512_fmadd_ps
#define TW_LOAD_BF16(p) (__m512)tw_load_bf16(p)
#define TW_LOAD_F16(p) (__m512)tw_load_f16(p)
#include "micro/fmaTile.h"
#endif

#if defined(__AVX2__)
#define TW_OF(name) name##_avx2
#define TW_VECTOR __m256
#define TW_LANES 8
#define TW_REGISTERS 16
#define TW_ZERO() _mm256_setzero_ps()
#define TW_SET _mm256_set1_ps
#define TW_LOAD _mm256_loadu_ps
#define TW_STORE _mm256_storeu_ps
#define TW_FMA _mm256_fmadd_ps
#define TW_LOAD_BF16(p) tw_load8_bf16(p)
#define TW_LOAD_F16(p) tw_load8_f16(p)
#include "micro/fmaTile.h"
#endif

/* Portable vectors. */
#include "micro/fmaTile.h"
