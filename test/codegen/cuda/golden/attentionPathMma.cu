/* layers.attention: 16 queries a block */
#include "attention/runs.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 8,
  .kv_heads = 2,
  .head_dim = 128,
  .queries = 16,
  .warps = 4,
  .key_bytes = 2,
  .q_stride = 1024,
  .k_stride = 256,
  .v_stride = 256,
  .out_stride = 1024,
  .scale = 0.127517431974411f,
  .has_query_row = true,
  .slots = 3,
  .shared_bytes = 104448,
};

extern "C" __global__ void __launch_bounds__(128, 2)
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
    i32 *__restrict__ row_,
    bf16 *__restrict__ out) {
  await_previous();
  runs_attention<config>(PathOperands<bf16, bf16, bf16>{
      .q = q,
      .k = k,
      .v = v,
      .begin = begin_,
      .position = position,
      .key = key,
      .query_row = row_,
      .out = out,
      .rows = R,
      .query_rows = T,
      .key_rows = C,
  });
}

}  // namespace tw
