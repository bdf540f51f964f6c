/* layers.attention: 32 queries a block */
#include "attention/trees.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 2,
  .kv_heads = 2,
  .head_dim = 192,
  .queries = 32,
  .warps = 2,
  .key_bytes = 2,
  .q_stride = 384,
  .k_stride = 384,
  .v_stride = 384,
  .out_stride = 384,
  .scale = 0.10411754995584488f,
  .has_query_row = true,
  .slots = 2,
  .shared_bytes = 64000,
};

extern "C" __global__ void __launch_bounds__(64, 4)
k_attention_test(
    int T,
    int R,
    f16 *__restrict__ q,
    f16 *__restrict__ k,
    f16 *__restrict__ v,
    i32 *__restrict__ subtreeEnd,
    i32 *__restrict__ row_,
    f32 *__restrict__ out) {
  await_previous();
  tree_attention<config, 32>(TreeOperands<f16, f32>{
      .q = q,
      .k = k,
      .v = v,
      .end = subtreeEnd,
      .query_row = row_,
      .out = out,
      .rows = R,
      .query_rows = T,
  });
}

}  // namespace tw
