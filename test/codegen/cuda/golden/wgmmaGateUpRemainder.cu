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

struct Epilogue {
  bf16 *gated;

  template <class Products> TW_DEVICE void row(
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
#pragma unroll
    for (int batch_ = 0; batch_ < 4; batch_++) {
      {
        unsigned w0_[4] = {};
        {
          float const er0 = (values)[0];
#pragma unroll
          for (int unit_ = 0; unit_ < 4; unit_++) {
            const int group_ = unit_ / 1 * 2 + unit_ % 1;
            const float ev0 = round_f20(products(batch_ * 8 + group_, 0));
            const float ev1 = round_f20(products(batch_ * 8 + group_, 1));
            const float ev2 = mul(ev0, er0);
            const float ev3 = mul(ev1, er0);
            const float ev4 = -(ev2);
            const float ev5 = -(ev3);
            const float ev6 = expf(ev4);
            const float ev7 = expf(ev5);
            const float ev8 = add(1.0f, ev6);
            const float ev9 = add(1.0f, ev7);
            const float ev10 = div_sigmoid(ev2, ev8);
            const float ev11 = div_sigmoid(ev3, ev9);
            const float ev12 = round_f20(products(batch_ * 8 + group_ + 1, 0));
            const float ev13 = round_f20(products(batch_ * 8 + group_ + 1, 1));
            const float ev14 = mul(ev12, er0);
            const float ev15 = mul(ev13, er0);
            const float ev16 = mul(ev10, ev14);
            const float ev17 = mul(ev11, ev15);
            w0_[unit_] = pack<bf16>(ev16, ev17);
          }
        }
#pragma unroll
        for (int unit_ = 0; unit_ < 4; unit_ += 4) {
          const uint4 words_ = quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
          const int column = (column0 + 8 * (batch_ * 8)) / 2 + 8 * (unit_ + quad);
          store_words(gated + (long long)row * 512 + column, words_, isStored);
        }
      }
    }
  }

  template <class Products> TW_DEVICE void remainder_row(
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
    {
      unsigned w0_[4] = {};
      {
        float const er0 = (values)[0];
#pragma unroll
        for (int unit_ = 0; unit_ < 4; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const float ev0 = round_f20(products(group_, 0));
          const float ev1 = round_f20(products(group_, 1));
          const float ev2 = mul(ev0, er0);
          const float ev3 = mul(ev1, er0);
          const float ev4 = -(ev2);
          const float ev5 = -(ev3);
          const float ev6 = expf(ev4);
          const float ev7 = expf(ev5);
          const float ev8 = add(1.0f, ev6);
          const float ev9 = add(1.0f, ev7);
          const float ev10 = div_sigmoid(ev2, ev8);
          const float ev11 = div_sigmoid(ev3, ev9);
          const float ev12 = round_f20(products(group_ + 1, 0));
          const float ev13 = round_f20(products(group_ + 1, 1));
          const float ev14 = mul(ev12, er0);
          const float ev15 = mul(ev13, er0);
          const float ev16 = mul(ev10, ev14);
          const float ev17 = mul(ev11, ev15);
          w0_[unit_] = pack<bf16>(ev16, ev17);
        }
      }
#pragma unroll
      for (int unit_ = 0; unit_ < 4; unit_ += 4) {
        const uint4 words_ = quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
        const int column = (column0) / 2 + 8 * (unit_ + quad);
        store_words(gated + (long long)row * 512 + column, words_, isStored);
      }
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
      nullptr,
      Prologue{ parts },
      NoFinish{},
      Epilogue{ gated });
}

}  // namespace tw
