/*
 * The choice of experts (experts/route.cuh), and behind it pairs of a row and an expert in order: by expert, then by
 * row. Blocks choose for rows_of_block rows each, and the last one to have done so arranges all pairs: its warps have
 * parts of them, one behind another, count those of each expert, and then give each pair its place. Pairs of one warp
 * are counted by comparing each with all. No block waits for another, and no count leaves the device.
 *
 * Few rows are chosen for by the product that makes their logits, in its last block (route_behind).
 */
#pragma once
#include "experts/route.cuh"
#include "lib/global.cuh"

namespace tw {

struct PairsConfig {
  /* Rows of a block. */
  int rows_of_block;
  /* Whether the expert of each place is stored. */
  bool has_owners;
};

/* Blocks that have chosen: 0 before and after a launch. */
struct PairsState { unsigned done; };

template <RouteConfig config> struct PairsBuffers {
  /* Of each place in the order its row. */
  i32 *order;
  /* Of each row the place of its first choice, of its second, … */
  i32 *places[config.chosen];
  /* Where each expert's places begin, one more than experts. */
  i32 *starts;
  /* Of each place its expert. */
  i32 *owners;
};

/* Whether this is the last of `blocks` blocks to come here; what the others have written is then seen. */
TW_DEVICE bool is_last_block(PairsState &state, unsigned blocks) {
  __shared__ int is_last;
  if (blocks == 1) {
    __syncthreads();
    return true;
  }
  fence_all();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(&state.done, 1u) + 1 == blocks;
    if (is_last) state.done = 0;
    fence_all();
  }
  __syncthreads();
  return is_last;
}

/* Lanes whose `key`, a number below `count`, is this lane's, among those that have one. */
template <int count> TW_DEVICE unsigned lanes_alike(int key, bool has_key) {
  unsigned same = __ballot_sync(ALL_LANES, has_key);
#pragma unroll
  for (int bit = 1; bit < count; bit *= 2) {
    const unsigned set = __ballot_sync(ALL_LANES, has_key && (key & bit) != 0);
    same &= (key & bit) != 0 ? set : ~set;
  }
  return same;
}

/* The expert of a pair, which another block may have written. */
template <RouteConfig config> TW_DEVICE int expert_of(const i32 *experts, int pair) {
  const i32 *at = experts + (long long)(pair / config.chosen) * config.experts_stride + pair % config.chosen;
  return (int)look((const unsigned *)at);
}

/* Experts of a lane's next pairs. They come from L2: several are on their way together. */
constexpr int PAIRS_AHEAD = 8;
struct HeldPairs { int experts[PAIRS_AHEAD]; };

/*
 * Calls f(pair, its expert, whether there is one) for each lane's pairs of a part, in order. `is_held`: whether the
 * call before has left them.
 */
