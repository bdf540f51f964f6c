/*
 * Attention: softmax(scale · q·k + mask) · v for heads that share heads of keys.
 *
 *   q, out   [rows][heads · d]
 *   k, v     [rows][kv_heads · d], floats, or codes with a scale for each row and head; heads of values and results may
 *            have another width, and those of queries and keys a tail, of keys the same for all heads
 *   mask     TW_PATH   query row r sees the keys of its path up to its position
 *            TW_TREE   token t sees key k where k ≤ t < end[k]
 *            TW_BIAS   a bias is added to every score; −∞: not seen
 *            With a window a query sees keys less than that many positions before its own, with chunks those whose
 *            position divided by the chunk gives the same whole number. With slopes a score has that of its head added
 *            for each position that the key is further on.
 *
 * A work item is `queries` queries of the heads that share one head of keys; it fetches their keys once, and works on
 * `lanes` queries, a group, at a time. Scores lie [key][query], so a key is masked, its exponential taken and the sum
 * made in order of keys, lanes = queries: a key that a query does not see adds an exact zero, and the answer does not
 * depend on the tile a query falls in. Blocks of 8 keys that no lane sees are left out.
 *
 * Scratch memory: AttentionMemory. The steps of an item are in attention/softmax.h.
 */
#pragma once
#include "attention/softmax.h"

/* Rows [first_row, …) as they come, their tokens and, where they matter, positions. */
TW_FN void tw_begin_item(const AttentionConfig config, const tw_launch *launch, AttentionItem *t, int64_t rows) {
  t->rows = rows - t->first_row < config.queries ? rows - t->first_row : config.queries;
  t->last = 0;
  for (int g = 0; g < tw_groups(config); g++) {
    t->low[g] = INT32_MAX;
    t->high[g] = 0;
    t->near[g] = INT32_MAX;
    t->far[g] = 0;
    for (int64_t r = g * config.lanes; r < (g + 1) * config.lanes; r++) {
      const int64_t row = t->first_row + (r < t->rows ? r : t->rows - 1);
      const int32_t token = tw_query(config, launch, row);
      t->token[r] = token;
      if (token < t->low[g]) t->low[g] = token;
      if (token > t->high[g]) t->high[g] = token;
      if (tw_asks_positions(config)) {
        const int32_t depth = ((const int32_t *)launch->buffers[config.position])[token];
        t->depth[r] = depth;
        if (depth < t->near[g]) t->near[g] = depth;
        if (depth > t->far[g]) t->far[g] = depth;
      }
    }
    if (t->high[g] > t->last) t->last = t->high[g];
  }
}

/* The queries of the path that row `first_row` is of, up to row `end`. Returns how many heads lie side by side. */
TW_FN int64_t tw_begin_path(const AttentionConfig config, const tw_launch *launch, AttentionItem *t, int64_t end) {
  const int32_t *const begins = (const int32_t *)launch->buffers[config.mask];
  const int32_t *const positions = (const int32_t *)launch->buffers[config.position];
  const int64_t shared = config.heads / config.kv_heads;
  for (t->queries = 0; t->first_row + t->queries < end; t->queries++) {
    const int32_t query = tw_query(config, launch, t->first_row + t->queries);
    if (t->queries > 0 && begins[query] != t->begin) break;
    t->begin = begins[query];
    t->row[t->queries] = query;
  }
  /* Heads that share keys lie side by side, as many as there are lanes for, and as many each time. */
  int64_t heads = shared;
  while (t->queries * heads > config.queries || shared % heads != 0) heads--;
  t->rows = t->queries * heads;
  for (int64_t r = 0; r < config.queries; r++) {
    const int64_t lane = r < t->rows ? r : t->rows - 1;
    t->head[r] = (int32_t)(lane / t->queries);
    t->row[r] = t->row[lane % t->queries];
    t->token[r] = positions[t->row[r]];
  }
  t->last = 0;
  for (int g = 0; g < tw_groups(config); g++) {
    t->low[g] = INT32_MAX;
    t->high[g] = 0;
    for (int64_t r = g * config.lanes; r < (g + 1) * config.lanes; r++) {
      if (t->token[r] < t->low[g]) t->low[g] = t->token[r];
      if (t->token[r] > t->high[g]) t->high[g] = t->token[r];
    }
    if (t->high[g] > t->last) t->last = t->high[g];
    t->near[g] = t->low[g];
    t->far[g] = t->high[g];
  }
  return heads;
}

/* Scores of keys [from, to) of the list, which lie from row 0 of t->k on. */
TW_FN void tw_scores(const AttentionConfig config, const AttentionItem *t, int64_t groups, int32_t from, int32_t to) {
  const int dp = tw_padded(config);
  for (int64_t g = 0; g < groups; g++) {
    for (int32_t j = from; j < to; j += config.score_rows) {
      if (!t->seen[g * config.capacity / 8 + j / 8]) continue;
      for (int64_t p = 0; p < config.lanes; p += config.score_columns)
        config.score(t->k + (j - from) * dp, t->q + (g * config.lanes + p) * dp,
            t->s + (g * config.capacity + j) * config.lanes + p, tw_depth(config), 1);
    }
  }
}

