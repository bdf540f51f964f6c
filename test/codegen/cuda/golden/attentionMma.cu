/* layers.attention: 64 queries a block */
#include "attention/trees.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 4,
  .kv_heads = 2,
  .head_dim = 64,
  .queries = 64,
  .warps = 4,
  .key_bytes = 2,
  .q_stride = 256,
  .k_stride = 128,
  .v_stride = 128,
  .out_stride = 256,
  .scale = 0.1803368777036667f,
  .slots = 3,
  .shared_bytes = 36864,
};

extern "C" __global__ void __launch_bounds__(128, 4)
k_attention_test(
    int T,
    int R,
    bf16 *__restrict__ q,
    bf16 *__restrict__ k,
    bf16 *__restrict__ v,
    i32 *__restrict__ subtreeEnd,
    bf16 *__restrict__ out) {
  await_previous();
  tree_attention<config, 32>(TreeOperands<bf16, bf16>{
      .q = q,
      .k = k,
      .v = v,
      .end = subtreeEnd,
      .out = out,
      .rows = T,
      .query_rows = T,
  });
}

}  // namespace tw
