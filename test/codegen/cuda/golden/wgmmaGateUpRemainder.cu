/* layers.gateUp: 128 × 256 × 64 by wgmma, deferred, 3 stages, clusters of 2 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Deferred,
  .tile_m = 128,
  .tile_n = 256,
  .tile_k = 64,
  .stages = 3,
  .cluster = 2,
  .raster = 8,
  .remainder_n = 64,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 256,
  .segments = 1,
  .columns = { 1024 },
  .experts = 0,
  .row_values = 1,
  .are_rows_of_threads = false,
  .column_values = 0,
  .has_final_tile = false,
  .has_finish = false,
  .shared_bytes = 232032,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 4;
  f32 *parts;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const parts_row = parts + (long long)row * 32;
    const float parts_sum = sums.sum(parts_row, 16);
    const float rms_scale = inverse_sqrt(add(div(parts_sum, 256.0f), 9.999999974752427e-7f));
    if (threadIdx.x % 32 == 0) {
      (values)[0] = rms_scale;
    }
  }
};

struct Epilogue {
  bf16 *gated;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
#pragma unroll
    for (int batch_ = 0; batch_ < 4; batch_++) {
      {
        GroupWords<bf16, 4> gated_kept{};
        {
          const float rms_scale = (values)[0];
#pragma unroll
          for (int unit_ = 0; unit_ < 4; unit_++) {
            const int group_ = unit_ / 1 * 2 + unit_ % 1;
            const float2 gate = mul(round_f20(pair(products, batch_ * 8 + group_)), rms_scale);
            const float2 silu = div_sigmoid(gate, add(1.0f, exp(neg(gate))));
            const float2 up = mul(round_f20(pair(products, batch_ * 8 + group_ + 1)), rms_scale);
            const float2 activated = mul(silu, up);
            gated_kept.keep(unit_, activated);
          }
        }
        gated_kept.store<0, false>(gated + (long long)row * 512, (column0 + 8 * (batch_ * 8)) / 2, quad, is_stored);
      }
    }
  }

  template <class Products> TW_DEVICE void remainder_row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    {
      GroupWords<bf16, 4> gated_kept{};
      {
        const float rms_scale = (values)[0];
#pragma unroll
        for (int unit_ = 0; unit_ < 4; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const float2 gate = mul(round_f20(pair(products, group_)), rms_scale);
          const float2 silu = div_sigmoid(gate, add(1.0f, exp(neg(gate))));
          const float2 up = mul(round_f20(pair(products, group_ + 1)), rms_scale);
          const float2 activated = mul(silu, up);
          gated_kept.keep(unit_, activated);
        }
      }
      gated_kept.store<0, false>(gated + (long long)row * 512, (column0) / 2, quad, is_stored);
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_687cac5d7a0e8235_bb344f43(
    int T,
    int R,
    bf16 *x,
    bf16 *w,
    f32 *parts,
    bf16 *gated,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map,
    const __grid_constant__ TensorMap w_map2) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map }, &w_map2 },
      SharedTiles{},
      Prologue{ parts },
      NoFinish{},
      Epilogue{ gated });
}

}  // namespace tw
