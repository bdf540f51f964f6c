/* The steps of an item of attention/attention.h: its keys, scores, weights and results. */
#pragma once
#include "lib/elementary.h"
#include "lib/elements.h"
#include "micro/fma.h"

/* Groups of lanes of an item. */
enum { TW_MAX_GROUPS = 16 };

typedef enum { TW_PATH, TW_TREE, TW_BIAS } MaskKind;

/* Where a worker's arrays begin, in bytes. */
typedef struct AttentionMemory {
  int64_t id, end, token, place, depth, source, row, head, k, v, q, o, sum, seen, s;
} AttentionMemory;

typedef struct AttentionConfig {
  int rows, key_rows;              /* indices of extents */
  int heads, kv_heads, d;
  int queries, keys, lanes;        /* of an item, of a block, and of a group */
  int capacity;                    /* keys that an item may have, padded to 64 */
  float scale, cap, inverse_cap;   /* a cap of 0: there is none */
  int q, k, v, out;                /* indices of buffers, and elements from one row to the next */
  int64_t q_stride, k_stride, v_stride, out_stride;
  ElementType q_type, k_type, out_type;
  int is_scaled, k_scales, v_scales;
  int64_t k_scales_stride, v_scales_stride;
  int value_d;                     /* columns of a head of values; 0: d */
  int tail, q_tail, k_tail;        /* further columns of heads, those of keys the same for all; indices of buffers */
  int64_t q_tail_stride, k_tail_stride;
  MaskKind mask_kind;
  int mask, position, key_list;    /* of a path, where its keys begin; of a tree, where a key's descendants end */
  int64_t mask_stride;
  int has_query_row, query_row;    /* the buffer with the query of each row */
  int window, chunk;               /* 0: there is none */
  int has_slopes, slopes;          /* the buffer with the slope of each head */
  int64_t slopes_stride;
  float slope_factor;              /* 0: slopes times distances; else times positions of keys, in bf16, and this */
  int has_sink, sink;              /* a logit of each head, which has no value */
  ElementType sink_type;
  int score_rows, score_columns, value_rows;
  FmaTile *score, *value32, *value16;
  AttentionMemory memory;
} AttentionConfig;

typedef struct AttentionItem {
  int64_t queries;          /* of this path */
  int64_t rows, first_row;  /* lanes in use; first row of the result */
  int32_t keys;             /* keys that some query of the item may see, in order */
  int32_t low[TW_MAX_GROUPS], high[TW_MAX_GROUPS], last;  /* least and greatest token of a group; greatest of all */
  int32_t near[TW_MAX_GROUPS], far[TW_MAX_GROUPS];        /* least and greatest position of a group */
  int32_t begin;            /* of the path, in the list of keys */
  int32_t *id, *end, *token;
  int32_t *place, *depth;   /* positions of keys and queries of a tree, where they matter */
  int32_t *source;          /* rows of keys and values of a path */
  int32_t *row, *head;      /* rows of queries of a path, and their heads after the first, lane by lane */
  uint8_t *seen;            /* [group][8 keys]: whether some lane may see some of the keys */
  float *k, *v, *q, *s, *o, *sum;
} AttentionItem;

TW_FN int tw_groups(const AttentionConfig config) { return config.queries / config.lanes; }
/* Columns of a head of keys with its tail, each padded to whole vectors, and of one of values. */
TW_FN int tw_head_padded(const AttentionConfig config) { return (config.d + 15) / 16 * 16; }
TW_FN int tw_padded(const AttentionConfig config) { return tw_head_padded(config) + (config.tail + 15) / 16 * 16; }
TW_FN int tw_value_width(const AttentionConfig config) { return config.value_d > 0 ? config.value_d : config.d; }
TW_FN int tw_value_padded(const AttentionConfig config) { return (tw_value_width(config) + 15) / 16 * 16; }
/* Columns that a score adds up. */
TW_FN int tw_depth(const AttentionConfig config) {
  return config.tail > 0 ? tw_head_padded(config) + config.tail : config.d;
}

