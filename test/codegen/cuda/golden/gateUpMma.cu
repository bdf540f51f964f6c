/* layers.gate_up: 64 × 64 × 32 by mma, 3 stages */
#include "gemm/mma.cuh"

namespace tw {

constexpr MmaConfig config = {
  .k = 64,
  .a_stride = 64,
  .w_stride = 64,
  .tile_m = 64,
  .tile_n = 64,
  .tile_k = 32,
  .stages = 3,
  .warp_m = 32,
  .warp_n = 32,
  .raster = 4,
  .threads = 128,
  .shared_bytes = 24832,
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

struct Epilogue {
  static constexpr int columns = 192;
  bf16 *wgu;
  bf16 *gated;

  TW_DEVICE const bf16 *weight() const {
    return wgu;
  }

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    bf16 *const gated_row = gated + (long long)row * 96;
    const float v = (values)[0];
#pragma unroll
    for (int unit_ = 0; unit_ < 2; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int column = (column0) / 2 + 8 * unit_ + 2 * quad;
      const float2 v_2 = mul(round_f20(pair(products, group_)), v);
      const float2 v_3 = mul(div_sigmoid(v_2, add(1.0f, exp(neg(v_2)))), mul(round_f20(pair(products, group_ + 1)), v));
      if (is_stored) {
        store2(gated_row + column, v_3);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(128, 2)
k_gemm_9ad6e97cb3db13f8_afb0616e(
    int T,
    int R,
    bf16 *__restrict__ h,
    bf16 *__restrict__ wgu,
    f32 *__restrict__ ssq,
    bf16 *__restrict__ gated) {
  mma_gemm<config>(R, h, Prologue{ ssq }, Epilogue{ wgu, gated });
}

}  // namespace tw
