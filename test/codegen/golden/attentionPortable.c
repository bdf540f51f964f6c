/* layers.attention: attention, portable, queries 32, keys 64. */
#include "lib/elementary.h"

#ifndef TW_HAS_tw_portable_2x16_f32_a32_1_b16_512_c32_u4
#define TW_HAS_tw_portable_2x16_f32_a32_1_b16_512_c32_u4
/*
 * c[2][16] (+)= a·b in order of k, one accumulator an element.
 * a[r·32 + k·1]; b: float[k·16 + panel·512 + lane].
 */
static __attribute__((noinline)) void tw_portable_2x16_f32_a32_1_b16_512_c32_u4(
    const float *a, const float *b, float *c, int64_t kn, int first) {
  tw_v c0_0, c1_0;
  if (first) {
    c0_0 = tw_set1(0.0f);
    c1_0 = tw_set1(0.0f);
  } else {
    c0_0 = tw_load(c + 0);
    c1_0 = tw_load(c + 32);
  }
    for (; kn >= 4; kn -= 4) {
      const tw_v b0_0 = tw_load(b + 0);
      const tw_v a0_0 = tw_set1(a[0]);
      c0_0 = tw_fma(a0_0, b0_0, c0_0);
      const tw_v a0_1 = tw_set1(a[32]);
      c1_0 = tw_fma(a0_1, b0_0, c1_0);
      const tw_v b1_0 = tw_load(b + 16);
      const tw_v a1_0 = tw_set1(a[1]);
      c0_0 = tw_fma(a1_0, b1_0, c0_0);
      const tw_v a1_1 = tw_set1(a[33]);
      c1_0 = tw_fma(a1_1, b1_0, c1_0);
      const tw_v b2_0 = tw_load(b + 32);
      const tw_v a2_0 = tw_set1(a[2]);
      c0_0 = tw_fma(a2_0, b2_0, c0_0);
      const tw_v a2_1 = tw_set1(a[34]);
      c1_0 = tw_fma(a2_1, b2_0, c1_0);
      const tw_v b3_0 = tw_load(b + 48);
      const tw_v a3_0 = tw_set1(a[3]);
      c0_0 = tw_fma(a3_0, b3_0, c0_0);
      const tw_v a3_1 = tw_set1(a[35]);
      c1_0 = tw_fma(a3_1, b3_0, c1_0);
      a += 4 * 1;
      b += 4 * 16;
    }
  for (; kn > 0; kn--) {
    const tw_v b0 = tw_load(b + 0);
    const tw_v a0 = tw_set1(a[0]);
    c0_0 = tw_fma(a0, b0, c0_0);
    const tw_v a1 = tw_set1(a[32]);
    c1_0 = tw_fma(a1, b0, c1_0);
    a += 1;
    b += 16;
  }
  tw_store(c + 0, c0_0);
  tw_store(c + 32, c1_0);
}
#endif

#ifndef TW_HAS_tw_portable_2x16_f32_a1_32_b32_16_c32_u4
#define TW_HAS_tw_portable_2x16_f32_a1_32_b32_16_c32_u4
/*
 * c[2][16] (+)= a·b in order of k, one accumulator an element.
 * a[r·1 + k·32]; b: float[k·32 + panel·16 + lane].
 */