/* Whether keys that are too far back are hidden, and whether it matters to trees at which positions keys are. */
TW_FN int tw_is_bounded(const AttentionConfig config) { return config.window > 0 || config.chunk > 0; }
TW_FN int tw_asks_positions(const AttentionConfig config) { return tw_is_bounded(config) || config.has_slopes; }
/* The first position that a query at `position` sees; the first position behind that of a key that does not see it. */
TW_FN int32_t tw_first_seen(const AttentionConfig config, int32_t position) {
  if (config.chunk > 0) return position - position % config.chunk;
  return config.window > 0 && position >= config.window ? position - config.window + 1 : 0;
}
TW_FN int32_t tw_seen_before(const AttentionConfig config, int32_t position) {
  if (config.chunk > 0) return position - position % config.chunk + config.chunk;
  return position + config.window;
}

TW_FN AttentionItem tw_item_memory(const AttentionConfig config, char *scratch) {
  const AttentionMemory at = config.memory;
  AttentionItem t = { 0 };
  t.id = (int32_t *)(scratch + at.id);
  t.end = (int32_t *)(scratch + at.end);
  t.token = (int32_t *)(scratch + at.token);
  t.place = (int32_t *)(scratch + at.place);
  t.depth = (int32_t *)(scratch + at.depth);
  t.source = (int32_t *)(scratch + at.source);
  t.row = (int32_t *)(scratch + at.row);
  t.head = (int32_t *)(scratch + at.head);
  t.k = (float *)(scratch + at.k);
  t.v = (float *)(scratch + at.v);
  t.q = (float *)(scratch + at.q);
  t.o = (float *)(scratch + at.o);
  t.sum = (float *)(scratch + at.sum);
  t.seen = (uint8_t *)(scratch + at.seen);
  t.s = (float *)(scratch + at.s);
  return t;
}

/* The query of a row. */
TW_FN int32_t tw_query(const AttentionConfig config, const tw_launch *launch, int64_t row) {
  return config.has_query_row ? ((const int32_t *)launch->buffers[config.query_row])[row] : (int32_t)row;
}
/* The row of keys and values of entry j of the list, and positions of keys and queries; on a path these are numbers. */
TW_FN int64_t tw_key_row(const AttentionConfig config, const AttentionItem *t, int32_t j) {
  return config.mask_kind == TW_PATH ? t->source[j] : t->id[j];
}
TW_FN const int32_t *tw_key_positions(const AttentionConfig config, const AttentionItem *t) {
  return config.mask_kind == TW_PATH ? t->id : t->place;
}
TW_FN const int32_t *tw_query_positions(const AttentionConfig config, const AttentionItem *t) {
  return config.mask_kind == TW_PATH ? t->token : t->depth;
}

/* Keys that the item may see: its path up to the greatest position. A key's number is its position. */
TW_FN int32_t tw_list_path(const AttentionConfig config, const tw_launch *launch, AttentionItem *t) {
  const int32_t *const key = (const int32_t *)launch->buffers[config.key_list] + t->begin;
  int32_t n = 0, at = 0;
  if (tw_is_bounded(config)) {
    at = t->near[0];
    for (int g = 1; g < tw_groups(config); g++) if (t->near[g] < at) at = t->near[g];
    at = tw_first_seen(config, at);
  }
  for (; at <= t->last && n < config.capacity && t->begin + at < launch->extents[config.key_rows]; n++, at++) {
    t->id[n] = at;
    t->end[n] = INT32_MAX;
    t->source[n] = key[at];
  }
  for (int g = 0; g < tw_groups(config); g++) {
    for (int32_t j = 0; j < n; j += 8) {
      const int is_seen = t->id[j] <= t->high[g] && t->id[j] + 7 >= tw_first_seen(config, t->near[g]);
      t->seen[g * config.capacity / 8 + j / 8] = (uint8_t)is_seen;
    }
  }
  return n;
}

