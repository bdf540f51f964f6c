/* layers.ffn.experts.route: 128 threads */
#include "experts/sort.cuh"

namespace tw {

constexpr SortConfig config = {
  .count = 5,
  .chosen = 2,
  .experts_stride = 32,
  .threads = 128,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_sortbyexpert_b537c356e9e0dba7_a61906c6(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    i32 *__restrict__ experts,
    i32 *__restrict__ expert_rows,
    i32 *__restrict__ place_,
    i32 *__restrict__ place_r,
    i32 *__restrict__ experts_starts) {
  await_previous();
  sort_by_expert<config>(T, SortBuffers<config>{
      .experts = experts,
      .order = expert_rows,
      .starts = experts_starts,
      .places = { place_, place_r },
  });
}

}  // namespace tw
