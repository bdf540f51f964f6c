/*
 * What a Hopper contraction (gemm/hopper.cuh) does with its products. The unit's functors compute and store; here is
 * where they find products, and what the rows and columns of a tile need besides.
 *
 * A functor of a segment has
 *   row(row, is_stored, column0, quad, values, products): a thread's columns of one row of a tile. products(g, e) is
 *     the product at column 8·g + 2·quad + e of the tile, which begins at physical column column0 of the segment;
 *     `values` are the row's, products.across the columns'. All lanes of a warp call it together; a row past the end is
 *     not stored, and `row` is then one that can be read.
 *   remainder_row: the same of a remainder tile
 *   column_values(column0, self, held): loads what thread `self` of the idle warps holds of the columns of a tile
 *   Ahead, load_first, and row_ahead(ahead, …): of segments that load ahead, over the ends of rows
 *   stored_columns, Loaded, load, final_row: of final tiles, eight columns of a row for each lane
 */
#pragma once
#include "gemm/handoff.cuh"
#include "gemm/hopperAdapter.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/segments.cuh"
#include "lib/launch.cuh"

namespace tw {

/* A row of the accumulators of a consumer's thread: of instruction m's 64 rows, h selects the row 8 further. */
template <HopperConfig config> struct AccumulatorRow {
  float (&accumulators)[config.blocks()][config.wgmma_n() / 2];
  int m, h;
  const float *across;

  TW_DEVICE float &operator()(int group, int lane) const {
    constexpr int groups = config.wgmma_n() / 8, across = config.column_blocks();
    return accumulators[m * across + group / groups][4 * (group % groups) + 2 * h + lane];
  }
};

/* What a segment loads ahead; most load nothing. */
template <class Segment> constexpr bool loads_ahead = requires { typename Segment::Ahead; };
template <class Segment> struct AheadOf { struct Type {}; };
template <class Segment> requires loads_ahead<Segment>
struct AheadOf<Segment> { using Type = typename Segment::Ahead; };

/* Starts the loads that a warp's first row half needs; only kernels of one segment load ahead. */
template <HopperConfig config, class Ahead, class Segment, class... More>
TW_DEVICE void load_first(const HopperBlock<config> &block, const Place &place, int unit0, Ahead &ahead,
    const Segment &segment, const More &...) {
  if constexpr (loads_ahead<Segment>) {
    static_assert(sizeof...(More) == 0, "kernels of one segment load ahead");
    const int self = thread_again();
    segment.load_first(ahead, min(place.row0 + unit0 * 8 + (self >> 2 & 7), block.rows - 1),
        place.column_tile * config.tile_n, self & 3);
  }
}

/*
 * The epilogue of row halves unit0, unit0 + unit_step, … of the tile at `place`, whose products were handed over. Row
 * halves 2w and 2w + 1 are those of consumer warp w. A remainder tile, `is_narrow`, is of the last segment. `from`: the
 * values of the tile's rows.
 */
template <HopperConfig config, bool is_narrow, int i = 0, class Ahead, class Segment, class... More>
TW_DEVICE void handed_rows(const HopperBlock<config> &block, const Place &place, int unit0, int unit_step, int units,
    const float *from, const float *across, Ahead &ahead, const Segment &segment, const More &...more) {
  if constexpr (is_narrow && sizeof...(More) > 0) {
    handed_rows<config, is_narrow, i + 1>(block, place, unit0, unit_step, units, from, across, ahead, more...);
  } else if (sizeof...(More) == 0 || place.column_tile < config.first_tile(i + 1)) {
#pragma unroll 1
    for (int unit = unit0; unit < units; unit += unit_step) {
      const int self = thread_again(), local = unit * 8 + (self >> 2 & 7);
      HandedRow<is_narrow ? config.remainder_n : config.tile_n> products;
      products.at = block.handoff(unit >> 1, self & 31) + (unit & 1) * HALF_BYTES;
      if constexpr (is_narrow || !loads_ahead<Segment>) products.take_all();
      const int own = place.row0 + local, row = own < block.rows ? own : block.rows - 1;
      const int is_stored = own < block.rows;
      /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
      const int column0 = is_narrow ? opaque(place.remainder_column)
                                    : opaque(place.column_tile - config.first_tile(i)) * config.tile_n;
      const int quad = opaque(self & 3);
      const float *const values = from + local * config.row_values;
      products.across = across;
      products.has_next = unit + unit_step < units;
      products.next_row = min(own + 8 * unit_step, block.rows - 1);
      if constexpr (is_narrow)
        segment.remainder_row(row, is_stored, column0, quad, values, products);
      else if constexpr (loads_ahead<Segment>)
        segment.row_ahead(ahead, row, is_stored, column0, quad, values, products);
      else
        segment.row(row, is_stored, column0, quad, values, products);
    }
  } else if constexpr (sizeof...(More) > 0) {
    handed_rows<config, is_narrow, i + 1>(block, place, unit0, unit_step, units, from, across, ahead, more...);
  }
}

/*
 * The epilogue of a tile whose accumulators the calling threads have. `local0`: the first row of the thread; the values
 * of the tile's rows and columns are at `from` and `across`.
 */
template <HopperConfig config, int i = 0, class Segment, class... More>
TW_DEVICE void own_rows(float (&acc)[config.blocks()][config.wgmma_n() / 2], const Place &place, int rows, int self,
    int local0, const float *from, const float *across, const Segment &segment, const More &...more) {
  if (sizeof...(More) == 0 || place.column_tile < config.first_tile(i + 1)) {
#pragma unroll
    for (int m = 0; m < config.row_blocks(); m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int local = local0 + m * 64 + h * 8, own = place.row0 + local, row = own < rows ? own : rows - 1;
        const int is_stored = own < rows;
        /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
        const int column_tile = opaque(place.column_tile - config.first_tile(i)), quad = opaque(self & 3);
        segment.row(row, is_stored, column_tile * config.tile_n, quad, from + local * config.row_values,
            AccumulatorRow<config>{ acc, m, h, across });
      }
    }
  } else if constexpr (sizeof...(More) > 0) {
    own_rows<config, i + 1>(acc, place, rows, self, local0, from, across, more...);
  }
}

