/*
 * Slopes of heads (ALiBi): scores of keys fall by a slope of the head for every position that they lie further back.
 * They are added to scores as products leave them, in units of `config.scale`, behind the cap: one fused multiply-add,
 * whose operands depend on the head and on the positions of query and key alone. Every kernel has the same bits.
 */
#pragma once
#include "attention/path.cuh"

namespace tw {

/* The slope of a head: in units of scores; of rounded products as it is, since these are multiplied by the unit. */
template <PathConfig config, class Operands> TW_DEVICE float slope_of(const Operands &x, int head) {
  return config.rounds_slopes ? x.slopes[head] : mul(x.slopes[head], config.slope_unit);
}

/* A score with what its key, `distance` positions further on than the query and at `position`, adds to it. */
template <PathConfig config> TW_DEVICE float lean(float score, float slope, float distance, float position) {
  if constexpr (config.rounds_slopes)
    return add(score, mul(round_bf16(mul(slope, round_bf16(position))), config.slope_unit));
  else return fmaf(slope, distance, score);
}

/* Slopes of the heads of a lane's rows, of a block whose first row is `row` of head `kv` of keys. */
template <PathConfig config, int count = 2> struct Slopes {
  float of[config.has_slopes() ? count : 1] = {};

  template <class Operands> TW_DEVICE void find(const Operands &x, int kv, const int (&row)[count]) {
    if constexpr (config.has_slopes()) {
#pragma unroll
      for (int i = 0; i < count; i++) of[i] = slope_of<config>(x, kv * config.group() + row[i] % config.group());
    }
  }
};

/* Scores of a tile whose keys begin at `key`, with slopes. `position`: of the queries of both rows. */
template <PathConfig config>
TW_DEVICE void lean_scores(Scores &s, const float (&slope)[2], int key, const int (&position)[2]) {
  const int first = key + (threadIdx.x & 3) * 2;
  const float distance[2] = { (float)(first - position[0]), (float)(first - position[1]) };
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float further = (float)(n * 8 + e % 2);
      s[n][e] = lean<config>(s[n][e], slope[e / 2], distance[e / 2] + further, (float)first + further);
    }
  }
}

}  // namespace tw
