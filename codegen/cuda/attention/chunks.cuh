/* What the chunks of a path add up to, merged in order (attention/path.cuh). */
#pragma once
#include "attention/path.cuh"

namespace tw {

/* What the chunks of a lane's rows add up to. Chunks are merged in order. */
template <PathConfig config> struct Total {
  float2 o[config.head_dim / 8][2];
  float top[2], sum[2];
};

/* Adds the total of the chunks before to the current chunk of a row, whose sum over its lanes is `sum`. */
template <int row, PathConfig config>
TW_DEVICE void add_total(const Total<config> &total, Answer<config> &answer, float &sum) {
  const float most = fmaxf(total.top[row], answer.top[row]);
  const float old = power2(total.top[row] - most), now = power2(answer.top[row] - most);
  sum = fmaf(sum, now, mul(total.sum[row], old));
  answer.top[row] = most;
#pragma unroll
  for (int i = 0; i < config.head_dim / 8; i++) {
    answer.o[i][2 * row] = fmaf(answer.o[i][2 * row], now, mul(total.o[i][row].x, old));
    answer.o[i][2 * row + 1] = fmaf(answer.o[i][2 * row + 1], now, mul(total.o[i][row].y, old));
  }
}

/* Ends a row's chunk, which is not the first if `has_total`. `sum` is its sum over the row's lanes. */
template <int row, PathConfig config>
TW_DEVICE void end_chunk(Total<config> &total, bool has_total, Answer<config> &answer, float sum) {
  if (has_total) add_total<row>(total, answer, sum);
  total.top[row] = answer.top[row];
  total.sum[row] = sum;
  answer.top[row] = -infinity();
  answer.sum[row] = 0.0f;
#pragma unroll
  for (int i = 0; i < config.head_dim / 8; i++) {
    total.o[i][row] = float2{ answer.o[i][2 * row], answer.o[i][2 * row + 1] };
    answer.o[i][2 * row] = answer.o[i][2 * row + 1] = 0.0f;
  }
}

}  // namespace tw