/* The number of an idle warp among those that neither load nor multiply. */
template <HopperConfig config> TW_DEVICE int idle_warp(int thread) {
  return (thread >> 5) - (config.epilogue_groups == 0 || thread < 128 ? 1 : HOPPER_CONSUMER_WARPS + 1);
}

/*
 * Values that depend on the row alone, of the tile from row0 on: by idle warps, which compute several rows at once, or
 * by threads with a row each. `is_known`: the slot holds them already.
 */
template <HopperConfig config, class Prologue>
TW_DEVICE void keep_row_values(const HopperBlock<config> &block, const Prologue &prologue, int thread, int row0,
    bool is_known, float *to) {
  constexpr int floats = config.row_values, warps = config.idle_warps();
  const int lane = thread & 31;
  if constexpr (config.are_rows_of_threads) {
    const int first = 32 * idle_warp<config>(thread) + lane;
    for (int local = is_known ? config.tile_m : first; local < config.tile_m; local += 32 * warps) {
      const int own = row0 + local;
      float fold[floats];
      prologue.row(own < block.rows ? own : block.rows - 1, fold, RowAtOnce{});
#pragma unroll
      for (int i = 0; i < floats; i++) to[local * floats + i] = fold[i];
    }
  } else {
    constexpr int at_once = rows_together<Prologue>(config.row_load_registers(), MOST_ROWS_TOGETHER);
    for (int local = is_known ? config.tile_m : idle_warp<config>(thread); local < config.tile_m;
         local += at_once * warps) {
      int own[at_once];
      float fold[at_once][floats];
#pragma unroll
      for (int j = 0; j < at_once; j++) own[j] = min(row0 + local + j * warps, block.rows - 1);
      values_of_rows(prologue, own, fold);
      if (lane == 0) {
#pragma unroll
        for (int j = 0; j < at_once; j++) {
#pragma unroll
          for (int i = 0; i < floats; i++)
            if (local + j * warps < config.tile_m) to[(local + j * warps) * floats + i] = fold[j][i];
        }
      }
    }
  }
}