template <RouteConfig config, typename F>
TW_DEVICE void each_pair(int begin, int end, const i32 *experts, bool is_held, HeldPairs &held, const F &f) {
  for (int first = begin; first < end; first += 32 * PAIRS_AHEAD) {
    if (!is_held) {
#pragma unroll
      for (int i = 0; i < PAIRS_AHEAD; i++) {
        const int pair = first + 32 * i + (int)threadIdx.x % 32;
        held.experts[i] = pair < end ? expert_of<config>(experts, pair) : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < PAIRS_AHEAD; i++) {
      const int pair = first + 32 * i + (int)threadIdx.x % 32;
      if (first + 32 * i < end) f(pair, held.experts[i], pair < end);
    }
  }
}

/* Stores what is known of a pair that has its place. */
template <RouteConfig config, PairsConfig arranging>
TW_DEVICE void store_pair(const PairsBuffers<config> &buffers, int pair, int expert, int place) {
  const int row = pair / config.chosen, slot = pair % config.chosen;
  buffers.order[place] = row;
  if constexpr (arranging.has_owners) buffers.owners[place] = expert;
#pragma unroll
  for (int s = 0; s < config.chosen; s++)
    if (slot == s) buffers.places[s][row] = place;
}

/* Up to 32 pairs, by one warp. */
template <RouteConfig config, PairsConfig arranging>
TW_DEVICE void arrange_few(int pairs, const i32 *experts, const PairsBuffers<config> &buffers) {
  constexpr int count = config.count, per_lane = (count + 31) / 32;
  const int lane = threadIdx.x % 32, e = lane < pairs ? expert_of<config>(experts, lane) : count;
  int place = 0, below[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; i++) below[i] = 0;
  for (int pair = 0; pair < pairs; pair++) {
    const int other = __shfl_sync(ALL_LANES, e, pair);
    place += other < e || (other == e && pair < lane);
#pragma unroll
    for (int i = 0; i < per_lane; i++) below[i] += other < 32 * i + lane;
  }
  if (lane < pairs) store_pair<config, arranging>(buffers, lane, e, place);
#pragma unroll
  for (int i = 0; i < per_lane; i++)
    if (32 * i + lane < count) buffers.starts[32 * i + lane] = below[i];
  if (lane == 0) buffers.starts[count] = pairs;
}

template <RouteConfig config, PairsConfig arranging>
TW_DEVICE void arrange_pairs(int rows, const i32 *experts, const PairsBuffers<config> &buffers) {
  constexpr int count = config.count, warps = config.threads / 32;
  /* Warps that have parts: their counts take 32 KB at most. */
  constexpr int most = 8192 / count < 1 ? 1 : 8192 / count, sorters = warps < most ? warps : most;
  constexpr int per_lane = (count + 31) / 32;
  __shared__ int counts[sorters][count], begins[32 * per_lane];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, pairs = rows * config.chosen;
  const int part = max((pairs + 32 * sorters - 1) / (32 * sorters), 1) * 32, used = (pairs + part - 1) / part;
  const int begin = warp * part, end = begin + part < pairs ? begin + part : pairs;
  const unsigned before = (1u << lane) - 1;
  if (pairs <= 32) {
    if (warp == 0) arrange_few<config, arranging>(pairs, experts, buffers);
    return;
  }
  for (int i = thread; i < used * count; i += config.threads) counts[i / count][i % count] = 0;
  __syncthreads();
  HeldPairs held;
  if (warp < used) {
    each_pair<config>(begin, end, experts, false, held, [&](int, int e, bool is_there) {
      const unsigned same = lanes_alike<count>(e, is_there);
      if (is_there && (same & before) == 0) counts[warp][e] += __popc(same);
      __syncwarp();
    });
  }
  __syncthreads();
  /* Of each expert the pairs of warps before each warp, and of all of them. */
  for (int e = thread; e < 32 * per_lane; e += config.threads) {
    int sum = 0;
    if (e < count) {
      for (int w = 0; w < used; w++) {
        const int own = counts[w][e];
        counts[w][e] = sum;
        sum += own;
      }
    }
    begins[e] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int own = 0;
#pragma unroll 1
    for (int i = 0; i < per_lane; i++) own += begins[lane * per_lane + i];
    int sum = own;
    for (int w = 1; w < 32; w *= 2) {
      const int other = __shfl_up_sync(ALL_LANES, sum, w);
      if (lane >= w) sum += other;
    }
    int at = sum - own;
#pragma unroll 1
    for (int i = 0; i < per_lane; i++) {
      const int e = lane * per_lane + i, size = begins[e];
      begins[e] = at;
      if (e < count) buffers.starts[e] = at;
      at += size;
    }
    if (lane == 31) buffers.starts[count] = pairs;
  }
  __syncthreads();
  if (warp >= used) return;
  each_pair<config>(begin, end, experts, part <= 32 * PAIRS_AHEAD, held, [&](int pair, int e, bool is_there) {
    const unsigned same = lanes_alike<count>(e, is_there);
    const int place = begins[e] + counts[warp][e] + __popc(same & before);
    __syncwarp();
    if (is_there) {
      if ((same & before) == 0) counts[warp][e] += __popc(same);
      store_pair<config, arranging>(buffers, pair, e, place);
    }
    __syncwarp();
  });
}

/* The kernel, once the one before has ended (await_previous). */
template <RouteConfig config, PairsConfig arranging, typename Bias>
TW_DEVICE void route_and_arrange(PairsState &state, int rows, const RouteBuffers<config, Bias> &chosen,
    const PairsBuffers<config> &buffers) {
  const int first = (int)blockIdx.x * arranging.rows_of_block, lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < arranging.rows_of_block && first + i < rows; i += config.threads / 32)
    route_row<config>(first + i, lane, chosen);
  if (is_last_block(state, gridDim.x)) arrange_pairs<config, arranging>(rows, chosen.experts, buffers);
}

