/*
 * The end of a head: the parts of a row's blocks (head/parts.cuh) become its log-probability, whether its target is the
 * most likely token, and, of heads that draw, a token. A warp a row; lane l takes blocks l, l + 32, …, then the lanes
 * are combined in a fixed order. The last difference is taken in double.
 */
#pragma once
#include "head/parts.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

struct ReduceConfig {
  int vocab, parts_stride;
  bool draws, keeps_totals;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR int blocks() const { return (vocab + HEAD_BLOCK - 1) / HEAD_BLOCK; }
  TW_CONSTEXPR int part_width() const { return draws ? 8 : 4; }
  TW_CONSTEXPR bool is_legal() const {
    return vocab > 0 && threads % 32 == 0 && parts_stride >= blocks() * part_width();
  }
};

/* Absent: what is not drawn or kept. */
struct ReduceBuffers {
  const f32 *parts;
  const i32 *target;
  f32 *log_prob;
  i32 *is_argmax;
  i32 *token = nullptr;
  f32 *token_log_prob = nullptr;
  /* The tokens that columns stand for, if not those of their numbers. */
  const f32 *ids = nullptr;
  /* The largest logit of the row, and Σ exp(logit − largest). */
  f32 *top = nullptr, *sum = nullptr;
};

/* The kernel, once the one before has ended (await_previous). */
template <ReduceConfig config> TW_DEVICE void reduce_head(int rows, const ReduceBuffers &buffers) {
  static_assert(config.is_legal());
  constexpr int blocks = config.blocks(), width = config.part_width();
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * (config.threads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const float *parts = buffers.parts + (long long)row * config.parts_stride;
  const int target = buffers.target[row];
  float top = -infinity();
  int at = blocks;
  for (int b = lane; b < blocks; b += 32) {
    const float m = parts[width * b];
    if (m > top || m != m) { top = m; at = b; }
  }
  /* The first block of the largest maximum. */
  for (int w = 16; w > 0; w /= 2) {
    const float m = __shfl_xor_sync(ALL_LANES, top, w);
    const int b = __shfl_xor_sync(ALL_LANES, at, w);
    if (m > top || m != m || (m == top && b < at)) { top = m; at = b; }
  }
  float sum = 0.0f;
  for (int b = lane; b < blocks; b += 32) sum = add(sum, mul(parts[width * b + 1], expf(parts[width * b] - top)));
  sum = warp_sum(sum);
  Drawn drawn = { -infinity(), config.vocab, nan() };
  if constexpr (config.draws) {
    for (int b = lane; b < blocks; b += 32) {
      const float *part = parts + width * b;
      drawn.take_better(part[4], (int)part[5], part[6]);
    }
    drawn.take_best_of(32);
  }
  if (lane != 0) return;
  const float z = target >= 0 && target < config.vocab ? parts[width * (target / HEAD_BLOCK) + 3] : nan();
  buffers.log_prob[row] = (float)((double)z - ((double)top + log((double)sum)));
  buffers.is_argmax[row] = at < blocks && (float)target == parts[width * at + 2];
  if constexpr (config.keeps_totals) {
    buffers.top[row] = top;
    buffers.sum[row] = sum;
  }
  if constexpr (config.draws) {
    const int column = drawn.at < config.vocab ? drawn.at : 0;
    buffers.token[row] = buffers.ids == nullptr ? column : (int)buffers.ids[column];
    buffers.token_log_prob[row] = (float)((double)drawn.z - ((double)top + log((double)sum)));
  }
}

}  // namespace tw
