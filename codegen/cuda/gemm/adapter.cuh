/*
 * What rows of adapters add to a product (ir/kernel.ts): behind all of k, u·Bᵀ in the same accumulators, where u is
 * what a shrink kernel has left of the row and B the second factor of the row's own slot. Ranks are taken in order, 16
 * at a time. A tile takes them once for each distinct slot among its rows; rows of other slots, and of none, get exact
 * zeros, which change no bit of a sum.
 *
 * Where a kernel has adapters, its segments are Adapted, and its Config says an AdapterConfig.
 */
#pragma once
#include "gemm/segments.cuh"
#include "lib/copy.cuh"
#include "lib/mma.cuh"

namespace tw {

/* Ranks of one instruction. */
constexpr int ADAPTER_STEP = 16;

struct AdapterConfig {
  /* Of every adapter; 0: the kernel has none. */
  int rank;
  /* Elements from row to row of what was shrunk. */
  int stride;
  /* Columns of one matrix before those of the other, where two are interleaved; 0: none are. */
  int width;

  TW_CONSTEXPR bool is_there() const { return rank > 0; }
  TW_CONSTEXPR int matrices() const { return width > 0 ? 2 : 1; }
  TW_CONSTEXPR int steps() const { return rank / ADAPTER_STEP; }
  /* The matrix that eight columns belong to, by their number from a whole pair on. */
  TW_CONSTEXPR int matrix_of(int group) const { return width > 0 ? group / (width / 8) % 2 : 0; }