/*
 * Vectors that epilogues read by column, such as the scales of a weight's rows: idle warps copy a tile's part of them
 * to shared memory, because each row of the tile would else wait for the same numbers again. What thread `self` of them
 * holds:
 */
template <HopperConfig config> constexpr int held_columns =
    (config.column_values + 32 * config.idle_warps() - 1) / (32 * config.idle_warps());
template <HopperConfig config, int i = 0, class Segment, class... More>
TW_DEVICE void load_column_values(const Place &place, int self, float (&held)[held_columns<config>],
    const Segment &segment, const More &...more) {
  if (sizeof...(More) == 0 || place.column_tile < config.first_tile(i + 1)) {
    const int column0 = config.remainder_n > 0 && place.remainder_column >= 0
        ? place.remainder_column : (place.column_tile - config.first_tile(i)) * config.tile_n;
    segment.column_values(column0, self, held);
  } else if constexpr (sizeof...(More) > 0) {
    load_column_values<config, i + 1>(place, self, held, more...);
  }
}
template <HopperConfig config>
TW_DEVICE void store_column_values(int self, const float (&held)[held_columns<config>], float *to) {
  constexpr int threads = 32 * config.idle_warps();
#pragma unroll
  for (int i = 0; i < held_columns<config>; i++)
    if (self + threads * i < config.column_values) to[self + threads * i] = held[i];
}

/*
 * The idle warps of a kernel whose consumers store their own tiles: they compute the values of rows a tile ahead of its
 * epilogue. Where groups of row tiles are as high as divides the number of clusters, a block stays on its rows, and a
 * slot holds them already.
 */
template <HopperConfig config, class Prologue, class... Segments>
TW_DEVICE void run_ahead(const HopperBlock<config> &block, int first, int thread, unsigned rank,
    const Prologue &prologue, const Segments &...segments) {
  wait_for_previous();
  int sequence = 0, before = -1, last = -1;
  for (int tile = first; tile < block.tiles(); tile += block.clusters(), sequence++) {
    const int row0 = block.place(tile, (int)rank).row0, slot = sequence & 1;
    block.values_empty()[slot].wait(((sequence >> 1) & 1) ^ 1);
    /* `before` is the slot's, of two tiles ago. */
    keep_row_values<config>(block, prologue, thread, row0, before == row0,
        block.row_values() + slot * config.row_slot_floats());
    before = last;
    last = row0;
    if constexpr (config.column_values > 0) {
      const int self = 32 * idle_warp<config>(thread) + (thread & 31);
      float held[held_columns<config>] = {};
      load_column_values<config>(block.place(tile, (int)rank), self, held, segments...);
      store_column_values<config>(self, held, block.column_values() + slot * config.column_values);
    }
    block.values_full()[slot].arrive();
    if (sequence == 0) watch_shrinkers<config>(block, thread, prologue);
  }
}

/*
 * The idle warps of a kernel with deferred epilogues, and its warpgroup for epilogues: they run the epilogue of a tile
 * while consumers multiply the next. A warp takes row halves (8 rows of a consumer warp's 16), one of as many as there
 * are warps.
 */
