/* Row tiles of a product whose rows are sorted by expert, each multiplied by its expert's matrix. */
#pragma once
#include "lib/device.cuh"

namespace tw {

/* Rows of `count` experts, one behind another: expert e has rows starts[e] … starts[e + 1]. */
template <int count> struct ExpertRows { const int *starts; };

/* Up to tile_m rows of one expert: its number, the first row, and the end of the expert's rows. */
struct ExpertTile { int expert, first, end; };

/*
 * Row tile `number` of those of all experts; false where there are fewer. Every warp finds it by itself, all lanes
 * together: how many tiles there are is only known on the device, so blocks take them in turn.
 */
template <int tile_m, int count>
TW_DEVICE bool find_expert_tile(const ExpertRows<count> &rows, int number, ExpertTile &tile) {
  const int lane = threadIdx.x % 32;
  for (int e0 = 0; e0 < count; e0 += 32) {
    const int e = e0 + lane < count ? e0 + lane : count - 1;
    const int begin = rows.starts[e], stop = e0 + lane < count ? rows.starts[e + 1] : begin;
    const int own = (stop - begin + tile_m - 1) / tile_m;
    int sum = own;
    for (int w = 1; w < 32; w *= 2) {
      const int before = __shfl_up_sync(ALL_LANES, sum, w);
      if (lane >= w) sum += before;
    }
    const unsigned past = __ballot_sync(ALL_LANES, sum > number);
    if (past != 0) {
      const int at = __ffs((int)past) - 1;
      tile.expert = e0 + at;
      tile.first = __shfl_sync(ALL_LANES, begin + (number - (sum - own)) * tile_m, at);
      tile.end = __shfl_sync(ALL_LANES, stop, at);
      return true;
    }
    number -= __shfl_sync(ALL_LANES, sum, 31);
  }
  return false;
}

}  // namespace tw
