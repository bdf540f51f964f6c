/*
 * The epilogue of the contraction with the vocabulary, a row at a time. Of every TW_HEAD_BLOCK columns it leaves a part
 * in [rows][blocks][width]:
 *
 *   0  max z, z = cap(scale · accumulator + bias)       4  max score, where score = z · heat + noise
 *   1  Σ exp(z − max)                                  5  first column of it
 *   2  first column of the max                         6  z there
 *   3  z at the target, or −∞
 *
 * Parts 4 to 7 are of kernels that draw. At an inverse temperature (heat) of 0 the scores are the logits.
 */
#pragma once
#include "lib/elements.h"
#include "lib/gumbel.h"

enum { TW_HEAD_BLOCK = 256 };

typedef struct HeadConfig {
  int vocab, block;                 /* columns, and those of a part */
  int has_bias, bias, bias_type;    /* whether columns have a bias, its buffer, and its elements */
  float cap, inverse_cap;           /* a cap of 0: there is none */
  int target, parts;                /* indices of buffers */
  int64_t parts_stride;
  int width;                        /* floats of a part */
  int keeps_logits, logits, logits_rows;   /* whether logits are stored, their buffer, and the extent of its rows */
  int64_t logits_stride;
  int draws, inverse_temperature, low, high;
  int maps, ids;                    /* whether columns stand for other tokens than those of their numbers */
} HeadConfig;

/* The greatest lanes so far, and where they were. */
typedef struct HeadTop {
  tw_carried value, at;
} HeadTop;

TW_FN HeadTop tw_no_top(void) {
  return (HeadTop){ tw_carry(tw_set1(-__builtin_inff())), tw_carry(tw_from_bits(tw_seti(0))) };
}
TW_FN HeadTop tw_more(HeadTop top, tw_v x, tw_i at) {
  const tw_m more = tw_lt(tw_value(top.value), x);
  top.value = tw_carry(tw_select(more, x, tw_value(top.value)));
  top.at = tw_carry(tw_select(more, tw_from_bits(at), tw_value(top.at)));
  return top;
}
/* Columns behind the last one of the vocabulary are never the greatest. */
TW_FN tw_v tw_within(const HeadConfig config, tw_v x, int32_t left) {
  return config.vocab % 16 == 0 ? x : tw_select(tw_first(left), x, tw_set1(-__builtin_inff()));
}

/* The tokens of columns from `column` on, of which `left` are below the last one. */
TW_FN tw_i tw_tokens_of(const HeadConfig config, const tw_launch *launch, int64_t column, int32_t left) {
  if (!config.maps) return tw_lane + tw_seti((int32_t)column);
  const float *const ids = (const float *)launch->buffers[config.ids] + column;
  float own[16] = { 0 };
  if (left < 16) memcpy(own, ids, (size_t)left * 4);
  else memcpy(own, ids, 64);
  return tw_int(tw_load(own));
}

/* The biases of columns from `column` on, of which `left` are below the last one. */
TW_FN tw_v tw_bias_of(const HeadConfig config, const tw_launch *launch, int64_t column, int32_t left) {
  const void *const bias = launch->buffers[config.bias];
  if (left >= 16) return tw_load_as((ElementType)config.bias_type, bias, column);
  float own[16] = { 0 };
  for (int32_t i = 0; i < left; i++) own[i] = tw_s_load_as((ElementType)config.bias_type, bias, column + i);
  return tw_load(own);
}

/* Columns [first, first + n) of a row, whose accumulators at `z` become logits. */
TW_FN void tw_head_block(
    const HeadConfig config, const tw_launch *launch, float *z, int64_t row, int64_t first, int32_t n, tw_v scale) {
  HeadTop top = tw_no_top();
  for (int32_t j = 0; j < n; j += 16) {
    tw_v x = tw_load(z + j) * scale;
    if (config.has_bias) x = x + tw_bias_of(config, launch, first + j, n - j);
    if (config.cap != 0.0f) x = tw_set1(config.cap) * tw_tanh(x * tw_set1(config.inverse_cap));
    x = tw_within(config, x, n - j);
    tw_store(z + j, x);
    top = tw_more(top, x, tw_lane + tw_seti(j));
  }
  if (config.keeps_logits && row < launch->extents[config.logits_rows])
    memcpy((float *)launch->buffers[config.logits] + row * config.logits_stride + first, z, (size_t)n * 4);
  const tw_place greatest = tw_greatest(tw_value(top.value), tw_bits(tw_value(top.at)));
  const float m = greatest.value;
  tw_carried sum = tw_carry(tw_set1(0.0f));
  for (int32_t j = 0; j < n; j += 16) sum = tw_carry(tw_value(sum) + tw_exp(tw_load(z + j) - tw_set1(m)));
  float *const out = (float *)launch->buffers[config.parts] + row * config.parts_stride +
      first / TW_HEAD_BLOCK * config.width;
  const int64_t t = ((const int32_t *)launch->buffers[config.target])[row] - first;
  out[0] = m;
  out[1] = tw_sum(tw_value(sum));
  out[2] = (float)(first + greatest.at);
  out[3] = t >= 0 && t < n ? z[t] : -__builtin_inff();
  if (!config.draws) return;
  /* The first of the largest scores. */
  const float heat = ((const float *)launch->buffers[config.inverse_temperature])[row];
  float score = m;
  int32_t drawn = greatest.at;
  if (heat != 0.0f) {
    const int32_t low = ((const int32_t *)launch->buffers[config.low])[row];
    const int32_t high = ((const int32_t *)launch->buffers[config.high])[row];
    top = tw_no_top();
    for (int32_t j = 0; j < n; j += 16) {
      const tw_i column = tw_lane + tw_seti(j);
      const tw_v noise = tw_gumbel(tw_tokens_of(config, launch, first + j, n - j), low, high);
      top = tw_more(top, tw_within(config, tw_load(z + j) * tw_set1(heat) + noise, n - j), column);
    }
    const tw_place noisiest = tw_greatest(tw_value(top.value), tw_bits(tw_value(top.at)));
    score = noisiest.value;
    drawn = noisiest.at;
  }
  out[4] = score;
  out[5] = (float)(first + drawn);
  out[6] = z[drawn];
  out[7] = 0.0f;
}

/* Columns [c0, c0 + cn) of a row, whose accumulators begin at `z`. */
TW_FN void tw_head_row(
    const HeadConfig config, const tw_launch *launch, float *z, int64_t row, int64_t c0, int64_t cn, float scale) {
  TW_LIMIT(config.width == (config.draws ? 8 : 4) && config.block == TW_HEAD_BLOCK);
  for (int64_t b = 0; b < cn && c0 + b < config.vocab; b += TW_HEAD_BLOCK) {
    const int64_t first = c0 + b, left = config.vocab - first;
    const int32_t n = left < TW_HEAD_BLOCK ? (int32_t)left : TW_HEAD_BLOCK;
    tw_head_block(config, launch, z + b, row, first, n, tw_set1(scale));
  }
}
