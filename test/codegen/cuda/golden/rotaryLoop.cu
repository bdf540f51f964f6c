#include "lib/legacy.cuh"

namespace tw {

extern "C" __global__ void __launch_bounds__(128, 1) k_loop_59e2f82fb4330bd0_a61906c6(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3) {
  tw_await_previous();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = T, columns = 32;
  const int begin = (int)blockIdx.x * 32, end = tw_least(rows, begin + 32);
  /* Warps that share a row: 1. Each takes 64 columns at a time. */
  for (int row = begin + warp / 1; row < end; row += 4) {
    f32 *const cos_row = ((f32 *)p2) + (long long)row * 32;
    i32 *const position_row = ((i32 *)p0) + (long long)row * 1;
    const float position_value = load(position_row);
    f32 *const sin_row = ((f32 *)p3) + (long long)row * 32;
    for (int turn = warp % 1 * 64; turn < columns; turn += 64) {
      const int column = turn + lane * 2;
      if (column < columns) {
        const float2 frequency_value = load2(((f32 *)p1) + column);
        const float2 v = float2{ (float)cosine(((double)position_value * (double)frequency_value.x)), (float)cosine(((double)position_value * (double)frequency_value.y)) };
        const float2 v_2 = float2{ (float)sine(((double)position_value * (double)frequency_value.x)), (float)sine(((double)position_value * (double)frequency_value.y)) };
        store2(cos_row + column, v);
        store2(sin_row + column, v_2);
      }
    }
  }
}

}  // namespace tw