/* Keys that the item may see: the ancestors of its least token, then every token up to its greatest. */
TW_FN int32_t tw_list_tree(const AttentionConfig config, const tw_launch *launch, AttentionItem *t) {
  const int32_t *const end = (const int32_t *)launch->buffers[config.mask];
  const int32_t *const position = tw_asks_positions(config) ? (const int32_t *)launch->buffers[config.position] : 0;
  int32_t n = 0, near = t->near[0], low = t->low[0];
  for (int g = 1; g < tw_groups(config); g++) {
    if (t->near[g] < near) near = t->near[g];
    if (t->low[g] < low) low = t->low[g];
  }
  for (int32_t k = 0; k <= t->last;) {
    if (k < low && end[k] <= low) {
      k = end[k] > k ? end[k] : k + 1;
      continue;
    }
    if (tw_asks_positions(config)) {
      if (tw_is_bounded(config) && position[k] < tw_first_seen(config, near)) {
        k++;
        continue;
      }
      t->place[n] = position[k];
    }
    t->id[n] = k;
    t->end[n++] = end[k++];
  }
  for (int g = 0; g < tw_groups(config); g++) {
    for (int32_t j = 0; j < n; j += 8) {
      int any = 0;
      for (int32_t i = j; i < j + 8 && i < n; i++)
        any |= t->id[i] <= t->high[g] && t->end[i] > t->low[g] &&
            (!tw_is_bounded(config) || t->place[i] >= tw_first_seen(config, t->near[g]));
      t->seen[g * config.capacity / 8 + j / 8] = (uint8_t)any;
    }
  }
  return n;
}

TW_FN void tw_list_keys(const AttentionConfig config, const tw_launch *launch, AttentionItem *t) {
  if (config.mask_kind == TW_PATH) t->keys = tw_list_path(config, launch, t);
  else if (config.mask_kind == TW_TREE) t->keys = tw_list_tree(config, launch, t);
  else {
    int32_t n = 0;
    for (; n < launch->extents[config.key_rows]; n++) t->id[n] = n;
    memset(t->seen, 1, (size_t)(tw_groups(config) * config.capacity / 8));
    t->keys = n;
  }
}

/* Elements [i, i + 16) of a head of `d`, behind whose last one are zeros. */
TW_FN tw_v tw_load_head(int d, ElementType type, const char *p, int64_t i) {
  if (d % 16 == 0 || i + 16 <= d) return tw_load_as(type, p, i);
  float t[16] = { 0 };
  memcpy(t, p + i * tw_bytes_of(type), (size_t)(d % 16 * tw_bytes_of(type)));
  return tw_load_as(type, t, 0);
}

/*
 * Copies keys and values [from, to) of the list as f32. Returns whether every value is finite. One head's part of a row
 * is short and rows are far apart, which no prefetcher of the hardware follows: rows ahead are asked for here, and the
 * part of the head `next` heads on, which this worker is likely to take next.
 */
TW_FN int tw_fetch_keys(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int32_t from, int32_t to, int64_t kv,
    int64_t next) {
  const int d = config.d, dp = tw_padded(config), bytes = tw_bytes_of(config.k_type), head = tw_head_padded(config);
  const int e = tw_value_width(config), ep = tw_value_padded(config);
  const char *const tails = config.tail > 0 ? (const char *)launch->buffers[config.k_tail] : 0;
  const char *const keys = (const char *)launch->buffers[config.k];
  const char *const values = (const char *)launch->buffers[config.v];
  tw_carried check = tw_carry(tw_set1(0.0f));
  for (int32_t j = from; j < to; j++) {
    const int64_t row = tw_key_row(config, t, j), ahead = tw_key_row(config, t, j + 6 < to ? j + 6 : to - 1);
    for (int64_t i = 0; i < d; i += 64 / bytes) {
      __builtin_prefetch(keys + (ahead * config.k_stride + kv * d + i) * bytes);
      __builtin_prefetch(keys + (row * config.k_stride + (kv + next) * d + i) * bytes, 0, 2);
    }
    for (int64_t i = 0; i < e; i += 64 / bytes) {
      __builtin_prefetch(values + (ahead * config.v_stride + kv * e + i) * bytes);
      __builtin_prefetch(values + (row * config.v_stride + (kv + next) * e + i) * bytes, 0, 2);
    }
    const char *const k = keys + (row * config.k_stride + kv * d) * bytes;
    const char *const v = values + (row * config.v_stride + kv * e) * bytes;
    tw_v k_scale = tw_set1(1.0f), v_scale = tw_set1(1.0f);
    if (config.is_scaled) {
      /* What the codes of this row and head are multiplied by. */
      k_scale = tw_set1(((const float *)launch->buffers[config.k_scales])[row * config.k_scales_stride + kv]);
      v_scale = tw_set1(((const float *)launch->buffers[config.v_scales])[row * config.v_scales_stride + kv]);
    }
    for (int64_t i = 0; i < head; i += 16) {
      const tw_v y = tw_load_head(d, config.k_type, k, i);
      tw_store(t->k + (j - from) * dp + i, config.is_scaled ? y * k_scale : y);
    }
    for (int64_t i = 0; i < config.tail; i += 16)
      tw_store(t->k + (j - from) * dp + head + i,
          tw_load_head(config.tail, config.k_type, tails + row * config.k_tail_stride * bytes, i));
    for (int64_t i = 0; i < ep; i += 16) {
      const tw_v x = tw_load_head(e, config.k_type, v, i);
      const tw_v value = config.is_scaled ? x * v_scale : x;
      tw_store(t->v + (j - from) * ep + i, value);
      check = tw_carry(tw_value(check) + value * tw_set1(0.0f));
    }
  }
  for (int32_t j = to - from; j % 8 != 0; j++) memset(t->k + j * dp, 0, (size_t)dp * 4);
  return tw_sum(tw_value(check)) == 0.0f;
}

