#include "lib/legacy.cuh"

namespace tw {

extern "C" __global__ void __launch_bounds__(128, 1) k_loop_59e2f82fb4330bd0_a61906c6(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3) {
  tw_await_previous();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = T, columns = 32;
  const int begin = (int)blockIdx.x * 32, end = tw_least(rows, begin + 32);
  /* Warps that share a row: 1. Each takes 64 columns at a time. */
  for (int row = begin + warp / 1; row < end; row += 4) {
    i32 * const r0 = ((i32 *)p0) + (long long)(row) * 1;
    float const r1 = load(r0);
    f32 * const r2 = ((f32 *)p2) + (long long)(row) * 32;
    f32 * const r3 = ((f32 *)p3) + (long long)(row) * 32;
    for (int turn = warp % 1 * 64; turn < columns; turn += 64) {
      const int column = turn + lane * 2;
      if (column < columns) {
        const float2 v0 = load2(((f32 *)p1) + column);
        const float v1 = (float)cos(((double)r1 * (double)v0.x));
        const float v2 = (float)cos(((double)r1 * (double)v0.y));
        const float v3 = (float)sin(((double)r1 * (double)v0.x));
        const float v4 = (float)sin(((double)r1 * (double)v0.y));
        store2(r2 + column, v1, v2);
        store2(r3 + column, v3, v4);
      }
    }
  }
}

}  // namespace tw