/*
 * Where the tiles of logits lie in the grid of the product that stores them: from column tile `first` of `across`. And
 * warps that share the rows of pairs.
 */
struct RoutingTiles { int first, count, across, row_warps; };

/* Of products that leave the rows of pairs to a loop behind them. */
struct NoPairRows {
  static constexpr int side = 0;
  TW_DEVICE void row(int, int, int) const {}
};

/*
 * The prologue of a product that makes the rows of pairs as a loop would (loop/loop.cuh). Those of a single row are
 * alike, whichever experts it has: helpers make them while others multiply.
 */
template <RouteConfig config, RoutingTiles tiles, class Prologue, class PairRows> struct PairsBeside : Prologue {
  PairRows made;
  i32 *order;
  int rows;

  TW_DEVICE void beside(int helper) const {
    static_assert(tiles.row_warps % PairRows::side == 0);
    if (rows != 1 || (int)blockIdx.x != tiles.first || helper < 0 || helper >= tiles.row_warps) return;
    for (int pair = 0; pair < config.chosen; pair++) order[pair] = 0;
    __syncwarp();
    for (int pair = helper / PairRows::side; pair < config.chosen; pair += tiles.row_warps / PairRows::side)
      made.row(pair, threadIdx.x % 32, helper);
  }
};

/*
 * The same as route_and_arrange at the end of a product of few rows, by all threads of its blocks. The last block to
 * have stored logits chooses for all rows, arranges pairs, and makes the rows of pairs if they are not there yet.
 */
template <RouteConfig config, PairsConfig arranging, RoutingTiles tiles, typename Bias, class PairRows>
TW_DEVICE void route_behind(PairsState &state, int rows, const RouteBuffers<config, Bias> &chosen,
    const PairsBuffers<config> &buffers, const PairRows &made) {
  constexpr int warps = config.threads / 32;
  const int tile = (int)blockIdx.x % tiles.across, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (tile < tiles.first || tile >= tiles.first + tiles.count) return;
  if (!is_last_block(state, gridDim.x / tiles.across * tiles.count)) return;
  if (rows == 1) {
    __shared__ i32 experts[config.chosen];
    if (warp > 0) return;
    RouteBuffers<config, Bias> own = chosen;
    own.experts = experts;
    route_row<config>(0, lane, own);
    __syncwarp();
    arrange_few<config, arranging>(config.chosen, experts, buffers);
    if (lane < config.chosen) chosen.experts[lane] = experts[lane];
    return;
  }
  for (int row = warp; row < rows; row += warps) route_row<config>(row, lane, chosen);
  __syncthreads();
  arrange_pairs<config, arranging>(rows, chosen.experts, buffers);
  if constexpr (PairRows::side > 0) {
    __syncthreads();
    if (warp >= tiles.row_warps) return;
    for (int pair = warp / PairRows::side; pair < rows * config.chosen; pair += tiles.row_warps / PairRows::side)
      made.row(pair, lane, warp);
  }
}

}  // namespace tw