static __attribute__((noinline)) void tw_portable_2x16_f32_a1_32_b32_16_c32_u4(
    const float *a, const float *b, float *c, int64_t kn, int first) {
  tw_v c0_0, c1_0;
  if (first) {
    c0_0 = tw_set1(0.0f);
    c1_0 = tw_set1(0.0f);
  } else {
    c0_0 = tw_load(c + 0);
    c1_0 = tw_load(c + 32);
  }
    for (; kn >= 4; kn -= 4) {
      const tw_v b0_0 = tw_load(b + 0);
      const tw_v a0_0 = tw_set1(a[0]);
      c0_0 = tw_fma(a0_0, b0_0, c0_0);
      const tw_v a0_1 = tw_set1(a[1]);
      c1_0 = tw_fma(a0_1, b0_0, c1_0);
      const tw_v b1_0 = tw_load(b + 32);
      const tw_v a1_0 = tw_set1(a[32]);
      c0_0 = tw_fma(a1_0, b1_0, c0_0);
      const tw_v a1_1 = tw_set1(a[33]);
      c1_0 = tw_fma(a1_1, b1_0, c1_0);
      const tw_v b2_0 = tw_load(b + 64);
      const tw_v a2_0 = tw_set1(a[64]);
      c0_0 = tw_fma(a2_0, b2_0, c0_0);
      const tw_v a2_1 = tw_set1(a[65]);
      c1_0 = tw_fma(a2_1, b2_0, c1_0);
      const tw_v b3_0 = tw_load(b + 96);
      const tw_v a3_0 = tw_set1(a[96]);
      c0_0 = tw_fma(a3_0, b3_0, c0_0);
      const tw_v a3_1 = tw_set1(a[97]);
      c1_0 = tw_fma(a3_1, b3_0, c1_0);
      a += 4 * 32;
      b += 4 * 32;
    }
  for (; kn > 0; kn--) {
    const tw_v b0 = tw_load(b + 0);
    const tw_v a0 = tw_set1(a[0]);
    c0_0 = tw_fma(a0, b0, c0_0);
    const tw_v a1 = tw_set1(a[1]);
    c1_0 = tw_fma(a1, b0, c1_0);
    a += 32;
    b += 32;
  }
  tw_store(c + 0, c0_0);
  tw_store(c + 32, c1_0);
}
#endif

/*
 * 2 heads of 32 over 1 of keys. A work item is 32 queries of the heads that share one
 * head of keys; it fetches their keys once, and works on 32 queries at a time. Scores lie [key][query], so a key
 * is masked, its exponential taken and the sum made in order of keys, lanes = queries: a key that a query does not see
 * adds an exact zero, and the answer does not depend on the tile a query falls in. Blocks of 8 keys that no lane sees
 * are left out.
 */
typedef struct k_attention_427d012ea5c82013_8c2171fa_item {
  int64_t rows, first_row;  /* queries of this item, and its first row of the result */
  int32_t keys;             /* keys that some query of the item may see, in order */
  int32_t low[1], high[1], last;
    /* least and greatest token of each 32 queries; greatest of all */
  int32_t *id, *end, *token;
  uint8_t *seen;            /* [group of lanes][8 keys]: whether some lane may see some of the keys */
  float *k, *v, *q, *s, *o, *sum;
} k_attention_427d012ea5c82013_8c2171fa_item;

TW_FN tw_v k_attention_427d012ea5c82013_8c2171fa_load_k(const float *p, int64_t i) { return tw_load_f32(p + i); }

/* Keys that the item may see: the ancestors of its least token, then every token up to its greatest. */
static void k_attention_427d012ea5c82013_8c2171fa_list(
    const tw_launch *launch, k_attention_427d012ea5c82013_8c2171fa_item *t) {
  int32_t n = 0;
  const int32_t *end = (const int32_t *)launch->buffers[3];
  int32_t low = t->low[0];
  for (int g = 1; g < 1; g++) if (t->low[g] < low) low = t->low[g];
  for (int32_t k = 0; k <= t->last;) {
    if (k < low && end[k] <= low) {
      k = end[k] > k ? end[k] : k + 1;
      continue;
    }
    t->id[n] = k;
    t->end[n++] = end[k++];
  }
  for (int g = 0; g < 1; g++) {
    for (int32_t j = 0; j < n; j += 8) {
      int any = 0;
      for (int32_t i = j; i < j + 8 && i < n; i++) any |= t->id[i] <= t->high[g] && t->end[i] > t->low[g];
      t->seen[g * 128 / 8 + j / 8] = (uint8_t)any;
    }
  }
  t->keys = n;
}

