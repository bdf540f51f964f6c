/*
 * The first factor of adapters in the product that reads it: warps of its blocks, the shrinkers, compute
 * u = round(s·A·x) of the rows of their tile while the others multiply. The bits are those of a shrink kernel.
 *
 * Rows of one slot come in groups of eight. The sum of one part of k for eight columns of a group is a piece, and a
 * warp's work. All blocks that have the same rows share their pieces. With memory this busy, a turn to it takes
 * microseconds, so pieces belong to fixed warps, the first of them to the first blocks. Sums go through memory of the
 * unit, each beside the number of the launch, so that whoever reads a sum sees whether it is there. Of few rows each
 * block adds up those of its own columns; of many rows, whose sums are many bytes, that is work which warps share too,
 * and blocks read u. Each leaves it in shared memory.
 *
 * No block counts on another that may not have begun: a warp that has waited for long does itself what it misses.
 * Whatever two warps do, they write the same bits.
 *
 * Factors do not depend on the kernel before: those of a warp's first piece come to its registers while it ends, others
 * to L2. Its rows, and the numbers below, are touched only once all before have ended, among them another launch of the
 * same unit. Shrinkers also find which rows have which slots: nothing that multiplies waits for it before k ends.
 */
#pragma once
#include "adapter/ranges.cuh"
#include "lib/global.cuh"
#include "lib/launch.cuh"

namespace tw {

struct ShrinkersConfig {
  /* Of a block; 0: a shrink kernel computes u. */
  int warps;
  /* Columns of all parts, and those that a segment has at most; elements from row to row; rows of a slot's factors. */
  int columns, own_columns, a_stride, w_stride, w_rows;
  /* Steps of k whose operands are on the way together. */
  int batch;
  /* Column tiles: the blocks of a row tile. */
  int blocks;