/* Adds keys' values times their weights to the sums, keys [from, to) of the list; `finite`: all of them are. */
TW_FN void tw_add_values(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t groups, int32_t from,
    int32_t to, int finite, int *started) {
  const int dp = tw_value_padded(config);
  for (int64_t g = 0; g < groups; g++) {
    const uint8_t *const seen = t->seen + g * config.capacity / 8;
    for (int32_t j = from; j < to;) {
      if (!seen[j / 8]) {
        j += 8;
        continue;
      }
      int32_t e = j + 8;
      while (e < to && seen[e / 8]) e += 8;
      if (e > to) e = to;
      if (!finite) {
        tw_add_seen(config, launch, t, g, j, e, j - from, !started[g]);
      } else {
        const int64_t left = config.mask_kind == TW_PATH ? t->rows - g * config.lanes : config.lanes;
        for (int64_t r = 0; r < config.lanes && r < left; r += config.value_rows) {
          const float *const s = t->s + (g * config.capacity + j) * config.lanes + r;
          const float *const v = t->v + (j - from) * dp;
          float *const o = t->o + (g * config.lanes + r) * dp;
          int64_t i = 0;
          if (config.value32) {
            for (; i + 32 <= dp; i += 32) config.value32(s, v + i, o + i, e - j, !started[g]);
          }
          if (config.value16) {
            for (; i + 16 <= dp; i += 16) config.value16(s, v + i, o + i, e - j, !started[g]);
          }
        }
      }
      started[g] = 1;
      j = e;
    }
  }
}

/* An item whose queries are known, for the heads that share head `kv` of keys, `heads` of them at a time. */
TW_FN void tw_attend(
    const AttentionConfig config, const tw_launch *launch, AttentionItem *t, int64_t kv, int64_t heads,
    int32_t workers) {
  const int64_t shared = config.heads / config.kv_heads, groups = (t->rows + config.lanes - 1) / config.lanes;
  const int dp = tw_padded(config);
  tw_list_keys(config, launch, t);
  const int64_t next_kv = kv + workers < config.kv_heads ? workers : 0;
  int finite = 1;
  for (int64_t head = kv * shared; head < (kv + 1) * shared; head += heads) {
    tw_turn_queries(config, launch, t, head, groups * config.lanes,
        head + heads < (kv + 1) * shared ? head + heads : (kv + next_kv) * shared);
    /* One block of keys stays for all heads of the group; more are fetched again. */
    for (int32_t from = 0; from < t->keys; from += config.keys) {
      const int32_t to = t->keys - from < config.keys ? t->keys : from + config.keys;
      if (t->keys > config.keys || head == kv * shared)
        finite = tw_fetch_keys(config, launch, t, from, to, kv, next_kv);
      tw_scores(config, t, groups, from, to);
    }
    for (int64_t g = 0; g < groups; g++) tw_softmax(config, launch, t, g, head);
    int started[TW_MAX_GROUPS] = { 0 };
    for (int32_t from = 0; from < t->keys; from += config.keys) {
      const int32_t to = t->keys - from < config.keys ? t->keys : from + config.keys;
      if (t->keys > config.keys) finite = tw_fetch_keys(config, launch, t, from, to, kv, next_kv);
      tw_add_values(config, launch, t, groups, from, to, finite, started);
    }
    /* Queries with a sink that see no key. */
    for (int64_t g = 0; config.has_sink && g < groups; g++)
      if (!started[g]) memset(t->o + g * config.lanes * dp, 0, (size_t)(config.lanes * dp) * 4);
    tw_divide(config, launch, t, head);
  }
}

TW_FN void tw_attention(const AttentionConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.queries % config.lanes == 0 && tw_groups(config) <= TW_MAX_GROUPS);
  TW_LIMIT(config.lanes == 16 || config.lanes == 32);
  TW_LIMIT(config.keys % 8 == 0 && config.capacity % 64 == 0 && config.heads % config.kv_heads == 0);
  const int64_t rows = launch->extents[config.rows];
  int64_t step = config.queries;
  /* Fewer rows in an item where workers would be left without one. */
  while (config.mask_kind == TW_PATH && step > 1 && (rows + step - 1) / step * config.kv_heads < 2 * workers)
    step = (step + 1) / 2;
  const int64_t tiles = (rows + step - 1) / step;
  AttentionItem t = tw_item_memory(config, launch->scratch + worker * launch->scratch_bytes);
  for (;;) {
    const int64_t item = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    if (item >= tiles * config.kv_heads) break;
    const int64_t kv = item % config.kv_heads, first = item / config.kv_heads * step;
    if (config.mask_kind != TW_PATH) {
      t.first_row = first;
      tw_begin_item(config, launch, &t, rows);
      tw_attend(config, launch, &t, kv, 1, workers);
      continue;
    }
    /* The queries of one path at a time. */
    const int64_t end = first + step < rows ? first + step : rows;
    for (t.first_row = first; t.first_row < end; t.first_row += t.queries) {
      const int64_t heads = tw_begin_path(config, launch, &t, end);
      tw_attend(config, launch, &t, kv, heads, workers);
    }
  }
}