/* scale·q of one head, turned: [16 queries a panel][d][16]. `next`: the head that is turned after it. */
TW_FN void tw_turn_queries(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t head, int64_t count,
    int64_t next) {
  const int d = config.d, dp = tw_padded(config), bytes = tw_bytes_of(config.q_type);
  const int is_path = config.mask_kind == TW_PATH;
  const int64_t line = 64 / tw_bytes_of(config.k_type);
  const char *const queries = (const char *)launch->buffers[config.q];
  const char *const tails = config.tail > 0 ? (const char *)launch->buffers[config.q_tail] : 0;
  const int32_t *const rows = is_path ? t->row : t->token;
  for (int64_t p = 0; p < count; p += 16) {
    for (int l = 0; l < 16; l++) {
      const int64_t own = is_path ? next + t->head[p + l] : next;
      const char *const q = queries + (rows[p + l] * config.q_stride + own * d) * bytes;
      for (int64_t i = 0; i < d; i += line) __builtin_prefetch(q + i * bytes, 0, 2);
    }
    for (int64_t i = 0; i < config.tail; i += 16) {
      tw_v x[16];
      for (int l = 0; l < 16; l++) {
        const int64_t own = is_path ? head + t->head[p + l] : head;
        const char *const q = tails + (rows[p + l] * config.q_tail_stride + own * config.tail) * bytes;
        x[l] = tw_load_head(config.tail, config.q_type, q, i) * tw_set1(config.scale);
      }
      tw_transpose(x);
      for (int l = 0; l < 16; l++) tw_store(t->q + p * dp + (tw_head_padded(config) + i + l) * 16, x[l]);
    }
    for (int64_t i = 0; i < tw_head_padded(config); i += 16) {
      tw_v x[16];
      for (int l = 0; l < 16; l++) {
        const int64_t own = is_path ? head + t->head[p + l] : head;
        const char *const q = queries + (rows[p + l] * config.q_stride + own * d) * bytes;
        x[l] = tw_load_head(d, config.q_type, q, i) * tw_set1(config.scale);
      }
      tw_transpose(x);
      for (int l = 0; l < 16; l++) tw_store(t->q + p * dp + (i + l) * 16, x[l]);
    }
  }
}

