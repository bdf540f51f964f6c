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
    float const r0 = (values)[0];
    f32 * const r1 = cos + (long long)(row) * 32;
    f32 * const r2 = sin + (long long)(row) * 32;
    bf16 * const r3 = q + (long long)(row) * 64;
    if (column < 64) {
      const int partner = column % 32 < 16 ? column + 16 : column - 16;
      const float v0 = round_f20(products[halved<32, 8>(column - first)]);
      const float v1 = mul(v0, r0);
      const float v2 = load(r1 + ((column) & 31));
      const float v3 = mul(v1, v2);
      const float v4 = round_f20(products[halved<32, 8>(partner - first)]);
      const float v5 = mul(v4, r0);
      const float v6 = (column % 32 < 16) ? -(v5) : v5;
      const float v7 = load(r2 + ((column) & 31));
      const float v8 = mul(v6, v7);
      const float v9 = add(v3, v8);
      store(r3 + column, v9);
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
    float const r0 = (values)[0];
    f32 * const r1 = cos + (long long)(row) * 32;
    f32 * const r2 = sin + (long long)(row) * 32;
    bf16 * const r3 = k + (long long)(row) * 32;
    if (column < 32) {
      const int partner = column % 32 < 16 ? column + 16 : column - 16;
      const float v0 = round_f20(products[halved<32, 8>(column - first)]);
      const float v1 = mul(v0, r0);
      const float v2 = load(r1 + ((column) & 31));
      const float v3 = mul(v1, v2);
      const float v4 = round_f20(products[halved<32, 8>(partner - first)]);
      const float v5 = mul(v4, r0);
      const float v6 = (column % 32 < 16) ? -(v5) : v5;
      const float v7 = load(r2 + ((column) & 31));
      const float v8 = mul(v6, v7);
      const float v9 = add(v3, v8);
      store(r3 + column, v9);
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
    float const r0 = (values)[0];
    bf16 * const r1 = v + (long long)(row) * 32;
    if (column < 32) {
      const float v0 = round_f20(products[column - first]);
      const float v1 = mul(v0, r0);
      store(r1 + column, v1);
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
