/*
 * Of each row the rows of tokens before it on its path, its own where there is none, and where the rows below it end
 * (ir/paths.ts). By one worker: it takes less time than waiting for the others would.
 */
#pragma once
#include "lib/types.h"

typedef struct Link {
  int back, out;                /* tokens back; index of the buffer */
} Link;

typedef struct LinksConfig {
  int rows, keys;               /* indices of the extents */
  int is_path;
  int subtree_end;              /* indices of buffers: of trees, */
  int begin, position, key;     /* or of lists */
  int has_end, end;
  const Link *links;
  int count;
} LinksConfig;

TW_FN void tw_link_paths(const LinksConfig config, const tw_launch *launch, int64_t rows) {
  const int64_t keys = launch->extents[config.keys];
  const int32_t *const begin = (const int32_t *)launch->buffers[config.begin];
  const int32_t *const position = (const int32_t *)launch->buffers[config.position];
  const int32_t *const key = (const int32_t *)launch->buffers[config.key];
  for (int l = 0; l < config.count; l++) {
    const int back = config.links[l].back;
    int32_t *const out = (int32_t *)launch->buffers[config.links[l].out];
    for (int64_t t = 0; t < rows; t++) {
      const int64_t at = (int64_t)begin[t] + position[t] - back, last = keys - 1;
      const int32_t found = position[t] < back ? (int32_t)t : key[at < last ? at : last];
      out[t] = found < t ? found : (int32_t)t;
    }
  }
  if (!config.has_end) return;
  /* From the last row on: behind a row lie those below it, which end where the ends of subtrees lead to. */
  int32_t *const end = (int32_t *)launch->buffers[config.end];
  for (int64_t t = rows - 1; t >= 0; t--) {
    int64_t e = t + 1;
    while (e < rows && position[e] > position[t]) e = end[e];
    end[t] = (int32_t)e;
  }
}

TW_FN void tw_link_trees(const LinksConfig config, const tw_launch *launch, int64_t rows) {
  const int32_t *const end = (const int32_t *)launch->buffers[config.subtree_end];
  for (int64_t t = 0; t < rows; t++) {
    for (int l = 0; l < config.count; l++) {
      int64_t at = t;
      for (int i = 0; i < config.links[l].back && at >= 0; i++) {
        const int64_t below = at--;
        while (at >= 0 && end[at] <= below) at--;
      }
      ((int32_t *)launch->buffers[config.links[l].out])[t] = (int32_t)(at < 0 ? t : at);
    }
  }
}

TW_FN void tw_links(const LinksConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  (void)worker;
  (void)workers;
  if (__atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED) != 0) return;
  const int64_t rows = launch->extents[config.rows];
  if (config.is_path) tw_link_paths(config, launch, rows);
  else tw_link_trees(config, launch, rows);
}