  TW_CONSTEXPR bool is_there() const { return warps > 0; }
  /* Elements from row to row of u in shared memory: rows of a fragment lie in different banks. */
  TW_CONSTEXPR int pitch() const { return own_columns + 8; }
};

/* Most rows of a call, and of a tile. */
constexpr int SHRINKERS_ROWS = 64, SHRINKERS_GROUP = 8;
/* Barriers of a block: of its shrinkers alone, and of those that wait for u. */
constexpr int SHRINKERS = 2, SHRUNK_READY = 3;

/* Rows of a tile by slots: the rows of each group in the tile, −1 for none. */
struct ShrinkGroups {
  int count;
  short slot[SHRINKERS_ROWS];
  signed char row[SHRINKERS_ROWS][SHRINKERS_GROUP];
};
constexpr int SHRINK_GROUPS_BYTES = 656;
static_assert(sizeof(ShrinkGroups) <= SHRINK_GROUPS_BYTES);

/* What multiplying warps read of a tile's slots: of each 16 rows which of the distinct ones they have. */
struct ShrinkKnown {
  /* A barrier of one arrival: this and the tile's slots are known. */
  unsigned long long barrier;
  unsigned long long slots_here[SHRINKERS_ROWS / 16];
};
constexpr int SHRINK_KNOWN_BYTES = 48;
static_assert(sizeof(ShrinkKnown) <= SHRINK_KNOWN_BYTES);

/* What shrinkers add to a block's shared memory, behind one another: u, [tile_m][pitch], groups, and what is known. */
TW_CONSTEXPR int shrinkers_bytes(const ShrinkersConfig &config, int tile_m) {
  return config.is_there() ? ceil_div(tile_m * config.pitch() * 2, 16) * 16 + SHRINK_GROUPS_BYTES + SHRINK_KNOWN_BYTES
      : 0;
}

/* Rows of a tile from which on u itself goes through memory. */
constexpr int SHRINKERS_MANY = 32;
/* Looks at sums that are not there, each of them a microsecond or more, before a warp computes them itself. */
constexpr int SHRINKERS_PATIENCE = 32;

/*
 * Of the blocks of a row tile. Beside all numbers is that of the launch that has left them, counted from one on. A
 * block counts its own launches: all of them have the same.
 */
template <int tile_m, int columns, int k, int blocks> struct ShrunkTile {
  alignas(128) unsigned launches[blocks];
  /* The bits of a float. */
  alignas(16) uint2 sums[ShrinkParts<k>::count][tile_m][columns];
  /* Two neighbours of u. */
  alignas(16) uint2 shrunk[tile_m < SHRINKERS_MANY ? 1 : tile_m][columns / 2];
};

/*
 * In memory of the unit: __device__ ShrinkersState<config.tile_m, config.shrinkers.columns, config.k,
 * config.shrinkers.blocks>
 */
template <int tile_m, int columns, int k, int blocks> struct ShrinkersState {
  ShrunkTile<tile_m, columns, k, blocks> tiles[SHRINKERS_ROWS / tile_m];
};

/* The prologue of a product, and what its shrinkers read: see ShrinkBuffers of adapter/shrink.cuh. */
template <class Prologue, class T, class State> struct Shrinking : Prologue {
  const T *rows;
  const int *slots;
  const T *factors;
  const float *scale;
  State &state;
};

/* Fills the groups, by one whole warp; a barrier is to follow. */
TW_DEVICE void find_groups(const FewSlots &slots, int tile_m, ShrinkGroups &groups) {
  const int lane = threadIdx.x % 32;
  int count = 0;
  for (int first = 0; first < tile_m; first += 32) {
    const int own = slots.of[first + lane];
    const unsigned same = __match_any_sync(ALL_LANES, own);
    const unsigned before = (1u << lane) - 1;
    const bool is_first = own >= 0 && __popc(same & before) % SHRINKERS_GROUP == 0;
    const unsigned firsts = __ballot_sync(ALL_LANES, is_first);
    if (is_first) {
      const int group = count + __popc(firsts & before);
      groups.slot[group] = (short)own;
      unsigned left = same & ~before;
#pragma unroll
      for (int i = 0; i < SHRINKERS_GROUP; i++) {
        groups.row[group][i] = (signed char)(left == 0 ? -1 : first + __ffs((int)left) - 1);
        left &= left - 1;
      }
    }
    count += __popc(firsts);
  }
  if (lane == 0) groups.count = count;
}

/* A piece: its group of rows, the first of its eight columns, and its part of k. */
struct ShrinkPiece {
  int group, column, part;
};

template <int k, ShrinkersConfig config> struct ShrinkPieces {
  static constexpr int parts = ShrinkParts<k>::count, of_group = config.columns / 8 * parts;

  static TW_DEVICE ShrinkPiece at(int piece) {
    return { piece / of_group, piece % of_group / parts * 8, piece % parts };
  }
  static TW_DEVICE int number(const ShrinkPiece &piece) {
    return piece.group * of_group + piece.column / 8 * parts + piece.part;
  }
};

/*
 * Works of the `blocks` blocks that share a tile: its pieces, and behind them, of many rows, what adds them up. Each
 * warp has its first one and every `step` behind it.
 */
template <ShrinkersConfig config, int blocks> struct ShrinkWorks {
  static constexpr int step = blocks * config.warps;
  /* Of shrinker `warp` of a block, by its number among them. */
  static TW_DEVICE int first(int warp, int block) { return warp * blocks + block; }
};

/* Row `column` of a slot's factors. */
template <ShrinkersConfig config, class T> TW_DEVICE const T *shrink_factor(const T *factors, int slot, int column) {
  return factors + ((long long)slot * config.w_rows + column) * config.w_stride;
}

/* Pieces of each warp that come to L2 before the kernel before has ended. */
constexpr int SHRINK_PREFETCHED = 4;

/* Asks for the factors of a piece, which are those of `slot`. */
template <int k, ShrinkersConfig config, class T>
TW_DEVICE void shrink_prefetch(const T *factors, int slot, const ShrinkPiece &piece) {
  using Parts = ShrinkParts<k>;
  constexpr int line = 128 / (int)sizeof(T);
  const int first = Parts::first(piece.part), end = Parts::end(piece.part);
#pragma unroll 1
  for (int e = (int)threadIdx.x % 32; e < 8 * ceil_div(Parts::k, line); e += 32) {
    const int at = first + e / 8 * line;
    if (at < end) prefetch(shrink_factor<config>(factors, slot, piece.column + e % 8) + at);
  }
}
/* The same of some pieces, every `step` behind number `before`. */
template <int k, ShrinkersConfig config, class T>
TW_DEVICE void shrink_prefetch_behind(const T *factors, const ShrinkGroups &groups, int before, int step) {
  using Pieces = ShrinkPieces<k, config>;
  const int pieces = groups.count * Pieces::of_group;
#pragma unroll 1
  for (int i = 0, number = before; i < SHRINK_PREFETCHED && number < pieces - step; i++) {
    number += step;
    const ShrinkPiece piece = Pieces::at(number);
    shrink_prefetch<k, config>(factors, groups.slot[piece.group], piece);
  }
}

/* The numbers that a warp waits for behind its rows come to L2 before. */
template <ShrinkersConfig config, int rank, class Tile>
TW_DEVICE void shrink_prefetch_numbers(const float *scale, const ShrinkGroups &groups, const Tile &tile, int block) {
  const int lane = (int)threadIdx.x % 32;
  if (lane == 0) prefetch(&tile.launches[block]);
#pragma unroll 1
  for (int i = lane; i < groups.count; i += 32) prefetch(scale + groups.slot[i] * (config.columns / rank));
}

/* Operands of a piece that one lane has of a batch of steps. */
template <ShrinkersConfig config> struct ShrinkBatch { uint4 of[config.batch]; };
/* A batch of a row from `at` on, in a part that ends at `end`. */
template <int k, ShrinkersConfig config, class T>
TW_DEVICE void shrink_load_batch(const T *row, int at, int end, bool is_there, ShrinkBatch<config> &to) {
  using Parts = ShrinkParts<k>;
  constexpr bool is_part = Parts::are_equal && Parts::k <= config.batch * SHRINK_STEP;
  at += 8 * ((int)threadIdx.x % 4);
#pragma unroll
  for (int s = 0; s < config.batch; s++) {
    const int step = SHRINK_STEP * s;
    if constexpr (is_part) {
      to.of[s] = { 0u, 0u, 0u, 0u };
      if (step < Parts::k && is_there) to.of[s] = *(const uint4 *)(row + at + step);
    } else {
      to.of[s] = shrink_load<k>(row, at + step, end, is_there);
    }
  }
}
/* Factors of a batch of a piece, of its eight columns. */
template <int k, ShrinkersConfig config, class T>
TW_DEVICE void shrink_load_factors(const T *factors, int slot, const ShrinkPiece &piece, int at,
    ShrinkBatch<config> &y) {
  const T *const row = shrink_factor<config>(factors, slot, piece.column + (int)threadIdx.x % 32 / 4);
  shrink_load_batch<k, config>(row, at, ShrinkParts<k>::end(piece.part), true, y);
}

/* Shrinkers of a tile from row `row0` on, in launch number `launch`. All that they do is by whole warps. */
template <int k, ShrinkersConfig config, int tile_m, int rank, class T, class State> struct Shrinkers {
  using Parts = ShrinkParts<k>;
  using Pieces = ShrinkPieces<k, config>;
  using Tile = ShrunkTile<tile_m, config.columns, k, config.blocks>;

  const State &buffers;
  const ShrinkGroups &groups;
  const FewSlots &slots;
  Tile &tile;
  int row0;
  unsigned launch;
  /* Looks at what is not there, before this warp does it itself; and one from then on. */
  int patience;

  /* Two neighbours of u are added up by some lanes, of which each has some ranges: those of a warp are a work. */
  static constexpr bool are_many = tile_m >= SHRINKERS_MANY;
  static constexpr int lanes_of() {
    int lanes = 1;
    while (lanes < SHRINK_RANGES && SHRINK_RANGES / lanes * Parts::of_range > SHRINK_RANGES) lanes *= 2;
    return lanes;
  }
  static constexpr int lanes = lanes_of(), of_lane = SHRINK_RANGES / lanes, of_warp = 32 / lanes;
  static constexpr int all_pairs = config.columns / 2, totals = are_many ? tile_m * all_pairs / of_warp : 0;
  static_assert(!are_many || (tile_m * all_pairs % of_warp == 0 && of_warp % 2 == 0));
  static constexpr int none = -1;

  TW_DEVICE int pieces() const { return groups.count * Pieces::of_group; }

  /* A batch of the rows of a piece. */
  TW_DEVICE void load_rows(const ShrinkPiece &piece, int at, ShrinkBatch<config> &x) const {
    const int local = groups.row[piece.group][threadIdx.x % 32 / 4];
    const T *const row = buffers.rows + (long long)(row0 + local) * config.a_stride;
    shrink_load_batch<k, config>(row, at, Parts::end(piece.part), local >= 0, x);
  }

  /* `y`: factors of its first batch, where they are there. */
  TW_DEVICE void compute(int number, bool has_factors, ShrinkBatch<config> &y) const {
    constexpr int batch = config.batch;
    const int lane = (int)threadIdx.x % 32, quad = lane % 4;
    /* No bit is set, which no compiler knows. */
    const unsigned no_bits = (unsigned)blocks_again() >> 30;
    const ShrinkPiece piece = Pieces::at(number);
    const int local = groups.row[piece.group][lane / 4];
    const int first = Parts::first(piece.part), end = Parts::end(piece.part);
    float acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll 1
    for (int at = first; at < end; at += batch * SHRINK_STEP) {
      if (!has_factors) shrink_load_factors<k>(buffers.factors, groups.slot[piece.group], piece, at, y);
      ShrinkBatch<config> x;
      load_rows(piece, at, x);
      has_factors = false;
      shrink_add_batch<T>(x.of, y.of, no_bits, acc);
    }
    if (local >= 0)
      publish((uint4 *)&tile.sums[piece.part][local][piece.column + 2 * quad],
          { __float_as_uint(acc[0]), launch, __float_as_uint(acc[1]), launch });
  }

  /*
   * Adds up two numbers, if `is_asked`, of row `local` from column `column` on: of each first of `lanes` lanes, which
   * ask for the same numbers. Returns `none`, or a piece that is missing.
   */
  TW_DEVICE int add_up(int local, int column, bool is_asked, float2 &sum) {
    constexpr int count = of_lane * Parts::of_range;
    const int lane = (int)threadIdx.x % 32, first = lane % lanes * count;
    /* On its way with the sums. */
    const float by = is_asked ? buffers.scale[slots.of[local] * (config.columns / rank) + column / rank] : 0.0f;
    uint4 part[count];
#pragma unroll
    for (int r = 0; r < count; r++) part[r] = { 0u, 0u, 0u, 0u };
    for (int looks = 1;; looks++) {
      /* All that are not there yet, together. */
#pragma unroll
      for (int r = 0; r < count; r++)
        if (is_asked && (part[r].y != launch || part[r].w != launch))
          part[r] = look((const uint4 *)&tile.sums[first + r][local][column]);
      int missing = none;
#pragma unroll
      for (int r = 0; r < count; r++)
        if (is_asked && (part[r].y != launch || part[r].w != launch)) missing = first + r;
      const unsigned waiting = __ballot_sync(ALL_LANES, missing != none);
      if (waiting == 0) break;
      if (looks >= patience) {
        patience = 1;
        const int from = __ffs((int)waiting) - 1;
        return piece_of(__shfl_sync(ALL_LANES, local, from), __shfl_sync(ALL_LANES, column, from) / 8 * 8,
            __shfl_sync(ALL_LANES, missing, from));
      }
      rest_shortly();
    }
    float2 own[of_lane];
#pragma unroll
    for (int r = 0; r < of_lane; r++) {
#pragma unroll
      for (int p = 0; p < Parts::of_range; p++) {
        const uint4 &from = part[r * Parts::of_range + p];
        const float2 more = { __uint_as_float(from.x), __uint_as_float(from.z) };
        own[r] = p == 0 ? more : shrink_sum(own[r], more);
      }
    }
    sum = own[0];
#pragma unroll
    for (int r = 1; r < SHRINK_RANGES; r++) {
      float2 more = own[r % of_lane];
      if constexpr (lanes > 1) {
        const int from = lane / lanes * lanes + r / of_lane;
        more = { __shfl_sync(ALL_LANES, more.x, from), __shfl_sync(ALL_LANES, more.y, from) };
      }
      sum = shrink_sum(sum, more);
    }
    sum = { mul(sum.x, by), mul(sum.y, by) };
    return none;
  }

  /* The piece that has a row. */
  TW_DEVICE int piece_of(int local, int column, int part) const {
    int group = 0;
#pragma unroll 1
    for (int first = 0; first < groups.count; first += 32) {
      const int own = first + (int)threadIdx.x % 32;
      bool has_row = false;
#pragma unroll 1
      for (int i = 0; own < groups.count && i < SHRINKERS_GROUP; i++) has_row = has_row || groups.row[own][i] == local;
      const unsigned found = __ballot_sync(ALL_LANES, has_row);
      if (found != 0) group = first + __ffs((int)found) - 1;
    }
    return Pieces::number({ group, column, part });
  }

  /* Adds up a warp of numbers for all blocks. Returns `none`, or a piece that is missing. */
  TW_DEVICE int total(int number) {
    const int lane = (int)threadIdx.x % 32, pair = number * of_warp + lane / lanes;
    const int local = pair / all_pairs, column = pair % all_pairs * 2;
    const bool is_asked = slots.of[local] >= 0;
    float2 sum;
    const int missing = add_up(local, column, is_asked, sum);
    if (missing == none && is_asked && lane % lanes == 0) {
      alignas(4) T both[2];
      store2(both, sum.x, sum.y);
      publish(&tile.shrunk[local][column / 2], { *(const unsigned *)both, launch });
    }
    return missing;
  }

  /*
   * u of `count` columns from `column` on, to shared memory, by all shrinkers of the block, of which this warp is
   * number `warp`. Returns `none`, or a work that is missing.
   */
  TW_DEVICE int gather(int column, int count, int warp, T *shrunk) {
    const int lane = (int)threadIdx.x % 32;
    if constexpr (are_many) {
      constexpr int batch = 4;
      const int of_row = count / 4, all = tile_m * of_row;
      for (int first = 32 * warp; first < all; first += batch * 32 * config.warps) {
        uint4 part[batch];
#pragma unroll
        for (int i = 0; i < batch; i++) part[i] = { 0u, 0u, 0u, 0u };
        for (int looks = 1;; looks++) {
          int missing = none;
#pragma unroll
          for (int i = 0; i < batch; i++) {
            const int e = first + i * 32 * config.warps + lane, local = e / of_row, own = column + e % of_row * 4;
            if (e < all && slots.of[local] >= 0 && (part[i].y != launch || part[i].w != launch))
              part[i] = look((const uint4 *)&tile.shrunk[local][own / 2]);
          }
#pragma unroll
          for (int i = 0; i < batch; i++) {
            const int e = first + i * 32 * config.warps + lane, local = e / of_row, own = column + e % of_row * 4;
            if (e < all && slots.of[local] >= 0 && (part[i].y != launch || part[i].w != launch))
              missing = pieces() + (local * all_pairs + own / 2) / of_warp;
          }
          const unsigned waiting = __ballot_sync(ALL_LANES, missing != none);
          if (waiting == 0) break;
          if (looks >= patience) {
            patience = 1;
            return __shfl_sync(ALL_LANES, missing, __ffs((int)waiting) - 1);
          }
          rest_shortly();
        }
#pragma unroll
        for (int i = 0; i < batch; i++) {
          const int e = first + i * 32 * config.warps + lane;
          if (e < all) *(uint2 *)(shrunk + e / of_row * config.pitch() + e % of_row * 4) = { part[i].x, part[i].z };
        }
      }
    } else {
      const int pairs = count / 2, all = tile_m * pairs;
      for (int first = of_warp * warp; first < all; first += of_warp * config.warps) {
        const int e = first + lane / lanes, local = e < all ? e / pairs : 0, own = e % pairs * 2;
        const bool is_asked = e < all && slots.of[local] >= 0;
        float2 sum;
        const int missing = add_up(local, column + own, is_asked, sum);
        if (missing != none) return missing;
        if (is_asked && lane % lanes == 0) store2(shrunk + local * config.pitch() + own, sum.x, sum.y);
      }
    }
    return none;
  }

  /*
   * All that shrinker `warp` of block `block` of `blocks` does: the columns are those of its block. `y`: factors of its
   * first piece, if it has one.
   */
  template <int blocks>
  TW_DEVICE void run(int warp, int block, int column, int count, T *shrunk, ShrinkBatch<config> &y) {
    using Works = ShrinkWorks<config, blocks>;
    const int first_total = pieces(), works = first_total + totals;
    int own = Works::first(warp, block);
    bool has_factors = own < first_total;
#pragma unroll 1
    for (;;) {
      int work = own < works ? own : gather(column, count, warp, shrunk);
      if (work == none) break;
      bool is_done = true;
      if (work >= first_total) {
        work = total(work - first_total);
        is_done = work == none;
      }
      if (work != none) compute(work, has_factors, y);
      has_factors = false;
      if (is_done && own < works) own += Works::step;
    }
  }
};

/* All shrinkers of a block have read the number of its launch: it is counted. */
template <ShrinkersConfig config, class Tile>
TW_DEVICE void shrinkers_end(Tile &tile, int warp, int block, unsigned launch) {
  named_sync<32 * config.warps>(SHRINKERS);
  if (warp == 0 && threadIdx.x % 32 == 0) tile.launches[block] = launch;
}

}  // namespace tw
