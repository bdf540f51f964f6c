/* layers.attention: 16 queries a block */
#include "attention/simt.cuh"

namespace tw {

constexpr SimtAttentionConfig config = {
  .heads = 2,
  .kv_heads = 1,
  .head_dim = 32,
  .queries = 16,
  .mask = Mask::Tree,
  .q_stride = 64,
  .k_stride = 32,
  .v_stride = 32,
  .out_stride = 64,
  .scale = 0.1767766922712326f,
  .has_query_row = true,
  .shared_bytes = 10368,
};

extern "C" __global__ void __launch_bounds__(128, 1)
k_attention_dba93b7434bf6a99_c28f3440(
    int T,
    int R,
    bf16 *__restrict__ q,
    bf16 *__restrict__ k,
    bf16 *__restrict__ v,
    i32 *__restrict__ subtreeEnd,
    i32 *__restrict__ row_,
    bf16 *__restrict__ attended) {
  await_previous();
  simt_attention<config>(SimtOperands<bf16, bf16, bf16>{
      .q = q,
      .k = k,
      .v = v,
      .end = subtreeEnd,
      .query_row = row_,
      .out = attended,
      .rows = R,
      .query_rows = T,
      .key_rows = T,
  });
}

}  // namespace tw
