/*
 * Draws a token for each row from its logits: biases and penalties, a mask, then of the tokens that top-k, top-p and
 * min-p leave the one with the largest sum of score and Gumbel's noise. Tells the most likely tokens, and the
 * log-probability of the drawn one. A row is of one worker, so its bits depend on nothing else.
 */
#pragma once
#include "lib/gumbel.h"
#include "lib/rows.h"

typedef struct SampleConfig {
  int rows, entries, step;           /* indices of extents; rows of a block */
  int vocab, most;                   /* columns; most likely tokens that are told at most */
  /* Indices of buffers, and elements from one row to the next. */
  int logits, top, sum, best_tokens, best_log_probs, best_count, repetition, presence, frequency, first,
      end, saved, is_generated, path_token, path_row, entry_token, entry_count, entry_bias, mask_row,
      mask, inverse_temperature, min_log_p, top_k, top_p, low, high, token, log_prob;
  int64_t logits_stride, tokens_stride, log_probs_stride, mask_stride;
} SampleConfig;

/*
 * The tokens of a row that are left, in order of scores s = z·heat, of equals the lower first: all with s > least, and
 * of those with s = least the ones up to `last`.
 */
typedef struct { float least; int32_t last; } tw_left;
TW_FN int tw_is_left(tw_left left, float s, int32_t token) {
  return s > left.least || (s == left.least && token <= left.last);
}
/* Numbers in the order of floats. Zero has one sign. */
TW_FN uint32_t tw_order(float s) {
  uint32_t u;
  s += 0.0f;
  memcpy(&u, &s, 4);
  return u >> 31 ? ~u : u | 0x80000000u;
}
TW_FN float tw_from_order(uint32_t k) {
  float s;
  k = k >> 31 ? k & 0x7fffffffu : ~k;
  memcpy(&s, &k, 4);
  return s;
}
/* Bin of a score by its distance from the largest, 32 a unit; NaN in the last. A smaller score has no earlier bin. */
TW_FN int tw_bin(float top, float s) {
  const float d = (top - s) * 32.0f;
  return d < 1023.0f ? (int)d : 1023;
}
/* Weight of a score: its share of the largest one's probability, in whole numbers of 2^-38. Sums have no order. */
TW_FN uint64_t tw_weight(float top, float s) {
  const float w = tw_s_exp(s - top) * 274877906944.0f;
  return s == top ? (uint64_t)1 << 38 : w > 0.0f ? (uint64_t)w : 0;
}
/* Weights of what is left, or numbers of tokens, added up. */
TW_LOOP uint64_t tw_measure(const float *z, int32_t n, float heat, float top, tw_left left, int by_weight,
    uint64_t *bins) {
  uint64_t all = 0;
  for (int32_t j = 0; j < n; j += 16) {
    float t[16], w[16];
    const int32_t m = n - j < 16 ? n - j : 16;
    for (int l = 0; l < 16; l++) t[l] = l < m ? z[j + l] * heat : 0.0f;
    tw_store(w, tw_exp(tw_load(t) - tw_set1(top)) * tw_set1(274877906944.0f));
    for (int32_t l = 0; l < m; l++) {
      if (!tw_is_left(left, t[l], j + l)) continue;
      const uint64_t q = !by_weight ? 1 : t[l] == top ? (uint64_t)1 << 38 : w[l] > 0.0f ? (uint64_t)w[l] : 0;
      all += q;
      if (bins) bins[tw_bin(top, t[l])] += q;
    }
  }
  return all;
}
/* Leaves the fewest tokens whose weights, or number, reach `wanted`: at least 1. Leaves all where they do not. */
TW_LOOP tw_left tw_keep(const float *z, int32_t n, float heat, float top, tw_left left, int by_weight,
    uint64_t wanted) {
  uint64_t bins[1024] = { 0 }, before = 0;
  if (tw_measure(z, n, heat, top, left, by_weight, bins) < wanted) return left;
  int bin = 0;
  while (before + bins[bin] < wanted) before += bins[bin++];
  /* Within the bin by exact scores: 10 bits of their order at a time. */
  uint32_t low = UINT32_MAX, high = 0;
  for (int32_t j = 0; j < n; j++) {
    const float s = z[j] * heat;
    if (tw_bin(top, s) != bin || !tw_is_left(left, s, j)) continue;
    const uint32_t k = tw_order(s);
    low = k < low ? k : low;
    high = k > high ? k : high;
  }
  for (int shift = 32; shift > 0;) {
    shift = 0;
    while ((high - low) >> shift > 1023) shift++;
    memset(bins, 0, sizeof(bins));
    for (int32_t j = 0; j < n; j++) {
      const float s = z[j] * heat;
      const uint32_t k = tw_order(s);
      if (k < low || k > high || tw_bin(top, s) != bin || !tw_is_left(left, s, j)) continue;
      bins[(k - low) >> shift] += by_weight ? tw_weight(top, s) : 1;
    }
    int at = 1023;
    while (at > 0 && before + bins[at] < wanted) before += bins[at--];
    low += (uint32_t)at << shift;
    if ((high - low) >> shift) high = low + (((uint32_t)1 << shift) - 1);
  }
  const float least = tw_from_order(low);
  const uint64_t each = by_weight ? tw_weight(top, least) : 1;
  uint64_t ties = each == 0 ? 1 : (wanted - before + each - 1) / each;
  const tw_left now = { least, INT32_MAX };
  for (int32_t j = 0; j < n; j++) {
    if (z[j] * heat == least && tw_is_left(left, z[j] * heat, j) && --ties == 0) return (tw_left){ least, j };
  }
  return now;
}
/* A logit after penalties. `count`: how often its token was generated; -1: it is not on the path. */
TW_FN float tw_adjusted(float x, int32_t count, float repetition, float presence, float frequency) {
  if (count >= 0 && repetition != 1.0f) x = x > 0.0f ? x / repetition : x * repetition;
  return count > 0 ? x - (presence + (float)count * frequency) : x;
}

