/*
 * Products of few rows on Hopper: c[rows, columns] = a[rows, k]·w[columns, k]ᵀ, up to 64 rows a tile, limited by the
 * memory that w is read from. TMA keeps many bytes in flight, and wgmma multiplies them. Every element is added up in
 * one accumulator in order of k, as in gemm/hopper.cuh.
 *
 * Warps of a block, in order:
 *   consumers   one warpgroup, or two side by side that share the columns of a wide tile: multiply
 *   producer    one lane of one warp: starts the copies
 *   helpers     compute what epilogues read of a row, if anything, and shrink it (adapter/shrinkers.cuh)
 * then all of them run the epilogue.
 *
 * Shared memory, from a multiple of 1,024 bytes on (the swizzle goes by address bits):
 *   stages[stages]                a: slabs of tile_m rows of 128 bytes, then w: slabs of tile_n rows of 128 bytes
 *   full[stages], empty[stages]   barriers
 *   values[tile_m][row_values]    floats
 *   slots                         of the tile's rows, where they have adapters
 *   shrunk, groups, known         of those rows, where helpers shrink them
 * At the end products[tile_m][pitch] take the place of the stages.
 *
 * What waits for what: consumers wait for full[s], which a stage's bytes complete; the producer waits for empty[s],
 * which each consumer warp arrives at when the products of stage s are done. Weights do not depend on the kernel before
 * this one: the first stages of them are under way while it ends; the rows, and all row values, wait for it. In a
 * cluster each block loads a part of the rows for all, so a stage is empty when all blocks have read it.
 *
 * Second factors of adapters (gemm/adapter.cuh) come behind k in the same ring: stages of pieces, a box each. Warps add
 * their products by mma, whose fragments are those of their accumulators, for the slots of their own 16 rows.
 *
 * An instruction multiplies 64 rows. Rows past tile_m are whatever lies behind the rows in shared memory, and nothing
 * is stored of them.
 */
#pragma once
#include "adapter/shrinkers.cuh"
#include "gemm/adapter.cuh"
#include "gemm/fewRows.cuh"
#include "gemm/skinnyHelpers.cuh"
#include "lib/cluster.cuh"
#include "lib/copy.cuh"
#include "lib/launch.cuh"
#include "lib/shared.cuh"
#include "lib/wgmma.cuh"

namespace tw {

struct SkinnyWgmmaConfig {
  /* Rows and columns of a tile, k of a stage, stages of the ring, blocks that share rows. */
  int tile_m, tile_n, tile_k, stages, cluster;
  /* Blocks of a cluster whose tiles are parts of groups of columns, which they end together; 0: tiles are whole. */
  int parts;
  /* k of the product, and bytes of an element of both operands. */
  int k, element_bytes;
  /* Columns of a unit of the epilogue; floats of a row that it reads; warps for what comes behind the product. */
  int unit_n, row_values, spare_warps;
  /* Of the launch: threads of a block and bytes of its shared memory. */
  int threads, shared_bytes;
  AdapterConfig adapter;
  ShrinkersConfig shrinkers;

  /* From 160 columns on two warpgroups share a tile: each has half of the accumulators. */
  TW_CONSTEXPR int groups() const { return tile_n < 160 ? 1 : 2; }
  TW_CONSTEXPR int group_n() const { return tile_n / groups(); }
  TW_CONSTEXPR int consumer_warps() const { return 4 * groups(); }
  /* A warp for 16 rows; for 64 beside a wide tile, which takes longer and leaves registers for few warps. */
  TW_CONSTEXPR int value_warps() const {
    const int rows_of_warp = tile_n < 128 ? 16 : 64;
    return row_values == 0 ? 0 : (tile_m + rows_of_warp - 1) / rows_of_warp;
  }
  TW_CONSTEXPR int own_warps() const { return value_warps() > shrinkers.warps ? value_warps() : shrinkers.warps; }
  TW_CONSTEXPR int helper_warps() const { return own_warps() + spare_warps; }
  TW_CONSTEXPR int warps() const { return consumer_warps() + 1 + helper_warps(); }

