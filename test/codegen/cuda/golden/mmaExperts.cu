/* layers.ffn.experts.gate_up: 64 × 64 × 32 by mma, 3 stages */
#include "gemm/mma.cuh"

namespace tw {

constexpr MmaConfig config = {
  .k = 80,
  .a_stride = 96,
  .w_stride = 80,
  .tile_m = 64,
  .tile_n = 64,
  .tile_k = 32,
  .stages = 3,
  .warp_m = 32,
  .warp_n = 32,
  .raster = 2,
  .threads = 128,
  .shared_bytes = 24576,
};

struct Epilogue {
  static constexpr int columns = 160;
  bf16 *ffn_experts_gate_up_w;
  bf16 *activated_by_expert_bf16;

  TW_DEVICE const bf16 *weight() const {
    return ffn_experts_gate_up_w;
  }

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    bf16 *const activated_by_expert_bf16_row = activated_by_expert_bf16 + (long long)row * 96;
#pragma unroll
    for (int unit_ = 0; unit_ < 2; unit_++) {
      const int group_ = unit_ / 1 * 2 + unit_ % 1;
      const int column = (column0) / 2 + 8 * unit_ + 2 * quad;
      if (column < 72) {
        const float2 gate_by_expert = round_f20(pair(products, group_));
        const float2 silu_by_expert = div_sigmoid(gate_by_expert, add(1.0f, exp(neg(gate_by_expert))));
        const float2 up_by_expert = round_f20(pair(products, group_ + 1));
        const float2 activated_by_expert = mul(silu_by_expert, up_by_expert);
        if (is_stored) {
          store2(activated_by_expert_bf16_row + column, activated_by_expert);
        }
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(128, 2)
k_gemm_60bd36401b767778_3ad0132d(
    int T,
    int C,
    int R,
    int Tx2,
    int Rx2,
    bf16 *__restrict__ normed_by_expert_bf16,
    i32 *__restrict__ experts_starts,
    bf16 *__restrict__ ffn_experts_gate_up_w,
    bf16 *__restrict__ activated_by_expert_bf16) {
  await_previous();
  mma_gemm<config>(
      ExpertRows<5>{ experts_starts },
      normed_by_expert_bf16,
      NoPrologue{},
      Epilogue{ ffn_experts_gate_up_w, activated_by_expert_bf16 });
}

}  // namespace tw
