/* layers.attention: 1 query a block, 8 lone warps a multiprocessor */
#include "attention/lone.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 4,
  .kv_heads = 1,
  .head_dim = 64,
  .queries = 1,
  .warps = 1,
  .key_bytes = 2,
  .q_stride = 256,
  .k_stride = 64,
  .v_stride = 64,
  .out_stride = 256,
  .scale = 0.1803368777036667f,
  .reads_ahead = true,
  .slots = 5,
  .shared_bytes = 28160,
};

extern "C" __global__ void __launch_bounds__(32, 8)
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
  lone_attention<config>(PathOperands<bf16, bf16, bf16>{
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
