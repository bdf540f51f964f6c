/*
 * Parts of a row's log-sum-exp. A head multiplies rows by the vocabulary's weight and stores no logits: of each row and
 * block of 256 columns it writes one part, which head/reduce.cuh puts together:
 *
 *   largest logit, Σ exp(logit − largest), column of the largest, logit of the row's target (−∞ if it is elsewhere),
 *   and of heads that draw: the best score, its column and logit, 0
 *
 * The sums of mma and simt are made of pieces of 32 columns, so that no tile shows in them.
 */
#pragma once
#include "head/draw.cuh"
#include "lib/elements.cuh"

namespace tw {

constexpr int HEAD_BLOCK = 256, PIECE_COLUMNS = 32, PIECES = HEAD_BLOCK / PIECE_COLUMNS;

struct HeadConfig {
  int vocab;
  /* Columns of the weight as it lies, padding included. */
  int columns;
  int parts_stride;
  /* Logits become cap·tanh(logit / cap); 0: they stay. */
  double cap;
  bool draws;
  /* From row to row of the logits that are kept of the first rows; 0: none are. */
  int logits_stride;
  /* Whether a bias is added to each column behind the scale. */
  bool has_bias = false;

  TW_CONSTEXPR int blocks() const { return (vocab + HEAD_BLOCK - 1) / HEAD_BLOCK; }
  TW_CONSTEXPR int part_width() const { return draws ? 8 : 4; }
  TW_CONSTEXPR bool keeps_logits() const { return logits_stride > 0; }
  TW_CONSTEXPR bool is_legal() const {
    return vocab > 0 && columns >= vocab && parts_stride >= blocks() * part_width() && cap >= 0;
  }
};

/* What a head reads and writes beside its operands. Absent: draws, and kept logits, where there are none. */
struct HeadBuffers {
  const i32 *target;
  f32 *parts;
  const f32 *inverse_temperature = nullptr;
  const i32 *key_low = nullptr, *key_high = nullptr;
  /* The tokens that columns stand for, if not those of their numbers. */
  const f32 *ids = nullptr;
  f32 *logits = nullptr;
  int logit_rows = 0;

  TW_DEVICE Draw draw(int row) const { return { inverse_temperature[row], key_low[row], key_high[row], ids }; }
};

/* The logit of a product in a column. `of`: `of(column)` is its bias, if it has one. */
template <HeadConfig head, class Scale>
TW_DEVICE float logit_of(const Scale &of, float scale, float product, int column) {
  float z = mul(scale, product);
  if constexpr (head.has_bias) z = add(z, of(column));
  if constexpr (head.cap == 0) return z;
  else return mul((float)head.cap, bounded(mul((float)(2 * 1.4426950408889634 / head.cap), z)));
}

/* What a block keeps of the pieces of its rows, in shared memory. */
template <int rows, bool draws> struct Parts {
  float top[rows][PIECES], sum[rows][PIECES];
  int at[rows][PIECES];
  float target[rows];
};
template <int rows> struct Parts<rows, true> : Parts<rows, false> { Drawn drawn[rows][PIECES]; };

/* Combines a row's pieces in order and writes its part: one thread a row. */
template <int rows, bool draws> TW_DEVICE void write_part(const Parts<rows, draws> &parts, int i, float *to) {
  float top = -infinity(), sum = 0.0f;
  int at = 0;
  for (int b = PIECES - 1; b >= 0; b--) {
    const float m = parts.top[i][b];
    if (m >= top || m != m) { top = m; at = parts.at[i][b]; }
  }
  for (int b = 0; b < PIECES; b++) {
    if (parts.top[i][b] != -infinity()) sum = add(sum, mul(parts.sum[i][b], expf(parts.top[i][b] - top)));
  }
  to[0] = top;
  to[1] = sum;
  to[2] = (float)at;
  to[3] = parts.target[i];
  if constexpr (draws) {
    Drawn drawn = parts.drawn[i][0];
    for (int b = 1; b < PIECES; b++) {
      const Drawn &other = parts.drawn[i][b];
      drawn.take_better(other.score, other.at, other.z);
    }
    to[4] = drawn.score;
    to[5] = (float)drawn.at;
    to[6] = drawn.z;
    to[7] = 0.0f;
  }
}

}  // namespace tw
