#include "lib/legacy.cuh"

namespace tw {

extern "C" __global__ void __launch_bounds__(128, 1) k_loop_b991c64543e68ef5_a61906c6(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3) {
  tw_await_previous();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = T, columns = 64;
  const int begin = (int)blockIdx.x * 16, end = tw_least(rows, begin + 16);
  /* Warps that share a row: 2. Each takes 32 columns at a time. */
  for (int row = begin + warp / 2; row < end; row += 2) {
    const long long tokens_entry = ((i32 *)p0)[row];
    bf16 *const embed_row = ((bf16 *)p1) + tokens_entry * 64;
    bf16 *const h_row = ((bf16 *)p2) + (long long)row * 64;
    f32 *const ssq_row = ((f32 *)p3) + (long long)row * 32;
    for (int turn = warp % 2 * 32; turn < columns; turn += 64) {
      const int column = turn + lane * 1;
      float s0 = 0.0f;
      if (column < columns) {
        const float embed_value = load(embed_row + column);
        const float v = mul(embed_value, embed_value);
        s0 = v;
        store(h_row + column, embed_value);
      }
      s0 = block_sum(s0, 16);
      if (lane % 16 == 0 && column < columns) ssq_row[column / 16] = s0;
    }
  }
}

}  // namespace tw
