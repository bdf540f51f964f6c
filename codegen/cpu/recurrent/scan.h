/*
 * States that go from token to token (ir/ops/recurrent.ts): S[d, 16] of some columns of a head, f32.
 *
 * A work item has 16 columns of a head and the rows of a tree, which it takes in order, each behind the row before it
 * on its path. States of rows where paths part are kept, the nearest to the root first. Where a path goes on from
 * another one, its state is computed again, from the nearest row above it whose state is kept: the same operations in
 * the same order, and so the same bits.
 *
 * Where states are kept between calls, a tree goes on from a row of them, and states behind some of its rows go to
 * others. An item has read its own before it writes. It needs that no more,
 * once rows part: the first that does is kept.
 *
 * What is added up over d is the sum of four, each of every fourth row of the state.
 */
#pragma once
#include "lib/elements.h"

enum { TW_SCAN_SUMS = 4, TW_SCAN_MAX_DIM = 256 };

typedef struct ScanConfig {
  int rows;                             /* index of the extent */
  int q, k, v, decay, beta, skip, out;  /* indices of buffers, and elements from one row to the next */
  int before, end;
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, skip_stride, out_stride;
  ElementType type, out_type, skip_type;
  int key_heads, heads, key_dim, value_dim;
  int takes_turns;                      /* heads take those of keys in turn; else neighbours share one */
  int is_delta, is_normed, has_skip;
  float scale, epsilon;
  int kept;                             /* states of rows where paths part, at most */
  int pad;                              /* columns of `out` behind the last head, which are zeros */
  int keeps;                            /* states [rows, heads * d * e]: what a tree goes on from, and where they go */
  int states, from, to, also;
  int64_t states_stride;
} ScanConfig;

/* What an item works with, in the worker's scratch memory: rows of states in vectors of 16, padded to whole sums. */
typedef struct ScanItem {
  int head, key_head, column, columns;
  int padded;
  float *k, *q;
  tw_v *state, *saved;
} ScanItem;

/* Elements [0, d) of a head, divided by their norm, times scale; zeros up to `padded`. */
TW_FN void tw_scan_load(const ScanConfig config, const void *p, int64_t from, float scale, int padded, float *x) {
  const int d = config.key_dim;
  tw_v squares = tw_set1(0.0f);
  for (int i = 0; i < d; i += 16) {
    tw_v part;
    if (i + 16 <= d) part = tw_load_as(config.type, p, from + i);
    else {
      float t[16] = { 0 };
      for (int j = 0; i + j < d; j++) t[j] = tw_s_load_as(config.type, p, from + i + j);
      part = tw_load(t);
    }
    squares = tw_fma(part, part, squares);
    tw_store(x + i, part);
  }
  float factor = scale;
  if (config.is_normed) factor = scale / sqrtf(tw_sum(squares) + config.epsilon);
  for (int i = 0; i < padded; i += 16) tw_store(x + i, tw_load(x + i) * tw_set1(factor));
}

/* Columns of a row of v, zeros behind them. */
TW_FN tw_v tw_scan_values(const ScanConfig config, const tw_launch *launch, const ScanItem *item, int64_t row) {
  const void *const v = launch->buffers[config.v];
  const int64_t from = row * config.v_stride + item->head * config.value_dim + item->column;
  if (item->columns == 16) return tw_load_as(config.type, v, from);
  float t[16] = { 0 };
  for (int j = 0; j < item->columns; j++) t[j] = tw_s_load_as(config.type, v, from + j);
  return tw_load(t);
}

