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
  static constexpr int row_values = 1;
  f32 *parts;

  TW_DEVICE void row(int row, float *values) const {
    f32 * const y0 = parts + (long long)(row) * 32;
    float const y1 = row_sum(y0, 16);
    float const y2 = y1 / 256.0f;
    float const y3 = add(y2, 9.999999974752427e-7f);
    float const y4 = 1.0f / sqrtf(y3);
    if (threadIdx.x % 32 == 0) {
      (values)[0] = y4;
    }
  }
};

struct WEpilogue {
  f32 *cos;
  f32 *sin;
  bf16 *q;

  template <class Products> TW_DEVICE void row(
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
    {
      {
        float const er0 = (values)[0];
        f32 * const er1 = cos + (long long)(row) * 64;
        f32 * const er2 = sin + (long long)(row) * 64;
        bf16 * const er3 = q + (long long)(row) * 256;
#pragma unroll
        for (int unit_ = 0; unit_ < 6; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int lying_ = (column0) + 16 * (unit_ / 1);
          const int column = lying_ - lying_ % 64 / 2 + unit_ % 1 * 8 + 2 * quad;
          const int partner = column + 32;
          if (lying_ < 256) {
            const float ev0 = round_f20(products(group_, 0));
            const float ev1 = round_f20(products(group_, 1));
            const float ev2 = mul(ev0, er0);
            const float ev3 = mul(ev1, er0);
            const float2 ev4 = load2(er1 + ((column) & 63));
            const float ev5 = mul(ev2, ev4.x);
            const float ev6 = mul(ev3, ev4.y);
            const float ev7 = round_f20(products(group_ + 1, 0));
            const float ev8 = round_f20(products(group_ + 1, 1));
            const float ev9 = mul(ev7, er0);
            const float ev10 = mul(ev8, er0);
            const float ev11 = -(ev9);
            const float ev12 = -(ev10);
            const float2 ev13 = load2(er2 + ((column) & 63));
            const float ev14 = mul(ev11, ev13.x);
            const float ev15 = mul(ev12, ev13.y);
            const float ev16 = add(ev5, ev14);
            const float ev17 = add(ev6, ev15);
            const float2 ev18 = load2(er1 + ((partner) & 63));
            const float ev19 = mul(ev9, ev18.x);
            const float ev20 = mul(ev10, ev18.y);
            const float2 ev21 = load2(er2 + ((partner) & 63));
            const float ev22 = mul(ev2, ev21.x);
            const float ev23 = mul(ev3, ev21.y);
            const float ev24 = add(ev19, ev22);
            const float ev25 = add(ev20, ev23);
            if (isStored) {
              store2(er3 + column, ev16, ev17);
              store2(er3 + partner, ev24, ev25);
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
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
    {
      {
        float const er0 = (values)[0];
        f32 * const er1 = cos + (long long)(row) * 64;
        f32 * const er2 = sin + (long long)(row) * 64;
        bf16 * const er3 = k + (long long)(row) * 256;
#pragma unroll
        for (int unit_ = 0; unit_ < 6; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int lying_ = (column0) + 16 * (unit_ / 1);
          const int column = lying_ - lying_ % 64 / 2 + unit_ % 1 * 8 + 2 * quad;
          const int partner = column + 32;
          if (lying_ < 256) {
            const float ev0 = round_f20(products(group_, 0));
            const float ev1 = round_f20(products(group_, 1));
            const float ev2 = mul(ev0, er0);
            const float ev3 = mul(ev1, er0);
            const float2 ev4 = load2(er1 + ((column) & 63));
            const float ev5 = mul(ev2, ev4.x);
            const float ev6 = mul(ev3, ev4.y);
            const float ev7 = round_f20(products(group_ + 1, 0));
            const float ev8 = round_f20(products(group_ + 1, 1));
            const float ev9 = mul(ev7, er0);
            const float ev10 = mul(ev8, er0);
            const float ev11 = -(ev9);
            const float ev12 = -(ev10);
            const float2 ev13 = load2(er2 + ((column) & 63));
            const float ev14 = mul(ev11, ev13.x);
            const float ev15 = mul(ev12, ev13.y);
            const float ev16 = add(ev5, ev14);
            const float ev17 = add(ev6, ev15);
            const float2 ev18 = load2(er1 + ((partner) & 63));
            const float ev19 = mul(ev9, ev18.x);
            const float ev20 = mul(ev10, ev18.y);
            const float2 ev21 = load2(er2 + ((partner) & 63));
            const float ev22 = mul(ev2, ev21.x);
            const float ev23 = mul(ev3, ev21.y);
            const float ev24 = add(ev19, ev22);
            const float ev25 = add(ev20, ev23);
            if (isStored) {
              store2(er3 + column, ev16, ev17);
              store2(er3 + partner, ev24, ev25);
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
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
#pragma unroll
    for (int batch_ = 0; batch_ < 1; batch_++) {
      {
        unsigned w0_[8] = {};
        {
          float const er0 = (values)[0];
#pragma unroll
          for (int unit_ = 0; unit_ < 8; unit_++) {
            const int group_ = unit_;
            const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
            if (column < 256) {
              const float ev0 = round_f20(products(batch_ * 8 + group_, 0));
              const float ev1 = round_f20(products(batch_ * 8 + group_, 1));
              const float ev2 = mul(ev0, er0);
              const float ev3 = mul(ev1, er0);
              w0_[unit_] = pack<bf16>(ev2, ev3);
            }
          }
        }
#pragma unroll
        for (int unit_ = 0; unit_ < 8; unit_ += 4) {
          const uint4 words_ = quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
          const int column = column0 + 8 * (batch_ * 8) + 8 * (unit_ + quad);
          if (isStored && column < 256) store_words(v + (long long)row * 256 + column, words_, 1);
        }
      }
    }
    {
      unsigned w0_[4] = {};
      {
        float const er0 = (values)[0];
#pragma unroll
        for (int unit_ = 0; unit_ < 4; unit_++) {
          const int group_ = unit_;
          const int column = (column0 + 8 * (8)) + 8 * group_ + 2 * quad;
          if (column < 256) {
            const float ev0 = round_f20(products(8 + group_, 0));
            const float ev1 = round_f20(products(8 + group_, 1));
            const float ev2 = mul(ev0, er0);
            const float ev3 = mul(ev1, er0);
            w0_[unit_] = pack<bf16>(ev2, ev3);
          }
        }
      }
#pragma unroll
      for (int unit_ = 0; unit_ < 4; unit_ += 4) {
        const uint4 words_ = quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
        const int column = column0 + 8 * (8) + 8 * (unit_ + quad);
        if (isStored && column < 256) store_words(v + (long long)row * 256 + column, words_, 1);
      }
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
      nullptr,
      Prologue{ parts },
      NoFinish{},
      WEpilogue{ cos, sin, q },
      W2Epilogue{ cos, sin, k },
      W3Epilogue{ v });
}

}  // namespace tw
