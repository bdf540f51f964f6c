/* layers.gateUp: few rows by mma, 8 × 32 × 128, 4 stages */
#include "gemm/skinny.cuh"

namespace tw {

constexpr SkinnyConfig config = {
  .k = 512,
  .a_stride = 512,
  .w_stride = 512,
  .tile_m = 8,
  .tile_n = 32,
  .tile_k = 128,
  .stages = 4,
  .warp_m = 8,
  .warp_n = 16,
  .copier_warps = 7,
  .row_values = 1,
  .threads = 288,
  .shared_bytes = 40992,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 4;
  f32 *parts;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const parts_row = parts + (long long)row * 32;
    const float parts_sum = sums.sum(parts_row, 32);
    const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
    if (threadIdx.x % 32 == 0) {
      (values)[0] = rms_scale;
    }
  }
};

struct Epilogue {
  static constexpr int columns = 1024;
  bf16 *w;
  bf16 *gated;

  TW_DEVICE const bf16 *weight() const {
    return w;
  }

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    bf16 *const gated_row = gated + (long long)row * 512;
    const float rms_scale = (values)[0];
#pragma unroll
    for (int unit_ = 0; unit_ < 1; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int column = (column0) / 2 + 8 * unit_ + 2 * quad;
      const float2 gate = mul(round_f20(pair(products, group_)), rms_scale);
      const float2 silu = div_sigmoid(gate, add(1.0f, exp(neg(gate))));
      const float2 up = mul(round_f20(pair(products, group_ + 1)), rms_scale);
      const float2 activated = mul(silu, up);
      if (is_stored) {
        store2(gated_row + column, activated);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(288, 2)
k_gemm_a1357cd9e5056661_e25fc8bc(
    int T,
    int R,
    bf16 *__restrict__ x,
    bf16 *__restrict__ w,
    f32 *__restrict__ parts,
    bf16 *__restrict__ gated) {
  skinny_gemm<config>(T, x, Prologue{ parts }, Epilogue{ w, gated });
}

}  // namespace tw
