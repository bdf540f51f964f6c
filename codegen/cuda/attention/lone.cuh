/*
 * Attention of decoding by lone warps: a block is one warp, which computes one query of the heads that share one head
 * of keys. The heads are the rows of one tile of a tensor core.
 *
 * Keys and values of tiles, in turn, are a ring of `slots` parts in shared memory: a part that has been multiplied is
 * filled again at once, so copies are under way whatever the warp does, and it waits for no other warp. The parts are
 * odd in number: where keys were, values come next. Registers hold queries, answer, and the total of chunks before.
 *
 * Grid: kv_heads blocks for each query.
 */
#pragma once
#include "attention/chunks.cuh"
#include "attention/slopes.cuh"

namespace tw {

/*
 * The ring of a lone warp, and what it fetches ahead. Tiles come in the order of `Source`, which knows `place`, the row
 * of the cache that this lane copies for the tile that comes next (−1: none), and `is_coming`, whether there is one.
 */
template <PathConfig config, class Operands> struct LoneRing {
  static constexpr int parts = config.slots, tiles_ahead = (parts + 1) / 2;
  static_assert(parts % 2 == 1 && parts >= 3, "a part with keys of one tile has values of another next");
  static_assert(parts * config.tile_bytes() <= config.shared_bytes, "a block's memory is what its schedule says");

  const Operands &x;
  int kv;
  unsigned at;
  const unsigned char *k, *v;
  int slot;
  /* Scales of the key of this lane in the tiles whose keys are under way, the next one first. */
  float2 scales[tiles_ahead];

  template <class Source> TW_DEVICE void start_keys(Source &source, int part) {
    if (source.is_coming())
      copy_rows<config, false>(at + part * config.tile_bytes(), k, config.k_units(), source.place);
    copy_commit();
  }
  template <class Source> TW_DEVICE void start_values(Source &source, int part) {
    if (source.is_coming())
      copy_rows<config, false>(at + part * config.tile_bytes(), v, config.v_units(), source.place);
    copy_commit();
    source.advance();
  }
  template <class Source> TW_DEVICE void begin(Source &source) {
#pragma unroll
    for (int part = 0; part < parts; part++) {
      if (part % 2 == 1) {
        start_values(source, part);
        continue;
      }
      if constexpr (config.is_coded()) scales[part / 2] = scales_of<config>(x, kv, source.place);
      start_keys(source, part);
    }
    slot = 0;
  }
  /* Waits for the next part. */
  TW_DEVICE void wait() const {
    copy_wait<parts - 1>();
    __syncwarp();
  }
  /* Fills a part whose keys or values have been multiplied, and waits for the next one. */
  template <class Source> TW_DEVICE void replace_keys(Source &source) {
    __syncwarp();  /* The part has been read. */
    start_values(source, slot);
    go_on();
  }
  template <class Source> TW_DEVICE void replace_values(Source &source) {
    __syncwarp();  /* The part has been read. */
    if constexpr (config.is_coded()) scales[tiles_ahead - 1] = scales_of<config>(x, kv, source.place);
    start_keys(source, slot);
    go_on();
  }
  TW_DEVICE void go_on() {
    slot = slot == parts - 1 ? 0 : slot + 1;
    wait();
  }
  /* The scales of the tile that is at work, which then are no longer among those ahead. */
  TW_DEVICE float2 take_scales() {
    const float2 own = scales[0];
#pragma unroll
    for (int i = 0; i + 1 < tiles_ahead; i++) scales[i] = scales[i + 1];
    return own;
  }
};

template <PathConfig config, class Operands> struct LoneTiles {
  const Operands &x;
  const Path &path;
  int tile, tiles;
  /* Where the key of this lane lies in the tile that comes next, and in the one behind it. */
  int place, next_place;

  /* Key `lane` of a tile, −1 past the last key. */
  TW_DEVICE int place_of(int of) const {
    const int i = of * TILE_KEYS + (int)threadIdx.x;
    return (!config.is_bounded() || i >= path.low) && i < path.keys ? x.key[path.begin + i] : -1;
  }
  TW_DEVICE bool is_coming() const { return tile < tiles; }
  TW_DEVICE void advance() {
    tile++;
    place = next_place;
    next_place = place_of(tile + 1);
  }
};

template <PathConfig config, class Operands> TW_DEVICE void lone_attention(const Operands &x) {
  using Key = typename Operands::KeyType;
  static_assert(config.group() <= 16 && config.head_dim <= 128, "queries, answer and total are in registers");
  static_assert(config.queries == 1 && config.warps == 1, "a block is a warp with one query");
  static_assert(sizeof(Key) == config.key_bytes && config.head_dim % 16 == 0, "a head is whole steps of a product");
  constexpr int group = config.group(), d = config.head_dim;
  /* Rows 8 to 15 of the tile have no heads: what is constant costs nothing. */
  constexpr bool is_half = group <= 8;
  TW_DYNAMIC_SHARED(memory, 128);
  const int lane = threadIdx.x, row[2] = { lane >> 2, (lane >> 2) + 8 }, quad = lane & 3;
  const int kv = (int)blockIdx.x % config.kv_heads, first = (int)blockIdx.x / config.kv_heads;
  const Key *const k = x.k + kv * d, *const v = x.v + kv * d;
  const Path path = path_of<config>(x, first);
  const unsigned ring_at = array_address(memory);
  /* The tiles are [first_tile, tiles). */
  const int first_tile = config.is_bounded() ? path.low / TILE_KEYS : 0;
  const int tiles = (path.keys + TILE_KEYS - 1) / TILE_KEYS;
  LoneTiles<config, Operands> coming{ x, path, first_tile, tiles, 0, 0 };
  if constexpr (config.reads_ahead) {
    /*
     * Two tiles are brought to L2: more of them keep others waiting. Rows that this call has yet to write are among
     * them, and nothing is read from there before the wait.
     */
    for (int tile = first_tile; tile < first_tile + 2; tile++) {
      const int place = coming.place_of(tile);
      if (place < 0) break;
      for (int i = 0; i < d; i += 128 / config.key_bytes) {
        prefetch(k + place * (long long)config.k_stride + i);
        prefetch(v + place * (long long)config.v_stride + i);
      }
    }
  }
  coming.place = coming.place_of(first_tile);
  coming.next_place = coming.place_of(first_tile + 1);
  if constexpr (config.reads_ahead) await_previous();
  if (path.keys <= 0) return;

  LoneRing<config, Operands> ring{ x, kv, ring_at, (const unsigned char *)k, (const unsigned char *)v };
  ring.begin(coming);

  KeptQueries<config> query;
  float factor[2] = {};
  {
    const auto *const q =
        x.q + path.token * (long long)config.q_stride + kv * group * d + quad * config.lane_columns();
    load_queries(query, factor, { q + row[0] * d, q + row[1] * d },
        { row[0] < group, !is_half && row[1] < group });
  }
  Slopes<config> slopes;
  slopes.find(x, kv, row);
  const unsigned keys_at = keys_of_lane<config>(ring_at), values_at = values_of_lane<config>(ring_at);
  ring.wait();

  Total<config> total;
  Answer<config> answer;
  answer.clear();
  /* Rows without a head are computed along and thrown away. */
  const int last[2] = { path.keys - 1, path.keys - 1 };
  const int first_chunk = first_tile * TILE_KEYS / CHUNK;
  for (int tile = first_tile; tile < tiles; tile++) {
    const int key = tile * TILE_KEYS;
    if (key % CHUNK == 0 && tile > first_tile) {
      const bool has_total = key / CHUNK > first_chunk + 1;
      end_chunk<0>(total, has_total, answer, quad_sum(answer.sum[0]));
      if constexpr (!is_half) end_chunk<1>(total, has_total, answer, quad_sum(answer.sum[1]));
    }
    KeyScales own = {};
    if constexpr (config.is_coded()) own = key_scales(ring.take_scales());
    Scores s;
    multiply_keys<config, Key>(s, query, keys_at + ring.slot * config.tile_bytes());
    scale_scores<config>(s, factor, own);
    if constexpr (config.has_slopes()) lean_scores<config>(s, slopes.of, key, last);
    ring.replace_keys(coming);
    if constexpr (is_half) {
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++) s[n][2] = s[n][3] = -infinity();
    }
    if (key + TILE_KEYS - 1 > last[0] || (config.is_bounded() && key <= too_far<config>(last[0])))
      mask<config>(s, key, last);
    Weights weight;
    weigh<config, Key>(answer, weight, s, own);
    if constexpr (is_half) {
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 16; n++) weight[n][1] = weight[n][3] = 0u;
    }
    add_values<config, Key>(answer, weight, values_at + ring.slot * config.tile_bytes());
    ring.replace_values(coming);
  }
  answer.sum[0] = quad_sum(answer.sum[0]);
  if constexpr (!is_half) answer.sum[1] = quad_sum(answer.sum[1]);
  if ((path.keys - 1) / CHUNK > first_chunk) {
    add_total<0>(total, answer, answer.sum[0]);
    if constexpr (!is_half) add_total<1>(total, answer, answer.sum[1]);
  }
  float check[2];
  store_answer<config>(answer, x, first, kv, row, { row[0] < group, !is_half && row[1] < group }, check);
}

}  // namespace tw
