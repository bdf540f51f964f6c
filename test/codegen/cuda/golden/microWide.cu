/* layers.ffn.experts.up_gate: MXFP4, 128 × 192 × 128, 3 stages */
#include "gemm/micro.cuh"

namespace tw {

constexpr MicroConfig config = {
  .tile_m = 128,
  .tile_n = 192,
  .tile_k = 128,
  .stages = 3,
  .k = 192,
  .unit_n = 16,
  .threads = 416,
  .shared_bytes = 164656,
};

struct FfnExpertsUpGateWEpilogue {
  static constexpr int columns = 320;
  f32 *up_scored_by_expert;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    f32 *const up_scored_by_expert_row = up_scored_by_expert + (long long)row * 320;
#pragma unroll
    for (int unit_ = 0; unit_ < 2; unit_++) {
      const int group_ = unit_;
      const int column = column0 + 8 * group_ + 2 * quad;
      if (column < 320) {
        const float2 up_scored_by_expert_value = round_f20(pair(products, group_));
        if (is_stored) {
          store2(up_scored_by_expert_row + column, up_scored_by_expert_value);
        }
      }
    }
  }
};

struct FfnExpertsUpGateW2Epilogue {
  static constexpr int columns = 320;
  f32 *gate_scored_by_expert;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    f32 *const gate_scored_by_expert_row = gate_scored_by_expert + (long long)row * 320;
#pragma unroll
    for (int unit_ = 0; unit_ < 2; unit_++) {
      const int group_ = unit_;
      const int column = column0 + 8 * group_ + 2 * quad;
      if (column < 320) {
        const float2 gate_scored_by_expert_value = round_f20(pair(products, group_));
        if (is_stored) {
          store2(gate_scored_by_expert_row + column, gate_scored_by_expert_value);
        }
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(416, 1)
k_gemm_6d4e0f3106d631a8_c9077457(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    bf16 *__restrict__ normed_scored_by_expert_bf16,
    i32 *__restrict__ experts_r_starts,
    u8 *__restrict__ ffn_experts_up_gate_w,
    f32 *__restrict__ up_scored_by_expert,
    u8 *__restrict__ ffn_experts_up_gate_w_2,
    f32 *__restrict__ gate_scored_by_expert,
    const __grid_constant__ TensorMap normed_scored_by_expert_bf16_map,
    const __grid_constant__ TensorMap ffn_experts_up_gate_w_map,
    const __grid_constant__ TensorMap ffn_experts_up_gate_w_2_map) {
  micro_gemm<config>(
      ExpertRows<5>{ experts_r_starts },
      &normed_scored_by_expert_bf16_map,
      NoPrologue{},
      Mapped<FfnExpertsUpGateWEpilogue>{ FfnExpertsUpGateWEpilogue{ up_scored_by_expert }, &ffn_experts_up_gate_w_map },
      Mapped<FfnExpertsUpGateW2Epilogue>{ FfnExpertsUpGateW2Epilogue{ gate_scored_by_expert }, &ffn_experts_up_gate_w_2_map });
}

}  // namespace tw
