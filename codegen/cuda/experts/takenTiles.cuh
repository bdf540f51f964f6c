/*
 * Tiles that blocks take when they have time for them. Multiprocessors get unequal parts of the memory's rate: of equal
 * numbers of tiles some would be done long before others. A block's first tile is that of its own number; the next ones
 * are those that nobody has taken.
 *
 * One thread of a block takes them, and tells the others by way of shared memory, from a multiple of 8 bytes on:
 *   barriers[turns]   the number below is there
 *   numbers[turns]    of the block's tile n, at n % turns; −1: there is none
 *
 * Nobody says that a number has been read: there are as many as tiles can be under way, and two. Who reads the number
 * of a tile does so before it leaves the tile's stages, or those of the tile before, to the thread that fills them.
 */
#pragma once
#include "lib/barrier.cuh"
#include "lib/shared.cuh"

namespace tw {

/* Tiles taken behind the first of each block: 0 before and after a launch. */
struct TakenTiles { unsigned count; };

/* Rows of experts, one behind another: where each expert's begin, and their end; and what blocks have taken of them. */
struct SharedTiles {
  const int *starts = nullptr;
  TakenTiles *taken = nullptr;
};

/* Numbers that a ring of so many stages needs, and their bytes. */
TW_CONSTEXPR int tile_turns(int stages) { return stages + 2; }
TW_CONSTEXPR int tile_turns_bytes(int stages) { return tile_turns(stages) * 12; }

/* The next of `tiles` tiles for a block whose first was one of them. Whoever takes the last number leaves 0 behind. */
TW_DEVICE int take_tile(TakenTiles &taken, int tiles) {
  const unsigned number = atomicAdd(&taken.count, 1u);
  if ((int)number == tiles - 1) taken.count = 0;
  return (int)(gridDim.x + number);
}

/* A block's tiles. `at`: where they lie in shared memory. */
template <int stages> struct TileTurns {
  static constexpr unsigned turns = tile_turns(stages);
  unsigned at;

  TW_DEVICE Barrier there(unsigned n) const { return Barriers{ at }[n % turns]; }
  TW_DEVICE unsigned number(unsigned n) const { return at + 8 * turns + 4 * (n % turns); }
  /* By one thread, before barriers are shown. */
  TW_DEVICE void init() const {
    for (unsigned i = 0; i < turns; i++) there(i).init(1);
  }
  TW_DEVICE void tell(unsigned n, int tile) const {
    poke(number(n), tile);
    there(n).arrive();
  }
  /* Tile n, or −1. */
  TW_DEVICE int operator[](unsigned n) const {
    there(n).wait(n / turns & 1);
    return peek(number(n));
  }
};

}  // namespace tw
