/* layers.down: 128 × 256 × 128 by wgmma, deferred, 3 stages, clusters of 2 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Deferred,
  .tile_m = 128,
  .tile_n = 256,
  .tile_k = 128,
  .stages = 3,
  .cluster = 2,
  .raster = 8,
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 1,
  .k = 512,
  .segments = 1,
  .columns = { 256 },
  .experts = 0,
  .row_values = 1,
  .are_rows_of_threads = true,
  .column_values = 256,
  .has_final_tile = false,
  .has_finish = false,
  .shared_bytes = 232032,
};

struct Prologue {
  static constexpr int row_values = 1;
  f32 *rowScales;

  TW_DEVICE void row(int row, float *values) const {
    f32 *const rowScales_row = rowScales + (long long)row * 1;
    const float rowScales_largest = row_max(rowScales_row, 1);
    (values)[0] = rowScales_largest;
  }
};

struct Epilogue {
  struct Ahead {
    unsigned a0_[2][8];
    unsigned a1_[2][4];
  };
  bf16 *streamHalf;
  u8 *streamTail;
  f32 *w_scales;
  u8 *nextTail;
  bf16 *nextHalf;
  f32 *nextParts;

  TW_DEVICE void load_first(Ahead &ahead, int row, int column0, int quad) const {
#pragma unroll
    for (int batch_ = 0; batch_ < 2; batch_++) {
#pragma unroll
      for (int unit_ = 0; unit_ < 8; unit_ += 4) {
        const int column_ = column0 + 8 * (8 * batch_ + unit_ + quad);
        const uint4 words_ = *(const uint4 *)(streamHalf + (long long)row * 256 + column_);
        ahead.a0_[batch_][unit_ + 0] = words_.x;
        ahead.a0_[batch_][unit_ + 1] = words_.y;
        ahead.a0_[batch_][unit_ + 2] = words_.z;
        ahead.a0_[batch_][unit_ + 3] = words_.w;
      }
#pragma unroll
      for (int unit_ = 0; unit_ < 8; unit_ += 4) {
        const int column_ = column0 + 8 * (8 * batch_ + unit_ + quad);
        const uint2 words_ = *(const uint2 *)(streamTail + (long long)row * 256 + column_);
        ahead.a1_[batch_][unit_ / 2 + 0] = words_.x;
        ahead.a1_[batch_][unit_ / 2 + 1] = words_.y;
      }
    }
  }

  template <class Products> TW_DEVICE void row_ahead(
    Ahead &ahead, int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums s0_;
#pragma unroll
    for (int batch_ = 0; batch_ < 4; batch_++) {
      {
        products.take_chunk((2 * batch_ + 0));
        products.take_chunk((2 * batch_ + 1));
        if (batch_ % 2 == 0) products.take_part(batch_ / 2);
        unsigned l0_[8];
#pragma unroll
        for (int unit_ = 0; unit_ < 8; unit_ += 4) {
          const uint4 words_ = quad_turn(quad, ahead.a0_[batch_ % 2][unit_ + 0], ahead.a0_[batch_ % 2][unit_ + 1], ahead.a0_[batch_ % 2][unit_ + 2], ahead.a0_[batch_ % 2][unit_ + 3]);
          l0_[unit_ + 0] = words_.x;
          l0_[unit_ + 1] = words_.y;
          l0_[unit_ + 2] = words_.z;
          l0_[unit_ + 3] = words_.w;
        }
        unsigned l1_[4];
#pragma unroll
        for (int unit_ = 0; unit_ < 8; unit_ += 4) {
          const uint2 words_ = quad_turn_bytes(quad, ahead.a1_[batch_ % 2][unit_ / 2 + 0], ahead.a1_[batch_ % 2][unit_ / 2 + 1]);
          l1_[unit_ / 2 + 0] = words_.x;
          l1_[unit_ / 2 + 1] = words_.y;
        }
        if (batch_ + 2 < 4 || products.has_next) {
          const bool isOwn = batch_ + 2 < 4;
          const int later_ = isOwn ? batch_ + 2 : batch_ + 2 - 4,
              ahead_ = isOwn ? row : products.next_row;
#pragma unroll
          for (int unit_ = 0; unit_ < 8; unit_ += 4) {
            const int column_ = column0 + 8 * (8 * later_ + unit_ + quad);
            const uint4 words_ = *(const uint4 *)(streamHalf + (long long)ahead_ * 256 + column_);
            ahead.a0_[batch_ % 2][unit_ + 0] = words_.x;
            ahead.a0_[batch_ % 2][unit_ + 1] = words_.y;
            ahead.a0_[batch_ % 2][unit_ + 2] = words_.z;
            ahead.a0_[batch_ % 2][unit_ + 3] = words_.w;
          }
#pragma unroll
          for (int unit_ = 0; unit_ < 8; unit_ += 4) {
            const int column_ = column0 + 8 * (8 * later_ + unit_ + quad);
            const uint2 words_ = *(const uint2 *)(streamTail + (long long)ahead_ * 256 + column_);
            ahead.a1_[batch_ % 2][unit_ / 2 + 0] = words_.x;
            ahead.a1_[batch_ % 2][unit_ / 2 + 1] = words_.y;
          }
        }
        unsigned w0_[4] = {};
        unsigned w1_[8] = {};
        {
          const float v = (values)[0];
#pragma unroll
          for (int block_ = 0; block_ < 4; block_++) {
            float es0 = 0.0f;
#pragma unroll
            for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
              const int group_ = unit_;
              const float2 product = round_f20(float2{ products(batch_ * 8 + group_, 0), products(batch_ * 8 + group_, 1) });
              const float2 product_value = mul(mul(product, v), load2(products.across + 8 * (batch_ * 8 + group_) + 2 * quad));
              const float2 stream = add(join_f24(float2{ __uint_as_float(l0_[group_] << 16), __uint_as_float(l0_[group_] & 0xffff0000u) }, uint2{ (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 0) & 255u), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 8) & 255u) }), product_value);
              const uint2 v_2 = tail_f24(stream);
              const float2 v_3 = round_f24(stream);
              const float2 square = mul(stream, stream);
              es0 = add(es0, square.x);
              es0 = add(es0, square.y);
              w0_[(unit_) / 2] |= (v_2.x | v_2.y << 8) << 16 * ((unit_) % 2);
              w1_[unit_] = pack<bf16>(v_3.x, v_3.y);
            }
            s0_.take((batch_ * 8) / 2 + block_, es0, quad);
            if (((batch_ * 8) / 2 + block_) % 4 == 3 && isStored) (nextParts)[(long long)row * 32 + column0 / 16 + ((batch_ * 8) / 2 + block_) - 3 + quad] = s0_.whole;
          }
        }
#pragma unroll
        for (int unit_ = 0; unit_ < 8; unit_ += 4) {
          const uint2 words_ = quad_turn_bytes(quad, w0_[unit_ / 2 + 0], w0_[unit_ / 2 + 1]);
          const int column = column0 + 8 * (batch_ * 8) + 8 * (unit_ + quad);
          store_words(nextTail + (long long)row * 256 + column, words_, isStored);
        }
#pragma unroll
        for (int unit_ = 0; unit_ < 8; unit_ += 4) {
          const uint4 words_ = quad_turn(quad, w1_[unit_ + 0], w1_[unit_ + 1], w1_[unit_ + 2], w1_[unit_ + 3]);
          const int column = column0 + 8 * (batch_ * 8) + 8 * (unit_ + quad);
          store_words(nextHalf + (long long)row * 256 + column, words_, isStored);
        }
      }
    }
  }

  template <int count> TW_DEVICE void column_values(int column0, int self, float (&held)[count]) const {
#pragma unroll
    for (int i = 0; i < 3; i++) {
      const int lying_ = column0 + self + 96 * i - 0;
      const int column_ = lying_;
      if (self + 96 * i >= 0 && self + 96 * i < 256) held[i] = column_ < 256 ? (w_scales)[column_] : 0.0f;
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_360a88ca1c5a2661_ca54aca9(
    int T,
    int R,
    e4m3 *x,
    e4m3 *w,
    bf16 *streamHalf,
    u8 *streamTail,
    f32 *rowScales,
    f32 *w_scales,
    u8 *nextTail,
    bf16 *nextHalf,
    f32 *nextParts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, e4m3>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map }, nullptr },
      nullptr,
      Prologue{ rowScales },
      NoFinish{},
      Epilogue{ streamHalf, streamTail, w_scales, nextTail, nextHalf, nextParts });
}

}  // namespace tw
