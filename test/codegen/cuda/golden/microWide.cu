/* layers.ffn.experts.up_gate: MXFP4, 128 × 192 × 128, 3 stages */
#include "gemm/micro.cuh"

namespace tw {

constexpr MicroConfig config = {
  .tile_m = 128,
  .tile_n = 192,
  .tile_k = 128,
  .stages = 3,
  .k = 192,
  .warp_n = 16,
  .unit_n = 16,
  .threads = 416,
  .shared_bytes = 164656,
  .wide = true,
};

struct Epilogue {
  static constexpr int columns = 640;
  i32 *expert_owners_r;
  bf16 *model_mlp_experts_up_proj_bias_table;
  bf16 *model_mlp_experts_gate_proj_bias_table;
  bf16 *activated_scored_by_expert_bf16;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    bf16 *const activated_scored_by_expert_bf16_row = activated_scored_by_expert_bf16 + (long long)row * 320;
    const long long expert_owners_r_entry = expert_owners_r[row];
    bf16 *const model_mlp_experts_up_proj_bias_table_row = model_mlp_experts_up_proj_bias_table + expert_owners_r_entry * 320;
    bf16 *const model_mlp_experts_gate_proj_bias_table_r = model_mlp_experts_gate_proj_bias_table + expert_owners_r_entry * 320;
#pragma unroll
    for (int unit_ = 0; unit_ < 1; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int column = (column0) / 2 + 8 * unit_ + 2 * quad;
      if (column < 320) {
        const float2 up_scored_by_expert = round_f20(pair(products, group_));
        const float2 up_scored_by_expert_2 = add(up_scored_by_expert, load2(model_mlp_experts_up_proj_bias_table_row + column));
        const float2 up_bounded_scored_by_expert = max(min(up_scored_by_expert_2, 7.0f), -7.0f);
        const float2 gate_scored_by_expert = round_f20(pair(products, group_ + 1));
        const float2 gate_scored_by_expert_2 = add(gate_scored_by_expert, load2(model_mlp_experts_gate_proj_bias_table_r + column));
        const float2 gate_bounded_scored_by_expert = min(gate_scored_by_expert_2, 7.0f);
        const float2 glu_scored_by_expert = div_sigmoid(gate_bounded_scored_by_expert, add(1.0f, exp(neg(mul(gate_bounded_scored_by_expert, 1.7020000219345093f)))));
        const float2 activated_scored_by_expert = mul(add(up_bounded_scored_by_expert, 1.0f), glu_scored_by_expert);
        if (is_stored) {
          store2(activated_scored_by_expert_bf16_row + column, activated_scored_by_expert);
        }
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(416, 1)
k_gemm_f1586e73a2afa12c_c9077457(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    bf16 *__restrict__ normed_scored_by_expert_bf16,
    i32 *__restrict__ experts_r_starts,
    u8 *__restrict__ ffn_experts_up_gate_w,
    i32 *__restrict__ expert_owners_r,
    bf16 *__restrict__ model_mlp_experts_up_proj_bias_table,
    bf16 *__restrict__ model_mlp_experts_gate_proj_bias_table,
    bf16 *__restrict__ activated_scored_by_expert_bf16,
    const __grid_constant__ TensorMap normed_scored_by_expert_bf16_map,
    const __grid_constant__ TensorMap ffn_experts_up_gate_w_map) {
  micro_gemm<config>(
      ExpertRows<5>{ experts_r_starts },
      &normed_scored_by_expert_bf16_map,
      NoPrologue{},
      Mapped<Epilogue>{ Epilogue{ expert_owners_r, model_mlp_experts_up_proj_bias_table, model_mlp_experts_gate_proj_bias_table, activated_scored_by_expert_bf16 }, &ffn_experts_up_gate_w_map });
}

}  // namespace tw
