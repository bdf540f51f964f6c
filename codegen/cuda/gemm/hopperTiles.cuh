/*
 * The shape of a Hopper contraction (gemm/hopper.cuh): its Config, what follows from it (instructions, registers, the
 * map of shared memory), and where the tiles of a block lie.
 */
#pragma once
#include "adapter/shrinkFirst.cuh"
#include "experts/takenTiles.cuh"
#include "gemm/handoff.cuh"
#include "lib/barrier.cuh"
#include "lib/cluster.cuh"
#include "lib/shared.cuh"
#include "lib/wgmma.cuh"

namespace tw {

/*
 * Cooperative: both consumer warpgroups multiply halves of a tile's rows, and store them.
 * PingPong: they multiply whole tiles in turn; one stores its tile while the other multiplies.
 * Deferred: as cooperative, but products are handed over through shared memory, and other warps store them.
 */
enum class HopperMode { Cooperative, PingPong, Deferred };

constexpr int HOPPER_SEGMENTS = 8, HOPPER_CONSUMERS = 2, HOPPER_CONSUMER_WARPS = 8;
/* Elements of 16 bits in a row of a slab. */
constexpr int SLAB_ELEMENTS = SLAB_BYTES / 2;
/* Rows of a final tile that a warp has under way at once, and floats of padding behind a row of its products. */
constexpr int FINAL_ROWS_AT_ONCE = 8, FINAL_PAD = 8;
/* Rows whose values an idle warp computes together, at most. */
constexpr int MOST_ROWS_TOGETHER = 8;

struct HopperConfig {
  HopperMode mode;
  /* Rows and columns of a tile, elements of k of a stage, and stages of the ring. */
  int tile_m, tile_n, tile_k, stages;
  /* Blocks one below the other that load each tile of weights together: 1 or 2. */
  int cluster;
  /* Row tiles, of a cluster's height, that are visited before the next column tile. */
  int raster;
  /* Columns of remainder tiles (see TileColumns); 0: there are none. */
  int remainder_n;
  /* Warpgroups that only run deferred epilogues: 0 or 1. */
  int epilogue_groups;
  /* Bytes of an element of A and B, and elements of their rows. */
  int element_bytes, k;
  /* The matrices that A is multiplied by, side by side, and the rows of each in memory: columns of the product. */
  int segments, columns[HOPPER_SEGMENTS];
  /* Experts that have such matrices, one below the other; 0: every row has the same. */
  int experts;
  /* Floats that epilogues read of a row, whether a thread computes them alone, and floats of a tile's columns. */
  int row_values;
  bool are_rows_of_threads;
  int column_values;
  /* A block's final tile is stored row by row. */
  bool has_final_tile;
  /* Rows are finished once all of their columns are stored. */
  bool has_finish;
  /* Dynamic shared memory of the launch. */
  int shared_bytes;
  /*
   * Rank of adapters' slots; 0: rows have none. Of each segment the part of what was shrunk that its first matrix
   * reads, and the matrices whose columns take turns (gemm/hopperAdapter.cuh).
   */
  int rank = 0, parts[HOPPER_SEGMENTS] = {}, matrices[HOPPER_SEGMENTS] = {};
  /* Of consumers that shrink rows first, if they do (adapter/shrinkFirst.cuh); elements from row to row of u. */
  ShrinkersConfig shrinkers = {};
  int shrunk_stride = 0;

  TW_CONSTEXPR bool is_ping_pong() const { return mode == HopperMode::PingPong; }
  TW_CONSTEXPR bool is_deferred() const { return mode == HopperMode::Deferred; }
  TW_CONSTEXPR int cluster_rows() const { return tile_m * cluster; }
  /* The last column tile of segment i − 1 is before this one. */
  TW_CONSTEXPR int first_tile(int i) const {
    int tiles = 0;
    for (int j = 0; j < i; j++) tiles += (columns[j] + tile_n - 1) / tile_n;
    return tiles;
  }
  TW_CONSTEXPR int column_tiles() const { return first_tile(segments); }
  /* Stages that a tile fills, and those that are filled with weights before the kernel waits for its predecessor. */
  TW_CONSTEXPR int k_blocks() const { return (k + tile_k - 1) / tile_k; }
  TW_CONSTEXPR int prefetch() const {
    /* With the last stage goes what the kernel before this one may have written. */
    const int most = has_adapters() ? k_blocks() - 1 : k_blocks();
    return stages < most ? stages : most;
  }

