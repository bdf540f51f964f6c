/*
 * Adapters of a Hopper contraction (gemm/hopper.cuh): what rows of adapters add to their products, u·B of their slots,
 * behind all of k.
 *
 * For each slot that rows of a cluster's tile have, in ascending order, the producer fills stages of the ring as it
 * does for k: in place of A what was shrunk of the tile's rows, in place of B the slot's second factor. Both are
 * SLAB_BYTES wide, and hold up to 64 of a rank; of a rank that two matrices in turns share, both parts lie side by side
 * where they fit, and come one after the other where not. Consumers set rows of other slots to zero and multiply by
 * mma.sync: a warp's 16 rows of a warpgroup's accumulators are its fragments. Warps without a row of the slot only
 * release the stage.
 *
 * Beside the ring stands a word for each stage: the slot that follows it, or NO_SLOT. It is written before the stage is
 * full, and holds for the last stage of k and for those of slots. Where warpgroups take tiles in turn, another word has
 * the stage at which the next tile begins.
 */
#pragma once
#include "gemm/adapter.cuh"
#include "gemm/hopperTiles.cuh"
#include "lib/copy.cuh"
#include "lib/launch.cuh"
#include "lib/mma.cuh"
#include "lib/warp.cuh"

namespace tw {

/* The second factors of a column tile: their tensor map or null, a slot's rows of it, the first of them, and its part.
 */
struct Second {
  const TensorMap *map;
  int rows, row0, part;
  /* Stages of a slot. */
  int steps;
};
template <HopperConfig config, int i = 0, class Maps>
TW_DEVICE void find_second(const Maps &maps, const Place &place, Second &second) {
  if (i + 1 == config.segments || place.column_tile < config.first_tile(i + 1)) {
    const bool is_narrow = config.remainder_n > 0 && place.remainder_column >= 0;
    second = { is_narrow ? maps.second_remainder : maps.seconds[i], config.columns[i],
        is_narrow ? place.remainder_column : (place.column_tile - config.first_tile(i)) * config.tile_n,
        config.parts[i], config.slot_stages(config.matrices[i]) };
  } else if constexpr (i + 1 < config.segments) {
    find_second<config, i + 1>(maps, place, second);
  }
}

/* Copies of a stage of a slot: of the tile's rows, and of the factor, of which `own` rows are this block's share. */
template <HopperConfig config, class Maps>
TW_DEVICE void load_second(const HopperBlock<config> &block, unsigned stage, const Maps &maps, const Second &second,
    int slot, int step, int row0, unsigned rank, int own) {
  constexpr int boxes = (config.tile_n / config.cluster + 255) / 256, box_rows = config.tile_n / config.cluster / boxes;
  const Barrier full = block.full_barriers()[stage];
  const int pass = step / config.rank_blocks(), column = step % config.rank_blocks() * SLAB_ELEMENTS;
  load_box(block.a(stage), maps.shrunk, (second.part + pass) * config.rank + column, row0, full);
#pragma unroll
  for (int box = 0; box < boxes; box++) {
    const unsigned to = block.b(stage) + box * box_rows * SLAB_BYTES;
    const int row = slot * second.rows + second.row0 + box * box_rows;
    if constexpr (config.cluster == 1)
      load_box(to, second.map, column, row, full);
    else
      load_box_multicast(to + rank * own * SLAB_BYTES, second.map, column, row + (int)rank * own, full, 3);
  }
}

/* Matrices whose columns take turns in a column tile. */
template <HopperConfig config> TW_DEVICE int matrices_of(int column_tile) {
  int matrices = config.matrices[0];
#pragma unroll
  for (int i = 1; i < config.segments; i++) {
    if (config.least_matrices() < config.most_matrices() && column_tile >= config.first_tile(i))
      matrices = config.matrices[i];
  }
  return matrices;
}

/* Slots of a consumer's thread, of the two rows of each instruction: 16 bits each. */
template <HopperConfig config> struct OwnSlots {
  unsigned pairs[config.row_blocks()];

  /* Those of a tile. Returns the matrices whose columns take turns in it. */
  TW_DEVICE int load(const HopperBlock<config> &block, const int *slots, int tile, int consumer) {
    const int self = thread_again(), end = opaque(block.rows);
    const Place place = block.place(tile, config.cluster == 2 ? cluster_rank_again() : 0);
    const int row0 =
        place.row0 + consumer * (config.row_blocks() * WGMMA_ROWS) + (self >> 5 & 3) * 16 + (self >> 2 & 7);
#pragma unroll
    for (int m = 0; m < config.row_blocks(); m++) {
      const int upper = row0 + m * WGMMA_ROWS, lower = upper + 8;
      pairs[m] = (unsigned)((upper < end ? slots[upper] : NO_SLOT) & 0xffff) |
          (unsigned)(lower < end ? slots[lower] : NO_SLOT) << 16;
    }
    return matrices_of<config>(place.column_tile);
  }
  TW_DEVICE bool has_upper(int m, int slot) const { return (pairs[m] & 0xffffu) == (unsigned)slot; }
  TW_DEVICE bool has_lower(int m, int slot) const { return pairs[m] >> 16 == (unsigned)slot; }
  TW_DEVICE bool has(int slot) const {
    bool is_mine = false;
#pragma unroll
    for (int m = 0; m < config.row_blocks(); m++) is_mine |= has_upper(m, slot) || has_lower(m, slot);
    return is_mine;
  }
};

/* A chunk of 16 bytes of a row under the 128-byte swizzle. */
TW_DEVICE unsigned swizzled_chunk(unsigned slab, int row, int chunk) {
  return slab + row * SLAB_BYTES + (chunk ^ (row & 7)) * 16;
}

/*
 * Adds a stage's products: `a`, the warp's first row of what was shrunk; `b`, the factor. `count`: steps of 16 of the
 * rank; `second`: the chunk where the second matrix's part begins, 0 if each has a stage of its own, `pass`.
 */
template <HopperConfig config, class T, int matrices, int accumulators>
TW_DEVICE void multiply_second(unsigned a, unsigned b, int count, int second, int pass, int slot,
    const OwnSlots<config> &own, float (&acc)[config.blocks()][accumulators]) {
  constexpr int down = config.row_blocks(), across = config.column_blocks(), groups = accumulators / 4;
  const int lane = thread_again() & 31;
#pragma unroll 1
  for (int k = 0; k < count; k++) {
    unsigned x[matrices][down][4];
#pragma unroll
    for (int i = 0; i < matrices; i++) {
#pragma unroll
      for (int m = 0; m < down; m++) {
        ldmatrix_x4(x[i][m], swizzled_chunk(a + m * (WGMMA_ROWS * SLAB_BYTES), lane & 15,
            2 * k + lane / 16 + (i > 0 ? second : 0)));
        const bool is_taken = matrices == 1 || second > 0 || i == pass;
        const bool upper = is_taken && own.has_upper(m, slot), lower = is_taken && own.has_lower(m, slot);
        if (!upper) x[i][m][0] = x[i][m][2] = 0u;
        if (!lower) x[i][m][1] = x[i][m][3] = 0u;
      }
    }
#pragma unroll
    for (int j = 0; j < across * groups; j += 2) {
      unsigned y[4];
      ldmatrix_x4(y, swizzled_chunk(b, 8 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < down; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float (&to)[accumulators] = acc[m * across + j / groups];
          const int at = 4 * (j % groups + i);
          float d[4] = { to[at], to[at + 1], to[at + 2], to[at + 3] };
          mma<T>(d, x[i % matrices][m], y[2 * i], y[2 * i + 1]);
          to[at] = d[0], to[at + 1] = d[1], to[at + 2] = d[2], to[at + 3] = d[3];
        }
      }
    }
  }
}

/* Gives the turn to the other warpgroup, whose tile begins at stage `at` of all. */
template <HopperConfig config> TW_DEVICE void pass_turn(const HopperBlock<config> &block, unsigned at) {
  if ((thread_again() & 127) == 0) poke(block.next_stage(), (int)at);
  named_arrive<256>(3 - (thread_again() >> 7));
}

/*
 * Adds to settled products what the tile's rows get, from stage number `at` of all on. `slot`: the first that rows of
 * the tile have. `release` is called for each stage, `end` once all stages of the tile are full.
 */
template <HopperConfig config, class T, int accumulators, class Release, class End>
TW_DEVICE void add_adapters(const HopperBlock<config> &block, unsigned &at, int slot, int consumer, int matrices,
    const OwnSlots<config> &own, float (&acc)[config.blocks()][accumulators], const Release &release, const End &end) {
  const int warp = thread_again() >> 5 & 3, steps = config.slot_stages(matrices);
  const unsigned row0 = (consumer * config.row_blocks() * WGMMA_ROWS + warp * 16) * SLAB_BYTES;
  unsigned stage = at % config.stages, phase = at / config.stages & 1;
  int step = 0;
#pragma unroll 1
  while (slot >= 0) {
    block.full_barriers()[stage].wait(phase);
    const int next = peek(block.following(stage));
    at++;
    if (next < 0) end();
    if (__any_sync(ALL_LANES, own.has(slot))) {
      const int left = config.rank - step % config.rank_blocks() * SLAB_ELEMENTS,
          count = (left < SLAB_ELEMENTS ? left : SLAB_ELEMENTS) / 16, pass = step / config.rank_blocks();
      const unsigned a = block.a(stage) + row0, b = block.b(stage);
      if constexpr (config.most_matrices() == 2)
        if (matrices == 2)
          multiply_second<config, T, 2>(a, b, count, config.are_side_by_side() ? config.rank / 8 : 0, pass, slot, own,
              acc);
      if constexpr (config.least_matrices() == 1)
        if (matrices == 1) multiply_second<config, T, 1>(a, b, count, 0, 0, slot, own, acc);
    }
    __syncwarp();
    release(stage);
    if (++stage == config.stages) { stage = 0; phase ^= 1; }
    if (++step == steps) step = 0;
    slot = next;
  }
}

}  // namespace tw
