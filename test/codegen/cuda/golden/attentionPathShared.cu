/* layers.attention: 32 queries a block, shared tiles */
#include "attention/branches.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 4,
  .kv_heads = 2,
  .head_dim = 96,
  .queries = 32,
  .warps = 4,
  .key_bytes = 2,
  .q_stride = 384,
  .k_stride = 192,
  .v_stride = 192,
  .out_stride = 384,
  .scale = 0.14724445343017578f,
  .slots = 2,
  .shared_bytes = 39936,
};

extern "C" __global__ void __launch_bounds__(128, 4)
k_attention_test(
    int T,
    int R,
    int C,
    bf16 *__restrict__ q,
    bf16 *__restrict__ k,
    bf16 *__restrict__ v,
    i32 *__restrict__ begin_,
    i32 *__restrict__ position,
    i32 *__restrict__ key,
    bf16 *__restrict__ out) {
  await_previous();
  branches_attention<config>(PathOperands<bf16, bf16, bf16>{
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
