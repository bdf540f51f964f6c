/*
 * Puts pairs of a row and an expert in order: by expert, then by row. A block an expert: its warps read all pairs,
 * count those of experts before it and its own, and then list its own. No count leaves the device.
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/launch.cuh"

namespace tw {

struct SortConfig {
  int count, chosen;
  int experts_stride;
  /* Whether the expert of each place is stored. */
  bool has_owners;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR bool is_legal() const { return threads % 32 == 0 && chosen > 0 && chosen <= count; }
};

template <SortConfig config> struct SortBuffers {
  /* The experts of each row. */
  const i32 *experts;
  /* Of each place in the order its row; and where each expert's places begin, one more than experts. */
  i32 *order, *starts;
  /* Of each row the place of its first choice, of its second, … */
  i32 *places[config.chosen];
  /* Of each place its expert. */
  i32 *owners;
};

/* The kernel, once the one before has ended (await_previous). */
template <SortConfig config> TW_DEVICE void sort_by_expert(int rows, const SortBuffers<config> &buffers) {
  static_assert(config.is_legal());
  constexpr int chosen = config.chosen, warps = config.threads / 32;
  /* Each warp has a part of the pairs, one behind another. */
  __shared__ int sums[warps], before[warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = blockIdx.x, pairs = rows * chosen;
  const int part = (pairs + config.threads - 1) / config.threads * 32, begin = warp * part,
      end = begin + part < pairs ? begin + part : pairs;
  int less = 0, equal = 0;
#pragma unroll 8
  for (int pair = begin + lane; pair < end; pair += 32) {
    const int e = buffers.experts[(long long)(pair / chosen) * config.experts_stride + pair % chosen];
    less += e < own;
    equal += e == own;
  }
  for (int w = 16; w > 0; w /= 2) {
    less += __shfl_xor_sync(ALL_LANES, less, w);
    equal += __shfl_xor_sync(ALL_LANES, equal, w);
  }
  if (lane == 0) { before[warp] = less; sums[warp] = equal; }
  __syncthreads();
  int at = 0;
  for (int w = 0; w < warps; w++) at += before[w];
  if (threadIdx.x == 0) {
    buffers.starts[own] = at;
    if (own == 0) buffers.starts[config.count] = pairs;
  }
  for (int w = 0; w < warp; w++) at += sums[w];
#pragma unroll 4
  for (int first = begin; first < end; first += 32) {
    const int pair = first + lane, row = pair / chosen, slot = pair % chosen;
    const bool is_own = pair < end && buffers.experts[(long long)row * config.experts_stride + slot] == own;
    const unsigned all = __ballot_sync(ALL_LANES, is_own);
    const int place = at + __popc(all & ((1u << lane) - 1));
    at += __popc(all);
    if (is_own) {
      buffers.order[place] = row;
      if constexpr (config.has_owners) buffers.owners[place] = own;
#pragma unroll
      for (int s = 0; s < chosen; s++)
        if (slot == s) buffers.places[s][row] = place;
    }
  }
}

}  // namespace tw
