/* layers.o: 128 × 256 × 64 by wgmma, deferred, 3 stages, clusters of 2 */
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
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 512,
  .segments = 1,
  .columns = { 512 },
  .experts = 0,
  .row_values = 0,
  .are_rows_of_threads = true,
  .column_values = 0,
  .has_final_tile = true,
  .has_finish = false,
  .shared_bytes = 229456,
};

struct Epilogue {
  static constexpr int stored_columns = 512;
  struct Loaded {
    Eight<bf16> streamHalf_words[8];
    Eight<u8> streamTail_words[8];
  };
  bf16 *streamHalf;
  u8 *streamTail;
  u8 *nextTail;
  bf16 *nextHalf;
  f32 *nextParts;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums nextParts_sums;
#pragma unroll
    for (int batch_ = 0; batch_ < 2; batch_++) {
      {
        GroupWords<bf16, 16> streamHalf_words;
        streamHalf_words.load<0>(streamHalf + (long long)row * 512, column0 + 8 * (batch_ * 16), quad);
        GroupWords<u8, 16> streamTail_words;
        streamTail_words.load<0>(streamTail + (long long)row * 512, column0 + 8 * (batch_ * 16), quad);
        streamHalf_words.turn(quad);
        streamTail_words.turn(quad);
        GroupWords<u8, 16> nextTail_kept{};
        GroupWords<bf16, 16> nextHalf_kept{};
        {
#pragma unroll
          for (int block_ = 0; block_ < 8; block_++) {
            float es0 = 0.0f;
#pragma unroll
            for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
              const int group_ = unit_;
              const float2 product = round_f20(pair(products, batch_ * 16 + group_));
              const float2 stream = add(join_f24(streamHalf_words.pair(group_), streamTail_words.pair(group_)), product);
              const float2 square = mul(stream, stream);
              add_to(es0, square);
              nextTail_kept.keep(unit_, tail_f24(stream));
              nextHalf_kept.keep(unit_, round_f24(stream));
            }
            nextParts_sums.take<0>((batch_ * 16) / 2 + block_, es0, quad, nextParts + (long long)row * 32, column0 / 16, is_stored);
          }
        }
        nextTail_kept.store<0, false>(nextTail + (long long)row * 512, column0 + 8 * (batch_ * 16), quad, is_stored);
        nextHalf_kept.store<0, false>(nextHalf + (long long)row * 512, column0 + 8 * (batch_ * 16), quad, is_stored);
      }
    }
  }

  TW_DEVICE void load(Loaded &loaded, int i, int row, int first) const {
    loaded.streamHalf_words[i].load(streamHalf + (long long)row * 512 + first);
    loaded.streamTail_words[i].load(streamTail + (long long)row * 512 + first);
  }

  TW_DEVICE void final_row(Loaded &loaded, int i, const float (&products)[8], int row, int first,
    int lane, bool is_stored) const {
    Eight<u8> nextTail_kept{};
    Eight<bf16> nextHalf_kept{};
    float nextParts_columns[8];
#pragma unroll
    for (int pair_ = 0; pair_ < 4; pair_++) {
      const float2 product = round_f20(float2{ products[2 * pair_], products[2 * pair_ + 1] });
      const float2 stream = add(join_f24(loaded.streamHalf_words[i].pair(pair_), loaded.streamTail_words[i].pair(pair_)), product);
      const float2 square = mul(stream, stream);
      nextTail_kept.keep(pair_, tail_f24(stream));
      nextHalf_kept.keep(pair_, round_f24(stream));
      set_pair(nextParts_columns, pair_, square);
    }
    store_block_sum(nextParts + (long long)row * 32 + first / 16, nextParts_columns, lane, is_stored);
    if (is_stored) {
      nextTail_kept.store(nextTail + (long long)row * 512 + first);
      nextHalf_kept.store(nextHalf + (long long)row * 512 + first);
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_ec4ae1d519d6ff36_60bdd2df(
    int T,
    int R,
    bf16 *x,
    bf16 *w,
    bf16 *streamHalf,
    u8 *streamTail,
    u8 *nextTail,
    bf16 *nextHalf,
    f32 *nextParts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map }, nullptr },
      SharedTiles{},
      NoPrologue{},
      NoFinish{},
      Epilogue{ streamHalf, streamTail, nextTail, nextHalf, nextParts });
}

}  // namespace tw
