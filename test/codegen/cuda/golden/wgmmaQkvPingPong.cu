/* layers.qkv: 128 × 96 × 64 by wgmma, pingpong, 6 stages, clusters of 2 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::PingPong,
  .tile_m = 128,
  .tile_n = 96,
  .tile_k = 64,
  .stages = 6,
  .cluster = 2,
  .raster = 8,
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 256,
  .segments = 3,
  .columns = { 256, 256, 256 },
  .experts = 0,
  .row_values = 1,
  .are_rows_of_threads = false,
  .column_values = 0,
  .has_final_tile = false,
  .has_finish = false,
  .shared_bytes = 174208,
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

struct WEpilogue {
  f32 *cos;
  f32 *sin;
  bf16 *q;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    {
      {
        const float rms_scale = (values)[0];
        f32 *const cos_row = cos + (long long)row * 64;
        f32 *const sin_row = sin + (long long)row * 64;
        bf16 *const q_row = q + (long long)row * 256;
#pragma unroll
        for (int unit_ = 0; unit_ < 6; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int lying_ = (column0) + 16 * (unit_ / 1);
          const int column = lying_ - lying_ % 64 / 2 + unit_ % 1 * 8 + 2 * quad;
          const int partner = column + 32;
          if (lying_ < 256) {
            const float2 product_first = mul(round_f20(pair(products, group_)), rms_scale);
            const float2 product_second = mul(round_f20(pair(products, group_ + 1)), rms_scale);
            const float2 rotated_first = add(mul(product_first, load2(cos_row + ((column) & 63))), mul(neg(product_second), load2(sin_row + ((column) & 63))));
            const float2 rotated_second = add(mul(product_second, load2(cos_row + ((partner) & 63))), mul(product_first, load2(sin_row + ((partner) & 63))));
            if (is_stored) {
              store2(q_row + column, rotated_first);
              store2(q_row + partner, rotated_second);
            }
          }
        }
      }
    }
  }
};

struct W2Epilogue {
  f32 *cos;
  f32 *sin;
  bf16 *k;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    {
      {
        const float rms_scale = (values)[0];
        f32 *const cos_row = cos + (long long)row * 64;
        f32 *const sin_row = sin + (long long)row * 64;
        bf16 *const k_row = k + (long long)row * 256;
#pragma unroll
        for (int unit_ = 0; unit_ < 6; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int lying_ = (column0) + 16 * (unit_ / 1);
          const int column = lying_ - lying_ % 64 / 2 + unit_ % 1 * 8 + 2 * quad;
          const int partner = column + 32;
          if (lying_ < 256) {
            const float2 product_first = mul(round_f20(pair(products, group_)), rms_scale);
            const float2 product_second = mul(round_f20(pair(products, group_ + 1)), rms_scale);
            const float2 rotated_first = add(mul(product_first, load2(cos_row + ((column) & 63))), mul(neg(product_second), load2(sin_row + ((column) & 63))));
            const float2 rotated_second = add(mul(product_second, load2(cos_row + ((partner) & 63))), mul(product_first, load2(sin_row + ((partner) & 63))));
            if (is_stored) {
              store2(k_row + column, rotated_first);
              store2(k_row + partner, rotated_second);
            }
          }
        }
      }
    }
  }
};

struct W3Epilogue {
  bf16 *v;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
#pragma unroll
    for (int batch_ = 0; batch_ < 1; batch_++) {
      {
        GroupWords<bf16, 8> v_kept{};
        {
          const float rms_scale = (values)[0];
#pragma unroll
          for (int unit_ = 0; unit_ < 8; unit_++) {
            const int group_ = unit_;
            const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
            if (column < 256) {
              const float2 product = mul(round_f20(pair(products, batch_ * 8 + group_)), rms_scale);
              v_kept.keep(unit_, product);
            }
          }
        }
        v_kept.store<256, true>(v + (long long)row * 256, column0 + 8 * (batch_ * 8), quad, is_stored);
      }
    }
    {
      GroupWords<bf16, 4> v_kept{};
      {
        const float rms_scale = (values)[0];
#pragma unroll
        for (int unit_ = 0; unit_ < 4; unit_++) {
          const int group_ = unit_;
          const int column = (column0 + 8 * (8)) + 8 * group_ + 2 * quad;
          if (column < 256) {
            const float2 product = mul(round_f20(pair(products, 8 + group_)), rms_scale);
            v_kept.keep(unit_, product);
          }
        }
      }
      v_kept.store<256, true>(v + (long long)row * 256, column0 + 8 * (8), quad, is_stored);
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_94f84b3b7809f195_4f77e8cb(
    int T,
    int R,
    bf16 *x,
    bf16 *w,
    f32 *parts,
    f32 *cos,
    f32 *sin,
    bf16 *q,
    bf16 *w_2,
    bf16 *k,
    bf16 *w_3,
    bf16 *v,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map,
    const __grid_constant__ TensorMap w_2_map,
    const __grid_constant__ TensorMap w_3_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map, &w_2_map, &w_3_map }, nullptr },
      SharedTiles{},
      Prologue{ parts },
      NoFinish{},
      WEpilogue{ cos, sin, q },
      W2Epilogue{ cos, sin, k },
      W3Epilogue{ v });
}

}  // namespace tw