/*
 * Copies keys and values [from, to) of the list as f32. Returns whether every value is finite. One head's part of a row
 * is short and rows are far apart, which no prefetcher of the hardware follows: rows ahead are asked for here, and the
 * part of the head `next` heads on, which this worker is likely to take next.
 */
static int k_attention_427d012ea5c82013_8c2171fa_fetch(
    const tw_launch *launch, const k_attention_427d012ea5c82013_8c2171fa_item *t,
    int32_t from, int32_t to, int64_t kv, int64_t next) {
  tw_carried check = tw_carry(tw_set1(0.0f));
  for (int32_t j = from; j < to; j++) {
    const int64_t ahead = t->id[j + 6 < to ? j + 6 : to - 1];
    for (int64_t i = 0; i < 32; i += 16) {
      __builtin_prefetch((const float *)launch->buffers[1] + ahead * 32 + kv * 32 + i);
      __builtin_prefetch((const float *)launch->buffers[2] + ahead * 32 + kv * 32 + i);
      __builtin_prefetch((const float *)launch->buffers[1] + (int64_t)t->id[j] * 32 + (kv + next)
          * 32 + i, 0, 2);
      __builtin_prefetch((const float *)launch->buffers[2] + (int64_t)t->id[j] * 32 + (kv + next)
          * 32 + i, 0, 2);
    }
    const float *k = (const float *)launch->buffers[1] + (int64_t)t->id[j] * 32 + kv * 32;
    const float *v = (const float *)launch->buffers[2] + (int64_t)t->id[j] * 32 + kv * 32;
    for (int64_t i = 0; i < 32; i += 16) {
      const tw_v x = k_attention_427d012ea5c82013_8c2171fa_load_k(v, i);
      tw_store(t->k + (j - from) * 32 + i, k_attention_427d012ea5c82013_8c2171fa_load_k(k, i));
      tw_store(t->v + (j - from) * 32 + i, x);
      check = tw_carry(tw_value(check) + x * tw_set1(0.0f));
    }
  }
  for (int32_t j = to - from; j % 8 != 0; j++) memset(t->k + j * 32, 0, 32 * 4);
  return tw_sum(tw_value(check)) == 0.0f;
}

/* scale·q of one head, turned: [16 queries a panel][d][16]. */
static void k_attention_427d012ea5c82013_8c2171fa_turn(
    const tw_launch *launch, const k_attention_427d012ea5c82013_8c2171fa_item *t,
    int64_t head, int64_t count, int64_t next) {
  for (int64_t p = 0; p < count; p += 16) {
    for (int l = 0; l < 16; l++) {
      const float *q = (const float *)launch->buffers[0] + (int64_t)t->token[p + l] * 64
          + next * 32;
      for (int64_t i = 0; i < 32; i += 16) __builtin_prefetch(q + i, 0, 2);
    }
    for (int64_t i = 0; i < 32; i += 16) {
      tw_v x[16];
      for (int l = 0; l < 16; l++) {
        const float *q = (const float *)launch->buffers[0] + (int64_t)t->token[p + l] * 64
            + head * 32;
        x[l] = k_attention_427d012ea5c82013_8c2171fa_load_k(q, i) * tw_set1(0.1767766922712326f);
      }
      tw_transpose(x);
      for (int l = 0; l < 16; l++) tw_store(t->q + p * 32 + (i + l) * 16, x[l]);
    }
  }
}

