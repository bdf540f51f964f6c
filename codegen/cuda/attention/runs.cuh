/*
 * Attention over paths by runs: a block computes `queries` queries of the heads that share one head of keys, so that a
 * key is loaded once for all of them. A warp has 16 rows of the tile of heads and queries (attention/path.cuh).
 *
 * Queries next to each other with one `begin` are a run. The block passes over its runs one by one; rows of other runs
 * are computed along and thrown away. Of the slots with tiles of keys and values, one is at work, and the others are on
 * their way. A barrier of the block says that a tile is there and that the one before has been read.
 *
 * A row that does not see a key adds an exact zero. Zero times an infinite or undefined value is undefined, though: if
 * a result of a run is not finite, the run is repeated query by query, with zeros in place of the keys that the query
 * does not see.
 *
 * Shared memory: the queries, the slots, and the totals of the chunks before, as threads have them.
 *
 * Grid: kv_heads blocks for `queries` queries.
 */
#pragma once
#include "attention/slopes.cuh"
#include "attention/tileQueries.cuh"

namespace tw {

template <PathConfig config, class Operands> TW_DEVICE void runs_attention(const Operands &x) {
  using Key = typename Operands::KeyType;
  using Element = typename Operands::ElementType;
  constexpr int group = config.group(), queries = config.queries, d = config.head_dim, slots = config.slots;
  constexpr int threads = config.threads(), rows = config.rows(), pieces = config.pieces(), query_pieces = d / 8;
  constexpr int chunk_tiles = CHUNK / TILE_KEYS;
  constexpr unsigned row_bytes = config.row_bytes(), slot_bytes = 2 * config.tile_bytes();
  constexpr unsigned slots_at = rows * config.query_bytes(), totals_at = slots_at + slots * slot_bytes;
  static_assert(queries * group <= rows && d % 16 == 0 && slots >= 2, "a warp has 16 rows");
  static_assert(sizeof(Key) == config.key_bytes && sizeof(Element) == 2);
  static_assert(totals_at + rows * (d + 8) * 4 <= config.shared_bytes, "a block's memory is what its schedule says");
  TW_DYNAMIC_SHARED(memory, 128);
  /* Of each query: where its path begins, and its position; −1 past the last query. */
  __shared__ int begins[queries], positions[queries];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int kv = (int)blockIdx.x % config.kv_heads, first = (int)blockIdx.x / config.kv_heads * queries;
  const int count = min(queries, x.rows - first);
  const Element *const q = x.q + kv * group * d;
  const Key *const k = x.k + kv * d, *const v = x.v + kv * d;
  const unsigned shared = array_address(memory), slots_from = shared + slots_at;
  /* What the chunks so far add up to, as a thread has it: [d / 8][thread], then maxima and sums. */
  float4 *const total = (float4 *)(memory + totals_at) + thread;

  const auto token_at = [&](int i) { return i >= count ? -1 : token_of<config>(x, first + i); };
  for (int i = thread; i < rows * query_pieces; i += threads) {
    const int row = i / query_pieces, piece = i % query_pieces, token = token_at(row / group);
    copy16(shared + row * config.query_bytes() + piece * 16,
        q + (token < 0 ? 0 : token * (long long)config.q_stride + row % group * d + piece * 8), token < 0 ? 0 : 16);
  }
  copy_commit();
  for (int i = thread; i < queries; i += threads) {
    const int token = token_at(i);
    begins[i] = token < 0 ? -1 : x.begin[token];
    positions[i] = token < 0 ? -1 : x.position[token];
  }
  copy_wait<0>();
  __syncthreads();  /* The queries are there. */

  const unsigned keys_at = keys_of_lane<config>(slots_from);
  const unsigned values_at = values_of_lane<config>(slots_from + config.tile_bytes());
  const int row[2] = { warp * 16 + (lane >> 2), warp * 16 + (lane >> 2) + 8 };
  float factor[2] = {};
  if constexpr (config.is_coded()) {
    __shared__ float factors[rows];
    move_queries<config, Element>(memory + warp * 16 * config.query_bytes(), factors + warp * 16);
    factor[0] = factors[row[0]];
    factor[1] = factors[row[1]];
  }
  Slopes<config> slopes;
  slopes.find(x, kv, row);
  TileQueries<config> query;
  query.load(shared + (warp * 16 + (lane & 15)) * config.query_bytes() + (lane >> 4) * 16);

  /* Queries before `alone` are taken one by one. */
  for (int from = 0, alone = 0; from < count;) {
    const int begin = begins[from];
    int to = from + 1;
    if (from >= alone) {
      to = count;
      for (int i = from + 1 + lane; i < to; i += 32) if (begins[i] != begin) to = i;
      to = __reduce_min_sync(ALL_LANES, to);
    }
    /* Positions of queries in [from, to), and −1 of others. */
    const auto position_of = [&](int r) {
      const int i = r / group;
      return i >= from && i < to ? positions[i] : -1;
    };
    int highest = -1;
    for (int i = from + lane; i < to; i += 32) if (positions[i] > highest) highest = positions[i];
    highest = __reduce_max_sync(ALL_LANES, highest);
    const int keys = min(highest + 1, x.key_rows - begin), tiles = (keys + TILE_KEYS - 1) / TILE_KEYS;
    if (begin < 0 || keys <= 0) {
      from = to;
      continue;
    }
    const int mine = min(position_of(warp * 16 + (lane & 15)), keys - 1);
    const int warp_low = __reduce_min_sync(ALL_LANES, mine), warp_high = __reduce_max_sync(ALL_LANES, mine);
    /* The first key that a query of the run sees. Tiles before it are left out. */
    int low = 0;
    if constexpr (config.is_bounded()) {
      int least = 0x7fffffff;
      for (int i = from + lane; i < to; i += 32) if (positions[i] >= 0 && positions[i] < least) least = positions[i];
      low = min(first_seen<config>(__reduce_min_sync(ALL_LANES, least)), keys - 1);
    }
    const int last[2] = { min(position_of(row[0]), keys - 1), min(position_of(row[1]), keys - 1) };

    /* Lane l has the row of key l of a tile, −1 past the last key. */
    const auto places_of = [&](int tile) {
      const int i = tile * TILE_KEYS + lane;
      return (!config.is_bounded() || i >= low) && i < keys ? x.key[begin + i] : -1;
    };
    const auto start = [&](int slot, int places) {
      constexpr int pieces_of_tile = TILE_KEYS * pieces, elements = 16 / config.key_bytes;
#pragma unroll 2
      for (int j = 0; j < (pieces_of_tile + threads - 1) / threads; j++) {
        const int i = j * threads + thread;
        if (pieces_of_tile % threads != 0 && i >= pieces_of_tile) break;
        const int at = i / pieces, piece = i % pieces, place = __shfl_sync(ALL_LANES, places, at);
        const unsigned to_row = slots_from + slot * slot_bytes + at * row_bytes + piece * 16;
        const int lying = place < 0 ? 0 : place, bytes_read = place < 0 ? 0 : 16;
        copy16(to_row, k + piece * elements + lying * (long long)config.k_stride, bytes_read);
        copy16(to_row + config.tile_bytes(), v + piece * elements + lying * (long long)config.v_stride, bytes_read);
      }
    };
    /* Scales of the keys of tiles that are under way, lane by lane. */
    float2 coming_scales[slots - 1] = {};
    const int first_tile = low / TILE_KEYS;
#pragma unroll
    for (int tile = 0; tile < slots - 1; tile++) {
      if constexpr (config.is_coded()) {
        const int first_places = places_of(first_tile + tile);
        coming_scales[tile] = scales_of<config>(x, kv, first_places);
        if (first_tile + tile < tiles) start(tile, first_places);
      } else {
        if (first_tile + tile < tiles) start(tile, places_of(first_tile + tile));
      }
      copy_commit();
    }
    int places = places_of(first_tile + slots - 1);

    bool is_finite = true;
    int slot = 0;
    for (int chunk = low / CHUNK; chunk * chunk_tiles < tiles; chunk++) {
      Answer<config> answer;
      answer.clear();
      for (int tile = config.is_bounded() && chunk * CHUNK <= low ? first_tile : chunk * chunk_tiles;
           tile < (chunk + 1) * chunk_tiles && tile < tiles; tile++) {
        const int key = tile * TILE_KEYS, coming = tile + slots - 1, free = slot == 0 ? slots - 1 : slot - 1;
        copy_wait<slots - 2>();
        __syncthreads();  /* The tile is there, the one before has been read. */
        if (coming < tiles) start(free, places);
        copy_commit();
        float2 scales = {};
        if constexpr (config.is_coded()) {
          scales = coming_scales[0];
#pragma unroll
          for (int i = 0; i + 1 < slots - 1; i++) coming_scales[i] = coming_scales[i + 1];
          coming_scales[slots - 2] = scales_of<config>(x, kv, places);
        }
        places = places_of(coming + 1);
        const int at_slot = slot;
        slot = slot == slots - 1 ? 0 : slot + 1;
        if (key > warp_high) continue;
        Scores s;
        Weights weight;
        multiply_keys<config, Key>(s, query, keys_at + at_slot * slot_bytes);
        KeyScales own_scales = {};
        if constexpr (config.is_coded()) own_scales = key_scales(scales);
        scale_scores<config>(s, factor, own_scales);
        if constexpr (config.has_slopes()) lean_scores<config>(s, slopes.of, key, last);
        if (key + TILE_KEYS - 1 > warp_low || (config.is_bounded() && key <= too_far<config>(warp_high)))
          mask<config>(s, key, last);
        weigh<config, Key>(answer, weight, s, own_scales);
        add_values<config, Key>(answer, weight, values_at + at_slot * slot_bytes);
      }
      /* Chunks are added in order. The last one that the warp sees has the result. */
      if (chunk * CHUNK > warp_high) continue;
      answer.sum[0] = quad_sum(answer.sum[0]);
      answer.sum[1] = quad_sum(answer.sum[1]);
      if (chunk > low / CHUNK) {
        const float4 before = total[d / 8 * threads];
        const float most[2] = { fmaxf(before.x, answer.top[0]), fmaxf(before.y, answer.top[1]) };
        const float old[2] = { power2(before.x - most[0]), power2(before.y - most[1]) };
        const float now[2] = { power2(answer.top[0] - most[0]), power2(answer.top[1] - most[1]) };
        answer.sum[0] = fmaf(answer.sum[0], now[0], mul(before.z, old[0]));
        answer.sum[1] = fmaf(answer.sum[1], now[1], mul(before.w, old[1]));
        answer.top[0] = most[0];
        answer.top[1] = most[1];
#pragma unroll
        for (int i = 0; i < d / 8; i++) {
          const float4 before_o = total[i * threads];
          answer.o[i][0] = fmaf(answer.o[i][0], now[0], mul(before_o.x, old[0]));
          answer.o[i][1] = fmaf(answer.o[i][1], now[0], mul(before_o.y, old[0]));
          answer.o[i][2] = fmaf(answer.o[i][2], now[1], mul(before_o.z, old[1]));
          answer.o[i][3] = fmaf(answer.o[i][3], now[1], mul(before_o.w, old[1]));
        }
      }
      if ((chunk + 1) * CHUNK <= warp_high) {
        total[d / 8 * threads] = float4{ answer.top[0], answer.top[1], answer.sum[0], answer.sum[1] };
#pragma unroll
        for (int i = 0; i < d / 8; i++)
          total[i * threads] = float4{ answer.o[i][0], answer.o[i][1], answer.o[i][2], answer.o[i][3] };
        continue;
      }
      float check[2];
      store_answer<config>(answer, x, first, kv, row, { last[0] >= 0, last[1] >= 0 }, check);
      is_finite = (last[0] < 0 || check[0] == 0.0f) && (last[1] < 0 || check[1] == 0.0f);
    }
    /* Everybody has read the last tile: keys of the next run may come. */
    if (__syncthreads_or(!is_finite) && to - from > 1) alone = to; else from = to;
  }
}

}  // namespace tw
