/* layers.rotary: 128 threads */
#include "loop/loop.cuh"

namespace tw {

constexpr LoopConfig config = {
  .rows_of_block = 32,
  .threads = 128,
};

struct Loop {
  static constexpr int side = 1;
  i32 *position;
  f32 *frequency;
  f32 *cos;
  f32 *sin;

  TW_DEVICE void row(int row, int lane, int warp) const {
    const int columns = 32;
    f32 *const cos_row = cos + (long long)row * 32;
    i32 *const position_row = position + (long long)row * 1;
    const float position_value = load(position_row);
    f32 *const sin_row = sin + (long long)row * 32;
    for (int turn = warp % 1 * 64; turn < columns; turn += 64) {
      const int column = turn + lane * 2;
      if (column < columns) {
        const float2 frequency_value = load2(frequency + column);
        const float2 v = float2{ (float)cosine(((double)position_value * (double)frequency_value.x)), (float)cosine(((double)position_value * (double)frequency_value.y)) };
        const float2 v_2 = float2{ (float)sine(((double)position_value * (double)frequency_value.x)), (float)sine(((double)position_value * (double)frequency_value.y)) };
        store2(cos_row + column, v);
        store2(sin_row + column, v_2);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_loop_59e2f82fb4330bd0_a61906c6(
    int T,
    int R,
    i32 *__restrict__ position,
    f32 *__restrict__ frequency,
    f32 *__restrict__ cos,
    f32 *__restrict__ sin) {
  await_previous();
  run_loops<config>(T, Loop{ position, frequency, cos, sin });
}

}  // namespace tw
