/*
 * Rows that a product finishes: programs over whole rows once all of their columns are stored, in the same kernel.
 * Warps count what they have stored of a block of rows, and the one that completes it publishes the block. Warps then
 * take pieces of published blocks, a row or a part of its columns each, so that all multiprocessors share the last
 * ones. No warp depends on one that has not begun: whoever publishes a block stays until its pieces are taken.
 *
 * A unit has the state in global memory, and the programs as a functor:
 *
 *   __device__ FinishState<finish_config> finish_state;
 *   struct FinishedRows { void turn(int row, int turn, int end, int lane) const; };
 *
 * `turn` computes columns turn … min(end, turn + turn_columns) of a row, eight neighbours a lane, by a whole warp.
 */
#pragma once
#include "lib/eights.cuh"
#include "lib/global.cuh"
#include "lib/warp.cuh"

namespace tw {

struct FinishConfig {
  /* Columns of a row, and those of a turn. */
  int columns, turn_columns;
  /* Pieces of a row. */
  int pieces;
  /* Rows of a block; rows of a step of the grid, and blocks of them. */
  int block_rows, grid_rows, grid_blocks;
  /* Shares of a block that warps store, in all. */
  int shares;
  /* Blocks of the largest call. */
  int max_blocks;

  TW_CONSTEXPR int block_pieces() const { return block_rows * pieces; }
  TW_CONSTEXPR bool is_legal() const {
    return columns > 0 && turn_columns % 256 == 0 && pieces > 0 && block_rows > 0 && grid_blocks > 0 && shares > 0 &&
        (pieces == 1 || pieces * turn_columns >= columns);
  }
};

/* All numbers are 0 before and after a launch. */
template <FinishConfig config> struct FinishState {
  /* Published blocks; of those in order the first with pieces left, or one before it; warps that have ended. */
  unsigned published, first, ended;
  /* Of each block what is stored; of each published block the pieces taken, and its number plus one. */
  unsigned stored[config.max_blocks], taken[config.max_blocks], block[config.max_blocks];
};

/* This warp has stored `share` shares of a block of rows. */
template <FinishConfig config> TW_DEVICE void rows_stored(FinishState<config> &state, unsigned block, unsigned share) {
  static_assert(config.is_legal());
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    fence_all();
    if (atomicAdd(&state.stored[block], share) + share == (unsigned)config.shares) {
      fence_all();
      *(volatile unsigned *)&state.block[atomicAdd(&state.published, 1u)] = block + 1;
    }
  }
}

/* Blocks of rows that the grid stores. */
template <FinishConfig config> TW_DEVICE unsigned row_blocks(int rows) {
  return (rows + config.grid_rows - 1) / config.grid_rows * config.grid_blocks;
}

constexpr int NO_PIECE_YET = -1, NO_MORE_PIECES = -2;

/* Takes a piece for this warp: row · pieces + part. `at`: the published block from which the warp takes. */
template <FinishConfig config> TW_DEVICE int take_piece(FinishState<config> &state, unsigned &at, int rows) {
  constexpr unsigned last = config.block_pieces() - 1;
  int piece = NO_PIECE_YET;
  if (threadIdx.x % 32 == 0) {
    const unsigned first = look(&state.first);
    if (at < first) at = first;
    while (piece < 0 && at < look(&state.published)) {
      const unsigned i = atomicAdd(&state.taken[at], 1u);
      if (i == last) atomicMax(&state.first, at + 1);
      unsigned block = 0;
      while (i <= last && block == 0) block = look(&state.block[at]);
      piece = (int)((block - 1) * config.block_pieces() + i);
      if (i > last || piece >= rows * config.pieces) {
        piece = NO_PIECE_YET;
        at++;
      }
    }
    if (piece < 0 && at >= row_blocks<config>(rows)) piece = NO_MORE_PIECES;
    fence_all();
  }
  return __shfl_sync(ALL_LANES, piece, 0);
}

/*
 * Takes and finishes `most` pieces at most. `patience`: how often a warp that finds none looks again before it ends.
 * Each time takes about 2 µs, of which it sleeps a quarter: what blocks that end together may be apart.
 */
template <FinishConfig config, class FinishedRows>
TW_DEVICE void finish_rows(FinishState<config> &state, unsigned &at, int rows, int most, int patience,
    const FinishedRows &finished) {
  for (int count = 0, waits = 0; count < most;) {
    const int piece = take_piece(state, at, rows), lane = threadIdx.x & 31;
    if (piece == NO_MORE_PIECES) break;
    if (piece < 0) {
      if (waits++ == patience) break;
      rest();
      continue;
    }
    count++;
    constexpr int step = config.turn_columns, columns = config.columns;
    const int row = config.pieces == 1 ? piece : piece / config.pieces;
    const int begin = config.pieces == 1 ? 0 : piece % config.pieces * step;
    const int end = config.pieces == 1 ? columns : min(begin + step, columns);
#pragma unroll 1
    for (int turn = begin; turn < end; turn += step) finished.turn(row, turn, end, lane);
  }
}

/* One of `warps` warps will take no piece any more. The last one leaves the numbers as they were. */
template <FinishConfig config> TW_DEVICE void rows_ended(FinishState<config> &state, unsigned warps, int rows) {
  int is_last = 0;
  if (threadIdx.x % 32 == 0) is_last = atomicAdd(&state.ended, 1u) + 1 == warps;
  if (__shfl_sync(ALL_LANES, is_last, 0) == 0) return;
  const unsigned blocks = row_blocks<config>(rows);
  for (unsigned i = threadIdx.x % 32; i < blocks; i += 32) state.stored[i] = state.taken[i] = state.block[i] = 0;
  if (threadIdx.x % 32 == 0) state.published = state.first = state.ended = 0;
}

}  // namespace tw
