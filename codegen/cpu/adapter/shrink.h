/*
 * The first factors of adapters: out[row][i] = scale[slot][i / rank] · Σ_k a[row][k] · w[slot][i][k]. Rows without
 * adapter write nothing.
 *
 *   slots   int32 [rows]: −1 is none
 *   a, out  [rows] of f32, bf16 or f16
 *   w       panels of the same type, in order of k; those of a slot follow those of the one before
 *   scale   float [slots][parts]
 *
 * A sum is that of four, each of every fourth product, whatever rows lie beside: a worker with one row would otherwise
 * wait for every product before the next one.
 */
#pragma once
#include "lib/elements.h"

enum { TW_SHRINK_SUMS = 4 };
/* Rows of one slot that read its factors together. */
#if defined(__AVX512F__)
enum { TW_SHRUNK_ROWS = 4 };
#else
enum { TW_SHRUNK_ROWS = 1 };
#endif

typedef struct ShrinkConfig {
  int rows, step;               /* index of the extent; most rows of a work item */
  int a, slot, weight, scale, out;
  int64_t a_stride, out_stride;
  ElementType element;          /* of a, w and out */
  int64_t k;
  int rank, parts, panel;
  int64_t slot_elements;        /* from one slot to the next */
} ShrinkConfig;

/* Products of step `k`, behind w by k. */
TW_FN void tw_shrink_step(
    const ShrinkConfig config, int rows, const void *a, int64_t k, const void *w, tw_carried sums[][TW_SHRINK_SUMS],
    int sum) {
  const tw_v column = tw_load_as(config.element, w, k * config.panel);
  TW_UNROLL
  for (int r = 0; r < rows; r++) {
    const tw_v x = tw_set1(tw_s_load_as(config.element, a, r * config.a_stride + k));
    sums[r][sum] = tw_carry(tw_fma(x, column, tw_value(sums[r][sum])));
  }
}

/* 16 columns of `rows` rows, from `a` and to `out`. */
TW_FN void tw_shrink_tile(
    const ShrinkConfig config, int rows, const void *a, const void *w, float scale, void *out, int64_t column) {
  tw_carried sums[TW_SHRUNK_ROWS][TW_SHRINK_SUMS];
  TW_UNROLL
  for (int r = 0; r < rows; r++) {
    TW_UNROLL
    for (int s = 0; s < TW_SHRINK_SUMS; s++) sums[r][s] = tw_carry(tw_set1(0.0f));
  }
  int64_t k = 0;
  for (; k + TW_SHRINK_SUMS <= config.k; k += TW_SHRINK_SUMS) {
    TW_UNROLL
    for (int s = 0; s < TW_SHRINK_SUMS; s++) tw_shrink_step(config, rows, a, k + s, w, sums, s);
  }
  TW_UNROLL
  for (int s = 0; s < TW_SHRINK_SUMS - 1; s++) if (k + s < config.k) tw_shrink_step(config, rows, a, k + s, w, sums, s);
  TW_UNROLL
  for (int r = 0; r < rows; r++) {
    const tw_v sum = (tw_value(sums[r][0]) + tw_value(sums[r][1])) + (tw_value(sums[r][2]) + tw_value(sums[r][3]));
    tw_store_as(config.element, out, r * config.out_stride + column, sum * tw_set1(scale));
  }
}

/* Columns of one panel of rows [m0, m0 + mn). */
TW_FN void tw_shrink_panel(const ShrinkConfig config, const tw_launch *launch, int64_t m0, int64_t mn, int64_t first) {
  const int bytes = tw_bytes_of(config.element);
  const int32_t *const slots = (const int32_t *)launch->buffers[config.slot] + m0;
  const char *const a = (const char *)launch->buffers[config.a] + m0 * config.a_stride * bytes;
  char *const out = (char *)launch->buffers[config.out] + m0 * config.out_stride * bytes;
  const float *const scales = (const float *)launch->buffers[config.scale];
  for (int64_t i = 0; i < mn;) {
    const int32_t slot = slots[i];
    int64_t rows = 1;
    if (slot >= 0) {
      while (rows < TW_SHRUNK_ROWS && i + rows < mn && slots[i + rows] == slot) rows++;
      if (rows < TW_SHRUNK_ROWS) rows = 1;
      for (int64_t n = first; n < first + config.panel && n < config.parts * config.rank; n += 16) {
        const char *const w = (const char *)launch->buffers[config.weight] +
            (slot * config.slot_elements + first * config.k + n - first) * bytes;
        const float scale = scales[slot * config.parts + n / config.rank];
        const char *const from = a + i * config.a_stride * bytes;
        char *const to = out + i * config.out_stride * bytes;
        if (rows == 1) tw_shrink_tile(config, 1, from, w, scale, to, n);
        else tw_shrink_tile(config, TW_SHRUNK_ROWS, from, w, scale, to, n);
      }
    }
    i += rows;
  }
}

/* Workers take panels of a few rows; of fewer where there would not be two for each of them. */
TW_FN void tw_shrink(const ShrinkConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.rank % 16 == 0 && config.panel % 16 == 0 && config.step > 0);
  (void)worker;
  const int64_t rows = launch->extents[config.rows];
  const int64_t panels = (config.parts * config.rank + config.panel - 1) / config.panel;
  int64_t height = (rows * panels + 2 * workers - 1) / (2 * workers);
  height = height < 1 ? 1 : height > config.step ? config.step : height;
  const int64_t blocks = (rows + height - 1) / height;
  for (;;) {
    const int64_t at = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    if (at >= blocks * panels) return;
    const int64_t m0 = at % blocks * height, left = rows - m0;
    tw_shrink_panel(config, launch, m0, left < height ? left : height, at / blocks * config.panel);
  }
}
