/* layers.ffn.experts.route: 128 threads */
#include "experts/pairs.cuh"

namespace tw {

constexpr RouteConfig config = {
  .count = 5,
  .chosen = 2,
  .normalized = true,
  .logits_stride = 32,
  .experts_stride = 32,
  .threads = 128,
};

constexpr PairsConfig arranging = {
  .rows_of_block = 64,
};

__device__ PairsState pairs_state;

extern "C" __global__ void __launch_bounds__(128, 1)
k_route_ccf625970f61af65_a61906c6(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    f32 *router_logits,
    i32 *experts,
    f32 *weight,
    f32 *weight_r,
    i32 *expert_rows,
    i32 *place_,
    i32 *place_r,
    i32 *experts_starts) {
  await_previous();
  route_and_arrange<config, arranging>(pairs_state, T, RouteBuffers<config>{
      .logits = router_logits,
      .experts = experts,
      .weights = { weight, weight_r },
  }, PairsBuffers<config>{
      .order = expert_rows,
      .places = { place_, place_r },
      .starts = experts_starts,
  });
}

}  // namespace tw
