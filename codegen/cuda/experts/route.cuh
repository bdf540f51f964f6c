/*
 * The choice of experts: of each row's logits the `chosen` largest, of equal ones the lower expert first, and their
 * weights: softmax over the chosen (normalized) or over all experts. A warp a row; lane l has experts l, l + 32, ….
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

struct RouteConfig {
  int count, chosen;
  bool normalized;
  int logits_stride, experts_stride;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR int per_lane() const { return (count + 31) / 32; }
  TW_CONSTEXPR bool is_legal() const {
    return threads % 32 == 0 && chosen > 0 && chosen <= count && per_lane() <= 32 && logits_stride >= count;
  }
};

template <RouteConfig config> struct RouteBuffers {
  const f32 *logits;
  i32 *experts;
  /* Of the first choice of each row, of the second, … */
  f32 *weights[config.chosen];
};

/* The kernel, once the one before has ended (await_previous). */
template <RouteConfig config> TW_DEVICE void route(int rows, const RouteBuffers<config> &buffers) {
  static_assert(config.is_legal());
  constexpr int count = config.count, per_lane = config.per_lane(), chosen = config.chosen;
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * (config.threads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const float *z = buffers.logits + (long long)row * config.logits_stride;
  float own[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; i++) own[i] = 32 * i + lane < count ? z[32 * i + lane] : -infinity();
  unsigned taken = 0;
  float weight[chosen], top = 0.0f;
#pragma unroll
  for (int s = 0; s < chosen; s++) {
    /* Whatever is compared with NaN, some expert that is not taken yet is chosen. */
    int best = count;
    float most = -infinity();
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
      const int e = 32 * i + lane;
      if (e < count && !(taken >> i & 1) && (best == count || own[i] > most)) { best = e; most = own[i]; }
    }
    for (int w = 16; w > 0; w /= 2) {
      const float m = __shfl_xor_sync(ALL_LANES, most, w);
      const int e = __shfl_xor_sync(ALL_LANES, best, w);
      if (e < count && (best == count || m > most || (!(most > m) && e < best))) { best = e; most = m; }
    }
    best = __shfl_sync(ALL_LANES, best, 0);
    most = __shfl_sync(ALL_LANES, most, 0);
    if (best % 32 == lane) taken |= 1u << best / 32;
    if (s == 0) top = most;
    weight[s] = expf(most - top);
    if (lane == 0) buffers.experts[(long long)row * config.experts_stride + s] = best;
  }
  float total = 0.0f;
  if constexpr (config.normalized) {
    for (int s = 0; s < chosen; s++) total = add(total, weight[s]);
  } else {
#pragma unroll
    for (int i = 0; i < per_lane; i++)
      if (32 * i + lane < count) total = add(total, expf(own[i] - top));
    total = warp_sum(total);
  }
  if (lane == 0) {
#pragma unroll
    for (int s = 0; s < chosen; s++) buffers.weights[s][row] = weight[s] / total;
  }
}

}  // namespace tw