/* Masks the scores of key j for a group. */
TW_FN void tw_mask_key(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t g, int32_t j, float *s) {
  const int32_t *const token = t->token + g * config.lanes;
  if (config.mask_kind == TW_BIAS) {
    const float *const biases = (const float *)launch->buffers[config.mask] + j;
    for (int l = 0; l < config.lanes; l++) {
      const float bias = biases[token[l] * config.mask_stride];
      s[l] = bias == -__builtin_inff() ? bias : s[l] + bias;
    }
    return;
  }
  const int32_t position = tw_is_bounded(config) ? tw_key_positions(config, t)[j] : 0;
  const int is_near = !tw_is_bounded(config) || position >= tw_first_seen(config, t->far[g]);
  if (t->id[j] <= t->low[g] && t->end[j] > t->high[g] && is_near) return;
  for (int u = 0; u < config.lanes; u += 16) {
    const tw_i at = tw_loadi(token + u);
    tw_m sees = tw_and(tw_lei(tw_seti(t->id[j]), at), tw_lti(at, tw_seti(t->end[j])));
    if (tw_is_bounded(config)) {
      const tw_i depth = tw_loadi(tw_query_positions(config, t) + g * config.lanes + u);
      sees = tw_and(sees, tw_lti(depth, tw_seti(tw_seen_before(config, position))));
    }
    tw_store(s + u, tw_select(sees, tw_load(s + u), tw_set1(-__builtin_inff())));
  }
}

/* Of 16 lanes from `lane` on: the slopes of their heads, and the positions of their queries. */
TW_FN void tw_slopes(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t lane, int64_t first_head,
    tw_carried *slope, tw_carried *position) {
  float slopes[16], positions[16];
  for (int l = 0; l < 16; l++) {
    const int64_t head = first_head + (config.mask_kind == TW_PATH ? t->head[lane + l] : 0);
    slopes[l] = ((const float *)launch->buffers[config.slopes])[head * config.slopes_stride];
    positions[l] = (float)tw_query_positions(config, t)[lane + l];
  }
  *slope = tw_carry(tw_load(slopes));
  *position = tw_carry(tw_load(positions));
}

/* The sinks of lanes [lane, lane + 16), whose heads are from `first_head` on; −∞ where there are none. */
TW_FN tw_v tw_sinks(const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t lane,
    int64_t first_head) {
  if (!config.has_sink) return tw_set1(-__builtin_inff());
  const char *const sinks = (const char *)launch->buffers[config.sink];
  float own[16];
  for (int l = 0; l < 16; l++) {
    const int64_t head = config.mask_kind == TW_PATH ? first_head + t->head[lane + l] : first_head;
    own[l] = tw_s_load_as(config.sink_type, sinks, head);
  }
  return tw_load(own);
}

/*
 * Masks the scores of a group, then softmax without the division; sums go to t->sum. A sink is part of the maximum, and
 * of the sum behind all keys.
 */
TW_FN void tw_softmax(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t g, int64_t first_head) {
  const int vectors = config.lanes / 16;
  float *const scores = t->s + g * config.capacity * config.lanes;
  const uint8_t *const seen = t->seen + g * config.capacity / 8;
  tw_carried top[2], sum[2], slope[2], position[2];
  for (int u = 0; u < vectors; u++) {
    top[u] = tw_carry(tw_sinks(config, launch, t, g * config.lanes + u * 16, first_head));
    sum[u] = tw_carry(tw_set1(0.0f));
    if (config.has_slopes)
      tw_slopes(config, launch, t, g * config.lanes + u * 16, first_head, &slope[u], &position[u]);
  }
  for (int32_t b = 0; b < t->keys; b += 8) {
    if (!seen[b / 8]) continue;
    for (int32_t j = b; j < b + 8 && j < t->keys; j++) {
      float *const s = scores + (int64_t)j * config.lanes;
      for (int u = 0; config.cap != 0.0f && u < vectors; u++)
        tw_store(s + u * 16, tw_set1(config.cap) * tw_tanh(tw_load(s + u * 16) * tw_set1(config.inverse_cap)));
      for (int u = 0; config.has_slopes && u < vectors; u++) {
        const tw_v further = tw_set1((float)tw_key_positions(config, t)[j]) - tw_value(position[u]);
        if (config.slope_factor == 0.0f) tw_store(s + u * 16, tw_fma(tw_value(slope[u]), further, tw_load(s + u * 16)));
        else {
          const tw_v place = tw_round_bf16(tw_set1((float)tw_key_positions(config, t)[j]));
          const tw_v leaning = tw_round_bf16(tw_value(slope[u]) * place) * tw_set1(config.slope_factor);
          tw_store(s + u * 16, tw_load(s + u * 16) + leaning);
        }
      }
      tw_mask_key(config, launch, t, g, j, s);
      for (int u = 0; u < vectors; u++) {
        const tw_v x = tw_load(s + u * 16);
        top[u] = tw_carry(tw_select(tw_lt(tw_value(top[u]), x), x, tw_value(top[u])));
      }
    }
  }
  for (int32_t b = 0; b < t->keys; b += 8) {
    if (!seen[b / 8]) continue;
    for (int32_t j = b; j < b + 8 && j < t->keys; j++) {
      float *const s = scores + (int64_t)j * config.lanes;
      for (int u = 0; u < vectors; u++) {
        const tw_v e = tw_exp(tw_load(s + u * 16) - tw_value(top[u]));
        tw_store(s + u * 16, e);
        sum[u] = tw_carry(tw_value(sum[u]) + e);
      }
    }
  }
  for (int u = 0; config.has_sink && u < vectors; u++) {
    const tw_v sink = tw_sinks(config, launch, t, g * config.lanes + u * 16, first_head);
    sum[u] = tw_carry(tw_value(sum[u]) + tw_exp(sink - tw_value(top[u])));
  }
  for (int u = 0; u < vectors; u++) tw_store(t->sum + g * config.lanes + u * 16, tw_value(sum[u]));
}

