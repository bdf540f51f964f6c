/* layers.down: 128 × 96 × 64 by wgmma, deferred, 3 stages, clusters of 2 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Deferred,
  .tile_m = 128,
  .tile_n = 96,
  .tile_k = 64,
  .stages = 3,
  .cluster = 2,
  .raster = 8,
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
  .shared_bytes = 118864,
};

struct Epilogue {
  static constexpr int stored_columns = 256;
  struct Loaded {
    Eight<f32> stream_words[8];
  };
  f32 *stream;
  f32 *next;
  f16 *nextHalf;
  f32 *nextParts;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums nextParts_sums;
#pragma unroll
    for (int batch_ = 0; batch_ < 1; batch_++) {
      {
        GroupPairs<f32, 8> stream_words;
        stream_words.load<256>(stream + (long long)row * 256, column0 + 8 * (batch_ * 8), quad);
        stream_words.turn(quad);
        GroupWords<f16, 8> nextHalf_kept{};
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
                const float2 product = round_f20(pair(products, batch_ * 8 + group_));
                const float2 stream_value = add(stream_words.pair(group_), product);
                const float2 square = mul(stream_value, stream_value);
                add_to(es0, square);
                nextHalf_kept.keep(unit_, stream_value);
                if (is_stored) {
                  store2(next_row + column, stream_value);
                }
              }
            }
            nextParts_sums.take<256>((batch_ * 8) / 2 + block_, es0, quad, nextParts + (long long)row * 32, column0 / 16, is_stored);
          }
        }
        nextHalf_kept.store<256, false>(nextHalf + (long long)row * 256, column0 + 8 * (batch_ * 8), quad, is_stored);
      }
    }
    {
      GroupPairs<f32, 4> stream_words;
      stream_words.load<256>(stream + (long long)row * 256, column0 + 8 * (8), quad);
      stream_words.turn(quad);
      GroupWords<f16, 4> nextHalf_kept{};
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
              const float2 product = round_f20(pair(products, 8 + group_));
              const float2 stream_value = add(stream_words.pair(group_), product);
              const float2 square = mul(stream_value, stream_value);
              add_to(es0, square);
              nextHalf_kept.keep(unit_, stream_value);
              if (is_stored) {
                store2(next_row + column, stream_value);
              }
            }
          }
          nextParts_sums.take<256>((8) / 2 + block_, es0, quad, nextParts + (long long)row * 32, column0 / 16, is_stored);
        }
      }
      nextHalf_kept.store<256, false>(nextHalf + (long long)row * 256, column0 + 8 * (8), quad, is_stored);
    }
    nextParts_sums.end<6, 256>(quad, nextParts + (long long)row * 32, column0 / 16, is_stored);
  }

  TW_DEVICE void load(Loaded &loaded, int i, int row, int first) const {
    loaded.stream_words[i].load(stream + (long long)row * 256 + first);
  }

  TW_DEVICE void final_row(Loaded &loaded, int i, const float (&products)[8], int row, int first,
    int lane, bool is_stored) const {
    Eight<f32> next_kept{};
    Eight<f16> nextHalf_kept{};
    float nextParts_columns[8];
#pragma unroll
    for (int pair_ = 0; pair_ < 4; pair_++) {
      const float2 product = round_f20(float2{ products[2 * pair_], products[2 * pair_ + 1] });
      const float2 stream_value = add(loaded.stream_words[i].pair(pair_), product);
      const float2 square = mul(stream_value, stream_value);
      next_kept.keep(pair_, stream_value);
      nextHalf_kept.keep(pair_, stream_value);
      set_pair(nextParts_columns, pair_, square);
    }
    store_block_sum(nextParts + (long long)row * 32 + first / 16, nextParts_columns, lane, is_stored);
    if (is_stored) {
      next_kept.store(next + (long long)row * 256 + first);
      nextHalf_kept.store(nextHalf + (long long)row * 256 + first);
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_d783c17777fa2aa4_e0586304(
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
      SharedTiles{},
      NoPrologue{},
      NoFinish{},
      Epilogue{ stream, next, nextHalf, nextParts });
}

}  // namespace tw
