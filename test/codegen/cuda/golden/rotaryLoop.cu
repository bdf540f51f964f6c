/* shared/blockSum.cu */

extern "C" __global__ void __launch_bounds__(128, 1) k_loop_59e2f82fb4330bd0_a61906c6(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3) {
  tw_await_previous();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = T, columns = 32;
  const int begin = (int)blockIdx.x * 32, end = tw_least(rows, begin + 32);
  /* Warps that share a row: 1. Each takes 64 columns at a time. */
  for (int row = begin + warp / 1; row < end; row += 4) {
    int * const r0 = ((int *)p0) + (long long)(row) * 1;
    float const r1 = tw_load_i32(r0);
    float * const r2 = ((float *)p2) + (long long)(row) * 32;
    float * const r3 = ((float *)p3) + (long long)(row) * 32;
    for (int turn = warp % 1 * 64; turn < columns; turn += 64) {
      const int column = turn + lane * 2;
      if (column < columns) {
        const tw_f2 v0 = tw_load2_f32(((float *)p1) + column);
        const float v1 = (float)tw_cos(((double)r1 * (double)v0.x));
        const float v2 = (float)tw_cos(((double)r1 * (double)v0.y));
        const float v3 = (float)tw_sin(((double)r1 * (double)v0.x));
        const float v4 = (float)tw_sin(((double)r1 * (double)v0.y));
        tw_store2_f32(r2 + column, v1, v2);
        tw_store2_f32(r3 + column, v3, v4);
      }
    }
  }
}
