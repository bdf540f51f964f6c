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
  static constexpr int row_values = 1;
  f32 *ssq;

  TW_DEVICE void row(int row, float *values) const {
    f32 * const y0 = ssq + (long long)(row) * 32;
    float const y1 = row_sum(y0, 4);
    float const y2 = y1 / 64.0f;
    float const y3 = add(0.000009999999747378752f, y2);
    float const y4 = 1.0f / sqrtf(y3);
    if (threadIdx.x % 32 == 0) {
      (values)[0] = y4;
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
    float const r0 = (values)[0];
    bf16 * const r1 = gated + (long long)(row) * 96;
#pragma unroll
    for (int unit_ = 0; unit_ < 2; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int column = (column0) / 2 + 8 * unit_ + 2 * quad;
      const float v0 = round_f20(products(group_, 0));
      const float v1 = round_f20(products(group_, 1));
      const float v2 = mul(v0, r0);
      const float v3 = mul(v1, r0);
      const float v4 = -(v2);
      const float v5 = -(v3);
      const float v6 = expf(v4);
      const float v7 = expf(v5);
      const float v8 = add(1.0f, v6);
      const float v9 = add(1.0f, v7);
      const float v10 = div_sigmoid(v2, v8);
      const float v11 = div_sigmoid(v3, v9);
      const float v12 = round_f20(products(group_ + 1, 0));
      const float v13 = round_f20(products(group_ + 1, 1));
      const float v14 = mul(v12, r0);
      const float v15 = mul(v13, r0);
      const float v16 = mul(v10, v14);
      const float v17 = mul(v11, v15);
      if (is_stored) {
        store2(r1 + column, v16, v17);
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
  await_previous();
  mma_gemm<config>(R, h, Prologue{ ssq }, Epilogue{ wgu, gated });
}

}  // namespace tw