  /*
   * Ranks of a piece (SecondPieces) and its room in shared memory. Ranks of 16 and 32 fill a row with several columns;
   * others lie so only where they are whole rows.
   */
  TW_CONSTEXPR int piece_k() const {
    return rank == 16 || rank == 32 ? rank : rank % 64 == 0 ? 64 : ADAPTER_STEP;
  }
  TW_CONSTEXPR int piece_bytes(int columns) const { return columns * piece_k() * 2; }
  TW_CONSTEXPR int piece_room(int columns) const { return ceil_div(piece_bytes(columns), 1024) * 1024; }
};

/*
 * A segment and what rows of adapters add to it: the slots of rows; where row 0 of its first part, from column
 * own_column on, lies in what was shrunk; the second factors, [slots][columns][rank]. Columns of its second matrix read
 * the part behind the first.
 */
template <class Segment, class T, int own_matrices, int own_column = 0> struct Adapted : Segment {
  static constexpr int matrices = own_matrices, shrunk_column = own_column;
  const int *slots;
  const T *shrunk, *second;
};

/* The same of a column tile, whatever its segment. `second`: of slot 0, from the tile's first column on. */
template <class T> struct AdapterTile {
  const int *slots;
  const T *shrunk, *second;
  /* Elements from slot to slot, and from the part of the first matrix to that of the second. */
  long long slot_elements;
  int other_part;
  /* Its columns of what was shrunk. */
  int shrunk_column, shrunk_columns;
};

/* `column0`: of the tile in its segment. Segments without adapter have no slots. */
template <AdapterConfig adapter, class T, class Segment>
TW_DEVICE AdapterTile<T> adapter_tile(const Segment &segment, int column0) {
  if constexpr (requires { segment.shrunk; })
    return { segment.slots, segment.shrunk, segment.second + (long long)column0 * adapter.rank,
      (long long)Segment::columns * adapter.rank, Segment::matrices == 2 ? adapter.rank : 0, Segment::shrunk_column,
      Segment::matrices * adapter.rank };
  else
    return { nullptr, nullptr, nullptr, 0, 0, 0, 0 };
}

constexpr int NO_SLOT = -1;

/* The least slot behind `after` of rows row0 … row0 + count, of `end` in all. By a whole warp. */
template <int count> TW_DEVICE int next_slot(const int *slots, int row0, int end, int after) {
  constexpr int none = 0x7fffffff;
  int least = none;
#pragma unroll 4
  for (int i = thread_again() & 31; i < count; i += 32) {
    const int own = row0 + i < end ? slots[row0 + i] : NO_SLOT;
    if (own > after && own < least) least = own;
  }
  least = __reduce_min_sync(ALL_LANES, least);
  return least == none ? NO_SLOT : least;
}

/* The slots of a tile's rows, −1 for none, and the distinct ones among them in order of rows: in shared memory. */
template <int rows> struct TileSlots {
  int count;
  short distinct[rows], of[rows];
};

/*
 * Fills them, by one whole warp; a barrier is to follow. Rows from `end` on and those past a tile of tile_m have none.
 * `slots` may be null: no row has one. It is an input, so it is there before the kernel before has ended.
 */
template <int rows>
TW_DEVICE void find_slots(const int *slots, int row0, int end, int tile_m, TileSlots<rows> &found) {
  static_assert(rows % 8 == 0);
  const int lane = threadIdx.x % 32;
  int count = 0;
  end = slots == nullptr ? row0 : min(end, row0 + tile_m);
  for (int first = 0; first < rows; first += 32) {
    const int local = first + lane;
    const int own = row0 + local < end ? slots[row0 + local] : -1;
    /* The first lane of its slot here, and none before. */
    const unsigned same = __match_any_sync(ALL_LANES, own);
    bool is_first = own >= 0 && __ffs((int)same) - 1 == lane;
#pragma unroll 1
    for (int i = 0; i < count; i++) is_first = is_first && found.distinct[i] != own;
    const unsigned firsts = __ballot_sync(ALL_LANES, is_first);
    if (is_first) found.distinct[count + __popc(firsts & ((1u << lane) - 1))] = (short)own;
    if (local < rows) found.of[local] = (short)own;
    count += __popc(firsts);
    __syncwarp();
  }
  if (lane == 0) found.count = count;
}

template <int rows> TW_DEVICE void find_slots(const int *slots, int row0, int end, TileSlots<rows> &found) {
  find_slots(slots, row0, end, rows, found);
}

/*
 * Fragments of 16 rows for mma: a lane's two rows, and its part of 16 ranks of them from `rank` on. A row without slot
 * is zeros: nothing of it is read.
 */
template <class T> struct ShrunkRows {
  const T *low, *high;
  bool has_low, has_high;

  TW_DEVICE void load(int rank, unsigned (&x)[4]) const {
    const int at = rank + 2 * ((int)threadIdx.x % 4);
    x[0] = has_low ? *(const unsigned *)(low + at) : 0u;
    x[1] = has_high ? *(const unsigned *)(high + at) : 0u;
    x[2] = has_low ? *(const unsigned *)(low + at + 8) : 0u;
    x[3] = has_high ? *(const unsigned *)(high + at + 8) : 0u;
  }
};

/* `row`: the lane's first row; the second is 8 below. Which of them are not zeros. */
template <AdapterConfig adapter, class T>
TW_DEVICE ShrunkRows<T> shrunk_rows(const AdapterTile<T> &tile, int row, bool has_low, bool has_high) {
  const T *const first = tile.shrunk + (long long)row * adapter.stride;
  return { first, first + 8 * adapter.stride, has_low, has_high };
}

/* Of the tiles of kernels for few rows: 64 rows, as many as an instruction of a warpgroup has. Bytes of them. */
using FewSlots = TileSlots<64>;
constexpr int TILE_SLOTS_BYTES = 272;
static_assert(sizeof(FewSlots) <= TILE_SLOTS_BYTES);

/*
 * How kernels of few rows bring second factors to shared memory: in pieces of some ranks of one slot, the first of
 * every slot, then the next of each. A piece is `tile_n` columns of piece_k ranks, one behind another, in rows of 128
 * bytes whose chunks of 16 are exchanged as a tensor map does it: eight columns lie in different banks. Pieces take the
 * place of stages of weights, as many of them as one holds.
 */
template <AdapterConfig adapter, int tile_n> struct SecondPieces {
  static constexpr int piece_k = adapter.piece_k();
  static constexpr bool is_swizzled = adapter.rank == piece_k || piece_k == 64;
  static constexpr int steps = piece_k / ADAPTER_STEP, of_slot = adapter.rank / piece_k;
  static constexpr int bytes = adapter.piece_bytes(tile_n), room = adapter.piece_room(tile_n);
  /* Of the tensor map: elements of a box's row, and the columns that one has. */
  static constexpr int row_k = is_swizzled ? 64 : piece_k, row_columns = row_k / piece_k;

  /* Where chunk `chunk` of a column's ranks lies in a piece. */
  static TW_DEVICE int chunk_at(int column, int chunk) {
    const int at = column * (piece_k * 2) + chunk * 16;
    return is_swizzled ? at ^ (at >> 3 & 0x70) : at;
  }
};

/* The slot of a piece, by its number among distinct ones, and the first of its ranks. */
struct SecondPiece {
  int number, rank;

