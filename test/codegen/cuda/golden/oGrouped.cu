/* layers.o: 4-bit groups of 128, 8 × 96 × 128, 3 stages */
#include "gemm/grouped.cuh"

namespace tw {

constexpr GroupedConfig config = {
  .tile_m = 8,
  .tile_n = 96,
  .tile_k = 128,
  .stages = 3,
  .k = 384,
  .group = 128,
  .unit_n = 16,
  .row_values = 0,
  .threads = 256,
  .shared_bytes = 26848,
};

struct Epilogue {
  static constexpr int columns = 384;
  bf16 *streamHalf;
  u8 *streamTail;
  u8 *nextTail;
  bf16 *nextHalf;
  f32 *nextParts;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    u8 *const nextTail_row = nextTail + (long long)row * 384;
    bf16 *const streamHalf_row = streamHalf + (long long)row * 384;
    u8 *const streamTail_row = streamTail + (long long)row * 384;
    bf16 *const nextHalf_row = nextHalf + (long long)row * 384;
    f32 *const nextParts_row = nextParts + (long long)row * 32;
#pragma unroll
    for (int block_ = 0; block_ < 1; block_++) {
      float s0 = 0.0f;
#pragma unroll
      for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
        const int group_ = unit_;
        const int column = column0 + 8 * group_ + 2 * quad;
        const float2 product = round_f20(pair(products, group_));
        const float2 stream = add(join_f24(load2(streamHalf_row + column), bytes_of(load2(streamTail_row + column))), product);
        const float2 square = mul(stream, stream);
        add_to(s0, square);
        if (is_stored) {
          store2(nextTail_row + column, tail_f24(stream));
          store2(nextHalf_row + column, round_f24(stream));
        }
      }
      s0 = quad_sum(s0);
      if (quad == 0 && is_stored) {
        nextParts_row[(column0 + 16 * block_) / 16] = s0;
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(256, 4)
k_gemm_31a741690c6ef6da_a3fc6a41(
    int T,
    int R,
    bf16 *__restrict__ x,
    u8 *__restrict__ w,
    bf16 *__restrict__ streamHalf,
    u8 *__restrict__ streamTail,
    u8 *__restrict__ nextTail,
    bf16 *__restrict__ nextHalf,
    f32 *__restrict__ nextParts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  grouped_gemm<config, bf16>(
      T,
      &x_map,
      NoPrologue{},
      Mapped<Epilogue>{ Epilogue{ streamHalf, streamTail, nextTail, nextHalf, nextParts }, &w_map });
}

}  // namespace tw