#define TW_IN(T, i) ((const T *)launch->buffers[i])
TW_FN void tw_sample_row(const SampleConfig config, const tw_launch *launch, int64_t row) {
  float *z = (float *)launch->buffers[config.logits] + row * config.logits_stride;
  const float top = TW_IN(float, config.top)[row];
  const double total = (double)top + log((double)TW_IN(float, config.sum)[row]);
  const tw_left all = { -__builtin_inff(), INT32_MAX };
  /* The most likely tokens, of the logits as they are. */
  int32_t *tokens = (int32_t *)launch->buffers[config.best_tokens] + row * config.tokens_stride;
  float *log_probs = (float *)launch->buffers[config.best_log_probs] + row * config.log_probs_stride;
  int32_t best = TW_IN(int32_t, config.best_count)[row], found = 0;
  best = best < config.most ? best : config.most;
  if (best > 0) {
    const tw_left left = tw_keep(z, config.vocab, 1.0f, top, all, 0, (uint64_t)best);
    for (int32_t j = 0; j < config.vocab && found < config.most; j++) {
      if (!tw_is_left(left, z[j], j)) continue;
      int32_t at = found++;
      for (; at > 0 && z[tokens[at - 1]] < z[j]; at--) tokens[at] = tokens[at - 1];
      tokens[at] = j;
    }
    for (int32_t i = 0; i < found; i++) log_probs[i] = (float)((double)z[tokens[i]] - total);
  }
  for (int32_t i = found; i < config.most; i++) {
    tokens[i] = 0;
    log_probs[i] = 0.0f;
  }
  /* Biases and penalties change logits in place; what they were is kept beside the entries. */
  const float repetition = TW_IN(float, config.repetition)[row], presence = TW_IN(float, config.presence)[row],
      frequency = TW_IN(float, config.frequency)[row];
  const int32_t listed = (int32_t)launch->extents[config.entries];
  int32_t first = TW_IN(int32_t, config.first)[row], end = TW_IN(int32_t, config.end)[row];
  first = first < 0 ? 0 : first;
  end = end > listed ? listed : end;
  float *saved = (float *)launch->buffers[config.saved];
  const int32_t own = TW_IN(int32_t, config.is_generated)[row] == 1
      ? TW_IN(int32_t, config.path_token)[TW_IN(int32_t, config.path_row)[row]] : -1;
  const float ownLogit = own < 0 ? 0.0f : z[own];
  int isListed = 0;
  for (int32_t i = first; i < end; i++) {
    const int32_t token = TW_IN(int32_t, config.entry_token)[i], count = TW_IN(int32_t, config.entry_count)[i];
    saved[i] = z[token];
    isListed |= token == own;
    z[token] = tw_adjusted(z[token] + TW_IN(float, config.entry_bias)[i],
        token != own ? count : count < 0 ? 1 : count + 1, repetition, presence, frequency);
  }
  if (own >= 0 && !isListed) z[own] = tw_adjusted(z[own], 1, repetition, presence, frequency);
  /* Nobody is given a token outside the row's mask. */
  const int32_t mask = TW_IN(int32_t, config.mask_row)[row];
  if (mask >= 0) {
    const uint32_t *allowed = TW_IN(uint32_t, config.mask) + (int64_t)mask * config.mask_stride;
    for (int32_t j = 0; j < config.vocab; j += 32) {
      const uint32_t word = allowed[j / 32];
      const int32_t m = config.vocab - j < 32 ? config.vocab - j : 32;
      if (word != UINT32_MAX) for (int32_t l = 0; l < m; l++) if (!(word >> l & 1)) z[j + l] = -__builtin_inff();
    }
  }
  const float heat = TW_IN(float, config.inverse_temperature)[row];
  int32_t drawn = 0;
  if (heat == 0.0f) {
    for (int32_t j = 1; j < config.vocab; j++) if (z[j] > z[drawn]) drawn = j;
  } else {
    float most = -__builtin_inff();
    for (int32_t j = 0; j < config.vocab; j++) most = z[j] * heat > most ? z[j] * heat : most;
    tw_left left = { most + TW_IN(float, config.min_log_p)[row], INT32_MAX };
    const int32_t k = TW_IN(int32_t, config.top_k)[row];
    if (k > 0) left = tw_keep(z, config.vocab, heat, most, left, 0, (uint64_t)k);
    const float p = TW_IN(float, config.top_p)[row];
    if (p < 1.0f) {
      const double wanted = ceil((double)p * (double)tw_measure(z, config.vocab, heat, most, left, 1, 0));
      left = tw_keep(z, config.vocab, heat, most, left, 1, wanted > 1.0 ? (uint64_t)wanted : 1);
    }
    float score = -__builtin_inff();
    drawn = -1;
    const int32_t low = TW_IN(int32_t, config.low)[row], high = TW_IN(int32_t, config.high)[row];
    for (int32_t j = 0; j < config.vocab; j += 16) {
      const int32_t m = config.vocab - j < 16 ? config.vocab - j : 16;
      int any = 0;
      for (int32_t l = 0; l < m; l++) any |= tw_is_left(left, z[j + l] * heat, j + l);
      if (!any) continue;
      float noise[16];
      tw_store(noise, tw_gumbel(tw_lane + tw_seti(j), low, high));
      for (int32_t l = 0; l < m; l++) {
        const float s = z[j + l] * heat;
        if (tw_is_left(left, s, j + l) && (drawn < 0 || s + noise[l] > score)) {
          drawn = j + l;
          score = s + noise[l];
        }
      }
    }
    if (drawn < 0) drawn = 0;
  }
  float chosen = drawn == own ? ownLogit : z[drawn];
  for (int32_t i = first; i < end; i++) if (TW_IN(int32_t, config.entry_token)[i] == drawn) chosen = saved[i];
  ((int32_t *)launch->buffers[config.token])[row] = drawn;
  ((float *)launch->buffers[config.log_prob])[row] = (float)((double)chosen - total);
}
#undef TW_IN

TW_FN void tw_sample(const SampleConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  (void)worker;
  (void)workers;
  for (RowBlock block; tw_next_rows(launch, launch->extents[config.rows], config.step, &block);)
    for (int64_t row = block.begin; row < block.end; row++) tw_sample_row(config, launch, row);
}
