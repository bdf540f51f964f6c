/*
 * Attention of decoding by lone warps with several queries: a block is one warp, which computes `queries` queries of
 * the heads that share one head of keys. Row r of its tile is head r % group of query r / group.
 *
 * Lists next to each other that begin alike, as those of siblings do, share their first tiles: these are loaded and
 * multiplied once for all their rows. The warp goes through the list of its first query, then through what the second
 * has of its own, and so on. What lists share it finds out on the way: where it fetches the entries of a tile, it
 * fetches those of the lists that were alike so far as well, and compares them. A row that does not see a tile keeps
 * what it has.
 *
 * Keys and values come by the ring of lone.cuh. Registers are for the queries and the answer: of long heads, the total
 * of chunks lies behind the ring.
 *
 * Grid: kv_heads blocks for `queries` queries.
 */
#pragma once
#include "attention/chunks.cuh"
#include "attention/lone.cuh"

namespace tw {

/* Tile `index` of the list of query `run`; `run` is `queries` behind the last tile. */
struct StemTile { int run, index; };

/* The tiles of a block's queries in order. Lane q has what is known of query q of the block. */
template <PathConfig config, class Operands> struct StemTiles {
  static constexpr int queries = config.queries;
  const Operands &x;
  int lane;
  /* Where the query's list begins, and how many keys and tiles of it the query sees. */
  int begin, keys, tiles;
  /*
   * Most tiles that the list has in common with the one before it: those that both have whole. Where the lists turn
   * out to part, it is the tile in which they do.
   */
  int common;
  /* Whether there is a tile that is copied next, and where the row of key `lane` of it lies: −1 past the last key. */
  bool has_coming;
  int place;
  /* The same of the tile behind it, and what the lists of other queries that may see it have in this place. */
  StemTile next;
  int next_place, others[queries];

  TW_DEVICE StemTiles(const Operands &operands, int token) : x(operands) {
    lane = threadIdx.x;
    begin = token < 0 ? -1 : x.begin[token];
    const int position = begin < 0 ? -1 : x.position[token];
    const int seen = begin < 0 ? 0 : min(position + 1, x.key_rows - begin);
    keys = seen < 0 ? 0 : seen;
    tiles = (keys + TILE_KEYS - 1) / TILE_KEYS;
    const int whole_before = __shfl_up_sync(ALL_LANES, keys / TILE_KEYS, 1);
    common = lane == 0 ? 0 : min(keys / TILE_KEYS, whole_before);
    place = next_place = -1;
    has_coming = false;
    next = enter(0);
  }

  /* The first tile that query `run`, or else a later one, has of its own. Those before must have been compared. */
  TW_DEVICE StemTile enter(int run) const {
    const unsigned own = __ballot_sync(ALL_LANES, lane >= run && common < tiles);
    const int first = own == 0 ? queries : __ffs((int)own) - 1;
    return { first, __shfl_sync(ALL_LANES, common, first) };
  }
  TW_DEVICE StemTile after(StemTile tile) const {
    if (tile.index + 1 >= __shfl_sync(ALL_LANES, tiles, tile.run)) return enter(tile.run + 1);
    tile.index++;
    return tile;
  }
  /* The queries from tile.run up to this one see the tile, unless one is found to part from the others in it. */
  TW_DEVICE int end_of(StemTile tile) const {
    const unsigned parted = ~__ballot_sync(ALL_LANES, common > tile.index);
    return tile.run + __ffs((int)(parted >> tile.run >> 1));
  }

  TW_DEVICE void fetch() {
    const int i = next.index * TILE_KEYS + lane, end = end_of(next);
    const int run_begin = __shfl_sync(ALL_LANES, begin, next.run);
    const int run_keys = __shfl_sync(ALL_LANES, keys, next.run);
    next_place = i < run_keys ? x.key[run_begin + i] : -1;
#pragma unroll
    for (int q = 1; q < queries; q++) {
      const int other_begin = __shfl_sync(ALL_LANES, begin, q);
      others[q] = q > next.run && q < end ? x.key[other_begin + i] : 0;
    }
  }
  TW_DEVICE bool is_coming() const { return has_coming; }
  TW_DEVICE void advance() {
    const int end = end_of(next);
    unsigned parted = 0;
#pragma unroll
    for (int q = 1; q < queries; q++)
      if (q > next.run && q < end && others[q] != next_place) parted |= 1u << q;
    parted = __reduce_or_sync(ALL_LANES, parted);
    /* Behind the first list that parts from the run's nothing is known: others may go on with it. */
    if (lane == __ffs((int)parted) - 1) common = next.index;
    has_coming = next.run < queries;
    place = next_place;
    next = after(next);
    fetch();
  }
};

/* As add_values, for the rows that see the tile (last ≥ 0). Others keep what they have: zero times infinity is NaN. */
template <PathConfig config, class Key>
TW_DEVICE void add_seen_values(Answer<config> &answer, const Weights &weight, unsigned values, const int (&last)[2]) {
#pragma unroll
  for (int i = 0; i < config.head_dim / 16; i++) {
    float o[2][4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      o[0][e] = answer.o[2 * i][e];
      o[1][e] = answer.o[2 * i + 1][e];
    }
    unsigned b[4];
    if constexpr (config.is_coded()) ldmatrix_x4_trans(b, values + i * 16);
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 16; n++) {
      if constexpr (config.is_coded()) {
        multiply_codes<Key>(o[0], o[1], weight[n], b[2 * n], b[2 * n + 1]);
      } else {
        ldmatrix_x4_trans(b, values + n * 16 * config.row_bytes() + i * 32);
        mma<Key>(o[0], weight[n], b[0], b[1]);
        mma<Key>(o[1], weight[n], b[2], b[3]);
      }
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const bool sees = last[e / 2] >= 0;
      answer.o[2 * i][e] = sees ? o[0][e] : answer.o[2 * i][e];
      answer.o[2 * i + 1][e] = sees ? o[1][e] : answer.o[2 * i + 1][e];
    }
  }
}

