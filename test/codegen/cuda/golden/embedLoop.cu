/* layers.embed_tokens: 128 threads */
#include "loop/loop.cuh"

namespace tw {

constexpr LoopConfig config = {
  .rows_of_block = 16,
  .threads = 128,
};

struct Loop {
  static constexpr int side = 2;
  i32 *tokens;
  bf16 *embed;
  bf16 *h;
  f32 *ssq;

  TW_DEVICE void row(int row, int lane, int warp) const {
    const int columns = 64;
    const long long tokens_entry = tokens[row];
    bf16 *const embed_row = embed + tokens_entry * 64;
    bf16 *const h_row = h + (long long)row * 64;
    f32 *const ssq_row = ssq + (long long)row * 32;
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
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_loop_b991c64543e68ef5_a61906c6(
    int T,
    int R,
    i32 *__restrict__ tokens,
    bf16 *__restrict__ embed,
    bf16 *__restrict__ h,
    f32 *__restrict__ ssq) {
  await_previous();
  run_loops<config>(T, Loop{ tokens, embed, h, ssq });
}

}  // namespace tw
