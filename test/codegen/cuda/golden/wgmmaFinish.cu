/* test: 128 × 128 × 64 by wgmma, deferred, 2 stages, clusters of 1 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Deferred,
  .tile_m = 128,
  .tile_n = 128,
  .tile_k = 64,
  .stages = 2,
  .cluster = 1,
  .raster = 2,
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
  .has_final_tile = false,
  .has_finish = true,
  .shared_bytes = 106560,
};

constexpr FinishConfig finish_config = {
  .columns = 512,
  .turn_columns = 512,
  .pieces = 1,
  .block_rows = 128,
  .grid_rows = 128,
  .grid_blocks = 1,
  .shares = 512,
  .max_blocks = 4,
};

__device__ FinishState<finish_config> finish_state;

struct FinishedRows {
  f32 *y;
  f32 *parts;
  f32 *h;
  bf16 *norm;
  bf16 *next;
  u8 *next_tail;
  f32 *next_parts;

  TW_DEVICE void turn(int row, int turn, int end, int lane) const {
    unsigned l0_[2][8];
    unsigned l1_[2][8];
    unsigned l2_[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int first = turn + 256 * i + 8 * lane;
      if (first < end) {
        { const uint4 loaded = ((const uint4 *)(h + (long long)row * 512 + first))[0]; l0_[i][0] = loaded.x; l0_[i][1] = loaded.y; l0_[i][2] = loaded.z; l0_[i][3] = loaded.w; }
        { const uint4 loaded = ((const uint4 *)(h + (long long)row * 512 + first))[1]; l0_[i][4] = loaded.x; l0_[i][5] = loaded.y; l0_[i][6] = loaded.z; l0_[i][7] = loaded.w; }
        { const uint4 loaded = ((const uint4 *)(y + (long long)row * 512 + first))[0]; l1_[i][0] = loaded.x; l1_[i][1] = loaded.y; l1_[i][2] = loaded.z; l1_[i][3] = loaded.w; }
        { const uint4 loaded = ((const uint4 *)(y + (long long)row * 512 + first))[1]; l1_[i][4] = loaded.x; l1_[i][5] = loaded.y; l1_[i][6] = loaded.z; l1_[i][7] = loaded.w; }
        { const uint4 loaded = ((const uint4 *)(norm + first))[0]; l2_[i][0] = loaded.x; l2_[i][1] = loaded.y; l2_[i][2] = loaded.z; l2_[i][3] = loaded.w; }
      }
    }
    f32 *const parts_row = parts + (long long)row * 32;
    const float parts_sum = row_sum(parts_row, 32);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int first = turn + 256 * i + 8 * lane;
      const bool isStored = first < end;
      unsigned w0_[4] = {};
      unsigned w1_[2] = {};
      float a0_[8];
#pragma unroll
      for (int pair_ = 0; pair_ < 4; pair_++) {
        const float2 v = add(float2{ __uint_as_float(l0_[i][2 * pair_ + 0]), __uint_as_float(l0_[i][2 * pair_ + 1]) }, mul(mul(float2{ __uint_as_float(l1_[i][2 * pair_ + 0]), __uint_as_float(l1_[i][2 * pair_ + 1]) }, inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f))), add(float2{ __uint_as_float(l2_[i][pair_] << 16), __uint_as_float(l2_[i][pair_] & 0xffff0000u) }, 1.0f)));
        const float2 v_2 = round_f24(v);
        const uint2 v_3 = tail_f24(v);
        const float2 v_4 = mul(v, v);
        w0_[pair_] = pack<bf16>(v_2.x, v_2.y);
        w1_[(pair_) / 2] |= (v_3.x | v_3.y << 8) << 16 * ((pair_) % 2);
        a0_[2 * pair_] = v_4.x;
        a0_[2 * pair_ + 1] = v_4.y;
      }
      store_block_sum(next_parts + (long long)row * 32 + first / 16, a0_, lane, isStored);
      if (isStored) {
        ((uint4 *)(next + (long long)row * 512 + first))[0] = { w0_[0], w0_[1], w0_[2], w0_[3] };
        ((uint2 *)(next_tail + (long long)row * 512 + first))[0] = { w1_[0], w1_[1] };
      }
    }
  }
};

struct Epilogue {
  f32 *y;
  f32 *parts;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums parts_sums;
#pragma unroll
    for (int batch_ = 0; batch_ < 2; batch_++) {
      {
        {
          f32 *const y_row = y + (long long)row * 512;
#pragma unroll
          for (int block_ = 0; block_ < 4; block_++) {
            float es0 = 0.0f;
#pragma unroll
            for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
              const int group_ = unit_;
              const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
              const float2 v = round_f20(float2{ products(batch_ * 8 + group_, 0), products(batch_ * 8 + group_, 1) });
              const float2 v_2 = mul(v, v);
              add_to(es0, v_2);
              if (is_stored) {
                store2(y_row + column, v);
              }
            }
            parts_sums.take<0>((batch_ * 8) / 2 + block_, es0, quad, parts + (long long)row * 32, column0 / 16, is_stored);
          }
        }
      }
    }
  }
};

struct Finish {
  int T;
  f32 *y;
  f32 *parts;
  f32 *h;
  bf16 *norm;
  bf16 *next;
  u8 *next_tail;
  f32 *next_parts;

  TW_DEVICE void stored(int block, int share) const {
    rows_stored(finish_state, block, share);
  }

  TW_DEVICE void take_some(unsigned &finishing, int T) const {
    finish_rows(finish_state, finishing, T, 13, 0, FinishedRows{ y, parts, h, norm, next, next_tail, next_parts });
  }

  TW_DEVICE void take_rest(unsigned &finishing, int T) const {
    finish_rows(finish_state, finishing, T, 0x7fffffff, 12, FinishedRows{ y, parts, h, norm, next, next_tail, next_parts });
    rows_ended(finish_state, gridDim.x * 11u, T);
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_4de7b49b518107ca_179cf89f(
    int T,
    int R,
    bf16 *x,
    bf16 *w,
    f32 *y,
    f32 *parts,
    f32 *h,
    bf16 *norm,
    bf16 *next,
    u8 *next_tail,
    f32 *next_parts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map }, nullptr },
      nullptr,
      NoPrologue{},
      Finish{ T, y, parts, h, norm, next, next_tail, next_parts },
      Epilogue{ y, parts });
}

}  // namespace tw
