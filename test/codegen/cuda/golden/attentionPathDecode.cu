/* layers.attention: 1 query a block */
#include "attention/decode.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 4,
  .kv_heads = 1,
  .head_dim = 64,
  .queries = 1,
  .warps = 4,
  .key_bytes = 2,
  .q_stride = 256,
  .k_stride = 64,
  .v_stride = 64,
  .out_stride = 256,
  .scale = 0.1803368777036667f,
  .reads_ahead = true,
  .shared_bytes = 42400,
};

extern "C" __global__ void __launch_bounds__(128, 2)
k_attention_test(
    int T,
    int R,
    int C,
    f16 *__restrict__ q,
    f16 *__restrict__ k,
    f16 *__restrict__ v,
    i32 *__restrict__ begin_,
    i32 *__restrict__ position,
    i32 *__restrict__ key,
    f32 *__restrict__ out) {
  decode_attention<config>(PathOperands<f16, f16, f32>{
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
