/*
 * Chooses experts for each row, and their weights: softmax over all of them or, normalized, over those chosen, or in
 * turn each over those near it that are not chosen before. Where scores are compared, the largest scores plus bias are
 * chosen, in the groups that are kept, and weights are scores.
 */
#pragma once
#include "lib/elementary.h"
#include "lib/elements.h"
#include "lib/rows.h"

enum { TW_MAX_EXPERTS = 1024, TW_MAX_CHOSEN = 64, TW_MAX_EXPERT_GROUPS = 32 };

typedef struct RouteConfig {
  int rows, step;              /* index of the extent; rows of a block */
  int count, chosen, normalized;
  int logits, experts;         /* indices of buffers, and elements from one row to the next */
  int64_t logits_stride, experts_stride;
  const int *weights;          /* a buffer for each expert that is chosen */
  float factor;                /* of weights; 0: 1 */
  float in_turn;               /* how far logits may be for weights in turn; 0: weights are those of all */
  int compared, sigmoid;       /* scores are compared; they are sigmoids */
  int groups, kept_groups, best_of_group; /* 0: one group */
  int has_bias, bias, bias_type;          /* index of a buffer, and its elements */
} RouteConfig;

/* The expert with the largest number of those that are not taken, which it is then. NaN is no hindrance. */
TW_FN int tw_route_take(const float *numbers, char *taken, int count) {
  int best = -1;
  for (int e = 0; e < count; e++) if (!taken[e] && (best < 0 || numbers[e] > numbers[best])) best = e;
  taken[best] = 1;
  return best;
}

TW_FN float tw_route_factor(const RouteConfig config) { return config.factor == 0.0f ? 1.0f : config.factor; }

/* Softmax or sigmoids of a row's logits. */
TW_FN void tw_route_scores(const RouteConfig config, const float *z, float *scores) {
  if (config.sigmoid) {
    for (int e = 0; e < config.count; e++) scores[e] = 1.0f / (1.0f + tw_exp(tw_set1(-z[e]))[0]);
    return;
  }
  float top = z[0], total = 0.0f;
  for (int e = 1; e < config.count; e++) if (z[e] > top) top = z[e];
  for (int e = 0; e < config.count; e++) total += scores[e] = tw_exp(tw_set1(z[e] - top))[0];
  for (int e = 0; e < config.count; e++) scores[e] /= total;
}

/* Marks the experts of groups that are not kept as taken. A group is worth the sum of its best. */
TW_FN void tw_route_groups(const RouteConfig config, const float *compared, char *taken) {
  const int size = config.count / config.groups;
  float worth[TW_MAX_EXPERT_GROUPS];
  for (int g = 0; g < config.groups; g++) {
    char own[TW_MAX_EXPERTS];
    memset(own, 0, (size_t)size);
    worth[g] = 0.0f;
    const float *const numbers = compared + g * size;
    for (int i = 0; i < config.best_of_group; i++) worth[g] += numbers[tw_route_take(numbers, own, size)];
  }
  char kept[TW_MAX_EXPERT_GROUPS];
  memset(kept, 0, sizeof kept);
  for (int i = 0; i < config.kept_groups; i++) tw_route_take(worth, kept, config.groups);
  for (int e = 0; e < config.count; e++) taken[e] = !kept[e / size];
}

TW_FN void tw_route_compared(const RouteConfig config, const tw_launch *launch, int64_t row) {
  const float *const z = (const float *)launch->buffers[config.logits] + row * config.logits_stride;
  int32_t *const experts = (int32_t *)launch->buffers[config.experts] + row * config.experts_stride;
  float scores[TW_MAX_EXPERTS], compared[TW_MAX_EXPERTS], total = 0.0f;
  char taken[TW_MAX_EXPERTS];
  tw_route_scores(config, z, scores);
  for (int e = 0; e < config.count; e++) {
    compared[e] = scores[e];
    if (config.has_bias) compared[e] += tw_s_load_as((ElementType)config.bias_type, launch->buffers[config.bias], e);
  }
  memset(taken, 0, (size_t)config.count);
  if (config.groups > 0) tw_route_groups(config, compared, taken);
  for (int s = 0; s < config.chosen; s++) {
    experts[s] = tw_route_take(compared, taken, config.count);
    total += scores[experts[s]];
  }
  for (int s = 0; s < config.chosen; s++) {
    const float weight = config.normalized ? scores[experts[s]] / total : scores[experts[s]];
    ((float *)launch->buffers[config.weights[s]])[row] = weight * tw_route_factor(config);
  }
}

/* The sum over experts that are near the one that is chosen next and not chosen before, marked in taken. */
TW_FN float tw_route_near(const RouteConfig config, const float *z, const char *taken, float top) {
  float total = 0.0f;
  for (int e = 0; e < config.count; e++) {
    const float size = z[e] < 0.0f ? -z[e] : z[e];
    const int is_far = (top - z[e]) / (size > top ? size : top) > config.in_turn;
    if (!taken[e] && !is_far) total += tw_exp(tw_set1(z[e] - top))[0];
  }
  return total;
}

TW_FN void tw_route_row(const RouteConfig config, const tw_launch *launch, int64_t row) {
  const float *const z = (const float *)launch->buffers[config.logits] + row * config.logits_stride;
  int32_t *const experts = (int32_t *)launch->buffers[config.experts] + row * config.experts_stride;
  char taken[TW_MAX_EXPERTS];
  memset(taken, 0, (size_t)config.count);
  for (int s = 0; s < config.chosen; s++) experts[s] = tw_route_take(z, taken, config.count);
  if (config.in_turn != 0.0f) {
    memset(taken, 0, (size_t)config.count);
    for (int s = 0; s < config.chosen; s++) {
      const float near = tw_route_near(config, z, taken, z[experts[s]]);
      ((float *)launch->buffers[config.weights[s]])[row] = 1.0f / near * tw_route_factor(config);
      taken[experts[s]] = 1;
    }
    return;
  }
  const float top = z[experts[0]];
  float weight[TW_MAX_CHOSEN], total = 0.0f;
  for (int s = 0; s < config.chosen; s++) weight[s] = tw_exp(tw_set1(z[experts[s]] - top))[0];
  if (config.normalized) {
    for (int s = 0; s < config.chosen; s++) total += weight[s];
  } else {
    for (int e = 0; e < config.count; e++) total += tw_exp(tw_set1(z[e] - top))[0];
  }
  for (int s = 0; s < config.chosen; s++)
    ((float *)launch->buffers[config.weights[s]])[row] = weight[s] / total * tw_route_factor(config);
}

TW_FN void tw_route(const RouteConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.count <= TW_MAX_EXPERTS && config.chosen <= TW_MAX_CHOSEN && config.chosen <= config.count);
  TW_LIMIT(config.groups <= TW_MAX_EXPERT_GROUPS);
  (void)worker;
  (void)workers;
  for (RowBlock block; tw_next_rows(launch, launch->extents[config.rows], config.step, &block);)
    for (int64_t row = block.begin; row < block.end; row++)
      if (config.compared) tw_route_compared(config, launch, row);
      else tw_route_row(config, launch, row);
}
