/* Chooses experts for each row, and their weights: softmax over all of them or, normalized, over those chosen. */
#pragma once
#include "lib/elementary.h"
#include "lib/rows.h"

enum { TW_MAX_EXPERTS = 1024, TW_MAX_CHOSEN = 64 };

typedef struct RouteConfig {
  int rows, step;              /* index of the extent; rows of a block */
  int count, chosen, normalized;
  int logits, experts;         /* indices of buffers, and elements from one row to the next */
  int64_t logits_stride, experts_stride;
  const int *weights;          /* a buffer for each expert that is chosen */
} RouteConfig;

TW_FN void tw_route_row(const RouteConfig config, const tw_launch *launch, int64_t row) {
  const float *const z = (const float *)launch->buffers[config.logits] + row * config.logits_stride;
  int32_t *const experts = (int32_t *)launch->buffers[config.experts] + row * config.experts_stride;
  char taken[TW_MAX_EXPERTS];
  memset(taken, 0, (size_t)config.count);
  /* Whatever is compared with NaN, some expert that is not taken yet is chosen. */
  for (int s = 0; s < config.chosen; s++) {
    int best = -1;
    for (int e = 0; e < config.count; e++) if (!taken[e] && (best < 0 || z[e] > z[best])) best = e;
    taken[best] = 1;
    experts[s] = best;
  }
  const float top = z[experts[0]];
  float weight[TW_MAX_CHOSEN], total = 0.0f;
  for (int s = 0; s < config.chosen; s++) weight[s] = tw_exp(tw_set1(z[experts[s]] - top))[0];
  if (config.normalized) {
    for (int s = 0; s < config.chosen; s++) total += weight[s];
  } else {
    for (int e = 0; e < config.count; e++) total += tw_exp(tw_set1(z[e] - top))[0];
  }
  for (int s = 0; s < config.chosen; s++) ((float *)launch->buffers[config.weights[s]])[row] = weight[s] / total;
}

TW_FN void tw_route(const RouteConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.count <= TW_MAX_EXPERTS && config.chosen <= TW_MAX_CHOSEN && config.chosen <= config.count);
  (void)worker;
  (void)workers;
  for (RowBlock block; tw_next_rows(launch, launch->extents[config.rows], config.step, &block);)
    for (int64_t row = block.begin; row < block.end; row++) tw_route_row(config, launch, row);
}
