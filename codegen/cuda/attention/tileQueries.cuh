/*
 * Attention over paths by tiles of queries (attention/runs.cuh, attention/branches.cuh): the queries of a block, which
 * lie in shared memory, as operands of its warps.
 */
#pragma once
#include "attention/path.cuh"

namespace tw {

/* Queries in registers, or in shared memory, from where they are read for every tile. */
template <PathConfig config, bool is_kept = config.has_short_heads()> struct TileQueries {
  KeptQueries<config> kept;
  TW_DEVICE void load(unsigned at) {
#pragma unroll
    for (int i = 0; i < config.head_dim / 16; i++) ldmatrix_x4(kept.x[i], at + i * 32);
  }
  TW_DEVICE void operand(unsigned (&a)[4], int i) const { kept.operand(a, i); }
};
template <PathConfig config> struct TileQueries<config, false> {
  unsigned at;
  TW_DEVICE void load(unsigned from) { at = from; }
  TW_DEVICE void operand(unsigned (&a)[4], int i) const { ldmatrix_x4(a, at + i * 32); }
};

/*
 * Queries of a warp, in shared memory at `rows`, as numbers of binary16 in the order of columns in which a lane has
 * codes; `factors` become what scores of its 16 rows are multiplied by beside the scales of keys.
 */
template <PathConfig config, class Element> TW_DEVICE void move_queries(unsigned char *rows, float *factors) {
  const int lane = threadIdx.x & 31;
  constexpr int d = config.head_dim;
  for (int r = 0; r < 16; r++) {
    Element *const row = (Element *)(rows + r * config.query_bytes());
    unsigned most = 0;
    for (int i = lane; i < d; i += 32) most = larger(most, magnitude(to_float(row[i])));
    const float2 power = query_power(__reduce_max_sync(ALL_LANES, most));
    unsigned x[(d + 63) / 64];
    for (int i = 0; i * 32 + lane < d / 2; i++)
      x[i] = pack<f16>(mul(to_float(row[(i * 32 + lane) * 2]), power.x),
          mul(to_float(row[(i * 32 + lane) * 2 + 1]), power.x));
    __syncwarp();
    for (int i = 0; i * 32 + lane < d / 2; i++) {
      const int pair = i * 32 + lane;
      ((unsigned *)row)[pair / 8 * 8 + pair % 2 * 4 + pair % 8 / 2] = x[i];
    }
    if (lane == 0) factors[r] = mul(power.y, config.query_scale());
  }
  __syncwarp();
}

}  // namespace tw
