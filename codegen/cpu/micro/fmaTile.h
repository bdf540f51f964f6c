/*
 * The register tile of micro/fma.h for the vectors of one instruction set, which that header names by macros before it
 * includes this one. Without them it is that of vectors that the compiler divides among registers.
 */
#include "micro/fmaConfig.h"

#ifndef TW_OF
#define TW_OF(name) name##_portable
#define TW_VECTOR tw_v
#define TW_LANES 16
#define TW_REGISTERS 8
#define TW_ZERO() tw_set1(0.0f)
#define TW_SET tw_set1
#define TW_LOAD tw_load
#define TW_STORE tw_store
#define TW_FMA tw_fma
#define TW_LOAD_BF16(p) tw_load_bf16(p)
#define TW_LOAD_F16(p) tw_load_f16(p)
#endif

/* Vectors of columns that a tile may have, with a row of sums, one of columns and a number. */
#define TW_VECTORS (TW_REGISTERS / 2)
typedef TW_VECTOR TW_OF(FmaSums)[32][TW_VECTORS];

TW_FN TW_VECTOR TW_OF(tw_panel_load)(ElementType element, const void *b, int at) {
  if (element == TW_BF16) return TW_LOAD_BF16((const uint16_t *)b + at);
  if (element == TW_F16) return TW_LOAD_F16((const uint16_t *)b + at);
  return TW_LOAD((const float *)b + at);
}

/* Step `k` behind a and b. */
TW_FN void TW_OF(tw_fma_step)(const FmaConfig config, const float *a, const void *b, int k, TW_OF(FmaSums) sums) {
  TW_VECTOR columns[TW_VECTORS];
  TW_UNROLL
  for (int v = 0; v < config.columns / TW_LANES; v++) {
    const int column = v * TW_LANES;
    const int at = column / config.panel * config.panel_stride + column % config.panel + k * config.panel_k;
    columns[v] = TW_OF(tw_panel_load)(config.element, b, at);
  }
  TW_UNROLL
  for (int r = 0; r < config.rows; r++) {
    const TW_VECTOR row = TW_SET(a[r * config.row_stride + k * config.k_stride]);
    TW_UNROLL
    for (int v = 0; v < config.columns / TW_LANES; v++) sums[r][v] = TW_FMA(row, columns[v], sums[r][v]);
  }
}

/* `config.unroll` steps. */
TW_FN void TW_OF(tw_fma_steps)(const FmaConfig config, const float *a, const void *b, TW_OF(FmaSums) sums) {
  if (config.bytes_ahead > 0) {
    const int bytes = tw_bytes_of(config.element);
    TW_UNROLL
    for (int p = 0; p < (config.columns + config.panel - 1) / config.panel; p++) {
      TW_UNROLL
      for (int line = 0; line < config.unroll * config.panel_k * bytes / 64; line++) {
        const char *const at = (const char *)b + p * config.panel_stride * bytes + line * 64 + config.bytes_ahead;
        if (config.cache_ahead == 1) __builtin_prefetch(at, 0, 3);
        else __builtin_prefetch(at, 0, 2);
      }
    }
  }
  TW_UNROLL
  for (int k = 0; k < config.unroll; k++) TW_OF(tw_fma_step)(config, a, b, k, sums);
}

TW_FN void TW_OF(tw_fma)(
    const FmaConfig config, const float *a, const void *b, float *c, int64_t depth, int first, const char *far,
    int64_t far_row, const char *near) {
  TW_LIMIT(config.rows >= 1 && config.rows <= 32);
  TW_LIMIT(config.columns >= TW_LANES && config.columns % TW_LANES == 0);
  TW_LIMIT((config.rows + 1) * (config.columns / TW_LANES) + 1 <= TW_REGISTERS);
  TW_LIMIT(config.unroll >= 1 && 16 % config.unroll == 0);
  const int vectors = config.columns / TW_LANES;
  const int64_t advance_a = config.unroll * config.k_stride;
  const int64_t advance_b = config.unroll * config.panel_k * tw_bytes_of(config.element);
  TW_OF(FmaSums) sums;
  if (first) {
    TW_UNROLL
    for (int r = 0; r < config.rows; r++) {
      TW_UNROLL
      for (int v = 0; v < vectors; v++) sums[r][v] = TW_ZERO();
    }
  } else {
    TW_UNROLL
    for (int r = 0; r < config.rows; r++) {
      TW_UNROLL
      for (int v = 0; v < vectors; v++) sums[r][v] = TW_LOAD(c + r * config.ldc + v * TW_LANES);
    }
  }
  if (config.near_lines > 0) {
    for (; depth >= 16; depth -= 16) {
      TW_UNROLL
      for (int i = 0; i < config.far_lines; i++) __builtin_prefetch(far + i * far_row, 0, 2);
      TW_UNROLL
      for (int i = 0; i < config.near_lines; i++) __builtin_prefetch(near + i * 64, 0, 2);
      far += 64;
      near += config.near_lines * 64;
#pragma GCC unroll 1
      for (int k = 0; k < 16; k += config.unroll) {
        TW_OF(tw_fma_steps)(config, a, b, sums);
        a += advance_a;
        b = (const char *)b + advance_b;
      }
    }
  } else {
    for (; depth >= config.unroll; depth -= config.unroll) {
      TW_OF(tw_fma_steps)(config, a, b, sums);
      a += advance_a;
      b = (const char *)b + advance_b;
    }
  }
  for (; config.unroll > 1 && depth > 0; depth--) {
    TW_OF(tw_fma_step)(config, a, b, 0, sums);
    a += config.k_stride;
    b = (const char *)b + config.panel_k * tw_bytes_of(config.element);
  }
  TW_UNROLL
  for (int r = 0; r < config.rows; r++) {
    TW_UNROLL
    for (int v = 0; v < vectors; v++) TW_STORE(c + r * config.ldc + v * TW_LANES, sums[r][v]);
  }
}

#undef TW_OF
#undef TW_VECTOR
#undef TW_VECTORS
#undef TW_LANES
#undef TW_REGISTERS
#undef TW_ZERO
#undef TW_SET
#undef TW_LOAD
#undef TW_STORE
#undef TW_FMA
#undef TW_LOAD_BF16
#undef TW_LOAD_F16
