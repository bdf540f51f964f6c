/*
 * Adapters of a Hopper contraction (gemm/hopper.cuh): what rows of adapters add to their products, u·B of their slots,
 * behind all of k.
 *
 * For each slot that rows of a cluster's tile have, in ascending order, the producer fills stages of the ring as it
 * does for k: in place of A what was shrunk of the tile's rows, in place of B the slot's second factor. Both are
 * SLAB_BYTES wide, and hold up to 64 of a rank; of a rank that two matrices in turns share, both parts lie side by side
 * where they fit, and come one after the other where not.
 *
 * A tile is even if all of its rows have the same slot, as those of a long prompt do: its stages are multiplied like
 * those of k, by wgmma, if its columns are one matrix's. Of other tiles, consumers set rows of other slots to zero and
 * multiply by mma.sync: a warp's 16 rows of a warpgroup's accumulators are its fragments. Warps without a row of the
 * slot only release the stage. Both give the same bits. (Two matrices in turns would have to be moved behind each other
 * for wgmma, which takes longer than mma.sync does.)
 *
 * Beside the ring stands a word for each stage: the slot that follows it, or NO_SLOT; EVEN_TILE is added to that of an
 * even tile. It is written before the stage is full, and holds for the last stage of k and for those of slots. Where
 * warpgroups take tiles in turn, another word has the stage at which the next tile begins.
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
  /* Whether a tile may be even. */
  bool may_be_even;
};
template <HopperConfig config, int i = 0, class Maps>
TW_DEVICE void find_second(const Maps &maps, const Place &place, Second &second) {
  if (i + 1 == config.segments || place.column_tile < config.first_tile(i + 1)) {
    const bool is_narrow = config.remainder_n > 0 && place.remainder_column >= 0;
    second = { is_narrow ? maps.second_remainder : maps.seconds[i], config.columns[i],
        is_narrow ? place.remainder_column : (place.column_tile - config.first_tile(i)) * config.tile_n,
        config.parts[i], config.slot_stages(config.matrices[i]),
        config.matrices[i] == 1 };
  } else if constexpr (i + 1 < config.segments) {
    find_second<config, i + 1>(maps, place, second);
  }
}

constexpr int EVEN_TILE = 1 << 30;
TW_DEVICE bool is_even(int word) { return word >= EVEN_TILE; }

/* What the slots of a cluster's rows say of its tile, by a whole warp: loaded while k goes by. */
template <HopperConfig config> struct SlotsAhead {
  static constexpr int count = (config.cluster_rows() + 31) / 32, NONE = 0x7fffffff, PAST = -2;
  int own[count];

  TW_DEVICE void load(const int *slots, int row0, int end) {
#pragma unroll
    for (int i = 0; i < count; i++) {
      const int local = 32 * i + (thread_again() & 31);
      own[i] = local < config.cluster_rows() && row0 + local < end ? slots[row0 + local] : PAST;
    }
  }
  /* The word in front of the tile's first slot. */
  TW_DEVICE int word(bool may_be_even) const {
    int least = NONE, most = PAST;
#pragma unroll
    for (int i = 0; i < count; i++) {
      /* Not before: loads are waited for here. */
      const int loaded = opaque(own[i]), key = loaded == NO_SLOT ? NONE : loaded;
      if (key != PAST) least = min(least, key);
      most = max(most, key);
    }
    least = __reduce_min_sync(ALL_LANES, least);
    most = __reduce_max_sync(ALL_LANES, most);
    return least == NONE ? NO_SLOT : least + (may_be_even && least == most ? EVEN_TILE : 0);
  }
};

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

/* The same of a tile. */
template <HopperConfig config> TW_DEVICE int matrices_of_tile(const HopperBlock<config> &block, int tile) {
  if constexpr (config.least_matrices() == config.most_matrices())
    return config.most_matrices();
  else
    return matrices_of<config>(block.place(tile, 0).column_tile);
}

