/* The Config of register tiles of floats (micro/fma.h), and functions that are such tiles. */
#pragma once
#include "lib/elements.h"

typedef struct FmaConfig {
  int rows, columns;
  int row_stride, k_stride;
  ElementType element;
  int panel, panel_k, panel_stride;
  int ldc;
  int unroll;                      /* steps of k in an iteration; divides 16 */
  int far_lines, near_lines;       /* fetched every 16 steps of k, of `far` and `near`; 0: nothing is fetched */
  int bytes_ahead, cache_ahead;    /* how far ahead b itself is fetched, and into which cache (1 or 2); 0: it is not */
} FmaConfig;

/* Tiles of a kernel. `depth`: steps of k; `first`: c begins as zero. */
typedef void FmaTile(const float *a, const void *b, float *c, int64_t depth, int first);
/*
 * The same, which fetches lines into the second-level cache: of rows `far_row` bytes apart from `far` on, and `near`.
 */
typedef void FetchingFmaTile(
    const float *a, const void *b, float *c, int64_t depth, int first, const char *far, int64_t far_row,
    const char *near);
