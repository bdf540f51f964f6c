/* layers.attention: 16 queries a block */
#include "attention/simt.cuh"

namespace tw {

constexpr SimtAttentionConfig config = {
  .heads = 2,
  .kv_heads = 1,
  .head_dim = 40,
  .queries = 16,
  .mask = Mask::Bias,
  .q_stride = 96,
  .k_stride = 64,
  .v_stride = 64,
  .out_stride = 96,
  .bias_stride = 1040,
  .scale = 0.15811388194561005f,
  .shared_bytes = 12928,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_attention_test(
    int T,
    int R,
    f32 *__restrict__ q,
    f32 *__restrict__ k,
    f32 *__restrict__ v,
    f32 *__restrict__ bias,
    f32 *__restrict__ out) {
  await_previous();
  simt_attention<config>(SimtOperands<f32, f32, f32>{
      .q = q,
      .k = k,
      .v = v,
      .bias = bias,
      .out = out,
      .rows = T,
      .query_rows = T,
      .key_rows = T,
  });
}

}  // namespace tw
