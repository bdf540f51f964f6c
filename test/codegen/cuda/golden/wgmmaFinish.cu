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
    Eight<f32> h_words[2];
    Eight<f32> y_words[2];
    Eight<bf16> norm_words[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int first = turn + 256 * i + 8 * lane;
      if (first < end) {
        h_words[i].load(h + (long long)row * 512 + first);
        y_words[i].load(y + (long long)row * 512 + first);
        norm_words[i].load(norm + first);
      }
    }
    f32 *const parts_row = parts + (long long)row * 32;
    const float parts_sum = row_sum(parts_row, 32);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int first = turn + 256 * i + 8 * lane;
      const bool is_stored = first < end;
      Eight<bf16> next_kept{};
      Eight<u8> next_tail_kept{};
      float next_parts_columns[8];
#pragma unroll
      for (int pair_ = 0; pair_ < 4; pair_++) {
        const float2 v = add(h_words[i].pair(pair_), mul(mul(y_words[i].pair(pair_), inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f))), add(norm_words[i].pair(pair_), 1.0f)));
        const float2 v_2 = mul(v, v);
        next_kept.keep(pair_, round_f24(v));
        next_tail_kept.keep(pair_, tail_f24(v));
        set_pair(next_parts_columns, pair_, v_2);
      }
      store_block_sum(next_parts + (long long)row * 32 + first / 16, next_parts_columns, lane, is_stored);
      if (is_stored) {
        next_kept.store(next + (long long)row * 512 + first);
        next_tail_kept.store(next_tail + (long long)row * 512 + first);
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
              const float2 v = round_f20(pair(products, batch_ * 8 + group_));
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
      SharedTiles{},
      NoPrologue{},
      Finish{ T, y, parts, h, norm, next, next_tail, next_parts },
      Epilogue{ y, parts });
}

}  // namespace tw
