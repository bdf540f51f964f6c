/* Parts of a row (head/logProb.h) to its log-probability of the target, whether that is the argmax, and its draw. */
#pragma once
#include "lib/elementary.h"
#include "lib/rows.h"

typedef struct ReduceConfig {
  int rows, step;                    /* index of the extent; rows of a block */
  int vocab, block, width;           /* columns of a part, and floats of it */
  int parts, target, log_prob, is_argmax;
  int64_t parts_stride;
  int has_totals, top, sum;          /* whether the max and the sum are kept */
  int draws, drawn_token, drawn_log_prob;
  int maps, ids;                     /* whether columns stand for other tokens than those of their numbers */
} ReduceConfig;

TW_FN void tw_reduce_row(const ReduceConfig config, const tw_launch *launch, int64_t row) {
  const int blocks = (config.vocab + config.block - 1) / config.block, width = config.width;
  const float *const parts = (const float *)launch->buffers[config.parts] + row * config.parts_stride;
  const int32_t target = ((const int32_t *)launch->buffers[config.target])[row];
  float m = -__builtin_inff(), where = 0.0f;
  for (int b = 0; b < blocks; b++) {
    if (parts[width * b] > m) { m = parts[width * b]; where = parts[width * b + 2]; }
  }
  float sum = 0.0f;
  for (int b = 0; b < blocks; b += 16) {
    float top[16], part[16];
    for (int l = 0; l < 16; l++) {
      const int has = b + l < blocks;
      top[l] = has ? parts[width * (b + l)] : -__builtin_inff();
      part[l] = has ? parts[width * (b + l) + 1] : 0.0f;
    }
    const tw_v weight = tw_exp(tw_load(top) - tw_set1(m));
    float term[16];
    tw_store(term, weight * tw_load(part));
    for (int l = 0; l < 16; l++) if (b + l < blocks) sum += term[l];
  }
  const float zt = target >= 0 && target < config.vocab
      ? parts[width * (target / config.block) + 3] : __builtin_nanf("");
  ((float *)launch->buffers[config.log_prob])[row] = (float)((double)zt - ((double)m + log((double)sum)));
  ((int32_t *)launch->buffers[config.is_argmax])[row] = (float)target == where;
  if (config.has_totals) {
    ((float *)launch->buffers[config.top])[row] = m;
    ((float *)launch->buffers[config.sum])[row] = sum;
  }
  if (!config.draws) return;
  float score = -__builtin_inff(), drawn = 0.0f, zd = __builtin_nanf("");
  for (int b = 0; b < blocks; b++) {
    const float *const part = parts + width * b;
    if (part[4] > score) { score = part[4]; drawn = part[5]; zd = part[6]; }
  }
  const int32_t column = (int32_t)drawn;
  ((int32_t *)launch->buffers[config.drawn_token])[row] =
      config.maps ? (int32_t)((const float *)launch->buffers[config.ids])[column] : column;
  ((float *)launch->buffers[config.drawn_log_prob])[row] = (float)((double)zd - ((double)m + log((double)sum)));
}

TW_FN void tw_log_prob_reduce(const ReduceConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  (void)worker;
  (void)workers;
  for (RowBlock block; tw_next_rows(launch, launch->extents[config.rows], config.step, &block);)
    for (int64_t row = block.begin; row < block.end; row++) tw_reduce_row(config, launch, row);
}