/* The state behind `row`, made of that before it; is_told: and what is read of it. */
TW_FN void tw_scan_row(
    const ScanConfig config, const tw_launch *launch, const ScanItem *item, int64_t row, int is_told) {
  const int padded = item->padded;
  const float *const k = item->k, *const q = item->q;
  tw_v *const state = item->state;
  tw_scan_load(config, launch->buffers[config.k], row * config.k_stride + item->key_head * config.key_dim, 1.0f,
      padded, item->k);
  if (is_told)
    tw_scan_load(config, launch->buffers[config.q], row * config.q_stride + item->key_head * config.key_dim,
        config.scale, padded, item->q);
  const tw_v decay =
      tw_set1(((const float *)launch->buffers[config.decay])[row * config.decay_stride + item->head]);
  const float beta = ((const float *)launch->buffers[config.beta])[row * config.beta_stride + item->head];
  const tw_v values = tw_scan_values(config, launch, item, row);
  tw_v added = values * tw_set1(beta);
  if (config.is_delta) {
    tw_v s0 = tw_set1(0.0f), s1 = s0, s2 = s0, s3 = s0;
    for (int i = 0; i < padded; i += TW_SCAN_SUMS) {
      const tw_v a = state[i] * decay, b = state[i + 1] * decay, c = state[i + 2] * decay, d = state[i + 3] * decay;
      s0 = tw_fma(tw_set1(k[i]), a, s0);
      s1 = tw_fma(tw_set1(k[i + 1]), b, s1);
      s2 = tw_fma(tw_set1(k[i + 2]), c, s2);
      s3 = tw_fma(tw_set1(k[i + 3]), d, s3);
      state[i] = a;
      state[i + 1] = b;
      state[i + 2] = c;
      state[i + 3] = d;
    }
    added = (values - ((s0 + s1) + (s2 + s3))) * tw_set1(beta);
  }
  const tw_v factor = config.is_delta ? tw_set1(1.0f) : decay;
  tw_v o0 = tw_set1(0.0f), o1 = o0, o2 = o0, o3 = o0;
  for (int i = 0; i < padded; i += TW_SCAN_SUMS) {
    const tw_v a = tw_fma(tw_set1(k[i]), added, state[i] * factor);
    const tw_v b = tw_fma(tw_set1(k[i + 1]), added, state[i + 1] * factor);
    const tw_v c = tw_fma(tw_set1(k[i + 2]), added, state[i + 2] * factor);
    const tw_v d = tw_fma(tw_set1(k[i + 3]), added, state[i + 3] * factor);
    state[i] = a;
    state[i + 1] = b;
    state[i + 2] = c;
    state[i + 3] = d;
    if (is_told) {
      o0 = tw_fma(tw_set1(q[i]), a, o0);
      o1 = tw_fma(tw_set1(q[i + 1]), b, o1);
      o2 = tw_fma(tw_set1(q[i + 2]), c, o2);
      o3 = tw_fma(tw_set1(q[i + 3]), d, o3);
    }
  }
  if (!is_told) return;
  tw_v sum = (o0 + o1) + (o2 + o3);
  if (config.has_skip) {
    const float skip = tw_s_load_as(config.skip_type, launch->buffers[config.skip], item->head * config.skip_stride);
    sum = tw_fma(tw_set1(skip), values, sum);
  }
  void *const out = launch->buffers[config.out];
  const int64_t to = row * config.out_stride + item->head * config.value_dim + item->column;
  if (item->columns == 16) tw_store_as(config.out_type, out, to, sum);
  else
    for (int j = 0; j < item->columns; j++) tw_s_store_as(config.out_type, out, to + j, sum[j]);
  if (item->head == config.heads - 1 && item->column + item->columns == config.value_dim)
    for (int j = 0; j < config.pad; j++) tw_s_store_as(config.out_type, out, to + item->columns + j, 0.0f);
}

TW_FN void tw_scan_zero(const ScanItem *item) {
  memset(item->state, 0, (size_t)item->padded * sizeof(tw_v));
}

/* The item's columns of the first row of a head's state in row `row` of the states. */
TW_FN float *tw_scan_kept(const ScanConfig config, const tw_launch *launch, const ScanItem *item, int64_t row) {
  return (float *)launch->buffers[config.states] + row * config.states_stride
      + (int64_t)item->head * config.key_dim * config.value_dim + item->column;
}

/* What a tree that begins with row `first` goes on from. */
TW_FN void tw_scan_begin(const ScanConfig config, const tw_launch *launch, const ScanItem *item, int64_t first) {
  tw_scan_zero(item);
  if (!config.keeps) return;
  const int32_t row = ((const int32_t *)launch->buffers[config.from])[first];
  if (row < 0) return;
  const float *p = tw_scan_kept(config, launch, item, row);
  for (int i = 0; i < config.key_dim; i++, p += config.value_dim) {
    if (item->columns == 16) item->state[i] = tw_load(p);
    else {
      float t[16] = { 0 };
      for (int j = 0; j < item->columns; j++) t[j] = p[j];
      item->state[i] = tw_load(t);
    }
  }
}

