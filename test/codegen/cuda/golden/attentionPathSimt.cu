/* layers.attention: 16 queries a block */
#include "attention/simt.cuh"

namespace tw {

constexpr SimtAttentionConfig config = {
  .heads = 2,
  .kv_heads = 1,
  .head_dim = 40,
  .queries = 16,
  .mask = Mask::Path,
  .q_stride = 96,
  .k_stride = 64,
  .v_stride = 64,
  .out_stride = 96,
  .scale = 0.15811388194561005f,
  .shared_bytes = 12928,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_attention_test(
    int T,
    int R,
    int C,
    f32 *__restrict__ q,
    f32 *__restrict__ k,
    f32 *__restrict__ v,
    i32 *__restrict__ begin_,
    i32 *__restrict__ position,
    i32 *__restrict__ key,
    f32 *__restrict__ out) {
  await_previous();
  simt_attention<config>(SimtOperands<f32, f32, f32>{
      .q = q,
      .k = k,
      .v = v,
      .begin = begin_,
      .position = position,
      .key = key,
      .out = out,
      .rows = T,
      .query_rows = T,
      .key_rows = C,
  });
}

}  // namespace tw