/* Slots of a consumer's thread, of the two rows of each instruction: 16 bits each. */
template <HopperConfig config> struct OwnSlots {
  unsigned pairs[config.row_blocks()];

  /* Those of a tile. */
  TW_DEVICE void load(const HopperBlock<config> &block, const int *slots, int tile, int consumer) {
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
  /* Loads of factors that are under way, as registers have room. */
  constexpr int ahead = config.blocks() * accumulators > 128 ? 1 : 3;
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
    unsigned y[ahead + 1][4];
    const auto load = [&](int j) {
      ldmatrix_x4(y[j / 2 % (ahead + 1)],
          swizzled_chunk(b, 8 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
    };
#pragma unroll
    for (int j = 0; j < 2 * ahead; j += 2)
      if (j < across * groups) load(j);
#pragma unroll
    for (int j = 0; j < across * groups; j += 2) {
      if (j + 2 * ahead < across * groups) load(j + 2 * ahead);
      const unsigned (&own_y)[4] = y[j / 2 % (ahead + 1)];
#pragma unroll
      for (int m = 0; m < down; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float (&to)[accumulators] = acc[m * across + j / groups];
          const int at = 4 * (j % groups + i);
          float d[4] = { to[at], to[at + 1], to[at + 2], to[at + 3] };
          mma<T>(d, x[i % matrices][m], own_y[2 * i], own_y[2 * i + 1]);
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

/* Stages of an even tile: products of the one before are under way, when it ends those of the last. */
template <HopperConfig config, class T, int accumulators, class Release, class End> struct EvenStages {
  static constexpr int columns = 2 * accumulators, across = config.column_blocks(), row_units = SLAB_BYTES / 16;
  const HopperBlock<config> &block;
  unsigned long long base;
  int consumer;
  /* As of add_adapters. */
  const Release &release;
  const End &end;
  unsigned &at;
  /* The stage that is still to be released. */
  unsigned last;

  /* The next `steps` stages, of `count` × 16 of depth each. */
  template <int count>
  TW_DEVICE void multiply(int steps, bool ends, float (&acc)[config.blocks()][accumulators]) {
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      const unsigned stage = at % config.stages, phase = at / config.stages & 1;
      block.full_barriers()[stage].wait(phase);
      at++;
      if (ends && step + 1 == steps) end();
      const unsigned long long a =
          base + stage * (config.stage_bytes() / 16) + consumer * (config.row_blocks() * WGMMA_ROWS * row_units);
      const unsigned long long b = base + stage * (config.stage_bytes() / 16) + config.a_bytes() / 16;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < count; k++) {
#pragma unroll
        for (int m = 0; m < config.blocks(); m++)
          wgmma<T, columns>(acc[m], a + 2 * k + m / across * (WGMMA_ROWS * row_units),
              b + 2 * k + m % across * (columns * row_units), 1);
      }
      wgmma_commit();
      wgmma_wait<1>();
      release(last);
      last = stage;
    }
  }
};

/*
 * Multiplies the stages of an even tile, from stage number `at` of all on, behind stage `last`, whose products are
 * under way. Returns the last of them, which is still to be released.
 */
template <HopperConfig config, class T, int accumulators, class Release, class End>
TW_DEVICE unsigned multiply_even(const HopperBlock<config> &block, unsigned long long base, unsigned last,
    unsigned &at, int consumer, float (&acc)[config.blocks()][accumulators], const Release &release,
    const End &end) {
  constexpr int whole = config.rank / SLAB_ELEMENTS, rest = config.rank % SLAB_ELEMENTS / 16;
  EvenStages<config, T, accumulators, Release, End> stages = { block, base, consumer, release, end, at, last };
  if constexpr (whole > 0) stages.template multiply<4>(whole, rest == 0, acc);
  if constexpr (rest > 0) stages.template multiply<rest>(1, true, acc);
  return stages.last;
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

/* What shrinks the rows of adapters before they are multiplied, if the kernel does. */
template <HopperConfig config, class Prologue>
TW_DEVICE auto shrinker_of(const HopperBlock<config> &block, const Prologue &prologue) {
  if constexpr (config.shrinkers.is_there()) {
    using Shrinker = FirstShrinker<config.k, config.rank, config.shrunk_stride, config.shrinkers,
        typename Prologue::Type>;
    return Shrinker{ prologue.first, block.rows };
  } else {
    return 0;
  }
}

/* By idle warps: the first of them watches. */
template <HopperConfig config, class Prologue>
TW_DEVICE void watch_shrinkers(const HopperBlock<config> &block, int thread, const Prologue &prologue) {
  if constexpr (config.shrinkers.is_there())
    if (thread < 64) shrinker_of<config>(block, prologue).watch();
}

}  // namespace tw