/* Writes the state to row `row` of the states, unless that is none. */
TW_FN void tw_scan_keep(const ScanConfig config, const tw_launch *launch, const ScanItem *item, int32_t row) {
  if (row < 0) return;
  float *p = tw_scan_kept(config, launch, item, row);
  for (int i = 0; i < config.key_dim; i++, p += config.value_dim) {
    if (item->columns == 16) tw_store(p, item->state[i]);
    else
      for (int j = 0; j < item->columns; j++) p[j] = item->state[i][j];
  }
}

/* The rows [first, past) of a tree. */
TW_FN void tw_scan_tree(
    const ScanConfig config, const tw_launch *launch, const ScanItem *item, int64_t first, int64_t past) {
  const int32_t *const before = (const int32_t *)launch->buffers[config.before];
  const int32_t *const end = (const int32_t *)launch->buffers[config.end];
  const size_t bytes = (size_t)item->padded * sizeof(tw_v);
  int64_t rows[32];
  int kept = 0;
  for (int64_t row = first; row < past; row++) {
    const int64_t parent = row == first ? row : before[row];
    if (parent >= row || parent < first) tw_scan_begin(config, launch, item, first);
    else if (parent != row - 1) {
      while (kept > 0 && rows[kept - 1] > parent) kept--;
      int64_t at;
      if (kept > 0) {
        at = rows[kept - 1];
        memcpy(item->state, item->saved + (kept - 1) * item->padded, bytes);
      } else {
        at = first;
        tw_scan_begin(config, launch, item, first);
        tw_scan_row(config, launch, item, at, 0);
      }
      /* Down the path to the parent: of the rows below `at`, the one that it lies below. */
      while (at < parent) {
        at++;
        while (end[at] <= parent && end[at] > at) at = end[at];
        tw_scan_row(config, launch, item, at, 0);
      }
    }
    tw_scan_row(config, launch, item, row, 1);
    if (config.keeps) {
      tw_scan_keep(config, launch, item, ((const int32_t *)launch->buffers[config.to])[row]);
      tw_scan_keep(config, launch, item, ((const int32_t *)launch->buffers[config.also])[row]);
    }
    /* More than the next row goes on from here. */
    const int parts = row + 1 < past && before[row + 1] == row && end[row + 1] < end[row];
    if (parts && kept < config.kept) {
      rows[kept] = row;
      memcpy(item->saved + kept * item->padded, item->state, bytes);
      kept++;
    }
  }
}

TW_FN void tw_scan(const ScanConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.key_dim <= TW_SCAN_MAX_DIM && config.kept <= 32);
  (void)workers;
  const int64_t rows = launch->extents[config.rows];
  const int32_t *const before = (const int32_t *)launch->buffers[config.before];
  const int blocks = (config.value_dim + 15) / 16;
  const int64_t of_tree = (int64_t)blocks * config.heads;
  ScanItem item;
  item.padded = (config.key_dim + 15) / 16 * 16;
  item.state = (tw_v *)(launch->scratch + worker * launch->scratch_bytes);
  item.saved = item.state + item.padded;
  item.k = (float *)(item.saved + config.kept * item.padded);
  item.q = item.k + item.padded;
  /* Trees in order: this one is the `tree`th, and has the rows [first, past). */
  int64_t tree = -1, first = 0, past = 0;
  for (;;) {
    const int64_t at = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    const int64_t wanted = at / of_tree, own = at % of_tree;
    while (tree < wanted && past < rows) {
      first = past;
      for (past = first + 1; past < rows && before[past] < past;) past++;
      tree++;
    }
    if (tree < wanted) return;
    item.head = (int)(own / blocks);
    item.key_head = config.takes_turns ? item.head % config.key_heads
                                       : (int)((int64_t)item.head * config.key_heads / config.heads);
    item.column = (int)(own % blocks) * 16;
    item.columns = config.value_dim - item.column < 16 ? config.value_dim - item.column : 16;
    tw_scan_tree(config, launch, &item, first, past);
  }
}