template <PathConfig config, class Operands> TW_DEVICE void stems_attention(const Operands &x) {
  using Key = typename Operands::KeyType;
  constexpr int group = config.group(), queries = config.queries, d = config.head_dim;
  constexpr unsigned ring_bytes = config.slots * config.tile_bytes();
  static_assert(queries > 1 && queries * group <= 16 && config.warps == 1, "a tile has 16 rows");
  static_assert(!config.is_bounded(), "queries that share a tile see the whole of it");
  static_assert(sizeof(Key) == config.key_bytes && d % 16 == 0, "a head is whole steps of a product");
  static_assert(ring_bytes + (config.has_short_heads() ? 0 : 32 * sizeof(Total<config>)) <= config.shared_bytes,
      "a block's memory is what its schedule says");
  TW_DYNAMIC_SHARED(memory, 128);
  const int lane = threadIdx.x, row[2] = { lane >> 2, (lane >> 2) + 8 }, quad = lane & 3;
  const int kv = (int)blockIdx.x % config.kv_heads, first = (int)blockIdx.x / config.kv_heads * queries;
  const unsigned ring_at = array_address(memory);
  const int token = lane < queries && first + lane < x.rows ? token_of<config>(x, first + lane) : -1;
  StemTiles<config, Operands> tiles(x, token);
  const StemTile first_tile = tiles.next;
  tiles.fetch();
  tiles.advance();
  if constexpr (config.reads_ahead) await_previous();
  if (first_tile.run >= queries) return;

  LoneRing<config, Operands> ring{
    x, kv, ring_at, (const unsigned char *)(x.k + kv * d), (const unsigned char *)(x.v + kv * d)
  };
  ring.begin(tiles);

  /* The queries of this lane's rows, and the last key that each sees: −1 of rows without a query. */
  const int query_of[2] = { row[0] / group, row[1] / group };
  const int end[2] = { __shfl_sync(ALL_LANES, tiles.keys, query_of[0]) - 1,
                       __shfl_sync(ALL_LANES, tiles.keys, query_of[1]) - 1 };
  KeptQueries<config> query;
  float factor[2] = {};
  {
    const int tokens[2] = { __shfl_sync(ALL_LANES, token, query_of[0]), __shfl_sync(ALL_LANES, token, query_of[1]) };
    const auto *const q = x.q + kv * group * d + quad * config.lane_columns();
    load_queries(query, factor,
        { q + tokens[0] * (long long)config.q_stride + row[0] % group * d,
          q + tokens[1] * (long long)config.q_stride + row[1] % group * d },
        { tokens[0] >= 0, tokens[1] >= 0 });
  }
  Slopes<config> slopes;
  slopes.find(x, kv, row);
  const unsigned keys_at = keys_of_lane<config>(ring_at), values_at = values_of_lane<config>(ring_at);
  ring.wait();

  Total<config> kept;
  Total<config> &total = config.has_short_heads() ? kept : ((Total<config> *)(memory + ring_bytes))[lane];
  Answer<config> answer;
  answer.clear();
  for (StemTile tile = first_tile; tile.run < queries; tile = tiles.after(tile)) {
    const int key = tile.index * TILE_KEYS, to = tiles.end_of(tile);
    /* Queries that share a tile see the whole of it. */
    const int last[2] = { query_of[0] >= tile.run && query_of[0] < to ? end[0] : -1,
                          query_of[1] >= tile.run && query_of[1] < to ? end[1] : -1 };
    if (key > 0 && key % CHUNK == 0) {
      const float sum0 = quad_sum(answer.sum[0]), sum1 = quad_sum(answer.sum[1]);
      if (last[0] >= key) end_chunk<0>(total, key > CHUNK, answer, sum0);
      if (last[1] >= key) end_chunk<1>(total, key > CHUNK, answer, sum1);
      __syncwarp();
    }
    KeyScales own = {};
    if constexpr (config.is_coded()) own = key_scales(ring.take_scales());
    Scores s;
    multiply_keys<config, Key>(s, query, keys_at + ring.slot * config.tile_bytes());
    scale_scores<config>(s, factor, own);
    if constexpr (config.has_slopes()) lean_scores<config>(s, slopes.of, key, end);
    ring.replace_keys(tiles);
    if (tile.run > 0 || to < queries) mask<config>(s, key, last);
    Weights weight;
    weigh<config, Key>(answer, weight, s, own);
    add_seen_values<config, Key>(answer, weight, values_at + ring.slot * config.tile_bytes(), last);
    ring.replace_values(tiles);
  }
  answer.sum[0] = quad_sum(answer.sum[0]);
  answer.sum[1] = quad_sum(answer.sum[1]);
  if (end[0] >= CHUNK) add_total<0>(total, answer, answer.sum[0]);
  if (end[1] >= CHUNK) add_total<1>(total, answer, answer.sum[1]);
  float check[2];
  store_answer<config>(answer, x, first, kv, row, { end[0] >= 0, end[1] >= 0 }, check);
}

}  // namespace tw