/*
 * Adds values [from, to), which lie from row `row` of t->v on, where some value is NaN or infinite: zero times it must
 * not reach a query that cannot see it.
 */
TW_FN void tw_add_seen(
    const AttentionConfig config, const tw_launch *launch, const AttentionItem *t, int64_t g, int32_t from, int32_t to,
    int32_t row, int first) {
  const int dp = tw_value_padded(config);
  float *const o = t->o + g * config.lanes * dp;
  if (first) memset(o, 0, (size_t)(config.lanes * dp) * 4);
  for (int32_t j = from; j < to; j++) {
    for (int64_t r = 0; r < config.lanes; r++) {
      const int64_t lane = g * config.lanes + r;
      const int32_t token = t->token[lane];
      if (config.mask_kind == TW_BIAS) {
        const float *const biases = (const float *)launch->buffers[config.mask];
        if (biases[token * config.mask_stride + j] == -__builtin_inff()) continue;
      } else {
        if (t->id[j] > token || token >= t->end[j]) continue;
        if (tw_is_bounded(config) &&
            tw_query_positions(config, t)[lane] >= tw_seen_before(config, tw_key_positions(config, t)[j]))
          continue;
      }
      const tw_v p = tw_set1(t->s[(g * config.capacity + j) * config.lanes + r]);
      for (int64_t i = 0; i < dp; i += 16)
        tw_store(o + r * dp + i, tw_fma(p, tw_load(t->v + (j - from + row) * dp + i), tw_load(o + r * dp + i)));
    }
  }
}

/* Divides the sums of a head by those of its weights, and stores them. The last head zeroes the padding of rows. */
TW_FN void tw_divide(const AttentionConfig config, const tw_launch *launch, const AttentionItem *t,
    int64_t first_head) {
  const int d = tw_value_width(config), dp = tw_value_padded(config), bytes = tw_bytes_of(config.out_type);
  const int width = config.heads * d;
  for (int64_t r = 0; r < t->rows; r++) {
    const int is_path = config.mask_kind == TW_PATH;
    const int64_t row = t->first_row + (is_path ? r % t->queries : r);
    const int64_t head = is_path ? first_head + t->head[r] : first_head;
    char *const out = (char *)launch->buffers[config.out] + row * config.out_stride * bytes;
    const tw_v sum = tw_set1(t->sum[r]);
    for (int64_t i = 0; i + 16 <= d; i += 16)
      tw_store_as(config.out_type, out, head * d + i, tw_load(t->o + r * dp + i) / sum);
    for (int64_t i = d / 16 * 16; i < d; i++)
      tw_s_store_as(config.out_type, out, head * d + i, t->o[r * dp + i] / t->sum[r]);
    if (width % 32 != 0 && head == config.heads - 1)
      memset(out + width * bytes, 0, (size_t)((width + 31) / 32 * 32 - width) * bytes);
  }
}
