/*
 * Attention of prompts by warpgroup products (attention/hopper.cuh): the memory of a block, the tiles that it takes,
 * and what its warps tell each other about their queries and keys.
 */
#pragma once
#include "attention/path.cuh"
#include "lib/wgmma.cuh"

namespace tw {

/*
 * Sizes of a tile, and the map of dynamic shared memory, from a multiple of 1,024 bytes on: queries of two tiles, in
 * turn, then a ring of keys and a ring of values, of `slots` parts each. All of these are slabs of 64 columns: rows of
 * 128 bytes with the 128-byte swizzle. Behind them lie the barriers.
 */
template <PathConfig config> struct PromptLayout {
  static constexpr int d = config.head_dim, group = config.group(), queries = config.queries, slots = config.slots;
  /* Rows of a tile, and of one warpgroup; keys of a part, and parts of a chunk. */
  static constexpr int rows = 2 * WGMMA_ROWS, own_rows = WGMMA_ROWS, keys = 64, parts = CHUNK / keys;
  /* Threads that multiply. The four warps of the warpgroup before them load. */
  static constexpr int consumers = 256, threads = 128 + consumers, lanes = 32;
  /* Parts of a tile that are known to be boxes or not. Any behind them are gathered. */
  static constexpr int boxes = 512;
  /* Pieces of 16 bytes and slabs of a row. A lane gathers one piece of each of `gathered` rows of a part. */
  static constexpr int pieces = d / 8, slabs = d / 64, gathered = keys * pieces / lanes;

  static constexpr unsigned query_slab = rows * SLAB_BYTES, query_bytes = slabs * query_slab;
  static constexpr unsigned key_slab = keys * SLAB_BYTES, part_bytes = slabs * key_slab;
  static constexpr unsigned keys_at = 2 * query_bytes, values_at = keys_at + slots * part_bytes;
  static constexpr unsigned barriers_at = values_at + slots * part_bytes, bytes = barriers_at + 40 * slots + 48;

  /* Queries and rows of a warpgroup; those past its last query are idle. Rows of a lane are eight apart. */
  static constexpr int own_queries = own_rows / group, used_rows = own_queries * group;
  /* The query of the tile and the head of its group that row `row` of the tile is; −1 of an idle one. */
  static TW_DEVICE int query_of(int row) {
    if constexpr (used_rows == own_rows) return row / group;
    const int own = row % own_rows;
    return own < used_rows ? row / own_rows * own_queries + own / group : -1;
  }
  static TW_DEVICE int head_of(int row) { return (used_rows == own_rows ? row : row % own_rows) % group; }

  static_assert(!config.is_coded(), "keys and values in 16 bits");
  static_assert(d == 64 || d == 128, "heads of whole slabs, whose totals fit in registers");
  static_assert(queries == 2 * own_queries && own_queries > 0, "two warpgroups, each with all heads of its queries");
  static_assert(CHUNK == 2 * keys && keys == 2 * TILE_KEYS, "a chunk has two parts, a part two steps of the softmax");
  static_assert((slots & (slots - 1)) == 0, "places follow from numbers by masks");
  static_assert(config.loader_registers + 2 * config.product_registers <= 504, "registers of three warpgroups");
  static_assert(gathered % 8 == 0, "rows of a lane begin with one whose pieces lie in order");
  static_assert(1024 + bytes <= config.shared_bytes, "a block's memory is what its schedule says");
};

/*
 * Barriers: of the parts of both rings, and of the queries of two tiles. A part is full when all lanes that gather it
 * have arrived and the leader of its side once; boxes count their bytes. It is empty when all warps that multiply have
 * released it. keys_wanted: the helper may gather keys there. queries_known: what is known of a tile is there;
 * queries_full: its queries are; queries_empty: all warps but the one that goes ahead have read what is known.
 */
template <PathConfig config> struct PromptBarriers {
  using Layout = PromptLayout<config>;
  Barriers keys_full, values_full, keys_empty, values_empty, keys_wanted, queries_known, queries_full, queries_empty;

  TW_DEVICE explicit PromptBarriers(unsigned shared) {
    constexpr int ring = 8 * Layout::slots;
    keys_full.at = shared + Layout::barriers_at;
    values_full.at = keys_full.at + ring;
    keys_empty.at = values_full.at + ring;
    values_empty.at = keys_empty.at + ring;
    keys_wanted.at = values_empty.at + ring;
    queries_known.at = keys_wanted.at + ring;
    queries_full.at = queries_known.at + 16;
    queries_empty.at = queries_full.at + 16;
  }
  /* By one thread. */
  TW_DEVICE void init() const {
    constexpr int lanes = Layout::lanes, warps = Layout::consumers / lanes;
    for (int i = 0; i < 2 * Layout::slots; i++) {
      keys_full[i].init(lanes + 1);
      keys_empty[i].init(warps);
    }
    for (int i = 0; i < Layout::slots; i++) keys_wanted[i].init(1);
    for (int i = 0; i < 2; i++) {
      queries_known[i].init(1);
      queries_full[i].init(lanes);
      queries_empty[i].init(warps + 3);
    }
    show_barriers();
  }
};

/*
 * A tile's queries: their positions, −1 past the last query, where their paths begin, and their tokens. Of the first
 * query of each run: the run behind, its keys, the parts that it has in common with the run before, and the place among
 * the tile's parts that its first part has, or would have if it were not shared.
 */
template <PathConfig config, bool has_tokens = config.has_query_row> struct PromptQueries;
/*
 * With a window or chunks, of the first query of each run: the first part that is seen by the run or by one behind it
 * that shares parts with it, the first of a chunk; and the run before.
 */
template <PathConfig config, bool is_bounded = (config.is_bounded())> struct PromptReach {};
template <PathConfig config> struct PromptReach<config, true> { int low[config.queries], run_before[config.queries]; };
template <PathConfig config> struct PromptQueries<config, false> : PromptReach<config> {
  static constexpr int queries = config.queries;
  int begin[queries], position[queries], next[queries], keys[queries], shared[queries], place[queries];
  /* Whether no query sees a key. */
  int is_empty;
};
template <PathConfig config> struct PromptQueries<config, true> : PromptQueries<config, false> {
  /* They do not follow from the tile. */
  int token[config.queries];
};

/* A part of a run's list: the run's first query, its list, and how far the list goes. */
struct PromptPart { int run, begin, keys, index; };

/* What warpgroups must know of a chunk: flags, its first key, and the queries [run, to) that share it. */
struct PromptChunk { int flags, from, run, to; };
/* It has two parts; it is the tile's last; of each warpgroup: a row sees it, and a row does not see all of a part. */
constexpr int HAS_TWO = 1, IS_LAST = 2, IS_SEEN = 4, IS_CUT0 = 16, IS_CUT1 = 64;

/* Static shared memory of a block. */
template <PathConfig config> struct PromptShared {
  using Layout = PromptLayout<config>;
  /* Of two tiles, in turn. */
  PromptQueries<config> queries[2];
  /* The first row of each part of a tile that is a box, −1 of one that is gathered. */
  int boxes[2][Layout::boxes];
  /* Of the chunk whose first part has this number, modulo two rounds: its keys are released before it is done with. */
  PromptChunk chunk[2 * Layout::slots];
  /* Rows of a part that is gathered, of the warp that gathers keys and of the one that gathers values. */
  int rows[2][Layout::keys];
  /* The first and the last of the block's tiles with a result that is not finite. */
  int first_bad, last_bad;
};

/* A value that all lanes have, exchanged so that the compiler knows it. */
TW_DEVICE int uniform(int x) { return __shfl_sync(ALL_LANES, x, 0); }
/* Where 16 bytes of a row lie in a slab. */
TW_DEVICE unsigned place_of_piece(int row, int piece, unsigned slab) {
  return (piece >> 3) * slab + row * SLAB_BYTES + ((piece ^ row) & 7) * 16;
}

/* The first part of its own of run `run` or, where it has none, of a later run before query `end`. */
template <PathConfig config> TW_DEVICE PromptPart enter(const PromptQueries<config> &queries, int run, int end) {
  for (; run < end; run = uniform(queries.next[run])) {
    const int keys = uniform(queries.keys[run]);
    int index = uniform(queries.shared[run]);
    if (index * PromptLayout<config>::keys >= keys) continue;
    if constexpr (config.is_bounded()) index = max(index, uniform(queries.low[run]));
    if (index * PromptLayout<config>::keys < keys) return { run, uniform(queries.begin[run]), keys, index };
  }
  return { end, 0, 0, 0 };
}
template <PathConfig config>
TW_DEVICE PromptPart after(const PromptQueries<config> &queries, PromptPart part, int end) {
  if ((part.index + 1) * PromptLayout<config>::keys >= part.keys)
    return enter<config>(queries, uniform(queries.next[part.run]), end);
  part.index++;
  return part;
}

/*
 * The tiles of a block, one after another. All threads go through them alike. When all are done, those with a result
 * that is not finite are taken again, query by query.
 */
template <PathConfig config> struct PromptTiles {
  using Layout = PromptLayout<config>;
  const PromptShared<config> &shared;
  /* Queries of the call. */
  int rows;
  /* The tile that is under way, of those of this block; and how many were before it, whose places it takes in turn. */
  int number = 0, turn = 0;
  /* −1 for all queries of the tile, or the one that is computed alone. */
  int query = -1;

  TW_DEVICE PromptTiles(const PromptShared<config> &shared, int rows) : shared(shared), rows(rows) {}

  TW_DEVICE int tile() const { return (int)blockIdx.x + number * (int)gridDim.x; }
  TW_DEVICE bool has_tile() const {
    return tile() < (rows + Layout::queries - 1) / Layout::queries * config.kv_heads;
  }
  /* The head of keys, the first query, and the number of queries. */
  TW_DEVICE int kv() const { return tile() % config.kv_heads; }
  TW_DEVICE int first() const { return tile() / config.kv_heads * Layout::queries; }
  TW_DEVICE int count() const { return min(Layout::queries, rows - first()); }
  /* The place of its queries, and the parity of the phase that their barriers end. */
  TW_DEVICE int side() const { return turn & 1; }
  TW_DEVICE unsigned round() const { return turn >> 1 & 1; }
  /* Queries that are computed: [begin, end). */
  TW_DEVICE int begin() const { return query < 0 ? 0 : query; }
  TW_DEVICE int end() const { return query < 0 ? count() : query + 1; }

  /* The next tile, or the next query of those that are computed again. Whether there is one. */
  TW_DEVICE bool next() {
    turn++;
    if (query >= 0) {
      if (++query < count()) return true;
      query = 0;
      return ++number <= shared.last_bad;
    }
    number++;
    if (has_tile()) return true;
    __syncthreads();  /* All results were looked at. */
    query = 0;
    number = shared.first_bad;
    return number <= shared.last_bad;
  }
};

/* The place of a part in a ring, and the parity of its barrier's phase. */
template <PathConfig config> TW_DEVICE int slot_of(int part) { return part & (config.slots - 1); }
template <PathConfig config> TW_DEVICE unsigned parity_of(int part) { return (unsigned)part / config.slots & 1; }

}  // namespace tw
