/* head: 128 threads */
#include "head/reduce.cuh"

namespace tw {

constexpr ReduceConfig config = {
  .vocab = 700,
  .parts_stride = 32,
  .draws = true,
  .keeps_totals = true,
  .threads = 128,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_logprobreduce_ce18c53c29a9b8c5_a61906c6(
    int T,
    int R,
    int F,
    f32 *__restrict__ parts,
    i32 *__restrict__ target,
    f32 *__restrict__ log_prob,
    i32 *__restrict__ is_argmax,
    i32 *__restrict__ token,
    f32 *__restrict__ token_log_prob,
    f32 *__restrict__ top,
    f32 *__restrict__ sum_) {
  await_previous();
  reduce_head<config>(R, ReduceBuffers{
      .parts = parts,
      .target = target,
      .log_prob = log_prob,
      .is_argmax = is_argmax,
      .token = token,
      .token_log_prob = token_log_prob,
      .top = top,
      .sum = sum_,
  });
}

}  // namespace tw
