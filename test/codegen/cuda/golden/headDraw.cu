/* head: 64 × 128 × 64 by mma, 3 stages */
#include "head/mma.cuh"

namespace tw {

constexpr MmaConfig config = {
  .k = 64,
  .a_stride = 64,
  .w_stride = 64,
  .tile_m = 64,
  .tile_n = 128,
  .tile_k = 64,
  .stages = 3,
  .warp_m = 32,
  .warp_n = 32,
  .raster = 4,
  .threads = 256,
  .shared_bytes = 86528,
};

constexpr HeadConfig head_config = {
  .vocab = 700,
  .columns = 704,
  .parts_stride = 32,
  .cap = 0,
  .draws = true,
  .logits_stride = 704,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 0,
                       row_loads = 0;
  f32 *scale;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const scale_row = scale + (long long)row * 1;
    const float scale_value = load(scale_row);
    if (threadIdx.x % 32 == 0) {
      (values)[0] = scale_value;
    }
  }
};

struct Scale {
  TW_DEVICE float operator()(int row, const float *values) const {
    const float v = (values)[0];
    return v;
  }
};

extern "C" __global__ void __launch_bounds__(256, 2)
k_logprob_4f2f60ad1aa7ad58_9c17529f(
    int T,
    int R,
    int F,
    bf16 *__restrict__ x,
    bf16 *__restrict__ w,
    f32 *__restrict__ scale,
    i32 *__restrict__ target,
    f32 *__restrict__ heat,
    i32 *__restrict__ low_,
    i32 *__restrict__ high_,
    f32 *__restrict__ logits,
    f32 *__restrict__ parts) {
  await_previous();
  mma_head<config, head_config>(
      R,
      x,
      w,
      Prologue{ scale },
      Scale{},
      HeadBuffers{
          .target = target,
          .parts = parts,
          .inverse_temperature = heat,
          .key_low = low_,
          .key_high = high_,
          .logits = logits,
          .logit_rows = F,
      });
}

}  // namespace tw
