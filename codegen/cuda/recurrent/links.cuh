/*
 * Of each row the rows of tokens before it on its path, its own where there is none, and where the rows below it end
 * (ir/paths.ts). A warp a row: its lanes look at 32 rows at a time.
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/launch.cuh"

namespace tw {

struct LinksConfig {
  /* Numbers of tokens back, from 0 to 15, in order of the buffers. */
  int back[16];
  int count;
  bool is_path, has_end;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR bool is_legal() const { return threads % 32 == 0 && count >= 0 && count <= 16; }
};

struct LinksBuffers {
  /* Of trees, or of lists. */
  const i32 *subtree_end, *begin, *position, *key;
  i32 *end;
  i32 *before[16];
};

/* The row above `row` in trees: the nearest one before it that it lies below; −1 if there is none. */
TW_DEVICE int tree_parent(const i32 *end, int row, int lane) {
  for (int first = row - 1; first >= 0; first -= 32) {
    const int at = first - lane;
    const unsigned above = __ballot_sync(ALL_LANES, at >= 0 && end[at >= 0 ? at : 0] > row);
    if (above != 0) return first - (__ffs((int)above) - 1);
  }
  return -1;
}

/* The kernel, once the one before has ended (await_previous). `keys`: entries of the list. */
template <LinksConfig config> TW_DEVICE void links(int rows, int keys, const LinksBuffers &buffers) {
  static_assert(config.is_legal());
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * (config.threads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  if constexpr (config.is_path) {
    const int depth = buffers.position[row], begin = buffers.begin[row];
    if (lane < config.count) {
      int back = 0;
#pragma unroll
      for (int l = 0; l < config.count; l++) back = lane == l ? config.back[l] : back;
      int found = row;
      if (depth >= back) {
        const int at = begin + depth - back;
        const int listed = buffers.key[at < keys ? at : keys - 1];
        found = listed < row ? listed : row;
      }
#pragma unroll
      for (int l = 0; l < config.count; l++)
        if (lane == l) buffers.before[l][row] = found;
    }
    if constexpr (config.has_end) {
      int end = rows;
      for (int first = row + 1; first < rows; first += 32) {
        const int at = first + lane;
        const unsigned over = __ballot_sync(ALL_LANES, at < rows && buffers.position[at < rows ? at : row] <= depth);
        if (over != 0) { end = first + __ffs((int)over) - 1; break; }
      }
      if (lane == 0) buffers.end[row] = end;
    }
  } else {
#pragma unroll
    for (int l = 0; l < config.count; l++) {
      int at = row;
      for (int i = 0; i < config.back[l] && at >= 0; i++) at = tree_parent(buffers.subtree_end, at, lane);
      if (lane == 0) buffers.before[l][row] = at < 0 ? row : at;
    }
  }
}

}  // namespace tw
