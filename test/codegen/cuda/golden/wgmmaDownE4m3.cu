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
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 1;
  f32 *rowScales;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const rowScales_row = rowScales + (long long)row * 1;
    const float rowScales_largest = sums.largest(rowScales_row, 1);
    (values)[0] = rowScales_largest;
  }
};

struct Epilogue {
  struct Ahead {
    GroupWords<bf16, 8> streamHalf_words[2];
    GroupWords<u8, 8> streamTail_words[2];
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
      ahead.streamHalf_words[batch_].load_ahead<0, 32>(streamHalf + (long long)row * 256, column0, 8 * batch_, quad);
      ahead.streamTail_words[batch_].load_ahead<0, 32>(streamTail + (long long)row * 256, column0, 8 * batch_, quad);
    }
  }

  template <class Products> TW_DEVICE void row_ahead(
    Ahead &ahead, int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums nextParts_sums;
#pragma unroll
    for (int batch_ = 0; batch_ < 4; batch_++) {
      {
        products.take_chunk((2 * batch_ + 0));
        products.take_chunk((2 * batch_ + 1));
        if (batch_ % 2 == 0) products.take_part(batch_ / 2);
        GroupWords<bf16, 8> streamHalf_words;
        streamHalf_words.take(ahead.streamHalf_words[batch_ % 2], quad);
        GroupWords<u8, 8> streamTail_words;
        streamTail_words.take(ahead.streamTail_words[batch_ % 2], quad);
        if (batch_ + 2 < 4 || products.has_next) {
          const bool is_own = batch_ + 2 < 4;
          const int later = is_own ? batch_ + 2 : batch_ + 2 - 4,
              later_row = is_own ? row : products.next_row;
          ahead.streamHalf_words[batch_ % 2].load_ahead<0, 32>(streamHalf + (long long)later_row * 256, column0, 8 * later, quad);
          ahead.streamTail_words[batch_ % 2].load_ahead<0, 32>(streamTail + (long long)later_row * 256, column0, 8 * later, quad);
        }
        GroupWords<u8, 8> nextTail_kept{};
        GroupWords<bf16, 8> nextHalf_kept{};
        {
          const float v = (values)[0];
#pragma unroll
          for (int block_ = 0; block_ < 4; block_++) {
            float es0 = 0.0f;
#pragma unroll
            for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
              const int group_ = unit_;
              const float2 product = round_f20(pair(products, batch_ * 8 + group_));
              const float2 product_2 = mul(mul(product, v), load2(products.across + 8 * (batch_ * 8 + group_) + 2 * quad));
              const float2 stream = add(join_f24(streamHalf_words.pair(group_), streamTail_words.pair(group_)), product_2);
              const float2 square = mul(stream, stream);
              add_to(es0, square);
              nextTail_kept.keep(unit_, tail_f24(stream));
              nextHalf_kept.keep(unit_, round_f24(stream));
            }
            nextParts_sums.take<0>((batch_ * 8) / 2 + block_, es0, quad, nextParts + (long long)row * 32, column0 / 16, is_stored);
          }
        }
        nextTail_kept.store<0, false>(nextTail + (long long)row * 256, column0 + 8 * (batch_ * 8), quad, is_stored);
        nextHalf_kept.store<0, false>(nextHalf + (long long)row * 256, column0 + 8 * (batch_ * 8), quad, is_stored);
      }
    }
  }

  template <int count>
TW_DEVICE void column_values(int column0, int self, float (&held)[count]) const {
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
      SharedTiles{},
      Prologue{ rowScales },
      NoFinish{},
      Epilogue{ streamHalf, streamTail, w_scales, nextTail, nextHalf, nextParts });
}

}  // namespace tw