  TW_CONSTEXPR int slab_k() const { return SLAB_BYTES / element_bytes; }
  TW_CONSTEXPR int slabs() const { return tile_k / slab_k(); }
  TW_CONSTEXPR int a_bytes() const { return tile_m * tile_k * element_bytes; }
  TW_CONSTEXPR int stage_bytes() const { return a_bytes() + tile_n * tile_k * element_bytes; }
  /* How often a stage is filled. */
  TW_CONSTEXPR int k_blocks() const { return (k + tile_k - 1) / tile_k; }

  /* Columns of the products that epilogues find. */
  TW_CONSTEXPR int known_n() const { return parts > 1 ? parts * tile_n : tile_n; }
  /* Floats from one row of products to the next: neighbouring rows lie in different banks. */
  TW_CONSTEXPR int pitch() const { return known_n() + 8; }
  TW_CONSTEXPR int barriers_at() const {
    /* An instruction reads 64 rows from where a slab of tile_m rows begins: memory must not end before. */
    const int past = (tile_m * (slabs() - 1) + WGMMA_ROWS) * SLAB_BYTES - stage_bytes();
    const int ring = stages * stage_bytes() + (past > 0 ? past : 0), products = tile_m * pitch() * 4;
    return ring > products ? ring : products;
  }
  TW_CONSTEXPR int values_at() const { return barriers_at() + 2 * 8 * stages; }
  TW_CONSTEXPR int slots_at() const { return ceil_div(values_at() + tile_m * row_values * 4, 16) * 16; }
  TW_CONSTEXPR int shrunk_at() const { return slots_at() + TILE_SLOTS_BYTES; }
  TW_CONSTEXPR int known_at() const { return shrunk_at() + shrinkers_bytes(shrinkers, tile_m) - SHRINK_KNOWN_BYTES; }
  TW_CONSTEXPR int groups_at() const { return known_at() - SHRINK_GROUPS_BYTES; }
  TW_CONSTEXPR int end() const {
    return 1024 + (adapter.is_there() ? shrunk_at() + shrinkers_bytes(shrinkers, tile_m)
        : values_at() + tile_m * row_values * 4);
  }
};

/* Pieces of second factors that a stage holds. */
template <SkinnyWgmmaConfig config> TW_CONSTEXPR int skinny_wgmma_pieces() {
  if constexpr (config.adapter.is_there())
    return config.stage_bytes() / SecondPieces<config.adapter, config.tile_n>::room;
  else return 0;
}

/* What was shrunk of a lane's rows, of each matrix, where it fits registers: one step. */
template <SkinnyWgmmaConfig config> struct HeldShrunk {
  static constexpr bool is_held = config.adapter.rank == ADAPTER_STEP;
  unsigned x[config.adapter.matrices()][4];

  template <class T> TW_DEVICE void load(const AdapterTile<T> &tile, const FewSlots &slots, int row0, int local) {
    if constexpr (is_held) {
      const ShrunkRows<T> rows = shrunk_rows<config.adapter>(tile, row0 + local, slots.of[local] >= 0,
          slots.of[local + 8] >= 0);
#pragma unroll
      for (int m = 0; m < config.adapter.matrices(); m++) rows.load(m * tile.other_part, x[m]);
    }
  }
};

/*
 * Adds the products of a stage's `count` pieces, from `piece` on, to a warp's accumulators: of 16 rows from `local` on,
 * the lane's first, which have `slots_here`, and of the columns from eight number `group0` of the tile on. `row0`: of
 * the tile in what was shrunk.
 */
template <SkinnyWgmmaConfig config, class T, int accumulators>
TW_DEVICE void skinny_wgmma_add_second(const AdapterTile<T> &tile, const FewSlots &slots,
    const HeldShrunk<config> &held, unsigned long long slots_here, int row0, SecondPiece &piece, int count,
    unsigned stage, int local, int group0, float (&acc)[accumulators]) {
  using Pieces = SecondPieces<config.adapter, config.tile_n>;
  constexpr AdapterConfig adapter = config.adapter;
  const short own_low = slots.of[local], own_high = slots.of[local + 8];
#pragma unroll 1
  for (int i = 0; i < count; i++, stage += Pieces::room, piece.next(slots.count, Pieces::piece_k)) {
    if ((slots_here >> piece.number & 1) == 0) continue;
    const int slot = slots.distinct[piece.number];
    const bool low = own_low == slot, high = own_high == slot;
    const ShrunkRows<T> rows = shrunk_rows<adapter>(tile, row0 + local, low, high);
#pragma unroll
    for (int s = 0; s < Pieces::steps; s++) {
      unsigned x[adapter.matrices()][4];
#pragma unroll
      for (int m = 0; m < adapter.matrices(); m++) {
        if constexpr (HeldShrunk<config>::is_held) mask_rows(x[m], held.x[m], low, high);
        else rows.load(piece.rank + 16 * s + m * tile.other_part, x[m]);
      }
      add_second<adapter, config.tile_n, accumulators / 4>(stage, s, 8 * group0,
          [&](int group, unsigned y0, unsigned y1) {
            float d[4] = { acc[4 * group], acc[4 * group + 1], acc[4 * group + 2], acc[4 * group + 3] };
            unsigned own[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
              own[e] = adapter.matrices() == 2 && adapter.matrix_of(group0 + group) == 1 ? x[adapter.matrices() - 1][e]
                  : x[0][e];
            mma<T>(d, own, y0, y1);
#pragma unroll
            for (int e = 0; e < 4; e++) acc[4 * group + e] = d[e];
          });
    }
  }
}

/*
 * Brings the products of `count` rows of other blocks of the groups, of which this one is number `part`: each block's
 * lie where they are in its own shared memory. Nobody changes its own before all have them.
 */
template <SkinnyWgmmaConfig config> TW_DEVICE void skinny_wgmma_gather(float *products, int part, int count) {
  constexpr int pairs = config.tile_n / 2, others = (config.parts - 1) * pairs;
  cluster_arrive_aligned();
  cluster_wait_aligned();
  for (int i = threadIdx.x; i < count * others; i += config.threads) {
    const int from = (part + 1 + i % others / pairs) % config.parts;
    float *const at = products + i / others * config.pitch() + from * config.tile_n + i % pairs * 2;
    *(float2 *)at = fetch2(shared_address(at), from);
  }
  __syncthreads();
}

/*
 * The products of this block's tile, in shared memory, for all threads: the caller runs the epilogue, then
 * skinny_wgmma_end. `a` and the segments' maps are of K-major operands of Element; boxes are one slab.
 */
template <SkinnyWgmmaConfig config, class Element, class Prologue, class... Segments>
TW_DEVICE Tile skinny_wgmma_products(int rows, const TensorMap *a, const Prologue &prologue,
    const Segments &...segments) {
  constexpr int all_columns = column_tiles<config.tile_n, Segments...>;
  static_assert(sizeof(Element) == config.element_bytes && Prologue::row_values == config.row_values);
  static_assert(config.tile_m == 8 || config.tile_m == 16 || config.tile_m == 32 || config.tile_m == 64);
  static_assert(config.tile_n % config.unit_n == 0 && config.tile_n <= 256, "an instruction has up to 256 columns");
  static_assert(config.tile_k % config.slab_k() == 0 && config.slabs() <= 4, "a stage is one to four slabs");
  static_assert(config.stages >= 2 && config.stages <= 24);
  static_assert(config.tile_m % (8 * config.cluster) == 0, "a part of the rows is whole groups of eight");
  static_assert(all_columns % config.cluster == 0, "blocks of a cluster have the same rows");
  static_assert(config.threads == 32 * config.warps() && config.shared_bytes == config.end());
  constexpr int tile_m = config.tile_m, tile_n = config.tile_n, stages = config.stages, cluster = config.cluster;
  constexpr int stage_bytes = config.stage_bytes(), k_blocks = config.k_blocks(), slab_k = config.slab_k();
  constexpr int group_n = config.group_n(), pitch = config.pitch(), producer = config.consumer_warps();

  TW_DYNAMIC_SHARED(raw, 16);
  const unsigned shared = (shared_address(raw) + 1023u) & ~1023u;
  const Barriers full{ shared + config.barriers_at() }, empty{ shared + config.barriers_at() + 8 * stages };
  [[maybe_unused]] const Barrier known{ shared + config.known_at() };
  float *const products = (float *)(raw + (shared - shared_address(raw)));
  float *const values = products + config.values_at() / 4;
  /*
   * Exchanged, the warp's number is uniform for the compiler too. It then computes the places of wgmma's operands in
   * uniform registers, where wgmma takes them from. With moves to there a step takes 80 cycles instead of 25.
   */
  const int thread = threadIdx.x, warp = __shfl_sync(ALL_LANES, thread >> 5, 0), lane = thread & 31;
  const int row0 = (int)blockIdx.x / all_columns * tile_m, across = (int)blockIdx.x % all_columns;
  int column0;
  const TensorMap *weight;
  AdapterTile<Element> second;
  const TensorMap *second_map = nullptr;
  visit_segment<tile_n>(across, [&](const auto &segment, int tile) {
    column0 = tile * tile_n;
    weight = segment.map;
    if constexpr (config.adapter.is_there()) {
      second = adapter_tile<config.adapter, Element>(segment, column0);
      if constexpr (requires { segment.second_map; }) second_map = segment.second_map;
    }
  }, segments...);
  FewSlots &slots = *(FewSlots *)((unsigned char *)products + config.slots_at());
  const unsigned rank = cluster > 1 ? cluster_rank() : 0;
  constexpr bool has_parts = config.parts > 1;
  static_assert(!has_parts || (cluster == 1 && all_columns % config.parts == 0), "a cluster ends the same rows");
  /* Of this tile in its groups. */
  const int part_column = has_parts ? across % (has_parts ? config.parts : 1) * tile_n : 0;

  constexpr int of_stage = skinny_wgmma_pieces<config>();

  const auto load_rows = [&](unsigned stage, int block) {
#pragma unroll
    for (int slab = 0; slab < config.slabs(); slab++) {
      const unsigned to = shared + stage * stage_bytes + slab * tile_m * SLAB_BYTES;
      const int column = block * config.tile_k + slab * slab_k;
      if constexpr (cluster == 1) {
        load_box(to, a, column, row0, full[stage]);
      } else {
        constexpr int part = tile_m / cluster;
        load_box_multicast(to + rank * part * SLAB_BYTES, a, column, row0 + (int)rank * part, full[stage],
            (1 << cluster) - 1);
      }
    }
  };
  const auto load_weights = [&](unsigned stage, int block) {
#pragma unroll
    for (int slab = 0; slab < config.slabs(); slab++)
      load_box(shared + stage * stage_bytes + (config.a_bytes() + slab * tile_n * SLAB_BYTES), weight,
          block * config.tile_k + slab * slab_k, column0, full[stage]);
  };

  launch_dependents();
  constexpr int ahead = stages < k_blocks ? stages : k_blocks;
  if (warp == producer && lane == 0) {
    prefetch_map(weight);
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
      full[i].init(1);
      empty[i].init(config.consumer_warps() * cluster);
    }
    if constexpr (config.shrinkers.is_there()) known.init(1);
    show_barriers();
    /* The memory is idle until these copies begin. */
#pragma unroll 1
    for (int i = 0; i < ahead; i++) {
      full[i].expect(stage_bytes);
      load_weights(i, i);
    }
    prefetch_map(a);
    if (second_map != nullptr) prefetch_map(second_map);
  }
  constexpr bool shrinks = config.shrinkers.is_there();
  if constexpr (config.adapter.is_there() && !shrinks) {
    if (warp == 0) find_slots(second.slots, row0, rows, tile_m, slots);
  }
  if constexpr (cluster > 1) {
    /* No block loads rows for another before that one's barriers are there. */
    cluster_arrive_aligned();
    cluster_wait_aligned();
  } else {
    __syncthreads();
  }

  if (warp == producer) {
    if (lane == 0) {
      wait_for_previous();
      for (int i = 0; i < ahead; i++) load_rows(i, i);
      unsigned stage = ahead % stages, phase = ahead / stages % 2;
#pragma unroll 1
      for (int block = ahead; block < k_blocks; block++) {
        empty[stage].wait(phase ^ 1);
        full[stage].expect(stage_bytes);
        load_rows(stage, block);
        load_weights(stage, block);
        if (++stage == stages) { stage = 0; phase ^= 1; }
      }
      if constexpr (config.adapter.is_there()) {
        using Pieces = SecondPieces<config.adapter, tile_n>;
        if constexpr (shrinks) known.wait(0);
        const int count = slots.count, slot_columns = (int)(second.slot_elements / config.adapter.rank);
        SecondPiece piece{ 0, 0 };
#pragma unroll 1
        for (int left = count * Pieces::of_slot, fill = k_blocks; left > 0; left -= of_stage, fill++) {
          const int here = min(left, of_stage);
          /* A stage that nobody has filled yet is empty. */
          if (fill >= stages) empty[stage].wait(phase ^ 1);
          full[stage].expect(here * Pieces::bytes);
#pragma unroll 1
          for (int i = 0; i < here; i++, piece.next(count, Pieces::piece_k)) {
            const int column = slots.distinct[piece.number] * slot_columns + column0;
            load_box(shared + stage * stage_bytes + i * Pieces::room, second_map,
                Pieces::row_columns > 1 ? 0 : piece.rank, column / Pieces::row_columns, full[stage]);
          }
          if (++stage == stages) { stage = 0; phase ^= 1; }
        }
      }
    }
    __syncwarp();
  } else if (warp > producer) {
    skinny_wgmma_help<config, shrinking_tiles<tile_n, Segments...>>(prologue, second, slots, row0, rows,
        warp - (producer + 1), shrinking_place<tile_n, Segments...>(across), (unsigned char *)products, values);
  } else {
    const int group = config.groups() > 1 ? warp >> 2 : 0;
    const unsigned long long base = rows_descriptor(shared);
    float acc[group_n / 2];
    unsigned stage = 0, phase = 0, before = 0;
    wait_for_previous();
    for (int block = 0; block < k_blocks; block++) {
      full[stage].wait(phase);
      const unsigned long long x = base + stage * (stage_bytes / 16),
          y = base + stage * (stage_bytes / 16) + config.a_bytes() / 16 + group * (group_n * SLAB_BYTES / 16);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < config.slabs() * 4; step++)
        wgmma<Element, group_n, tile_m>(acc, x + (step >> 2) * (tile_m * SLAB_BYTES / 16) + (step & 3) * 2,
            y + (step >> 2) * (tile_n * SLAB_BYTES / 16) + (step & 3) * 2, block | step);
      wgmma_commit();
      wgmma_wait<1>();
      /* The products before these are done: stage `before` has been read. */
      if (block > 0) {
        if constexpr (cluster == 1) {
          if (lane == 0) empty[before].arrive();
        } else {
          if (lane < cluster) empty[before].arrive_at(lane);
        }
      }
      before = stage;
      if (++stage == stages) { stage = 0; phase ^= 1; }
    }
    /* While the last products are under way. */
    HeldShrunk<config> held;
    const int local = (warp & 3) * 16 + (lane >> 2), shrunk_row0 = shrinks ? 0 : row0;
    unsigned long long slots_here = 0;
    if constexpr (config.adapter.is_there()) {
      if constexpr (shrinks) {
        known.wait(0);
        slots_here = ((const ShrinkKnown *)((unsigned char *)products + config.known_at()))->slots_here[warp & 3];
        second.shrunk = (const Element *)((unsigned char *)products + config.shrunk_at());
        if (slots.count > 0) named_sync<32 * (config.consumer_warps() + config.shrinkers.warps)>(SHRUNK_READY);
      } else {
        slots_here = slots_of_rows(slots, (warp & 3) * 16);
      }
      held.load(second, slots, shrunk_row0, local);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < group_n / 2; i++) forget(acc[i]);
    if constexpr (config.adapter.is_there()) {
      /*
       * Numbers of their own: those of the loop above would not be uniform, for which each of its stages would move its
       * operands' places to uniform registers.
       */
      unsigned next = k_blocks % stages, next_phase = k_blocks / stages % 2;
      const int pieces = slots.count * SecondPieces<config.adapter, tile_n>::of_slot;
      const auto leave = [&](unsigned done) {
        if constexpr (cluster == 1) {
          if (lane == 0) empty[done].arrive();
        } else {
          if (lane < cluster) empty[done].arrive_at(lane);
        }
      };
      if (pieces > 0) leave((k_blocks - 1) % stages);
      SecondPiece piece{ 0, 0 };
#pragma unroll 1
      for (int left = pieces; left > 0; left -= of_stage) {
        full[next].wait(next_phase);
        skinny_wgmma_add_second<config>(second, slots, held, slots_here, shrunk_row0, piece, min(left, of_stage),
            shared + next * stage_bytes, local, group * (group_n / 8), acc);
        __syncwarp();
        leave(next);
        if (++next == stages) { next = 0; next_phase ^= 1; }
      }
    }
    /* The products take the place of the ring, which all of these warps have read. */
    named_sync<32 * config.consumer_warps()>(1);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int place = (warp & 3) * 16 + h * 8 + (lane >> 2);
      if (place < tile_m) {
#pragma unroll
        for (int g = 0; g < group_n / 8; g++)
          *(float2 *)(products + place * pitch + part_column + group * group_n + 8 * g + 2 * (lane & 3)) =
              { acc[4 * g + 2 * h], acc[4 * g + 2 * h + 1] };
      }
    }
  }
  __syncthreads();
  if constexpr (has_parts)
    skinny_wgmma_gather<config>(products, part_column / tile_n, rows - row0 < tile_m ? rows - row0 : tile_m);
  if constexpr (cluster > 1 || has_parts) cluster_arrive_aligned();
  return { products, values, row0, rows, column0 - part_column, across, part_column };
}

/* Until all blocks of the cluster have come here, others load rows for it, arrive at its barriers, or read of it. */
template <SkinnyWgmmaConfig config> TW_DEVICE void skinny_wgmma_end() {
  if constexpr (config.cluster > 1 || config.parts > 1) {
    __syncwarp();
    cluster_wait_aligned();
  }
}

/* The kernel of a layer. Returns the first row of the block's tile. */
template <SkinnyWgmmaConfig config, class Element, class Prologue, class... Segments>
TW_DEVICE int skinny_wgmma_gemm(int rows, const TensorMap *a, const Prologue &prologue, const Segments &...segments) {
  const Tile tile = skinny_wgmma_products<config, Element>(rows, a, prologue, segments...);
  end_tile<config, config.unit_n, config.warps()>(tile, forgotten(threadIdx.x), segments...);
  skinny_wgmma_end<config>();
  return tile.row0;
}

}  // namespace tw
