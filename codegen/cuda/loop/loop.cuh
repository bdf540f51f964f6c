/*
 * Loops over rows and columns: what is no contraction and no attention. A block has rows_of_block rows one behind
 * another, and its warps share them: `side` warps a row, which a unit's functor computes:
 *
 *   struct Loop {
 *     static constexpr int side = 1;
 *     void row(int row, int lane, int warp) const;
 *   };
 *
 * All lanes of a warp call `row` together; warp w is warp w % side of its row. Where warps of a row wait for each
 * other, all warps of the block share it.
 */
#pragma once
#include "lib/eights.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

struct LoopConfig {
  int rows_of_block;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR int warps() const { return threads / 32; }
};

template <LoopConfig config, class Loop> TW_DEVICE void loop_rows(int rows, const Loop &loop) {
  static_assert(config.threads % 32 == 0 && config.warps() % Loop::side == 0);
  constexpr int rows_at_once = config.warps() / Loop::side;
  static_assert(config.rows_of_block >= rows_at_once);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int begin = (int)blockIdx.x * config.rows_of_block, end = min(rows, begin + config.rows_of_block);
  for (int row = begin + warp / Loop::side; row < end; row += rows_at_once) loop.row(row, lane, warp);
}

/* The kernel, once the one before has ended (await_previous). Loops over other columns of the rows lie along y. */
template <LoopConfig config, class Loop> TW_DEVICE void run_loops(int rows, const Loop &loop) {
  loop_rows<config>(rows, loop);
}
template <LoopConfig config, int at = 0, class Loop, class... Others>
TW_DEVICE void run_loops(int rows, const Loop &loop, const Others &...others) {
  if (blockIdx.y == at) {
    loop_rows<config>(rows, loop);
    return;
  }
  if constexpr (sizeof...(Others) == 1) loop_rows<config>(rows, others...);
  else run_loops<config, at + 1>(rows, others...);
}

}  // namespace tw
