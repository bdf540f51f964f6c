/*
 * Which queries a block of decoding computes. A cluster has `queries` queries next to each other, and each of them
 * brings it cluster / queries blocks. Neighbours that go on in one list, as a text and its drafts do, are a run: the
 * blocks of all its queries take chunks of its path side by side, so that a key is loaded once for all of them. A query
 * without such neighbours is a run of its own, with the blocks that it brings.
 */
#pragma once
#include "attention/path.cuh"

namespace tw {

/* Most keys by which a query of a run goes further than the one before it: tokens between them may have no query. */
constexpr int RUN_GAP = 4;

/* A block of one query. `rank`: its number among the blocks of the query. */
template <PathConfig config, bool is_single = config.queries == 1> struct DecodeRun {
  static constexpr int count = 1, first_rank = 0;
  Path path;
  int first, rank, begin, low, keys, all_low, all_keys;

  template <class Operands> TW_DEVICE DecodeRun(const Operands &x, int query, int rank_of_block)
      : path(path_of<config>(x, query)), first(query), rank(rank_of_block) {
    begin = path.begin;
    low = all_low = path.low;
    keys = all_keys = path.keys;
  }
  TW_DEVICE static constexpr int blocks() { return config.cluster; }
  TW_DEVICE static constexpr int rows() { return config.group(); }
  TW_DEVICE int token_of_row(int) const { return path.token; }
  TW_DEVICE int low_of_row(int) const { return path.low; }
  TW_DEVICE int keys_of_row(int) const { return path.keys; }
};

/* A block of a cluster of several queries. */
template <PathConfig config> struct DecodeRun<config, false> {
  static constexpr int blocks_of_query = config.cluster / config.queries, group = config.group();
  /* Of the lane's query of the cluster. */
  Path own;
  int cluster_first;
  /* The first query of the run, and how many it has. The block's number in the cluster, and in the run. */
  int first, count, first_rank, rank;
  /* Where the list begins; keys [low, keys) are seen by a query of the run, and [all_low, all_keys) by all of them. */
  int begin, low, keys, all_low, all_keys;

  template <class Operands> TW_DEVICE DecodeRun(const Operands &x, int query, int rank_of_block)
      : cluster_first(query) {
    const int lane = threadIdx.x & 31, mine = rank_of_block / blocks_of_query;
    own = Path{ -1, -1, 0, 0 };
    if (lane < config.queries && query + lane < x.rows) own = path_of<config>(x, query + lane);
    const int begin_before = __shfl_up_sync(ALL_LANES, own.begin, 1);
    const int keys_before = __shfl_up_sync(ALL_LANES, own.keys, 1);
    const bool goes_on = lane > 0 && own.begin >= 0 && own.begin == begin_before && keys_before > 0 &&
        own.keys > keys_before && own.keys <= keys_before + RUN_GAP;
    /* Lanes behind the last query begin runs of none. */
    const unsigned starts = __ballot_sync(ALL_LANES, !goes_on);
    int from = mine;
    while (!(starts >> from & 1)) from--;
    set(from, mine + __ffs((int)(starts >> mine >> 1)) - from, rank_of_block);
  }
  TW_DEVICE void set(int from, int many, int rank_of_block) {
    count = many;
    first = cluster_first + from;
    first_rank = from * blocks_of_query;
    rank = rank_of_block - first_rank;
    const int last = from + many - 1;
    begin = __shfl_sync(ALL_LANES, own.begin, from);
    low = __shfl_sync(ALL_LANES, own.low, from);
    all_low = __shfl_sync(ALL_LANES, own.low, last);
    all_keys = __shfl_sync(ALL_LANES, own.keys, from);
    keys = __shfl_sync(ALL_LANES, own.keys, last);
  }
  /* Leaves the run: every query by its own blocks. */
  TW_DEVICE void part() {
    const int rank_of_block = first_rank + rank;
    set(rank_of_block / blocks_of_query, 1, rank_of_block);
  }
  TW_DEVICE int blocks() const { return count * blocks_of_query; }
  TW_DEVICE int rows() const { return count * group; }
  /* Of row r, head r % group of query r / group: by all lanes together. Rows behind the last one see nothing. */
  TW_DEVICE int lane_of_row(int r) const { return first - cluster_first + r / group; }
  TW_DEVICE int token_of_row(int r) const {
    const int token = __shfl_sync(ALL_LANES, own.token, lane_of_row(r));
    return r < rows() ? token : -1;
  }
  TW_DEVICE int low_of_row(int r) const { return __shfl_sync(ALL_LANES, own.low, lane_of_row(r)); }
  TW_DEVICE int keys_of_row(int r) const {
    const int seen = __shfl_sync(ALL_LANES, own.keys, lane_of_row(r));
    return r < rows() ? seen : 0;
  }
};

/* Whether 16 bytes of a value are finite numbers. */
template <class Key> TW_DEVICE bool are_finite(const uint4 &piece) {
  float check = 0.0f;
  const unsigned words[4] = { piece.x, piece.y, piece.z, piece.w };
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(Key) == 1) {
      const float2 x = floats_of<f16>(pair_of_codes<Key>(words[i]));
      const float2 y = floats_of<f16>(upper_pair_of_codes<Key>(words[i]));
      check = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, fmaf(y.x, 0.0f, fmaf(y.y, 0.0f, check))));
    } else {
      const float2 x = floats_of<Key>(words[i]);
      check = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, check));
    }
  }
  return check == 0.0f;
}

/*
 * Whether values of keys that not all queries of a run see are finite, by all threads of a block. If not, the run must
 * part: a key that a row does not see has weight zero, and zero times infinity is no number.
 */
template <PathConfig config, class Operands>
TW_DEVICE bool is_run_finite(const Operands &x, const DecodeRun<config> &run, int kv) {
  using Key = typename Operands::KeyType;
  constexpr int pieces = config.pieces();
  const int in_front = max(min(run.all_low, run.keys) - run.low, 0), hidden = in_front + run.keys - run.all_keys;
  bool is_finite = true;
  for (int i = threadIdx.x; i < hidden * pieces; i += config.threads()) {
    const int at = i / pieces, key = at < in_front ? run.low + at : run.all_keys + at - in_front;
    const int place = x.key[run.begin + key];
    if (place < 0) continue;
    const Key *const value = x.v + kv * config.head_dim + place * (long long)config.v_stride;
    is_finite &= are_finite<Key>(((const uint4 *)value)[i % pieces]);
    if constexpr (config.is_coded())
      is_finite &= key_scales(scales_of<config>(x, kv, place)).inverse_v * 0.0f == 0.0f;
  }
  return !__syncthreads_or(!is_finite);
}

}  // namespace tw