  /* The next one, of a tile with `count` slots. */
  TW_DEVICE void next(int count, int piece_k) {
    if (++number == count) {
      number = 0;
      rank += piece_k;
    }
  }
};

/*
 * Starts the copies of pieces `first` to `end` of second factors to `to`, of the tile's columns that are there, by
 * `threads` threads, of which this one is number `thread`.
 */
template <AdapterConfig adapter, int tile_n, int threads, class T>
TW_DEVICE void copy_second(const AdapterTile<T> &tile, const FewSlots &slots, int columns, int first, int end,
    unsigned to, int thread) {
  using Pieces = SecondPieces<adapter, tile_n>;
  constexpr int chunks = Pieces::piece_k / 8;
  for (int piece = first; piece < end; piece++, to += Pieces::room) {
    const T *const from = tile.second + slots.distinct[piece % slots.count] * tile.slot_elements +
        piece / slots.count * Pieces::piece_k;
    for (int i = thread; i < tile_n * chunks; i += threads) {
      const int r = i / chunks, c = i % chunks;
      if (r < columns) copy16(to + Pieces::chunk_at(r, c), from + r * adapter.rank + c * 8, 16);
    }
  }
}

/* Which of the distinct slots any of 16 rows from `local` on has: a bit each. By a whole warp. */
TW_DEVICE unsigned long long slots_of_rows(const FewSlots &slots, int local) {
  const int lane = thread_again() & 31;
  bool has_low = false, has_high = false;
#pragma unroll 4
  for (int i = 0; i < 16; i++) {
    has_low = has_low || slots.of[local + i] == slots.distinct[lane];
    has_high = has_high || slots.of[local + i] == slots.distinct[lane + 32];
  }
  const unsigned low = __ballot_sync(ALL_LANES, has_low && lane < slots.count);
  const unsigned high = __ballot_sync(ALL_LANES, has_high && lane + 32 < slots.count);
  return (unsigned long long)high << 32 | low;
}

/*
 * Adds a step of a piece to the products of `groups` × 8 columns from column `first` of the piece on: x are the masked
 * fragments of 16 rows, of each matrix; `add(group, x, y0, y1)` is an instruction.
 */
template <AdapterConfig adapter, int tile_n, int groups, class Add>
TW_DEVICE void add_second(unsigned piece, int step, int first, const Add &add) {
  using Pieces = SecondPieces<adapter, tile_n>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < groups / 2; j++) {
    unsigned y[4];
    ldmatrix_x4(y, piece + Pieces::chunk_at(first + 16 * j + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
    add(2 * j, y[0], y[1]);
    add(2 * j + 1, y[2], y[3]);
  }
  if constexpr (groups % 2 == 1) {
    unsigned y[4];
    /* The second half of the instruction reads the same eight columns again. */
    ldmatrix_x4(y, piece + Pieces::chunk_at(first + 8 * (groups - 1) + lane % 8, 2 * step + lane / 8 % 2));
    add(groups - 1, y[0], y[1]);
  }
}

/* The same fragments with the rows of one slot only. */
TW_DEVICE void mask_rows(unsigned (&to)[4], const unsigned (&x)[4], bool low, bool high) {
  to[0] = low ? x[0] : 0u;
  to[1] = high ? x[1] : 0u;
  to[2] = low ? x[2] : 0u;
  to[3] = high ? x[3] : 0u;
}

}  // namespace tw
