/* layers.down: 128 × 96 × 64 by wgmma, cooperative, 3 stages, clusters of 1 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Cooperative,
  .tile_m = 128,
  .tile_n = 96,
  .tile_k = 64,
  .stages = 3,
  .cluster = 1,
  .raster = 16,
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 520,
  .segments = 1,
  .columns = { 256 },
  .experts = 0,
  .row_values = 0,
  .are_rows_of_threads = true,
  .column_values = 0,
  .has_final_tile = true,
  .has_finish = false,
  .shared_bytes = 87120,
};

struct Epilogue {
  static constexpr int stored_columns = 256;
  struct Loaded {
    unsigned l0_[8][8];
  };
  f16 *x;
  f32 *stream;
  f32 *next;
  f16 *nextHalf;
  f32 *nextParts;

  template <class Products> TW_DEVICE void row(
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums s0_;
#pragma unroll
    for (int batch_ = 0; batch_ < 1; batch_++) {
      {
        float2 l0_[8];
#pragma unroll
        for (int group_ = 0; group_ < 8; group_++) {
          const int column_ = column0 + 8 * (batch_ * 8) + 8 * group_ + 2 * quad;
          l0_[group_] = column_ >= 256 ? float2{} : load2(stream + (long long)row * 256 + column_);
        }
        unsigned w0_[8] = {};
        {
          f32 *const next_row = next + (long long)row * 256;
#pragma unroll
          for (int block_ = 0; block_ < 4; block_++) {
            float es0 = 0.0f;
#pragma unroll
            for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
              const int group_ = unit_;
              const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
              if (column < 256) {
                const float2 product = round_f20(float2{ products(batch_ * 8 + group_, 0), products(batch_ * 8 + group_, 1) });
                const float2 stream_value = add(l0_[group_], product);
                const float2 square = mul(stream_value, stream_value);
                es0 = add(es0, square.x);
                es0 = add(es0, square.y);
                w0_[unit_] = pack<f16>(stream_value.x, stream_value.y);
                if (isStored) {
                  store2(next_row + column, stream_value);
                }
              }
            }
            s0_.take((batch_ * 8) / 2 + block_, es0, quad);
            if (((batch_ * 8) / 2 + block_) % 4 == 3 && isStored && (column0 / 16 + ((batch_ * 8) / 2 + block_) - 3 + quad) * 16 < 256) (nextParts)[(long long)row * 32 + column0 / 16 + ((batch_ * 8) / 2 + block_) - 3 + quad] = s0_.whole;
          }
        }
#pragma unroll
        for (int unit_ = 0; unit_ < 8; unit_ += 4) {
          const uint4 words_ = quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
          const int column = column0 + 8 * (batch_ * 8) + 8 * (unit_ + quad);
          if (isStored && column < 256) store_words(nextHalf + (long long)row * 256 + column, words_, 1);
        }
      }
    }
    {
      float2 l0_[4];
#pragma unroll
      for (int group_ = 0; group_ < 4; group_++) {
        const int column_ = column0 + 8 * (8) + 8 * group_ + 2 * quad;
        l0_[group_] = column_ >= 256 ? float2{} : load2(stream + (long long)row * 256 + column_);
      }
      unsigned w0_[4] = {};
      {
        f32 *const next_row = next + (long long)row * 256;
#pragma unroll
        for (int block_ = 0; block_ < 2; block_++) {
          float es0 = 0.0f;
#pragma unroll
          for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
            const int group_ = unit_;
            const int column = (column0 + 8 * (8)) + 8 * group_ + 2 * quad;
            if (column < 256) {
              const float2 product = round_f20(float2{ products(8 + group_, 0), products(8 + group_, 1) });
              const float2 stream_value = add(l0_[group_], product);
              const float2 square = mul(stream_value, stream_value);
              es0 = add(es0, square.x);
              es0 = add(es0, square.y);
              w0_[unit_] = pack<f16>(stream_value.x, stream_value.y);
              if (isStored) {
                store2(next_row + column, stream_value);
              }
            }
          }
          s0_.take((8) / 2 + block_, es0, quad);
          if (((8) / 2 + block_) % 4 == 3 && isStored && (column0 / 16 + ((8) / 2 + block_) - 3 + quad) * 16 < 256) (nextParts)[(long long)row * 32 + column0 / 16 + ((8) / 2 + block_) - 3 + quad] = s0_.whole;
        }
      }
#pragma unroll
      for (int unit_ = 0; unit_ < 4; unit_ += 4) {
        const uint4 words_ = quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
        const int column = column0 + 8 * (8) + 8 * (unit_ + quad);
        if (isStored && column < 256) store_words(nextHalf + (long long)row * 256 + column, words_, 1);
      }
    }
    s0_.take(2, 0.0f, quad);
    s0_.take(3, 0.0f, quad);
    if (quad < 2 && isStored && (column0 / 16 + 4 + quad) * 16 < 256) (nextParts)[(long long)row * 32 + column0 / 16 + 4 + quad] = s0_.whole;
  }

  TW_DEVICE void load(Loaded &loaded, int i, int row, int first) const {
    unsigned (&l0_)[8][8] = loaded.l0_;
    { const uint4 x = ((const uint4 *)(stream + (long long)row * 256 + first))[0]; l0_[i][0] = x.x; l0_[i][1] = x.y; l0_[i][2] = x.z; l0_[i][3] = x.w; }
    { const uint4 x = ((const uint4 *)(stream + (long long)row * 256 + first))[1]; l0_[i][4] = x.x; l0_[i][5] = x.y; l0_[i][6] = x.z; l0_[i][7] = x.w; }
  }

  TW_DEVICE void final_row(Loaded &loaded, int i, const float (&products)[8], int row, int first, int lane,
    bool isStored) const {
    unsigned (&l0_)[8][8] = loaded.l0_;
    unsigned w0_[8] = {};
    unsigned w1_[4] = {};
    float a0_[8];
#pragma unroll
    for (int pair_ = 0; pair_ < 4; pair_++) {
      const float2 product = round_f20(float2{ products[2 * pair_ + 0], products[2 * pair_ + 1] });
      const float2 stream_value = add(float2{ __uint_as_float(l0_[i][2 * pair_ + 0]), __uint_as_float(l0_[i][2 * pair_ + 1]) }, product);
      const float2 square = mul(stream_value, stream_value);
      w0_[2 * pair_ + 0] = __float_as_uint(stream_value.x);
      w0_[2 * pair_ + 1] = __float_as_uint(stream_value.y);
      w1_[pair_] = pack<f16>(stream_value.x, stream_value.y);
      a0_[2 * pair_] = square.x;
      a0_[2 * pair_ + 1] = square.y;
    }
    store_block_sum(nextParts + (long long)row * 32 + first / 16, a0_, lane, isStored);
    if (isStored) {
      ((uint4 *)(next + (long long)row * 256 + first))[0] = { w0_[0], w0_[1], w0_[2], w0_[3] };
      ((uint4 *)(next + (long long)row * 256 + first))[1] = { w0_[4], w0_[5], w0_[6], w0_[7] };
      ((uint4 *)(nextHalf + (long long)row * 256 + first))[0] = { w1_[0], w1_[1], w1_[2], w1_[3] };
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_d783c17777fa2aa4_cd193a7a(
    int T,
    int R,
    f16 *x,
    f16 *w,
    f32 *stream,
    f32 *next,
    f16 *nextHalf,
    f32 *nextParts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, f16>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map }, nullptr },
      nullptr,
      NoPrologue{},
      NoFinish{},
      Epilogue{ x, stream, next, nextHalf, nextParts });
}

}  // namespace tw
