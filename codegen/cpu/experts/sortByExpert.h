/*
 * Rows in order of their experts: `order`; of every expert where its rows begin; for each choice of a row its place; if
 * asked for, the expert of each place. A counting sort by one worker: it takes less time than waiting for the others
 * would.
 */
#pragma once
#include "lib/types.h"

enum { TW_MAX_SORTED = 1024 };

typedef struct SortConfig {
  int rows;                             /* index of the extent */
  int count, chosen;
  int experts, order, starts;           /* indices of buffers */
  int64_t experts_stride;
  const int *places;                    /* a buffer for each choice */
  int has_owners, owners;
} SortConfig;

TW_FN void tw_sort_by_expert(const SortConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.count <= TW_MAX_SORTED);
  (void)worker;
  (void)workers;
  if (__atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED) != 0) return;
  const int64_t rows = launch->extents[config.rows];
  const int32_t *const experts = (const int32_t *)launch->buffers[config.experts];
  int32_t *const order = (int32_t *)launch->buffers[config.order];
  int32_t *const starts = (int32_t *)launch->buffers[config.starts];
  int32_t next[TW_MAX_SORTED];
  memset(next, 0, (size_t)config.count * 4);
  for (int64_t row = 0; row < rows; row++)
    for (int s = 0; s < config.chosen; s++) next[experts[row * config.experts_stride + s]]++;
  int32_t sum = 0;
  for (int e = 0; e < config.count; e++) {
    const int32_t own = next[e];
    starts[e] = sum;
    next[e] = sum;
    sum += own;
  }
  starts[config.count] = sum;
  for (int64_t row = 0; row < rows; row++)
    for (int s = 0; s < config.chosen; s++) {
      const int32_t expert = experts[row * config.experts_stride + s], at = next[expert]++;
      order[at] = (int32_t)row;
      if (config.has_owners) ((int32_t *)launch->buffers[config.owners])[at] = expert;
      ((int32_t *)launch->buffers[config.places[s]])[row] = at;
    }
}
