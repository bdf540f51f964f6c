/* layers.attention: 4 queries a block, clusters of 4 */
#include "attention/decode.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 32,
  .kv_heads = 8,
  .head_dim = 128,
  .queries = 4,
  .warps = 4,
  .key_bytes = 2,
  .q_stride = 4128,
  .k_stride = 1024,
  .v_stride = 1024,
  .out_stride = 4128,
  .scale = 0.127517431974411f,
  .has_query_row = true,
  .reads_ahead = true,
  .cluster = 4,
  .shared_bytes = 95504,
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
  decode_attention<config>(PathOperands<bf16, bf16, bf16>{
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