  /* Stages of a slot: of each 64 of the rank, and of each matrix in turns where two do not fit side by side. */
  TW_CONSTEXPR bool has_adapters() const { return rank > 0; }
  TW_CONSTEXPR int rank_blocks() const { return (rank + SLAB_ELEMENTS - 1) / SLAB_ELEMENTS; }
  TW_CONSTEXPR bool are_side_by_side() const { return 2 * rank <= SLAB_ELEMENTS; }
  TW_CONSTEXPR int slot_stages(int turns) const {
    return turns == 2 && !are_side_by_side() ? 2 * rank_blocks() : rank_blocks();
  }
  TW_CONSTEXPR int most_matrices() const {
    int most = 0;
    for (int i = 0; i < segments; i++) most = matrices[i] > most ? matrices[i] : most;
    return most;
  }
  TW_CONSTEXPR int least_matrices() const {
    int least = 2;
    for (int i = 0; i < segments; i++) least = matrices[i] < least ? matrices[i] : least;
    return least;
  }

  /*
   * Instructions of 64 rows that a consumer warpgroup issues for a step: one below the other, and side by side where a
   * tile is wider than one. In blocks of 512 threads, which start with 128 registers each, compilers refuse an
   * instruction whose accumulators do not fit beside 26 more.
   */
  TW_CONSTEXPR int row_blocks() const { return tile_m / WGMMA_ROWS / (is_ping_pong() ? 1 : HOPPER_CONSUMERS); }
  TW_CONSTEXPR int max_n() const { return epilogue_groups == 0 ? 256 : 128; }
  TW_CONSTEXPR int column_blocks() const { return (tile_n + max_n() - 1) / max_n(); }
  TW_CONSTEXPR int wgmma_n() const { return tile_n / column_blocks(); }
  TW_CONSTEXPR int blocks() const { return row_blocks() * column_blocks(); }

  /*
   * Registers of a thread after setmaxnreg: of the producer's warpgroup and those for epilogues, and of consumers. All
   * of a block's warpgroups have 504 in total, or 512 if there are four.
   */
  TW_CONSTEXPR int accumulators() const { return row_blocks() * (tile_n / 2); }
  TW_CONSTEXPR bool is_tight() const { return accumulators() > (row_values > 0 ? 192 : 160); }
  /* Where consumers need few, values of rows come sooner. */
  TW_CONSTEXPR bool is_loose() const { return row_values > 0 && accumulators() <= 112; }
  TW_CONSTEXPR int producer_registers() const {
    if (is_deferred()) return epilogue_groups == 0 ? 120 : 88;
    return is_loose() ? 120 : is_tight() ? 24 : 40;
  }
  TW_CONSTEXPR int consumer_registers() const {
    if (is_deferred()) return epilogue_groups == 0 ? 192 : 168;
    return is_loose() ? 192 : is_tight() ? 240 : 232;
  }
  /* Warps that neither load nor multiply: three of the producer's warpgroup, and those for epilogues. */
  TW_CONSTEXPR int idle_warps() const { return 3 + 4 * epilogue_groups; }
  /* Of these, for loads of rows that are on the way together. */
  TW_CONSTEXPR int row_load_registers() const {
    return producer_registers() >= 120 ? 64 : producer_registers() >= 88 ? 40 : producer_registers() >= 40 ? 16 : 0;
  }

