/*
 * What rows of adapters add to the products of a contraction: c[row][n] += Σ u[row][i] · b[slot][i][n] over a rank, in
 * order of i, by fused multiply-add behind all other products. Rows without adapter are left as they are, and a row's
 * result depends on nothing but its own numbers.
 *
 *   slots   int32 [rows]: −1 is none
 *   u       [rows][stride] of f32, bf16 or f16: parts of `rank` elements
 *   b       panels of the same type, in order of i; those of a slot follow those of the one before
 *   c       float [rows][ldc], rows and columns of a segment as they lie in memory
 */
#pragma once
#include "lib/elements.h"

enum { TW_MAX_RANK = 512 };
/* Rows of one slot that read its factors together. */
#if defined(__AVX512F__)
enum { TW_EXPANDED_ROWS = 4 };
#else
enum { TW_EXPANDED_ROWS = 2 };
#endif

typedef struct SegmentAdapter {
  int weight;               /* index of its buffer; −1: it has no adapter */
  int part;                 /* of its first matrix; its second has the next one */
  int width;                /* neighbouring columns of one matrix; 0: all */
  int64_t slot_elements;    /* from one slot to the next */
} SegmentAdapter;

typedef struct AdapterConfig {
  int rank;                 /* 0: there are no adapters */
  int slot, shrunk;         /* indices of buffers */
  int64_t stride;           /* elements from one row of u to the next */
  ElementType element;      /* of u and b */
  int panel;
  const SegmentAdapter *segments;
} AdapterConfig;

TW_FN int tw_has_adapter(const AdapterConfig config, const tw_launch *launch, int64_t m0, int64_t mn) {
  if (config.rank == 0) return 0;
  const int32_t *const slots = (const int32_t *)launch->buffers[config.slot] + m0;
  for (int64_t i = 0; i < mn; i++) if (slots[i] >= 0) return 1;
  return 0;
}

/* `rows` rows of c by 16 columns at each of `vectors` places. */
TW_FN void tw_expand_tile(
    const AdapterConfig config, int rows, int vectors, float u[][TW_MAX_RANK], const char *const *b, float *const *c,
    int64_t ldc) {
  tw_carried sums[TW_EXPANDED_ROWS][2];
  TW_UNROLL
  for (int r = 0; r < rows; r++) {
    TW_UNROLL
    for (int v = 0; v < vectors; v++) sums[r][v] = tw_carry(tw_load(c[v] + r * ldc));
  }
  for (int i = 0; i < config.rank; i++) {
    TW_UNROLL
    for (int v = 0; v < vectors; v++) {
      const tw_v column = tw_load_as(config.element, b[v], i * config.panel);
      TW_UNROLL
      for (int r = 0; r < rows; r++)
        sums[r][v] = tw_carry(tw_fma(tw_set1(u[r][i]), column, tw_value(sums[r][v])));
    }
  }
  TW_UNROLL
  for (int r = 0; r < rows; r++) {
    TW_UNROLL
    for (int v = 0; v < vectors; v++) tw_store(c[v] + r * ldc, tw_value(sums[r][v]));
  }
}

/* Rows [row, row + rows) of one slot. */
TW_FN void tw_expand_rows(
    const AdapterConfig config, int rows, const tw_launch *launch, const SegmentAdapter *segment, int32_t slot,
    int64_t row, float *c, int64_t ldc, int64_t n0, int64_t nn) {
  const int bytes = tw_bytes_of(config.element);
  const char *const own = (const char *)launch->buffers[segment->weight] + slot * segment->slot_elements * bytes;
  const char *const shrunk = (const char *)launch->buffers[config.shrunk];
  const int64_t width = segment->width > 0 ? segment->width : n0 + nn, step = segment->width > 0 ? 2 * width : width;
  float u[TW_EXPANDED_ROWS][TW_MAX_RANK];
  for (int matrix = 0; matrix < (segment->width > 0 ? 2 : 1); matrix++) {
    for (int r = 0; r < rows; r++) {
      const int64_t from = (row + r) * config.stride + (segment->part + matrix) * config.rank;
      for (int i = 0; i < config.rank; i += 16) tw_store(u[r] + i, tw_load_as(config.element, shrunk, from + i));
    }
    const char *b[2];
    float *to[2];
    int count = 0;
    for (int64_t n = n0; n < n0 + nn; n += 16) {
      if (n % step / width != matrix) continue;
      b[count] = own + (n / config.panel * config.panel * config.rank + n % config.panel) * bytes;
      to[count] = c + (n - n0);
      if (++count < 2) continue;
      tw_expand_tile(config, rows, 2, u, b, to, ldc);
      count = 0;
    }
    if (count > 0) tw_expand_tile(config, rows, 1, u, b, to, ldc);
  }
}

/* Rows [m0, m0 + mn) at `c`, by columns [n0, n0 + nn) of a segment. */
TW_FN void tw_expand(
    const AdapterConfig config, const tw_launch *launch, const SegmentAdapter *segment, float *c, int64_t ldc,
    int64_t m0, int64_t mn, int64_t n0, int64_t nn) {
  TW_LIMIT(config.rank % 16 == 0 && config.rank <= TW_MAX_RANK);
  if (segment->weight < 0) return;
  const int32_t *const slots = (const int32_t *)launch->buffers[config.slot] + m0;
  for (int64_t i = 0; i < mn;) {
    const int32_t slot = slots[i];
    int64_t rows = 1;
    if (slot >= 0) {
      while (rows < TW_EXPANDED_ROWS && i + rows < mn && slots[i + rows] == slot) rows++;
      if (rows < TW_EXPANDED_ROWS) rows = 1;
      float *const to = c + i * ldc;
      if (rows == 1) tw_expand_rows(config, 1, launch, segment, slot, m0 + i, to, ldc, n0, nn);
      else tw_expand_rows(config, TW_EXPANDED_ROWS, launch, segment, slot, m0 + i, to, ldc, n0, nn);
    }
    i += rows;
  }
}
