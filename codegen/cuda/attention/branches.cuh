/*
 * Attention over the branches of trees: a block computes `queries` queries of the heads that share one head of keys, so
 * that a key is loaded once for all of them.
 *
 * Queries next to each other with one `begin` are a run. A tile is TILE_KEYS entries of a run's list. Runs whose lists
 * begin alike, as branches of a tree do, share their first tiles: those are loaded and multiplied once, for the queries
 * of all these runs. The tiles of all runs are one sequence, and the copies of the next ones are always under way: of
 * the slots, one is at work. A barrier of the block says that a tile is there and that the one before has been read.
 *
 * A row that does not see a tile adds exact zeros. Zero times an infinite or undefined value is undefined, though: if a
 * result of the block is not finite, the block is repeated query by query, with zeros in place of the keys that the
 * query does not see.
 *
 * Shared memory: the queries, then slots of keys and values. Few paths are longer than a chunk, so totals lie in local
 * memory, and more blocks fit on a multiprocessor.
 *
 * Grid: kv_heads blocks for `queries` queries.
 */
#pragma once
#include "attention/chunks.cuh"
#include "attention/slopes.cuh"
#include "attention/tileQueries.cuh"

namespace tw {

/*
 * With a window, of the first query of each run: the run before, and the first tile that is seen by the run or by one
 * behind it that shares tiles with it.
 */
template <PathConfig config, bool has_window = (config.is_bounded())> struct BranchWindows {};
template <PathConfig config> struct BranchWindows<config, true> { int before[config.queries], first[config.queries]; };

/* What is known of a block's queries, in shared memory. */
template <PathConfig config> struct BranchTable : BranchWindows<config> {
  /* Of each query: where its path begins, and its position; −1 past the last query. */
  int begin[config.queries], position[config.queries];
  /* Of the first query of each run: the run behind, its keys, and the tiles that the run before has. */
  int next[config.queries], keys[config.queries], shared[config.queries];
};

/* A tile of a run: the run's first query, its list, and how far the list goes. */
struct BranchTile { int run, begin, keys, index; };

/* Finds the runs of `count` queries, whose begins and positions are there, and what they share. By all threads. */
template <PathConfig config> TW_DEVICE void find_runs(BranchTable<config> &table, int count, const int *list) {
  const int lane = threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  /* Bit l of word w: a run begins with query 32·w + l. */
  constexpr int words = (config.queries + 31) / 32;
  unsigned starts[words];
#pragma unroll
  for (int w = 0; w < words; w++) {
    const int i = w * 32 + lane;
    starts[w] = __ballot_sync(ALL_LANES, i < count && (i == 0 || table.begin[i] != table.begin[i - 1]));
  }
  const auto run_after = [&](int i) {
    int next = count;
#pragma unroll
    for (int w = words - 1; w >= 0; w--) {
      const int from = i + 1 - 32 * w;
      const unsigned later = from >= 32 ? 0u : starts[w] & ALL_LANES << (from > 0 ? from : 0);
      if (later != 0) next = 32 * w + __ffs((int)later) - 1;
    }
    return next;
  };
  /* Keys that the queries [run, next) see, by a whole warp. */
  const auto keys_of = [&](int run, int next) {
    int highest = -1;
    for (int i = run + lane; i < next; i += 32)
      if (table.position[i] > highest) highest = table.position[i];
    return __reduce_max_sync(ALL_LANES, highest) + 1;
  };
  /* Tiles of lists that are read together. */
  constexpr int together = 4;
  for (int run = 0, next = 0, before = -1, number = 0; run < count; before = run, run = next, number++) {
    next = run_after(run);
    if (number % config.warps != warp) continue;
    const int keys = keys_of(run, next);
    int tiles = 0;
    if (before >= 0) {
      /* Tiles that both lists have whole, up to the first that differs. */
      const int most = min(keys_of(before, run), keys) / TILE_KEYS;
      const int *ours = list + table.begin[run] + lane, *theirs = list + table.begin[before] + lane;
      tiles = most;
#pragma unroll 1
      for (int from = 0; from < tiles; from += together) {
        int differs[together];
#pragma unroll
        for (int i = 0; i < together; i++) {
          const int at = min(from + i, most - 1) * TILE_KEYS;
          differs[i] = ours[at] ^ theirs[at];
        }
#pragma unroll
        for (int i = together - 1; i >= 0; i--)
          if (__any_sync(ALL_LANES, differs[i] != 0)) tiles = min(tiles, from + i);
      }
    }
    int least = 0x7fffffff;
    if constexpr (config.is_bounded()) {
      for (int i = run + lane; i < next; i += 32)
        if (table.position[i] >= 0 && table.position[i] < least) least = table.position[i];
      least = __reduce_min_sync(ALL_LANES, least);
    }
    if (lane == 0) {
      if constexpr (config.is_bounded()) {
        table.first[run] = keys == 0 ? 0 : first_seen<config>(least) / TILE_KEYS;
        table.before[run] = before;
      }
      table.next[run] = next;
      table.keys[run] = keys;
      table.shared[run] = tiles;
    }
  }
  __syncthreads();  /* The runs are there, and what they share. */
  if constexpr (config.is_bounded()) {
    if (threadIdx.x == 0) {
      int last = count - 1;
      while (last > 0 && table.begin[last - 1] == table.begin[last]) last--;
      for (int run = last; run > 0; run = table.before[run]) {
        const int before = table.before[run];
        if (table.shared[run] > table.first[run] && table.first[run] < table.first[before])
          table.first[before] = table.first[run];
      }
    }
    __syncthreads();  /* The first tiles of runs are there. */
  }
}

template <PathConfig config, class Operands> TW_DEVICE void branches_attention(const Operands &x) {
  using Key = typename Operands::KeyType;
  using Element = typename Operands::ElementType;
  constexpr int group = config.group(), queries = config.queries, d = config.head_dim, slots = config.slots;
  constexpr int threads = config.threads(), rows = config.rows();
  constexpr unsigned slot_bytes = 2 * config.tile_bytes(), slots_at = rows * config.query_bytes();
  static_assert(queries * group <= rows && d % 16 == 0 && slots >= 2, "a warp has 16 rows");
  static_assert(sizeof(Key) == config.key_bytes && sizeof(Element) == 2);
  static_assert(slots_at + slots * slot_bytes <= config.shared_bytes, "a block's memory is what its schedule says");
  TW_DYNAMIC_SHARED(memory, 128);
  __shared__ BranchTable<config> table;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int kv = (int)blockIdx.x % config.kv_heads, first = (int)blockIdx.x / config.kv_heads * queries;
  const int count = min(queries, x.rows - first);
  const Element *const q = x.q + kv * group * d;
  const Key *const k = x.k + kv * d, *const v = x.v + kv * d;
  const unsigned shared = array_address(memory), slots_from = shared + slots_at;
  Total<config> own_total;
  Total<config> &total = *opaque(&own_total);
  const auto token_at = [&](int i) { return i >= count ? -1 : token_of<config>(x, first + i); };
  for (int i = thread; i < queries; i += threads) {
    const int token = token_at(i), begin = token < 0 ? -1 : x.begin[token];
    table.begin[i] = begin;
    table.position[i] = begin < 0 ? -1 : min(x.position[token], x.key_rows - begin - 1);
  }
  constexpr int query_pieces = d / 8;
  for (int i = thread; i < rows * query_pieces; i += threads) {
    const int row = i / query_pieces, piece = i % query_pieces, token = token_at(row / group);
    copy16(shared + row * config.query_bytes() + piece * 16,
        q + (token < 0 ? 0 : token * (long long)config.q_stride + row % group * d + piece * 8), token < 0 ? 0 : 16);
  }
  copy_commit();
  __syncthreads();  /* Begins and positions are there. */
  find_runs(table, count, x.key);

  const unsigned q_lane = shared + (warp * 16 + (lane & 15)) * config.query_bytes() + (lane >> 4) * 16;
  const unsigned keys_at = keys_of_lane<config>(slots_from);
  const unsigned values_at = values_of_lane<config>(slots_from + config.tile_bytes());
  const int row[2] = { warp * 16 + (lane >> 2), warp * 16 + (lane >> 2) + 8 };
  float factor[2] = {};
  if constexpr (config.is_coded()) {
    copy_wait<0>();
    __syncthreads();  /* The queries are there. */
    __shared__ float factors[rows];
    move_queries<config, Element>(memory + warp * 16 * config.query_bytes(), factors + warp * 16);
    factor[0] = factors[row[0]];
    factor[1] = factors[row[1]];
  }
  TileQueries<config> query;

  /* First all queries; then, if a result is not finite, one by one. */
  for (int pass = -1; pass < count; pass++) {
    const int end = pass < 0 ? count : pass + 1;
    /* The first tile of its own of run `run` or, where it has none, of a later run. */
    const auto enter = [&](int run) {
      for (; run < end; run = table.next[run]) {
        int own = table.shared[run];
        if (own * TILE_KEYS >= table.keys[run]) continue;
        if constexpr (config.is_bounded()) own = max(own, table.first[run]);
        return BranchTile{ run, table.begin[run], table.keys[run], own };
      }
      return BranchTile{ end, 0, 0, 0 };
    };
    const auto after = [&](BranchTile tile) {
      if ((tile.index + 1) * TILE_KEYS >= tile.keys) return enter(table.next[tile.run]);
      tile.index++;
      return tile;
    };
    /* Lane l has the row of key l of a tile, −1 past the last key. */
    const auto places_of = [&](const BranchTile &tile) {
      const int i = tile.index * TILE_KEYS + lane;
      if (config.is_bounded() && pass >= 0 && i < first_seen<config>(table.position[pass])) return -1;
      return i < tile.keys ? x.key[tile.begin + i] : -1;
    };
    const auto start = [&](int slot, int places) {
      constexpr unsigned pieces = config.pieces(), count_of = TILE_KEYS * pieces;
#pragma unroll 2
      for (unsigned j = 0; j < (count_of + threads - 1) / threads; j++) {
        const unsigned i = j * threads + thread;
        if (count_of % threads != 0 && i >= count_of) break;
        /* A thread has the same piece of every row if the threads have whole rows. */
        const unsigned at = i / pieces, piece = (threads % pieces == 0 ? thread : i) % pieces;
        const int place = __shfl_sync(ALL_LANES, places, at);
        const unsigned from = place < 0 ? 0 : place;
        const unsigned to = slots_from + slot * slot_bytes + at * config.row_bytes() + piece * 16;
        const unsigned element = piece * (16 / config.key_bytes);
        copy16(to, k + element + from * (unsigned long long)config.k_stride, place < 0 ? 0 : 16);
        copy16(to + config.tile_bytes(), v + element + from * (unsigned long long)config.v_stride, place < 0 ? 0 : 16);
      }
    };
    if (pass >= 0) {
      if (thread == 0) {
        table.next[pass] = pass + 1;
        table.keys[pass] = table.position[pass] + 1;
        table.shared[pass] = 0;
        if constexpr (config.is_bounded()) table.first[pass] = first_seen<config>(table.position[pass]) / TILE_KEYS;
      }
      __syncthreads();
    }
    BranchTile tile = enter(pass < 0 ? 0 : pass), coming = tile;
    /* Scales of the keys of tiles that are under way, lane by lane. */
    float2 coming_scales[slots - 1] = {};
#pragma unroll
    for (int i = 0; i < slots - 1; i++) {
      if (coming.run < end) {
        const int first_places = places_of(coming);
        if constexpr (config.is_coded()) coming_scales[i] = scales_of<config>(x, kv, first_places);
        start(i, first_places);
        coming = after(coming);
      }
      copy_commit();
    }
    int places = places_of(coming);
    if constexpr (config.has_short_heads()) {
      if (pass < 0) {
        copy_wait<slots - 1>();
        __syncthreads();  /* The queries are there. */
        query.load(q_lane);
      }
    } else {
      query.load(q_lane);
    }

    Answer<config> answer;
    answer.clear();
    for (int slot = 0; tile.run < end; tile = after(tile)) {
      copy_wait<slots - 2>();
      __syncthreads();  /* The tile is there, the one before has been read. */
      if (coming.run < end) {
        start(slot == 0 ? slots - 1 : slot - 1, places);
        coming = after(coming);
      }
      copy_commit();
      float2 scales = {};
      if constexpr (config.is_coded()) {
        scales = coming_scales[0];
#pragma unroll
        for (int i = 0; i + 1 < slots - 1; i++) coming_scales[i] = coming_scales[i + 1];
        coming_scales[slots - 2] = scales_of<config>(x, kv, places);
      }
      places = places_of(coming);
      const int at_slot = slot, key = tile.index * TILE_KEYS;
      slot = slot == slots - 1 ? 0 : slot + 1;
      /* The queries [tile.run, to) share the tile. */
      int to = pass < 0 ? table.next[tile.run] : end;
      while (to < end && table.shared[to] > tile.index) to = table.next[to];
      /* Their positions, and −1 of others. */
      const auto position_of = [&](int r) {
        const int i = r / group;
        return i >= tile.run && i < to ? table.position[i] : -1;
      };
      const int mine = position_of(warp * 16 + (lane & 15));
      const int warp_low = __reduce_min_sync(ALL_LANES, mine), warp_high = __reduce_max_sync(ALL_LANES, mine);
      if (key > warp_high) continue;
      if constexpr (config.is_bounded()) {
        const int warp_first = __reduce_min_sync(ALL_LANES, mine < 0 ? 0x7fffffff : first_seen<config>(mine));
        if (key + TILE_KEYS <= warp_first) continue;
      }
      const int last[2] = { position_of(row[0]), position_of(row[1]) };
      if (key > 0 && key % CHUNK == 0) {
        const float sum0 = quad_sum(answer.sum[0]), sum1 = quad_sum(answer.sum[1]);
        /* The first chunks that the rows see. */
        const int from0 = first_seen<config>(last[0]) / CHUNK * CHUNK;
        const int from1 = first_seen<config>(last[1]) / CHUNK * CHUNK;
        if (last[0] >= key && from0 < key) end_chunk<0>(total, key > from0 + CHUNK, answer, sum0);
        if (last[1] >= key && from1 < key) end_chunk<1>(total, key > from1 + CHUNK, answer, sum1);
        __syncwarp();
      }
      const KeyScales own = key_scales(scales);
      Scores s;
      multiply_keys<config, Key>(s, query, keys_at + at_slot * slot_bytes);
      scale_scores<config>(s, factor, own);
      if constexpr (config.has_slopes()) {
        /* Read for each tile: of long heads no register is left to keep them. */
        Slopes<config> slopes;
        slopes.find(x, kv, row);
        lean_scores<config>(s, slopes.of, key, last);
      }
      if (key + TILE_KEYS - 1 > warp_low || (config.is_bounded() && key <= too_far<config>(warp_high)))
        mask<config>(s, key, last);
      Weights weight;
      weigh<config, Key>(answer, weight, s, own);
      add_values<config, Key>(answer, weight, values_at + at_slot * slot_bytes);
    }

    answer.sum[0] = quad_sum(answer.sum[0]);
    answer.sum[1] = quad_sum(answer.sum[1]);
    const auto last_of = [&](int r) {
      const int i = r / group;
      return i < count && (pass < 0 || i == pass) ? table.position[i] : -1;
    };
    const int last[2] = { last_of(row[0]), last_of(row[1]) };
    if (last[0] / CHUNK > first_seen<config>(last[0]) / CHUNK) add_total<0>(total, answer, answer.sum[0]);
    if (last[1] / CHUNK > first_seen<config>(last[1]) / CHUNK) add_total<1>(total, answer, answer.sum[1]);
    float check[2];
    store_answer<config>(answer, x, first, kv, row, { last[0] >= 0, last[1] >= 0 }, check);
    const bool is_finite = (last[0] < 0 || check[0] == 0.0f) && (last[1] < 0 || check[1] == 0.0f);
    /* Everybody has read the last tile: keys of the next pass may come. */
    if (!__syncthreads_or(!is_finite) && pass < 0) break;
  }
}

}  // namespace tw
