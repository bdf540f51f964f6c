/* layers.qkv: 4-bit groups of 32, 16 × 96 × 256, 3 stages */
#include "gemm/grouped.cuh"

namespace tw {

constexpr GroupedConfig config = {
  .tile_m = 16,
  .tile_n = 96,
  .tile_k = 256,
  .stages = 3,
  .k = 384,
  .group = 32,
  .unit_n = 16,
  .row_values = 1,
  .threads = 480,
  .shared_bytes = 71840,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 4;
  f32 *parts;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const parts_row = parts + (long long)row * 32;
    const float parts_sum = sums.sum(parts_row, 24);
    const float rms_scale = inverse_sqrt(add(div(parts_sum, 384.0f), 9.999999974752427e-7f));
    if (threadIdx.x % 32 == 0) {
      (values)[0] = rms_scale;
    }
  }
};

struct WEpilogue {
  static constexpr int columns = 384;
  f32 *cos;
  f32 *sin;
  f16 *q;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    f16 *const q_row = q + (long long)row * 384;
    const float rms_scale = (values)[0];
    f32 *const cos_row = cos + (long long)row * 32;
    f32 *const sin_row = sin + (long long)row * 32;
#pragma unroll
    for (int unit_ = 0; unit_ < 1; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int lying_ = column0 + 16 * (unit_ / 1);
      const int column = lying_ - lying_ % 32 / 2 + unit_ % 1 * 8 + 2 * quad;
      const int partner = column + 16;
      const float2 product_first = mul(round_f20(pair(products, group_)), rms_scale);
      const float2 product_second = mul(round_f20(pair(products, group_ + 1)), rms_scale);
      const float2 rotated_first = add(mul(product_first, load2(cos_row + ((column) & 31))), mul(neg(product_second), load2(sin_row + ((column) & 31))));
      const float2 rotated_second = add(mul(product_second, load2(cos_row + ((partner) & 31))), mul(product_first, load2(sin_row + ((partner) & 31))));
      if (is_stored) {
        store2(q_row + column, rotated_first);
        store2(q_row + partner, rotated_second);
      }
    }
  }
};

struct W2Epilogue {
  static constexpr int columns = 384;
  f32 *cos;
  f32 *sin;
  f16 *k;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    f16 *const k_row = k + (long long)row * 384;
    const float rms_scale = (values)[0];
    f32 *const cos_row = cos + (long long)row * 32;
    f32 *const sin_row = sin + (long long)row * 32;
#pragma unroll
    for (int unit_ = 0; unit_ < 1; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int lying_ = column0 + 16 * (unit_ / 1);
      const int column = lying_ - lying_ % 32 / 2 + unit_ % 1 * 8 + 2 * quad;
      const int partner = column + 16;
      const float2 product_first = mul(round_f20(pair(products, group_)), rms_scale);
      const float2 product_second = mul(round_f20(pair(products, group_ + 1)), rms_scale);
      const float2 rotated_first = add(mul(product_first, load2(cos_row + ((column) & 31))), mul(neg(product_second), load2(sin_row + ((column) & 31))));
      const float2 rotated_second = add(mul(product_second, load2(cos_row + ((partner) & 31))), mul(product_first, load2(sin_row + ((partner) & 31))));
      if (is_stored) {
        store2(k_row + column, rotated_first);
        store2(k_row + partner, rotated_second);
      }
    }
  }
};

struct W3Epilogue {
  static constexpr int columns = 384;
  f16 *v;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    f16 *const v_row = v + (long long)row * 384;
    const float rms_scale = (values)[0];
#pragma unroll
    for (int unit_ = 0; unit_ < 2; unit_++) {
      const int group_ = unit_;
      const int column = column0 + 8 * group_ + 2 * quad;
      const float2 product = mul(round_f20(pair(products, group_)), rms_scale);
      if (is_stored) {
        store2(v_row + column, product);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(480, 1)
k_gemm_076febf9c201a4a3_2338ce82(
    int T,
    int R,
    f16 *__restrict__ x,
    u8 *__restrict__ w,
    f32 *__restrict__ parts,
    f32 *__restrict__ cos,
    f32 *__restrict__ sin,
    f16 *__restrict__ q,
    u8 *__restrict__ w_2,
    f16 *__restrict__ k,
    u8 *__restrict__ w_3,
    f16 *__restrict__ v,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map,
    const __grid_constant__ TensorMap w_2_map,
    const __grid_constant__ TensorMap w_3_map) {
  grouped_gemm<config, f16>(
      T,
      &x_map,
      Prologue{ parts },
      Mapped<WEpilogue>{ WEpilogue{ cos, sin, q }, &w_map },
      Mapped<W2Epilogue>{ W2Epilogue{ cos, sin, k }, &w_2_map },
      Mapped<W3Epilogue>{ W3Epilogue{ v }, &w_3_map });
}

}  // namespace tw