/* Masks the scores of one group of lanes, then softmax without the division; sums go to t->sum. */
static void k_attention_427d012ea5c82013_8c2171fa_softmax(
    const tw_launch *launch, const k_attention_427d012ea5c82013_8c2171fa_item *t, int64_t g) {
  (void)launch;
  const int32_t *token = t->token + g * 32;
  float *scores = t->s + g * 128 * 32;
  const uint8_t *seen = t->seen + g * 128 / 8;
  tw_carried top[2], sum[2];
  for (int u = 0; u < 2; u++) {
    top[u] = tw_carry(tw_set1(-__builtin_inff()));
    sum[u] = tw_carry(tw_set1(0.0f));
  }
  for (int32_t b = 0; b < t->keys; b += 8) {
    if (!seen[b / 8]) continue;
    for (int32_t j = b; j < b + 8 && j < t->keys; j++) {
      float *s = scores + (int64_t)j * 32;
      if (t->id[j] > t->low[g] || t->end[j] <= t->high[g]) {
        for (int u = 0; u < 2; u++) {
          const tw_i at = tw_loadi(token + u * 16);
          const tw_m sees = tw_and(tw_lei(tw_seti(t->id[j]), at), tw_lti(at, tw_seti(t->end[j])));
          tw_store(s + u * 16, tw_select(sees, tw_load(s + u * 16), tw_set1(-__builtin_inff())));
        }
      }
      for (int u = 0; u < 2; u++) {
        const tw_v x = tw_load(s + u * 16);
        top[u] = tw_carry(tw_select(tw_lt(tw_value(top[u]), x), x, tw_value(top[u])));
      }
    }
  }
  for (int32_t b = 0; b < t->keys; b += 8) {
    if (!seen[b / 8]) continue;
    for (int32_t j = b; j < b + 8 && j < t->keys; j++) {
      float *s = scores + (int64_t)j * 32;
      for (int u = 0; u < 2; u++) {
        const tw_v e = tw_exp(tw_load(s + u * 16) - tw_value(top[u]));
        tw_store(s + u * 16, e);
        sum[u] = tw_carry(tw_value(sum[u]) + e);
      }
    }
  }
  for (int u = 0; u < 2; u++) tw_store(t->sum + g * 32 + u * 16, tw_value(sum[u]));
}

/*
 * Adds values [from, to), which lie from row `row` of t->v on, where some value is NaN or infinite: zero times it must
 * not reach a query that cannot see it.
 */
static void k_attention_427d012ea5c82013_8c2171fa_add_seen(
    const tw_launch *launch, const k_attention_427d012ea5c82013_8c2171fa_item *t,
    int64_t g, int32_t from, int32_t to, int32_t row, int first) {
  (void)launch;
  float *o = t->o + g * 32 * 32;
  if (first) memset(o, 0, 32 * 32 * 4);
  for (int32_t j = from; j < to; j++) {
    for (int64_t r = 0; r < 32; r++) {
      const int32_t token = t->token[g * 32 + r];
      if (t->id[j] > token || token >= t->end[j]) continue;
      const tw_v p = tw_set1(t->s[(g * 128 + j) * 32 + r]);
      for (int64_t i = 0; i < 32; i += 16) {
        tw_store(o + r * 32 + i, tw_fma(p, tw_load(t->v + (j - from + row) * 32 + i),
            tw_load(o + r * 32 + i)));
      }
    }
  }
}

static void k_attention_427d012ea5c82013_8c2171fa_finish(
    const tw_launch *launch, const k_attention_427d012ea5c82013_8c2171fa_item *t, int64_t head) {
  for (int64_t r = 0; r < t->rows; r++) {
    float *out = (float *)launch->buffers[5] + (t->first_row + r) * 64;
    const tw_v sum = tw_set1(t->sum[r]);
    for (int64_t i = 0; i + 16 <= 32; i += 16) tw_store_f32(out + head * 32 + i,
        tw_load(t->o + r * 32 + i) / sum);
  }
}