template <HopperConfig config, class Prologue, class Finish, class Segment, class... More>
TW_DEVICE void run_deferred(const HopperBlock<config> &block, int first, int thread, unsigned rank,
    const Prologue &prologue, const Finish &finish, const Segment &segment, const More &...more) {
  static_assert(config.tile_m == HOPPER_CONSUMERS * WGMMA_ROWS && config.tile_n <= 256,
      "a consumer warp hands over 16 rows of one instruction");
  static_assert(config.epilogue_groups == 0 || (config.epilogue_groups == 1 && config.remainder_n == 0));
  constexpr int slots = config.row_slots(), warps = config.idle_warps(),
      final_threads = 32 * (HOPPER_CONSUMER_WARPS + warps);
  const int lane = thread & 31;
  wait_for_previous();
  int sequence = 0;
  unsigned finishing = 0;
  /* Row tiles whose values are kept, and the slot that is filled next. */
  int known[slots], next = 0;
#pragma unroll
  for (int i = 0; i < slots; i++) known[i] = -1;
  for (int tile = first; tile < block.tiles(); tile += block.clusters(), sequence++) {
    const Place place = block.place(tile, (int)rank);
    const bool is_last = tile + block.clusters() >= block.tiles();
    const float *const across = block.column_values(), *from = block.row_values();
    if constexpr (config.column_values > 0) {
      const int self = 32 * idle_warp<config>(thread) + lane;
      float held[held_columns<config>] = {};
      load_column_values<config>(place, self, held, segment, more...);
      /* All have read the values that were there. */
      named_sync<32 * warps>(1);
      store_column_values<config>(self, held, block.column_values());
      named_sync<32 * warps>(1);
    }
    if constexpr (config.row_values > 0) {
      int slot = -1;
#pragma unroll
      for (int i = 0; i < slots; i++) {
        if (known[i] == place.row0) slot = i;
      }
      if (slot < 0) {
        /* All have read the values that were there. */
        named_sync<32 * warps>(1);
        slot = next;
        next = next + 1 == slots ? 0 : next + 1;
#pragma unroll
        for (int i = 0; i < slots; i++) {
          if (i == slot) known[i] = place.row0;
        }
        keep_row_values<config>(block, prologue, thread, place.row0, false,
            block.row_values() + slot * config.row_slot_floats());
        named_sync<32 * warps>(1);
      }
      if (is_last && thread == 32) *block.final_slot() = slot;
      from = block.row_values() + slot * config.row_slot_floats();
      if (is_last) named_arrive<final_threads>(2);
    }
    /* The last tile is its consumers' own. */
    if (is_last) break;
    const int unit0 = idle_warp<config>(thread), units = 2 * HOPPER_CONSUMER_WARPS;
    typename AheadOf<Segment>::Type ahead;
    load_first<config>(block, place, unit0, ahead, segment, more...);
    block.handoff_full().wait(sequence & 1);
    handed_rows<config, false>(block, place, unit0, warps, units, from, across, ahead, segment, more...);
    __syncwarp();
    if (lane == 0) block.handoff_empty().arrive();
    if constexpr (config.has_finish) {
      finish.stored(place.row0 / config.tile_m, (units - unit0 + warps - 1) / warps * 8);
      finish.take_some(finishing, block.rows);
    }
  }
  if constexpr (config.has_finish) finish.take_rest(finishing, block.rows);
}

/* The epilogue that consumers of such a kernel run themselves: each warp that of what it handed over of `tile`. */
template <HopperConfig config, bool is_narrow, class Segment, class... More>
TW_DEVICE Place run_own(const HopperBlock<config> &block, int tile, const Segment &segment, const More &...more) {
  const float *from = block.row_values();
  if constexpr (config.row_values > 0) {
    named_sync<32 * (HOPPER_CONSUMER_WARPS + config.idle_warps())>(2);
    from += *block.final_slot() * config.row_slot_floats();
  }
  const Place place = block.place(tile, config.cluster == 2 ? cluster_rank_again() : 0);
  const int unit0 = 2 * ((thread_again() >> 5) - 4);
  typename AheadOf<Segment>::Type ahead;
  if constexpr (!is_narrow) load_first<config>(block, place, unit0, ahead, segment, more...);
  handed_rows<config, is_narrow>(block, place, unit0, 1, unit0 + 2, from, block.column_values(), ahead, segment,
      more...);
  return place;
}

