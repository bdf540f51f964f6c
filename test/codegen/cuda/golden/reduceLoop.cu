/* layers.reduce: 128 threads */
#include "head/reduce.cuh"

namespace tw {

constexpr ReduceConfig config = {
  .vocab = 600,
  .parts_stride = 32,
  .draws = false,
  .keeps_totals = false,
  .threads = 128,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_logprobreduce_d763150db50723a6_a61906c6(
    int T,
    int R,
    f32 *__restrict__ parts,
    i32 *__restrict__ target,
    f32 *__restrict__ logProb,
    i32 *__restrict__ isArgmax) {
  await_previous();
  reduce_head<config>(R, ReduceBuffers{
      .parts = parts,
      .target = target,
      .log_prob = logProb,
      .is_argmax = isArgmax,
  });
}

}  // namespace tw