void k_attention_427d012ea5c82013_8c2171fa(const tw_launch *launch, int32_t worker, int32_t workers) {
  const int64_t rows = launch->extents[1];
  const int64_t tiles = (rows + 32 - 1) / 32;
  char *scratch = launch->scratch + worker * launch->scratch_bytes;
  k_attention_427d012ea5c82013_8c2171fa_item t;
  t.id = (int32_t *)(scratch + 0);
  t.end = (int32_t *)(scratch + 512);
  t.token = (int32_t *)(scratch + 1024);
  t.k = (float *)(scratch + 1152);
  t.v = (float *)(scratch + 9344);
  t.q = (float *)(scratch + 17536);
  t.o = (float *)(scratch + 21632);
  t.sum = (float *)(scratch + 25728);
  t.seen = (uint8_t *)(scratch + 25856);
  t.s = (float *)(scratch + 25920);
  for (;;) {
    const int64_t item = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    if (item >= tiles * 1) break;
    const int64_t kv = item % 1;
    t.first_row = item / 1 * 32;
    t.rows = rows - t.first_row < 32 ? rows - t.first_row : 32;
    t.last = 0;
    for (int g = 0; g < 1; g++) {
      t.low[g] = INT32_MAX;
      t.high[g] = 0;
      for (int64_t r = g * 32; r < (g + 1) * 32; r++) {
        const int64_t row = t.first_row + (r < t.rows ? r : t.rows - 1);
        const int32_t token = ((const int32_t
            *)launch->buffers[4])[row];
        t.token[r] = token;
        if (token < t.low[g]) t.low[g] = token;
        if (token > t.high[g]) t.high[g] = token;
      }
      if (t.high[g] > t.last) t.last = t.high[g];
    }
    const int64_t groups = (t.rows + 32 - 1) / 32;
    k_attention_427d012ea5c82013_8c2171fa_list(launch, &t);
    const int64_t next_kv = kv + workers < 1 ? workers : 0;
    int finite = 1;
    for (int64_t head = kv * 2; head < (kv + 1) * 2; head++) {
      k_attention_427d012ea5c82013_8c2171fa_turn(launch, &t, head, groups * 32,
          head + 1 < (kv + 1) * 2 ? head + 1 : (kv + next_kv) * 2);
      /* One block of keys stays for all heads of the group; more are fetched again. */
      for (int32_t from = 0; from < t.keys; from += 64) {
        const int32_t to = t.keys - from < 64 ? t.keys : from + 64;
        if (t.keys > 64 || head == kv * 2)
          finite = k_attention_427d012ea5c82013_8c2171fa_fetch(launch, &t, from, to, kv, next_kv);
        for (int64_t g = 0; g < groups; g++) {
          for (int32_t j = from; j < to; j += 2) {
            if (!t.seen[g * 128 / 8 + j / 8]) continue;
            for (int64_t p = 0; p < 32; p += 16) {
              tw_portable_2x16_f32_a32_1_b16_512_c32_u4(t.k + (j - from) * 32, t.q + (g * 32 + p) * 32,
                  t.s + (g * 128 + j) * 32 + p, 32, 1);
            }
          }
        }
      }
      for (int64_t g = 0; g < groups; g++) k_attention_427d012ea5c82013_8c2171fa_softmax(launch, &t, g);
      int started[1] = { 0 };
      for (int32_t from = 0; from < t.keys; from += 64) {
        const int32_t to = t.keys - from < 64 ? t.keys : from + 64;
        if (t.keys > 64) finite = k_attention_427d012ea5c82013_8c2171fa_fetch(launch, &t, from, to, kv, next_kv);
        for (int64_t g = 0; g < groups; g++) {
          const uint8_t *seen = t.seen + g * 128 / 8;
          for (int32_t j = from; j < to;) {
            if (!seen[j / 8]) {
              j += 8;
              continue;
            }
            int32_t e = j + 8;
            while (e < to && seen[e / 8]) e += 8;
            if (e > to) e = to;
            if (!finite) {
              k_attention_427d012ea5c82013_8c2171fa_add_seen(launch, &t, g, j, e, j - from, !started[g]);
            } else {
              for (int64_t r = 0; r < 32; r += 2) {
                int64_t i = 0;
                for (; i + 16 <= 32; i += 16) tw_portable_2x16_f32_a1_32_b32_16_c32_u4(t.s + (g * 128 + j) * 32
                    + r, t.v + (j - from) * 32 + i, t.o + (g * 32 + r) * 32 + i, e - j,
                    !started[g]);
              }
            }
            started[g] = 1;
            j = e;
          }
        }
      }
      k_attention_427d012ea5c82013_8c2171fa_finish(launch, &t, head);
    }
  }
}
