/* head: few rows by mma, 8 × 256 × 64, 3 stages */
#include "head/skinny.cuh"

namespace tw {

constexpr SkinnyConfig config = {
  .k = 4096,
  .a_stride = 4128,
  .w_stride = 4096,
  .tile_m = 8,
  .tile_n = 256,
  .tile_k = 64,
  .stages = 3,
  .warp_m = 8,
  .warp_n = 16,
  .copier_warps = 0,
  .row_values = 1,
  .threads = 512,
  .shared_bytes = 101408,
};

constexpr HeadConfig head_config = {
  .vocab = 128256,
  .columns = 128256,
  .parts_stride = 2016,
  .cap = 0,
  .draws = false,
  .logits_stride = 0,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 8;
  f32 *squares;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const squares_row = squares + (long long)row * 256;
    const float squares_sum = sums.sum(squares_row, 256);
    const float v = inverse_sqrt(add(div(squares_sum, 4096.0f), 9.999999974752427e-7f));
    if (threadIdx.x % 32 == 0) {
      (values)[0] = v;
    }
  }
};

struct Scale {
  TW_DEVICE float operator()(int row, const float *values) const {
    const float v = (values)[0];
    return v;
  }
};

extern "C" __global__ void __launch_bounds__(512, 2)
k_logprob_2eb907e95526230a_ec1edfe6(
    int T,
    int R,
    bf16 *__restrict__ x,
    bf16 *__restrict__ w,
    f32 *__restrict__ squares,
    i32 *__restrict__ target,
    f32 *__restrict__ parts) {
  skinny_head<config>(
      R,
      x,
      Prologue{ squares },
      WeightedHead<head_config, Scale, bf16>{ { Scale{}, HeadBuffers{ .target = target, .parts = parts } }, w });
}

}  // namespace tw
