/*
 * The first factor of adapters in the product that reads it: warps of its blocks, the shrinkers, compute
 * u = round(s·A·x) of the rows of their tile while the others multiply. The bits are those of a shrink kernel.
 *
 * Rows of one slot come in groups of eight. The sum of one range of k for eight columns of a group is a piece, and a
 * warp's work. All blocks that have the same rows share their pieces: whoever is free takes the next one, so none waits
 * for a block that has not begun. Sums go through memory of the unit, each beside the number of the launch, so that
 * whoever reads a sum sees whether it is there: with memory this busy, a turn to it takes microseconds. Each block adds
 * up those of its own columns, and leaves u in shared memory.
 *
 * Factors do not depend on the kernel before: the first of them come to L2 while it ends. Its rows, and the numbers
 * below, are touched only once all before have ended, among them another launch of the same unit.
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

/* What shrinkers add to a block's shared memory, behind one another: u, [tile_m][pitch], and the groups. */
TW_CONSTEXPR int shrinkers_bytes(const ShrinkersConfig &config, int tile_m) {
  return config.is_there() ? ceil_div(tile_m * config.pitch() * 2, 16) * 16 + SHRINK_GROUPS_BYTES : 0;
}

/* Of the blocks of a row tile. */
template <int tile_m, int columns> struct ShrunkTile {
  /* Launches; of this one the pieces that are taken, and blocks that have read all sums: 0 before and after. */
  struct alignas(128) Number { unsigned is; } launches, taken, ended;
  /* The bits of a float, and the number of the launch that has summed it, counted from one on. */
  alignas(16) uint2 sums[SHRINK_RANGES][tile_m][columns];
};

/* In memory of the unit: __device__ ShrinkersState<config.tile_m, config.shrinkers.columns> shrinkers_state; */
template <int tile_m, int columns> struct ShrinkersState {
  ShrunkTile<tile_m, columns> tiles[SHRINKERS_ROWS / tile_m];
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
    unsigned same = 0;
    for (int i = 0; i < 32; i++) same |= (unsigned)(slots.of[first + i] == own) << i;
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

/* A piece: its group of rows, the first of its eight columns, and its range. */
struct ShrinkPiece {
  int group, column, range;
};

template <ShrinkersConfig config> struct ShrinkPieces {
  static constexpr int of_group = config.columns / 8 * SHRINK_RANGES;

  static TW_DEVICE ShrinkPiece at(int piece) {
    return { piece / of_group, piece % of_group / SHRINK_RANGES * 8, piece % SHRINK_RANGES };
  }
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
  constexpr int range = shrink_range(k), line = 128 / (int)sizeof(T);
  const int end = min((piece.range + 1) * range, k);
  for (int e = (int)threadIdx.x % 32; e < 8 * ceil_div(range, line); e += 32) {
    const int at = piece.range * range + e / 8 * line;
    if (at < end) prefetch(shrink_factor<config>(factors, slot, piece.column + e % 8) + at);
  }
}
/*
 * The same of piece `number`, if it is of the first group and the slot of that is known before all others: the tile's
 * first row has one. Copies of weights that begin meanwhile are then not before it.
 */
template <int k, ShrinkersConfig config, class T>
TW_DEVICE void shrink_prefetch_first(const T *factors, int slot, int number) {
  if (slot >= 0 && number < ShrinkPieces<config>::of_group)
    shrink_prefetch<k, config>(factors, slot, ShrinkPieces<config>::at(number));
}
/* The same of some of the others, every `step` from number `first` on. */
template <int k, ShrinkersConfig config, class T>
TW_DEVICE void shrink_prefetch_others(const T *factors, const ShrinkGroups &groups, int first, int step) {
  const int pieces = groups.count * ShrinkPieces<config>::of_group;
  for (int i = 0, number = first; i < SHRINK_PREFETCHED && number < pieces; i++, number += step) {
    const ShrinkPiece piece = ShrinkPieces<config>::at(number);
    if (piece.group > 0 || groups.row[0][0] > 0) shrink_prefetch<k, config>(factors, groups.slot[piece.group], piece);
  }
}

/* This warp takes pieces of the tile from row `row0` on until none is left. `launch`: its number. */
template <int k, ShrinkersConfig config, class T, class State, class Tile>
TW_DEVICE void shrink_pieces(const State &buffers, const ShrinkGroups &groups, int row0, unsigned launch, Tile &tile) {
  constexpr int range = shrink_range(k), batch = config.batch;
  const int lane = (int)threadIdx.x % 32, quad = lane % 4;
  const int pieces = groups.count * ShrinkPieces<config>::of_group;
  /* No bit is set, which no compiler knows. */
  const unsigned none = (unsigned)blocks_again() >> 30;
  unsigned next = 0;
  if (lane == 0) next = atomicAdd(&tile.taken.is, 1u);
  for (;;) {
    const int number = (int)__shfl_sync(ALL_LANES, next, 0);
    if (number >= pieces) break;
    /* On the way meanwhile. */
    if (lane == 0) next = atomicAdd(&tile.taken.is, 1u);
    const ShrinkPiece piece = ShrinkPieces<config>::at(number);
    const int local = groups.row[piece.group][lane / 4];
    const T *const y_row = shrink_factor<config>(buffers.factors, groups.slot[piece.group], piece.column + lane / 4);
    const T *const x_row = buffers.rows + (long long)(row0 + local) * config.a_stride;
    const int first = piece.range * range, end = min(first + range, k);
    float acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (int at = first; at < end; at += batch * SHRINK_STEP) {
      uint4 x[batch], y[batch];
      unsigned all = 0;
#pragma unroll
      for (int s = 0; s < batch; s++) {
        y[s] = shrink_load<k>(y_row, at + SHRINK_STEP * s + 8 * quad, end, true);
        x[s] = shrink_load<k>(x_row, at + SHRINK_STEP * s + 8 * quad, end, local >= 0);
        all |= x[s].x | y[s].x;
      }
      /* Zero bits of all of them: they are on the way together, where compilers would take them one after another. */
      acc[0] = __uint_as_float(__float_as_uint(acc[0]) | (all & none));
#pragma unroll
      for (int s = 0; s < batch; s++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          unsigned own[4];
          shrink_fragment(own, x[s], { 0u, 0u, 0u, 0u }, half);
          shrink_add<T>(acc, own, y[s], half);
        }
      }
    }
    if (local >= 0)
      publish((uint4 *)&tile.sums[piece.range][local][piece.column + 2 * quad],
          { __float_as_uint(acc[0]), launch, __float_as_uint(acc[1]), launch });
  }
}

