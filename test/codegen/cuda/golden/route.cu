/* layers.ffn.experts.route: 128 threads */
#include "experts/route.cuh"

namespace tw {

constexpr RouteConfig config = {
  .count = 5,
  .chosen = 2,
  .normalized = true,
  .logits_stride = 32,
  .experts_stride = 32,
  .threads = 128,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_route_8d20dd30be0a7748_a61906c6(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    f32 *__restrict__ router_logits,
    i32 *__restrict__ experts,
    f32 *__restrict__ weight,
    f32 *__restrict__ weight_r) {
  await_previous();
  route<config>(T, RouteBuffers<config>{
      .logits = router_logits,
      .experts = experts,
      .weights = { weight, weight_r },
  });
}

}  // namespace tw
