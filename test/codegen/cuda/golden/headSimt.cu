/* layers.head_logprob: 32 × 64 × 32 on CUDA cores */
#include "head/simt.cuh"

namespace tw {

constexpr SimtConfig config = {
  .k = 64,
  .a_stride = 64,
  .w_stride = 64,
  .group = 0,
  .tile_m = 32,
  .tile_n = 64,
  .tile_k = 32,
  .shared_bytes = 15872,
};

constexpr HeadConfig head_config = {
  .vocab = 600,
  .columns = 608,
  .parts_stride = 32,
  .cap = 0,
  .draws = false,
  .logits_stride = 0,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 4;
  f32 *ssq;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const ssq_row = ssq + (long long)row * 32;
    const float ssq_sum = sums.sum(ssq_row, 4);
    const float v = inverse_sqrt(add(0.000009999999747378752f, div(ssq_sum, 64.0f)));
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

extern "C" __global__ void __launch_bounds__(256, 1)
k_logprob_3dee4bc54a567a82_c8d5357d(
    int T,
    int R,
    bf16 *__restrict__ h,
    bf16 *__restrict__ head,
    f32 *__restrict__ ssq,
    i32 *__restrict__ target,
    f32 *__restrict__ parts) {
  await_previous();
  simt_head<config, head_config>(
      R,
      h,
      head,
      Prologue{ ssq },
      Scale{},
      HeadBuffers{ .target = target, .parts = parts });
}

}  // namespace tw