/*
 * Adds up what the tile's blocks have summed in this launch, of `count` columns from `column` on: u, in shared memory.
 * By all shrinkers of the block, of which this warp is number `warp`.
 */
template <ShrinkersConfig config, int tile_m, int rank, class T, class State, class Tile>
TW_DEVICE void shrink_rows(const State &buffers, const FewSlots &slots, int column, int count, int warp,
    unsigned launch, const Tile &tile, T *shrunk) {
  constexpr int threads = 32 * config.warps, parts = config.columns / rank;
  const int pairs = count / 2;
  for (int e = 32 * warp + (int)threadIdx.x % 32; e < tile_m * pairs; e += threads) {
    const int local = e / pairs, c = e % pairs * 2, slot = slots.of[local];
    if (slot < 0) continue;
    const float by = buffers.scale[slot * parts + (column + c) / rank];
    uint4 part[SHRINK_RANGES];
    /* The last one first: it is likely to be there when the others are. */
    for (;;) {
      bool is_there = true;
#pragma unroll
      for (int r = SHRINK_RANGES - 1; r >= 0; r--) {
        part[r] = look((const uint4 *)&tile.sums[r][local][column + c]);
        is_there = is_there && part[r].y == launch && part[r].w == launch;
        if (r == SHRINK_RANGES - 1 && !is_there) break;
      }
      if (is_there) break;
      rest_shortly();
    }
    float2 sum = { __uint_as_float(part[0].x), __uint_as_float(part[0].z) };
#pragma unroll
    for (int r = 1; r < SHRINK_RANGES; r++)
      sum = shrink_sum(sum, { __uint_as_float(part[r].x), __uint_as_float(part[r].z) });
    store2(shrunk + local * config.pitch() + c, mul(sum.x, by), mul(sum.y, by));
  }
}

/* All shrinkers of one of `blocks` blocks have read the sums. The last one leaves the numbers to the next launch. */
template <ShrinkersConfig config, class Tile> TW_DEVICE void shrinkers_end(Tile &tile, int warp, unsigned blocks) {
  named_sync<32 * config.warps>(SHRINKERS);
  if (warp == 0 && threadIdx.x % 32 == 0 && atomicAdd(&tile.ended.is, 1u) + 1 == blocks) {
    tile.taken.is = tile.ended.is = 0;
    tile.launches.is++;
  }
}

}  // namespace tw