/*
 * A block's final tile, row by row: no further product hides its epilogue, all blocks reach it at once, and the threads
 * that hold accumulators have few loads under way and much code that runs once. So the products go to shared memory,
 * into the ring that nobody fills any more, and all consumer warps take rows of them in a small loop with many rows
 * under way. First the products, once both warpgroups are done with the ring:
 */
template <HopperConfig config> constexpr int final_pitch = config.tile_n + FINAL_PAD;
template <HopperConfig config, int accumulators>
TW_DEVICE void put_final_products(const HopperBlock<config> &block, float (&acc)[config.blocks()][accumulators]) {
  constexpr int pitch = final_pitch<config>;
  static_assert(config.column_blocks() == 1 && config.tile_m * pitch * 4 <= config.handoff_at(), "they fit the ring");
  __syncwarp();
  named_sync<256>(3);
  const int group = (thread_again() >> 7) - 1, in_group = thread_again() & 127;
  /* The warpgroup that multiplied last. */
  if (config.is_ping_pong() &&
      ((block.tiles() - 1 - (int)blockIdx.x / config.cluster) / block.clusters() & 1) != group)
    return;
  const int local0 = (config.is_ping_pong() ? 0 : group * (config.row_blocks() * WGMMA_ROWS)) + (in_group >> 5) * 16 +
      (in_group >> 2 & 7);
  const unsigned to = block.shared + (local0 * pitch + 2 * (in_group & 3)) * 4;
#pragma unroll
  for (int m = 0; m < config.row_blocks(); m++) {
#pragma unroll
    for (int i = 0; i < accumulators; i += 2)
      put2(to + ((m * 64 + i / 2 % 2 * 8) * pitch + 8 * (i / 4)) * 4, acc[m][i], acc[m][i + 1]);
  }
}
/* Then the rows, eight columns a lane. `is_narrow`: the tile is a remainder tile. */
template <HopperConfig config, class Segment>
TW_DEVICE void store_final_rows(const HopperBlock<config> &block, bool is_narrow, const Segment &segment) {
  constexpr int pitch = final_pitch<config>, at_once = FINAL_ROWS_AT_ONCE, warps = HOPPER_CONSUMER_WARPS;
  static_assert(config.tile_m % (warps * at_once) == 0, "turns of whole rows");
  const int lane = thread_again() & 31, warp = (thread_again() >> 5) - 4, rows = block.rows;
  const int own = blockIdx.x / config.cluster, clusters = block.clusters(),
      sequence = (block.tiles() - 1 - own) / clusters;
  const Place place = block.place(own + sequence * clusters, config.cluster == 2 ? cluster_rank_again() : 0);
  const int column0 = is_narrow ? place.remainder_column : place.column_tile * config.tile_n;
  const int first = column0 + 8 * lane, lanes = (is_narrow ? config.remainder_n : config.tile_n) / 8;
  const bool is_mine = lane < lanes && first < Segment::stored_columns;
#pragma unroll 1
  for (int turn = 0; turn < config.tile_m / warps / at_once; turn++) {
    const int local0 = turn * (warps * at_once) + warp;
    typename Segment::Loaded loaded;
#pragma unroll
    for (int i = 0; i < at_once; i++) {
      const int row = min(place.row0 + local0 + warps * i, rows - 1);
      if (is_mine) segment.load(loaded, i, row, first);
    }
    if (turn == 0) {
      __syncwarp();
      named_sync<256>(3);
    }
#pragma unroll
    for (int i = 0; i < at_once; i++) {
      const int local = local0 + warps * i, row = place.row0 + local;
      float products[8];
      take8(block.shared + (local * pitch + 8 * lane) * 4, products);
      segment.final_row(loaded, i, products, row, first, lane, is_mine && row < rows);
    }
  }
}

}  // namespace tw
