/* layers.attention: 32 queries a block */
#include "attention/hopper.cuh"

namespace tw {

constexpr PathConfig config = {
  .heads = 8,
  .kv_heads = 2,
  .head_dim = 128,
  .queries = 32,
  .warps = 12,
  .key_bytes = 2,
  .q_stride = 1024,
  .k_stride = 256,
  .v_stride = 256,
  .out_stride = 1024,
  .scale = 0.127517431974411f,
  .has_query_row = true,
  .slots = 4,
  .shared_bytes = 197840,
  .is_kept = true,
};

extern "C" __global__ void __launch_bounds__(384, 1)
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
    bf16 *__restrict__ out,
    const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map) {
  hopper_attention<config>(PathOperands<bf16, bf16, bf16>{
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
  }, &k_map, &v_map);
}

}  // namespace tw
