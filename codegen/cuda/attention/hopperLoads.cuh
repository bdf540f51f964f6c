/*
 * Attention of prompts by warpgroup products (attention/hopper.cuh): the four warps that load. They go through tiles
 * and parts in the order in which these are multiplied.
 *
 * Lists of keys are made of stretches of rows that follow each other: that of the examples, that of a question. A part
 * of one stretch is a box, which a tensor map copies. The rows of other parts are gathered one by one.
 */
#pragma once
#include "attention/hopperTile.cuh"

namespace tw {

/* What each warp does: it leads a side, which its barriers count; it gathers keys; or it is a tile ahead. */
enum class Loader { LeadsKeys, LeadsValues, HelpsKeys, GoesAhead };

template <PathConfig config, class Operands> struct PromptLoads {
  using Layout = PromptLayout<config>;
  static constexpr int keys = Layout::keys, lanes = Layout::lanes, pieces = Layout::pieces;

  const Operands &x;
  const TensorMap *keys_map, *values_map;
  PromptShared<config> &shared;
  unsigned memory;
  const PromptBarriers<config> &bars;
  PromptTiles<config> tiles;
  /* This lane gathers piece `piece` of the rows from `own_row` on. */
  int lane, own_row, piece;
  /* Parts that were loaded, which are numbered in this order. */
  int loaded = 0;
  /* The parities of the phases of keys_wanted that come next. */
  unsigned parities = 0;

  TW_DEVICE PromptLoads(const Operands &x, const TensorMap *keys_map, const TensorMap *values_map,
      PromptShared<config> &shared, unsigned memory, const PromptBarriers<config> &bars,
      const PromptTiles<config> &tiles)
      : x(x), keys_map(keys_map), values_map(values_map), shared(shared), memory(memory), bars(bars), tiles(tiles) {
    lane = (int)threadIdx.x & 31;
    own_row = lane / pieces * Layout::gathered;
    piece = lane % pieces;
  }

  TW_DEVICE void run() {
    const auto role = (Loader)uniform((int)threadIdx.x >> 5);
    for (bool is_more = tiles.has_tile(); is_more; is_more = tiles.next()) {
      const int side = tiles.side();
      PromptQueries<config> &queries = shared.queries[side];
      if (role == Loader::GoesAhead) {
        look(queries);
        copy_queries(queries);
        continue;
      }
      bars.queries_known[side].wait(tiles.round());
      __syncwarp();
      if (role == Loader::HelpsKeys) help(queries);
      else lead(queries, role == Loader::LeadsKeys);
      __syncwarp();
      if (lane == 0) bars.queries_empty[side].arrive();
    }
  }

  /* The token of query `i` of the tile, −1 past the last. */
  TW_DEVICE int token_of_query(int i) const {
    return i >= tiles.count() ? -1 : token_of<config>(x, tiles.first() + i);
  }

  /* Finds out what the queries of the next tile see. */
  TW_DEVICE void look(PromptQueries<config> &queries) {
    const int side = tiles.side(), count = tiles.count(), query = tiles.query;
    bars.queries_empty[side].wait(tiles.round() ^ 1);
    __syncwarp();
    for (int i = lane; i < Layout::queries; i += lanes) {
      const int token = token_of_query(i), begin = token < 0 ? -1 : x.begin[token];
      if constexpr (config.has_query_row) queries.token[i] = token;
      queries.begin[i] = begin;
      queries.position[i] = begin < 0 ? -1 : min(x.position[token], x.key_rows - begin - 1);
    }
    __syncwarp();  /* Tokens and positions are there. */
    if (query >= 0 && lane == 0) {
      queries.next[query] = query + 1;
      /*
       * Whole chunks, with zeros past the query's keys: in place of a second part the first one would be multiplied by
       * zeros, and infinities that the query sees would become NaN. All rows are gathered.
       */
      queries.keys[query] = (queries.position[query] + CHUNK) / CHUNK * CHUNK;
      queries.shared[query] = 0;
      queries.place[query] = Layout::boxes;
      if constexpr (config.is_bounded()) queries.low[query] = first_part(queries.position[query]);
    }
    /* The list of the run before, and the place of the next part among the tile's. */
    int their_begin = 0, their_keys = 0, place = 0, before = -1;
    for (int run = query < 0 ? 0 : count, behind = 0; run < count; run = behind) {
      const int begin = uniform(queries.begin[run]);
      int highest = -1;
      behind = count;
      for (int i = run + 1 + lane; i < behind; i += lanes) if (queries.begin[i] != begin) behind = i;
      behind = __reduce_min_sync(ALL_LANES, behind);
      for (int i = run + lane; i < behind; i += lanes) highest = max(highest, queries.position[i]);
      const int seen = __reduce_max_sync(ALL_LANES, highest) + 1;
      /* Whole chunks, so that every run begins with one. */
      const int common = common_parts(x.key + begin, x.key + their_begin, min(their_keys, seen) / keys);
      const int from = common - common % Layout::parts;
      if (lane == 0) {
        queries.next[run] = behind;
        queries.keys[run] = seen;
        queries.shared[run] = from;
        queries.place[run] = place - from;
      }
      if constexpr (config.is_bounded()) {
        int least = 0x7fffffff;
        for (int i = run + lane; i < behind; i += lanes)
          if (queries.position[i] >= 0) least = min(least, queries.position[i]);
        least = __reduce_min_sync(ALL_LANES, least);
        if (lane == 0) {
          queries.low[run] = seen <= 0 ? 0 : first_part(least);
          queries.run_before[run] = before;
        }
        before = run;
      } else {
        find_boxes(x.key + begin, seen, from, place);
        place += (seen + keys - 1) / keys - from;
      }
      their_begin = begin;
      their_keys = seen;
    }
    __syncwarp();
    if constexpr (config.is_bounded()) {
      if (query < 0) find_reach(queries, before, count);
    }
    const PromptPart part = enter<config>(queries, tiles.begin(), tiles.end());
    if (lane == 0) {
      queries.is_empty = part.run >= tiles.end();
      bars.queries_known[side].arrive();
    }
    __syncwarp();
  }

  /* The first part of the chunk with the first key that a query at `position` sees. */
  static TW_DEVICE int first_part(int position) { return first_seen<config>(position) / CHUNK * Layout::parts; }

  /* Carries the first parts of runs, of which the last is `last`, to those that share them; and finds their boxes. */
  TW_DEVICE void find_reach(PromptQueries<config> &queries, int last, int count) {
    if constexpr (config.is_bounded()) {
      if (lane == 0) {
        for (int run = last; run > 0; run = queries.run_before[run]) {
          const int before = queries.run_before[run];
          if (queries.shared[run] > queries.low[run] && queries.low[run] < queries.low[before])
            queries.low[before] = queries.low[run];
        }
      }
      __syncwarp();
      int place = 0;
      for (int run = 0; run < count; run = uniform(queries.next[run])) {
        const int seen = uniform(queries.keys[run]);
        const int from = max(uniform(queries.shared[run]), uniform(queries.low[run]));
        if (lane == 0) queries.place[run] = place - from;
        find_boxes(x.key + uniform(queries.begin[run]), seen, from, place);
        place += max((seen + keys - 1) / keys - from, 0);
      }
      __syncwarp();
    }
  }

  /* Parts whose keys are read together: a read takes as long as a part is multiplied. */
  static constexpr int together = 4;

  /* Of the first `most` parts of two lists: how many they have in common. */
  TW_DEVICE int common_parts(const int *ours, const int *theirs, int most) const {
    int common = most;
#pragma unroll 1
    for (int part = 0; part < most; part += together) {
      int differs[together];
#pragma unroll
      for (int i = 0; i < together; i++) {
        const int low = min(part + i, most - 1) * keys + lane, high = low + lanes;
        differs[i] = (ours[low] ^ theirs[low]) | (ours[high] ^ theirs[high]);
      }
#pragma unroll
      for (int i = 0; i < together; i++) if (differs[i] != 0) common = min(common, part + i);
    }
    return __reduce_min_sync(ALL_LANES, common);
  }

  /* Which parts of a list of `seen` keys, from part `from` on, are boxes. The first has place `place` of the tile. */
  TW_DEVICE void find_boxes(const int *list, int seen, int from, int place) {
    const int parts = (seen + keys - 1) / keys;
#pragma unroll 1
    for (int part = from; part < parts; part += together) {
      int low[together], high[together];
#pragma unroll
      for (int i = 0; i < together; i++) {
        const int key = (part + i) * keys + lane;
        low[i] = list[min(key, seen - 1)];
        high[i] = list[min(key + lanes, seen - 1)];
      }
#pragma unroll
      for (int i = 0; i < together; i++) {
        const int left = seen - (part + i) * keys - lane, first = uniform(low[i]);
        const bool differs[2] = { low[i] != first + lane, high[i] != first + lanes + lane };
        /*
         * What lies behind the last key is multiplied by zero. Rows of states are finite, or a tile is repeated; other
         * memory may hold anything.
         */
        const bool is_other = config.is_kept ? (left > 0 && differs[0]) || (left > lanes && differs[1])
                                             : left <= lanes || differs[0] || differs[1];
        const bool is_box = !__any_sync(ALL_LANES, is_other);
        const int at = place + part + i - from;
        if (lane == 0 && part + i < parts && at < Layout::boxes) shared.boxes[tiles.side()][at] = is_box ? first : -1;
      }
    }
  }

  TW_DEVICE void copy_queries(const PromptQueries<config> &queries) {
    constexpr int group = Layout::group;
    const auto *const q = x.q + tiles.kv() * group * Layout::d + piece * 8;
    const auto token_at = [&](int i) {
      if constexpr (config.has_query_row) return queries.token[i];
      else return token_of_query(i);
    };
    const auto copy = [&](int row, int token, const auto *from) {
      copy16(memory + tiles.side() * Layout::query_bytes + place_of_piece(row, piece, Layout::query_slab), from,
          token < 0 ? 0 : 16);
    };
    const auto row_of = [&](int token) { return q + (token < 0 ? 0 : token * (long long)config.q_stride); };
    /* Rows that the warp copies at once, and those for which it looks for a token: of one query, or of several. */
    constexpr int at_once = lanes / pieces, step = at_once < group ? group : at_once;
    if constexpr (Layout::used_rows < Layout::own_rows) {
#pragma unroll 4
      for (int row = lane / pieces; row < Layout::rows; row += at_once) {
        const int i = Layout::query_of(row), token = i < 0 ? -1 : token_at(i);
        copy(row, token, row_of(token) + Layout::head_of(row) * Layout::d);
      }
    } else {
#pragma unroll 1
      for (int start = 0; start < Layout::rows; start += step) {
        const int own = start + lane / pieces, token = token_at((group < at_once ? own : start) / group);
        const auto *const from = row_of(token);
#pragma unroll
        for (int row = own; row < own + step; row += at_once) copy(row, token, from + row % group * Layout::d);
      }
    }
    bars.queries_full[tiles.side()].arrive_copied();
  }

  /* The first row of a part that is a box, −1 of another. */
  TW_DEVICE int row_of_box(const PromptQueries<config> &queries, const PromptPart &part) const {
    const int place = uniform(queries.place[part.run]) + part.index;
    return place < Layout::boxes ? uniform(shared.boxes[tiles.side()][place]) : -1;
  }
  /* The row of key `at` + lane of a part, −1 past the last key. */
  TW_DEVICE int row_of_key(const PromptQueries<config> &queries, const PromptPart &part, int at) const {
    const int i = part.index * keys + at + lane;
    if constexpr (config.is_bounded())
      if (tiles.query >= 0 && i <= too_far<config>(queries.position[tiles.query])) return -1;
    return i < part.keys && (tiles.query < 0 || i <= queries.position[tiles.query]) ? x.key[part.begin + i] : -1;
  }
  /*
   * Gathers the rows of a part one by one. Lanes know the rows `low` and `high` of their keys; each needs those of its
   * own pieces, which they exchange in `rows`. `stride`: bytes of a row.
   */
  TW_DEVICE void gather(int (&rows)[keys], int low, int high, const void *base, long long stride, unsigned to,
      Barrier full) const {
    rows[lane] = low;
    rows[lanes + lane] = high;
    __syncwarp();
    const unsigned char *const from = (const unsigned char *)base + (tiles.kv() * pieces + piece) * 16;
    to += place_of_piece(own_row, piece, Layout::key_slab);
#pragma unroll 1
    for (int i = 0; i < Layout::gathered; i += 8) {
      /* Read together: a copy waits for what was read of shared memory before. */
      int at[8];
#pragma unroll
      for (int j = 0; j < 8; j++) at[j] = rows[own_row + i + j];
#pragma unroll
      for (int j = 0; j < 8; j++)
        copy16((to ^ j * 16) + (i + j) * SLAB_BYTES, from + (at[j] < 0 ? 0 : at[j] * stride), at[j] < 0 ? 0 : 16);
    }
    full.arrive_copied();
    __syncwarp();  /* The rows have been read. */
  }

  /* Gathers the keys of parts that are no boxes, when the warp that leads says that there is room. */
  TW_DEVICE void help(const PromptQueries<config> &queries) {
    const int end = tiles.end();
    PromptPart part = enter<config>(queries, tiles.begin(), end);
    while (part.run < end) {
      const int slot = slot_of<config>(loaded++);
      if (row_of_box(queries, part) < 0) {
        const int low = row_of_key(queries, part, 0), high = row_of_key(queries, part, lanes);
        bars.keys_wanted[slot].wait(parities >> slot & 1);
        parities ^= 1u << slot;
        gather(shared.rows[0], low, high, x.k, config.k_stride * 2ll,
            memory + Layout::keys_at + slot * Layout::part_bytes, bars.keys_full[slot]);
      }
      part = after<config>(queries, part, end);
    }
  }

  /* The queries [run, to) share the run's parts up to `until`; the last keys that they see, of each warpgroup. */
  struct Sharing {
    int run = -1, to = 0, until = 0, highest[2] = { -1, -1 }, lowest[2] = { -1, -1 };
    /* With a window or chunks: the least and the greatest of the first keys that they see. */
    int first[2] = { 0, 0 }, latest[2] = { 0, 0 };
  };
  /* Says what warpgroups must know of the chunk that begins with a part. */
  TW_DEVICE void describe(const PromptQueries<config> &queries, Sharing &of, const PromptPart &part, bool is_last) {
    const int end = tiles.end();
    if (part.run != of.run || part.index >= of.until) {
      of.run = part.run;
      of.until = 0x7fffffff;
      for (of.to = uniform(queries.next[of.run]); of.to < end; of.to = uniform(queries.next[of.to])) {
        const int parts = uniform(queries.shared[of.to]);
        if (parts <= part.index) break;
        of.until = min(of.until, parts);
      }
#pragma unroll
      for (int own = 0; own < 2; own++) {
        of.highest[own] = -1;
        of.lowest[own] = 0x7fffffff;
        for (int i = own * (Layout::queries / 2) + lane; i < (own + 1) * (Layout::queries / 2); i += lanes) {
          const int position = i >= of.run && i < of.to ? queries.position[i] : -1;
          of.highest[own] = max(of.highest[own], position);
          of.lowest[own] = min(of.lowest[own], position);
        }
        of.highest[own] = __reduce_max_sync(ALL_LANES, of.highest[own]);
        of.lowest[own] = __reduce_min_sync(ALL_LANES, of.lowest[own]);
        if constexpr (config.is_bounded()) {
          int first = 0x7fffffff, latest = 0;
          for (int i = own * Layout::own_queries + lane; i < (own + 1) * Layout::own_queries; i += lanes) {
            if (i < of.run || i >= of.to || queries.position[i] < 0) continue;
            const int seen = first_seen<config>(queries.position[i]);
            first = min(first, seen);
            latest = max(latest, seen);
          }
          of.first[own] = __reduce_min_sync(ALL_LANES, first);
          of.latest[own] = __reduce_max_sync(ALL_LANES, latest);
        }
      }
    }
    const int from = part.index * keys;
    int flags = ((part.index + 1) * keys < part.keys ? HAS_TWO : 0) | (is_last ? IS_LAST : 0);
#pragma unroll
    for (int own = 0; own < 2; own++)
      flags |= (from <= of.highest[own] && from + CHUNK > of.first[own] ? IS_SEEN << own : 0) |
          (from + keys - 1 > of.lowest[own] || from < of.latest[own] ? IS_CUT0 << own : 0) |
          (from + CHUNK - 1 > of.lowest[own] || from + keys < of.latest[own] ? IS_CUT1 << own : 0);
    if (lane == 0) shared.chunk[loaded % (2 * Layout::slots)] = PromptChunk{ flags, from, of.run, of.to };
  }

  /* Loads keys, or values: boxes by tensor maps. It gathers values itself, and has keys gathered. */
  TW_DEVICE void lead(const PromptQueries<config> &queries, bool has_keys) {
    const int end = tiles.end(), kv = tiles.kv();
    const Barriers full = has_keys ? bars.keys_full : bars.values_full;
    const Barriers empty = has_keys ? bars.keys_empty : bars.values_empty;
    const unsigned ring = memory + (has_keys ? Layout::keys_at : Layout::values_at);
    Sharing sharing;
    PromptPart part = enter<config>(queries, tiles.begin(), end);
    while (part.run < end) {
      const PromptPart behind = after<config>(queries, part, end);
      const int slot = slot_of<config>(loaded);
      const int row = row_of_box(queries, part);
      empty[slot].wait(parity_of<config>(loaded) ^ 1);
      /* Chunks begin with even parts. */
      if (has_keys && part.index % 2 == 0) {
        const bool has_two = (part.index + 1) * keys < part.keys;
        describe(queries, sharing, part,
            has_two ? after<config>(queries, behind, end).run >= end : behind.run >= end);
      }
      __syncwarp();
      if (lane == 0 && row >= 0) {
        full[slot].arrive(lanes);
        full[slot].expect(Layout::part_bytes);
#pragma unroll
        for (int slab = 0; slab < Layout::slabs; slab++)
          load_box(ring + slot * Layout::part_bytes + slab * Layout::key_slab, has_keys ? keys_map : values_map,
              kv * Layout::d + slab * 64, row, full[slot]);
      }
      if (lane == 0 && row < 0) {
        full[slot].arrive();
        if (has_keys) bars.keys_wanted[slot].arrive();
      }
      __syncwarp();
      if (!has_keys && row < 0)
        gather(shared.rows[1], row_of_key(queries, part, 0), row_of_key(queries, part, lanes), x.v,
            config.v_stride * 2ll, ring + slot * Layout::part_bytes, full[slot]);
      part = behind;
      loaded++;
    }
  }
};

}  // namespace tw