  /*
   * Shared memory, from a multiple of 1,024 bytes on (the 128-byte swizzle goes by bits of addresses): the stages;
   * products that are handed over; barriers; either what epilogues read of rows and columns or the tables of experts;
   * and the words of adapters, or the tiles of experts. A stage has A's tile and then B's, each as slabs: all of its
   * rows with 128 bytes of k.
   */
  TW_CONSTEXPR int slabs() const { return tile_k * element_bytes / SLAB_BYTES; }
  TW_CONSTEXPR int a_bytes() const { return tile_m * tile_k * element_bytes; }
  TW_CONSTEXPR int stage_bytes() const { return a_bytes() + tile_n * tile_k * element_bytes; }
  TW_CONSTEXPR int handoff_at() const { return stages * stage_bytes(); }
  TW_CONSTEXPR int warp_handoff() const { return is_deferred() ? handoff_bytes(tile_n) : 0; }
  /* full_barriers and empty_barriers of every stage, and four more. */
  TW_CONSTEXPR int barriers_at() const { return handoff_at() + HOPPER_CONSUMER_WARPS * warp_handoff(); }
  TW_CONSTEXPR int values_at() const { return barriers_at() + 8 * (2 * stages + 4); }
  /*
   * Row tiles whose values are kept: the last two; if epilogues are deferred, as many as a block works on in turn,
   * where there is room.
   */
  TW_CONSTEXPR int row_slots() const {
    return is_deferred() && row_values == 1 ? (column_values == 0 ? 5 : 3) : 2;
  }
  TW_CONSTEXPR int row_slot_floats() const { return tile_m * row_values; }
  /* Behind them, in 16 bytes, the number of the slot with the values of a block's final tile. */
  TW_CONSTEXPR int column_values_at() const {
    return values_at() + row_slots() * row_slot_floats() * 4 + (is_deferred() && row_values > 0 ? 16 : 0);
  }
  TW_CONSTEXPR int column_slots() const { return is_deferred() ? 1 : 2; }
  TW_CONSTEXPR int adapters_at() const {
    return column_values_at() + column_slots() * column_values * 4 + (experts > 0 ? 2 * 4 * (experts + 1) : 0);
  }
  /* In their place, tiles of experts that the block has taken. */
  TW_CONSTEXPR bool takes_tiles() const { return experts > 0; }
  TW_CONSTEXPR int sums_at() const { return ceil_div(adapters_at() + 4 * (stages + 1), 16) * 16; }
  TW_CONSTEXPR int end() const {
    return shrinkers.is_there() ? sums_at() + SHRINK_SUMS_BYTES
        : adapters_at() + (takes_tiles() ? tile_turns_bytes(stages) : has_adapters() ? 4 * (stages + 1) : 0);
  }
};

/* Where a tile lies: its first row, its column tile, the expert, and the first row that is not its own. */
struct Place {
  int row0, column_tile;
  /* First column of a remainder tile in the last segment; −1: the tile is whole. */
  int remainder_column;
  int expert, end;
};

/*
 * Column tiles of tile_n, and behind them remainder tiles of remainder_n: the columns of a last wave that would leave
 * clusters idle are divided again, where that makes at most one remainder tile a cluster.
 */
struct TileColumns { int whole, narrow; };
template <HopperConfig config> TW_DEVICE TileColumns tile_columns(int row_tiles, int clusters) {
  static_assert(config.is_deferred() && config.remainder_n < config.tile_n, "narrower tiles of the deferred mode");
  static_assert(!config.has_finish, "a kernel that finishes rows counts whole tiles");
  constexpr int all = config.column_tiles(), last = config.segments - 1, first_tile = config.first_tile(last);
  if (row_tiles < 1) return { all, 0 };
  const int whole = row_tiles * all / clusters * clusters / row_tiles;
  const int narrow =
      (config.columns[last] - (whole - first_tile) * config.tile_n + config.remainder_n - 1) / config.remainder_n;
  if (whole < first_tile || whole == all || narrow * row_tiles > clusters) return { all, 0 };
  return { whole, narrow };
}

/*
 * A block at work: the rows of the call, and where its shared memory begins. What it says of tiles is computed again
 * where it is needed: kept through the main loop it would cost registers that accumulators have.
 */
template <HopperConfig config> struct HopperBlock {
  int rows;
  unsigned shared;
  unsigned char *memory;

  TW_DEVICE unsigned a(unsigned stage) const { return shared + stage * config.stage_bytes(); }
  TW_DEVICE unsigned b(unsigned stage) const { return shared + stage * config.stage_bytes() + config.a_bytes(); }
  TW_DEVICE Barriers full_barriers() const { return { shared + config.barriers_at() }; }
  TW_DEVICE Barriers empty_barriers() const { return { shared + config.barriers_at() + 8 * config.stages }; }
  /* Products are there; and have been taken. */
  TW_DEVICE Barrier handoff_full() const { return { shared + config.barriers_at() + 16 * config.stages }; }
  TW_DEVICE Barrier handoff_empty() const { return { handoff_full().at + 8 }; }
  /* Values of a tile's rows are there; and have been read. */
  TW_DEVICE Barriers values_full() const { return { shared + config.barriers_at() + 16 * config.stages }; }
  TW_DEVICE Barriers values_empty() const { return { values_full().at + 16 }; }
  /* The area of consumer warp `warp` in the handoff, from the lane's 16 bytes on. */
  TW_DEVICE unsigned handoff(int warp, int lane) const {
    return shared + config.handoff_at() + warp * config.warp_handoff() + lane * 16;
  }
  TW_DEVICE float *row_values() const { return (float *)(memory + config.values_at()); }
  TW_DEVICE int *final_slot() const { return (int *)row_values() + config.row_slots() * config.row_slot_floats(); }
  TW_DEVICE float *column_values() const { return (float *)(memory + config.column_values_at()); }
  TW_DEVICE unsigned tables() const { return shared + config.values_at(); }
  /* The tiles of experts that this block takes. */
  TW_DEVICE TileTurns<config.stages> turns() const { return { shared + config.adapters_at() }; }
  /* The slot that follows a stage, and where the next tile begins. */
  TW_DEVICE unsigned following(unsigned stage) const { return shared + config.adapters_at() + 4 * stage; }
  TW_DEVICE unsigned next_stage() const { return following(config.stages); }

  TW_DEVICE static int clusters() { return blocks_again() / config.cluster; }
  TW_DEVICE static int row_tiles(int rows) { return (rows + config.cluster_rows() - 1) / config.cluster_rows(); }

  /* Tiles of the call. */
  TW_DEVICE int tiles() const {
    if constexpr (config.experts > 0) {
      return peek(tables() + 4 * config.experts) * config.column_tiles();
    } else if constexpr (config.remainder_n > 0) {
      const int tall = row_tiles(opaque(rows));
      const TileColumns columns = tile_columns<config>(tall, clusters());
      return tall * (columns.whole + columns.narrow);
    } else {
      return row_tiles(opaque(rows)) * config.column_tiles();
    }
  }
  /* Those before the first remainder tile. */
  TW_DEVICE int whole_tiles() const {
    if constexpr (config.remainder_n == 0) {
      return tiles();
    } else {
      const int tall = row_tiles(opaque(rows));
      return tall * tile_columns<config>(tall, clusters()).whole;
    }
  }

  /* Groups of `raster` row tiles are walked column by column, so that what all blocks read at a time stays in L2. */
  TW_DEVICE Place place(int tile, int rank) const {
    if constexpr (config.experts > 0) {
      return place_of_expert(tile);
    } else {
      const int tall = row_tiles(rows);
      int across = config.column_tiles();
      if constexpr (config.remainder_n > 0) {
        const TileColumns columns = tile_columns<config>(tall, clusters());
        const int over = tile - tall * columns.whole;
        if (over >= 0)
          return { over % tall * config.cluster_rows() + rank * config.tile_m, config.column_tiles() - 1,
              (columns.whole - config.first_tile(config.segments - 1)) * config.tile_n +
                  over / tall * config.remainder_n, 0, rows };
        across = columns.whole;
      }
      const int group = tile / (config.raster * across), in_group = tile - group * (config.raster * across);
      const int left = tall - group * config.raster, height = left < config.raster ? left : config.raster,
          column_tile = in_group / height;
      return { (group * config.raster + in_group - column_tile * height) * config.cluster_rows() +
          rank * config.tile_m, column_tile, -1, 0, rows };
    }
  }

  /*
   * Row tiles begin where the rows of an expert do. The tables have, for each expert and for the end, the number of row
   * tiles before it, and then the first of its rows.
   */
  TW_DEVICE Place place_of_expert(int tile) const {
    static_assert(config.is_ping_pong() && config.cluster == 1, "a cluster shares the weights of one expert");
    static_assert(!config.has_final_tile && !config.has_adapters(), "a block knows no tile as its last");
    static_assert(config.row_values == 0, "the tables lie where values of rows would");
    const unsigned starts = tables() + 4 * (config.experts + 1);
    const int tall = peek(tables() + 4 * config.experts), group_tiles = config.raster * config.column_tiles(),
        group = tile / group_tiles, in_group = tile - group * group_tiles;
    const int left = tall - group * config.raster, height = left < config.raster ? left : config.raster,
        column_tile = in_group / height, row_tile = group * config.raster + in_group - column_tile * height;
    int expert = 0, past = config.experts;
#pragma unroll 1
    while (past - expert > 1) {
      const int middle = (expert + past) / 2;
      if (peek(tables() + 4 * middle) <= row_tile) expert = middle; else past = middle;
    }
    const unsigned own = starts + 4 * expert;
    return { peek(own) + (row_tile - peek(tables() + 4 * expert)) * config.tile_m, column_tile, -1, expert,
        peek(own + 4) };
  }
  /* One warp fills both tables. `starts`: the first row of each expert, and the end. */
  TW_DEVICE void fill_tables(const int *starts, int lane) const {
    constexpr int experts = config.experts;
    int before = 0;
    for (int e0 = 0; e0 <= experts; e0 += 32) {
      const int e = e0 + lane, begin = starts[e < experts ? e : experts], stop = starts[e < experts ? e + 1 : experts];
      const int own = (stop - begin + config.tile_m - 1) / config.tile_m;
      int sum = own;
      for (int w = 1; w < 32; w *= 2) {
        const int other = __shfl_up_sync(ALL_LANES, sum, w);
        if (lane >= w) sum += other;
      }
      if (e <= experts) {
        poke(tables() + 4 * e, before + sum - own);
        poke(tables() + 4 * (experts + 1) + 4 * e, begin);
      }
      before += __shfl_sync(ALL_LANES, sum, 31);
    }
  }
};

}  // namespace tw
