/* layers.qkv: 32 × 64 × 32 on CUDA cores */
#include "gemm/simt.cuh"

namespace tw {

constexpr SimtConfig config = {
  .k = 64,
  .a_stride = 64,
  .w_stride = 64,
  .group = 0,
  .tile_m = 32,
  .tile_n = 64,
  .tile_k = 32,
  .shared_bytes = 12672,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 4;
  f32 *ssq;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const ssq_row = ssq + (long long)row * 32;
    const float ssq_sum = sums.sum(ssq_row, 4);
    const float v_2 = inverse_sqrt(add(0.000009999999747378752f, div(ssq_sum, 64.0f)));
    if (threadIdx.x % 32 == 0) {
      (values)[0] = v_2;
    }
  }
};

struct WqEpilogue {
  static constexpr int columns = 64;
  static constexpr int matrices = 1;
  bf16 *wq;
  f32 *cos;
  f32 *sin;
  bf16 *q;

  TW_DEVICE const bf16 *weight() const {
    return wq;
  }

  TW_DEVICE void row(int row, int first, int column, int lane, const float *values,
    const float *products) const {
    bf16 *const q_row = q + (long long)row * 64;
    const float v_2 = (values)[0];
    f32 *const cos_row = cos + (long long)row * 32;
    f32 *const sin_row = sin + (long long)row * 32;
    if (column < 64) {
      const int partner = column % 32 < 16 ? column + 16 : column - 16;
      const float v_3 = mul(round_f20(products[halved<32, 8>(column - first)]), v_2);
      const float v_4 = mul(round_f20(products[halved<32, 8>(partner - first)]), v_2);
      const float v_5 = add(mul(v_3, load(cos_row + ((column) & 31))), mul(select((column % 32 < 16), neg(v_4), v_4), load(sin_row + ((column) & 31))));
      store(q_row + column, v_5);
    }
  }
};

struct WkEpilogue {
  static constexpr int columns = 32;
  static constexpr int matrices = 1;
  f32 *cos;
  f32 *sin;
  bf16 *wk;
  bf16 *k;

  TW_DEVICE const bf16 *weight() const {
    return wk;
  }

  TW_DEVICE void row(int row, int first, int column, int lane, const float *values,
    const float *products) const {
    bf16 *const k_row = k + (long long)row * 32;
    const float v_2 = (values)[0];
    f32 *const cos_row = cos + (long long)row * 32;
    f32 *const sin_row = sin + (long long)row * 32;
    if (column < 32) {
      const int partner = column % 32 < 16 ? column + 16 : column - 16;
      const float v_3 = mul(round_f20(products[halved<32, 8>(column - first)]), v_2);
      const float v_4 = mul(round_f20(products[halved<32, 8>(partner - first)]), v_2);
      const float v_5 = add(mul(v_3, load(cos_row + ((column) & 31))), mul(select((column % 32 < 16), neg(v_4), v_4), load(sin_row + ((column) & 31))));
      store(k_row + column, v_5);
    }
  }
};

struct WvEpilogue {
  static constexpr int columns = 32;
  static constexpr int matrices = 1;
  bf16 *wv;
  bf16 *v;

  TW_DEVICE const bf16 *weight() const {
    return wv;
  }

  TW_DEVICE void row(int row, int first, int column, int lane, const float *values,
    const float *products) const {
    bf16 *const v_row = v + (long long)row * 32;
    const float v_2 = (values)[0];
    if (column < 32) {
      const float v_3 = mul(round_f20(products[column - first]), v_2);
      store(v_row + column, v_3);
    }
  }
};

extern "C" __global__ void __launch_bounds__(256, 1)
k_gemm_2d752c38f9effa62_c8d5357d(
    int T,
    int R,
    bf16 *__restrict__ h,
    bf16 *__restrict__ wq,
    f32 *__restrict__ ssq,
    f32 *__restrict__ cos,
    f32 *__restrict__ sin,
    bf16 *__restrict__ q,
    bf16 *__restrict__ wk,
    bf16 *__restrict__ k,
    bf16 *__restrict__ wv,
    bf16 *__restrict__ v) {
  await_previous();
  simt_gemm<config>(
      T,
      h,
      Prologue{ ssq },
      WqEpilogue{ wq, cos, sin, q },
      WkEpilogue{ cos, sin, wk, k },
      WvEpilogue{ wv, v });
}

}  // namespace tw
