/* layers.ffn.experts.gate_up: 64 × 96 × 64 by wgmma, pingpong, 3 stages, clusters of 1 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::PingPong,
  .tile_m = 64,
  .tile_n = 96,
  .tile_k = 64,
  .stages = 3,
  .cluster = 1,
  .raster = 2,
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 80,
  .segments = 1,
  .columns = { 160 },
  .experts = 5,
  .row_values = 0,
  .are_rows_of_threads = true,
  .column_values = 0,
  .has_final_tile = false,
  .has_finish = false,
  .shared_bytes = 62652,
};

__device__ TakenTiles taken_tiles;

struct Epilogue {
  bf16 *activated_by_expert_bf16;

  template <class Products> TW_DEVICE void row(
    int row, int is_stored, int column0, int quad, const float *values, Products &&products) const {
#pragma unroll
    for (int batch_ = 0; batch_ < 1; batch_++) {
      {
        GroupWords<bf16, 4> activated_by_expert_bf16_kept{};
        {
#pragma unroll
          for (int unit_ = 0; unit_ < 4; unit_++) {
            const int group_ = unit_ / 1 * 2 + unit_ % 1;
            const int column = ((column0 + 8 * (batch_ * 8))) / 2 + 8 * unit_ + 2 * quad;
            if (column < 72) {
              const float2 gate_by_expert = round_f20(pair(products, batch_ * 8 + group_));
              const float2 silu_by_expert = div_sigmoid(gate_by_expert, add(1.0f, exp(neg(gate_by_expert))));
              const float2 up_by_expert = round_f20(pair(products, batch_ * 8 + group_ + 1));
              const float2 activated_by_expert = mul(silu_by_expert, up_by_expert);
              activated_by_expert_bf16_kept.keep(unit_, activated_by_expert);
            }
          }
        }
        activated_by_expert_bf16_kept.store<72, true>(activated_by_expert_bf16 + (long long)row * 96, (column0 + 8 * (batch_ * 8)) / 2, quad, is_stored);
      }
    }
    {
      {
        bf16 *const activated_by_expert_bf16_row = activated_by_expert_bf16 + (long long)row * 96;
#pragma unroll
        for (int unit_ = 0; unit_ < 2; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int column = ((column0 + 8 * (8))) / 2 + 8 * unit_ + 2 * quad;
          if (column < 72) {
            const float2 gate_by_expert = round_f20(pair(products, 8 + group_));
            const float2 silu_by_expert = div_sigmoid(gate_by_expert, add(1.0f, exp(neg(gate_by_expert))));
            const float2 up_by_expert = round_f20(pair(products, 8 + group_ + 1));
            const float2 activated_by_expert = mul(silu_by_expert, up_by_expert);
            if (is_stored) {
              store2(activated_by_expert_bf16_row + column, activated_by_expert);
            }
          }
        }
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_60bd36401b767778_bf0a0ad1(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    bf16 *normed_by_expert_bf16,
    i32 *experts_starts,
    bf16 *ffn_experts_gate_up_w,
    bf16 *activated_by_expert_bf16,
    const __grid_constant__ TensorMap normed_by_expert_bf16_map,
    const __grid_constant__ TensorMap ffn_experts_gate_up_w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      Tx2,
      memory,
      HopperMaps{ &normed_by_expert_bf16_map, { &ffn_experts_gate_up_w_map }, nullptr },
      SharedTiles{ experts_starts, &taken_tiles },
      NoPrologue{},
      NoFinish{},
      Epilogue{ activated_by_expert_bf16 });
}

}  // namespace tw
