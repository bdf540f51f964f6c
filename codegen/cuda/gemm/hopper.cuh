/*
 * Contraction on Hopper's tensor cores: A[rows × k] · Bᵀ, where B[columns × k] are matrices side by side, its segments.
 * Both operands have rows of k adjacent elements (K-major), 16-bit floats or E4M3; products are in float. What becomes
 * of them is the unit's: functors of segments (gemm/hopperEpilogue.cuh).
 *
 * Blocks stay: those of cluster c take tiles c, c + clusters, … of the output (HopperBlock, gemm/hopperTiles.cuh). Of
 * experts' rows they take tiles that nobody has taken (experts/takenTiles.cuh).
 *
 * Roles. Warpgroup 0 has few registers. Its thread 0 is the producer: it fills the ring of stages by TMA; a cluster's
 * blocks each load a part of the tile of weights for both. Its warps 1 to 3 are idle: they compute what epilogues read
 * of rows and columns, or run the epilogues (Deferred), with warpgroup 3 where there is one. Warpgroups 1 and 2 are
 * consumers: they multiply, 64 rows an instruction, and store what nobody else stores (HopperMode).
 *
 * What waits for what:
 *   full_barriers[stage]: a stage's bytes are there. Consumers wait.
 *   empty_barriers[stage]: every consumer warp of the cluster that multiplies the tile has read it. The producer waits.
 *   values_full, values_empty[tile & 1]: values of rows and columns; idle warps and consumers.
 *   handoff_full, handoff_empty: products; consumers and the warps that run epilogues.
 *   Named barriers. 1: the warps that run epilogues, around values. 2: they and consumers, for the values of the final
 *   tile. Ping-pong: 1 and 2, the turns of the warpgroups. 3: consumers, around the products of a final tile. 4 to 6:
 *   consumers that shrink rows first, and who waits for what they have shrunk (adapter/shrinkFirst.cuh).
 *   The kernel before this one: everybody, before reading what it may have written; weights are on their way before.
 *
 * The map of shared memory is HopperConfig's.
 */
#pragma once
#include "gemm/hopperAdapter.cuh"
#include "gemm/hopperEpilogue.cuh"
#include "lib/copy.cuh"

namespace tw {

/* Tensor maps: of A, of each segment's weights, and of the last one's in boxes of remainder tiles, if there are any. */
struct HopperMaps {
  const TensorMap *a, *weights[HOPPER_SEGMENTS], *remainder;
  /* Of adapters: of what was shrunk of the rows, second factors in the same order as weights, and the rows' slots. */
  const TensorMap *shrunk = nullptr, *seconds[HOPPER_SEGMENTS] = {}, *second_remainder = nullptr;
  const int *slots = nullptr;
};

/* The weights of a column tile: their tensor map, and its first row of them. */
template <HopperConfig config, int i = 0>
TW_DEVICE void find_weight(const HopperMaps &maps, const Place &place, const TensorMap *&weight, int &column0) {
  if (i + 1 == config.segments || place.column_tile < config.first_tile(i + 1)) {
    weight = maps.weights[i];
    column0 = (place.column_tile - config.first_tile(i)) * config.tile_n + place.expert * config.columns[i];
  } else if constexpr (i + 1 < config.segments) {
    find_weight<config, i + 1>(maps, place, weight, column0);
  }
}

/* Copies of a stage's slabs, of the rows of A, and of B, of which a block of a cluster loads its part for all. */
template <HopperConfig config>
TW_DEVICE void load_a(const HopperBlock<config> &block, unsigned stage, int k_block, const TensorMap *a, int row0) {
  static_assert(config.tile_m <= 256, "a box of a tensor map has 256 rows at most");
  static_assert(config.tile_k * config.element_bytes == config.slabs() * SLAB_BYTES, "whole slabs");
#pragma unroll
  for (int slab = 0; slab < config.slabs(); slab++)
    load_box(block.a(stage) + slab * config.tile_m * SLAB_BYTES, a,
        k_block * config.tile_k + slab * (SLAB_BYTES / config.element_bytes), row0, block.full_barriers()[stage]);
}
template <HopperConfig config>
TW_DEVICE void load_b(const HopperBlock<config> &block, unsigned stage, int k_block, const TensorMap *b, int column0,
    unsigned rank, int own) {
  constexpr int boxes = (config.tile_n / config.cluster + 255) / 256, box_rows = config.tile_n / config.cluster / boxes;
  static_assert(box_rows * boxes * config.cluster == config.tile_n);
#pragma unroll
  for (int slab = 0; slab < config.slabs(); slab++) {
#pragma unroll
    for (int box = 0; box < boxes; box++) {
      const unsigned to = block.b(stage) + (slab * config.tile_n + box * box_rows) * SLAB_BYTES;
      const int column = k_block * config.tile_k + slab * (SLAB_BYTES / config.element_bytes),
          row = column0 + box * box_rows;
      if constexpr (config.cluster == 1)
        load_box(to, b, column, row, block.full_barriers()[stage]);
      else
        load_box_multicast(to + rank * own * SLAB_BYTES, b, column, row + (int)rank * own,
            block.full_barriers()[stage], 3);
    }
  }
}

/* The producer: one thread, or with adapters a warp, of which one lane starts copies. */
template <HopperConfig config, class Shrinker>
TW_DEVICE void produce(const HopperBlock<config> &block, const HopperMaps &maps, TakenTiles *taken,
    const Shrinker &shrinker, int first, unsigned rank) {
  constexpr int prefetch = config.prefetch();
  constexpr bool has_adapters = config.has_adapters();
  const bool leads = !has_adapters || threadIdx.x == 0;
  unsigned stage = 0, phase = 0;
  bool is_first = true, is_shrunk = !config.shrinkers.is_there(), has_met = false;
  unsigned sequence = 0;
  if constexpr (config.takes_tiles()) block.turns().tell(0, first < block.tiles() ? first : -1);
  for (int tile = first, next; tile < block.tiles(); tile = next) {
    if constexpr (config.takes_tiles()) next = take_tile(*taken, block.tiles());
    else next = tile + block.clusters();
    const Place place = block.place(tile, (int)rank);
    const TensorMap *weight;
    int column0;
    const bool is_narrow = config.remainder_n > 0 && place.remainder_column >= 0;
    /* Rows of weights that this block loads, and bytes of a stage. */
    const int own = (is_narrow ? config.remainder_n : config.tile_n) / config.cluster,
        bytes = config.a_bytes() + own * (config.cluster * config.slabs() * SLAB_BYTES);
    if (is_narrow) {
      weight = maps.remainder;
      column0 = place.remainder_column;
    } else {
      find_weight<config>(maps, place, weight, column0);
    }
    int start = 0;
    if (config.experts == 0 && is_first) {
      /* Weights do not depend on the kernel before this one: they are on their way while it ends. */
      for (int i = 0; leads && i < prefetch; i++) {
        block.full_barriers()[i].expect(bytes);
        load_b<config>(block, i, i, weight, column0, rank, own);
      }
      wait_for_previous();
      for (int i = 0; leads && i < prefetch; i++) load_a<config>(block, i, i, maps.a, place.row0);
      start = prefetch;
      stage = prefetch % config.stages;
      phase = prefetch / config.stages % 2;
      is_first = false;
    }
    Second second;
    int word = NO_SLOT;
    /* A cluster's blocks fill the same stages: for the slots of the rows of both. */
    const int cluster_row0 = place.row0 - (int)rank * config.tile_m;
    SlotsAhead<config> ahead;
    if constexpr (has_adapters) ahead.load(maps.slots, cluster_row0, block.rows);
    const auto fill = [&](int k_block) {
      block.empty_barriers()[stage].wait(phase ^ 1);
      if (has_adapters && k_block + 1 == config.k_blocks()) poke(block.following(stage), word);
      block.full_barriers()[stage].expect(bytes);
      load_a<config>(block, stage, k_block, maps.a, place.row0);
      load_b<config>(block, stage, k_block, weight, column0, rank, own);
      if (++stage == config.stages) { stage = 0; phase ^= 1; }
    };
    /* By one lane: others only look at slots. Stages are its own. With adapters, the last one tells of slots. */
    if (leads)
      for (int k_block = start; k_block < config.k_blocks() - (has_adapters ? 1 : 0); k_block++) fill(k_block);
    if constexpr (has_adapters) {
      __syncwarp();
      find_second<config>(maps, place, second);
      if (second.map != nullptr) word = ahead.word(second.may_be_even);
      if (leads) fill(config.k_blocks() - 1);
    }
    if constexpr (has_adapters) {
      if constexpr (config.shrinkers.is_there())
        if (word >= 0 && !is_shrunk) {
          has_met = shrinker.await();
          is_shrunk = true;
        }
      while (word >= 0) {
        const int slot = word & ~EVEN_TILE;
        const int after = is_even(word) ? NO_SLOT
            : next_slot<config.cluster_rows()>(maps.slots, cluster_row0, block.rows, slot);
        for (int step = 0; step < second.steps; step++) {
          if (leads) {
            block.empty_barriers()[stage].wait(phase ^ 1);
            poke(block.following(stage), step + 1 < second.steps ? word : after);
            block.full_barriers()[stage].expect((config.tile_m + own * config.cluster) * SLAB_BYTES);
            load_second<config>(block, stage, maps, second, slot, step, place.row0, rank, own);
            if (++stage == config.stages) { stage = 0; phase ^= 1; }
          }
        }
        word = after;
      }
    }
    if constexpr (config.takes_tiles()) block.turns().tell(++sequence, next < block.tiles() ? next : -1);
  }
  /* Both warpgroups learn that there is no other. */
  if constexpr (config.takes_tiles()) block.turns().tell(sequence + 1, -1);
  if constexpr (config.shrinkers.is_there()) shrinker.leave(has_met);
}

/* A consumer warp has read a stage: tells every producer of the cluster. */
template <HopperConfig config>
TW_DEVICE void release(const HopperBlock<config> &block, unsigned stage, int lane) {
  if constexpr (config.cluster == 1) {
    if (lane == 0) block.empty_barriers()[stage].arrive();
  } else {
    if (lane < config.cluster) block.empty_barriers()[stage].arrive_at(lane);
  }
}

/*
 * The main loop: multiplies the stages of the block's tile number `sequence`. Products are under way when it returns
 * the last stage, which is still to be released. `base`: the descriptor of the first stage; `consumer`: which rows of a
 * tile; `at`: with adapters, the number of stages before the tile's own, and then before its adapters'.
 */
template <HopperConfig config, class T, int accumulators>
TW_DEVICE unsigned multiply(const HopperBlock<config> &block, unsigned long long base, int sequence, int consumer,
    int lane, unsigned &at, float (&acc)[config.blocks()][accumulators]) {
  static_assert(config.tile_m % (WGMMA_ROWS * (config.is_ping_pong() ? 1 : HOPPER_CONSUMERS)) == 0,
      "whole instructions of rows");
  static_assert(config.tile_n % (16 * config.column_blocks()) == 0 && config.wgmma_n() <= config.max_n());
  static_assert(config.blocks() * accumulators <= 208, "accumulators fit in 240 registers beside the loop's own");
  /* Descriptors count in units of 16 bytes. A step of k is 32 bytes inside a slab's row. */
  constexpr int columns = 2 * accumulators, across = config.column_blocks(), slab_steps = SLAB_BYTES / WGMMA_STEP_BYTES,
      row_units = SLAB_BYTES / 16;
  unsigned stage = (unsigned)(sequence * config.k_blocks()) % config.stages,
      phase = ((unsigned)(sequence * config.k_blocks()) / config.stages) & 1, before = 0;
  /* Parity tells neighbouring phases apart only: wait until the other warpgroup has seen all of its stages. */
  if (config.is_ping_pong() && sequence > 0) named_sync<256>(thread_again() >> 7);
  if constexpr (config.has_adapters()) {
    if (config.is_ping_pong() && sequence > 0) at = peek(block.next_stage());
    stage = at % config.stages;
    phase = at / config.stages & 1;
    at += config.k_blocks();
  }
  for (int k_block = 0; k_block < config.k_blocks(); k_block++) {
    block.full_barriers()[stage].wait(phase);
    const unsigned long long a =
        base + stage * (config.stage_bytes() / 16) + consumer * (config.row_blocks() * WGMMA_ROWS * row_units);
    const unsigned long long b = base + stage * (config.stage_bytes() / 16) + config.a_bytes() / 16;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < config.slabs() * slab_steps; k++) {
      const int slab = k / slab_steps, step = k % slab_steps * 2;
#pragma unroll
      for (int m = 0; m < config.blocks(); m++)
        wgmma<T, columns>(acc[m], a + slab * config.tile_m * row_units + step + m / across * (WGMMA_ROWS * row_units),
            b + slab * config.tile_n * row_units + step + m % across * (columns * row_units), k_block | k);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (k_block > 0) release<config>(block, before, lane);
    before = stage;
    if (++stage == config.stages) { stage = 0; phase ^= 1; }
  }
  return before;
}

/* Waits for the loop's last products, and tells the compiler that the accumulators hold them. */
template <int blocks, int accumulators> TW_DEVICE void settle(float (&acc)[blocks][accumulators]) {
  wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < blocks; m++) {
#pragma unroll
    for (int i = 0; i < accumulators; i++) forget(acc[m][i]);
  }
}

/* The epilogue of a tile by its consumers. */
template <HopperConfig config, class Finish, class... Segments>
TW_DEVICE void store_tile(const HopperBlock<config> &block, int tile, int sequence,
    float (&acc)[config.blocks()][config.wgmma_n() / 2], const Finish &finish, const Segments &...segments) {
  /* Read again rather than kept through the main loop, which needs the registers. */
  const int self = thread_again(), rows = opaque(block.rows);
  const Place place = HopperBlock<config>{ rows, block.shared, block.memory }.place(tile,
      config.cluster == 2 ? cluster_rank_again() : 0);
  const int local0 =
      (config.is_ping_pong() ? 0 : ((self >> 7) - 1) * (config.row_blocks() * WGMMA_ROWS)) + (self >> 5 & 3) * 16 +
      (self >> 2 & 7);
  const int slot = sequence & 1;
  if constexpr (config.row_values > 0) block.values_full()[slot].wait((sequence >> 1) & 1);
  own_rows<config>(acc, place, config.experts > 0 ? place.end : rows, self, local0,
      block.row_values() + slot * config.row_slot_floats(), block.column_values() + slot * config.column_values,
      segments...);
  if constexpr (config.row_values > 0) {
    __syncwarp();
    if ((self & 31) == 0) block.values_empty()[slot].arrive();
  }
  if constexpr (config.has_finish) finish.stored(place.row0 / config.tile_m, config.row_blocks() * 16);
}

/*
 * The rest of a tile behind the main loop, whose last stage is `last`: settles the products, and adds what rows of
 * adapters get. Where warpgroups take tiles in turn and another tile follows, `passes`, the other one has its turn as
 * soon as all of the tile's stages are full.
 */
template <HopperConfig config, class T, int accumulators>
TW_DEVICE void end_product(const HopperBlock<config> &block, unsigned long long base, unsigned last, bool passes,
    int consumer, int lane, unsigned &at, const int *slots, int tile, float (&acc)[config.blocks()][accumulators]) {
  if constexpr (!config.has_adapters()) {
    if (passes) named_arrive<256>(3 - (thread_again() >> 7));
    settle(acc);
    release<config>(block, last, lane);
  } else {
    const auto release_stage = [&](unsigned stage) { release<config>(block, stage, lane); };
    const auto end = [&] { if (passes) pass_turn(block, at); };
    const int word = peek(block.following(last));
    if (word < 0) end();
    if constexpr (config.least_matrices() == 1) {
      if (is_even(word))
        last = multiply_even<config, T>(block, base, last, at, consumer, acc, release_stage, end);
    }
    settle(acc);
    release_stage(last);
    if (word >= 0 && !is_even(word)) {
      OwnSlots<config> own;
      own.load(block, slots, tile, consumer);
      add_adapters<config, T>(block, at, word, consumer, matrices_of_tile(block, tile), own, acc, release_stage, end);
    }
  }
}

/* A consumer. */
template <HopperConfig config, class T, class Prologue, class Finish, class... Segments>
TW_DEVICE void consume(const HopperBlock<config> &block, const int *slots, int first, int warpgroup, int lane,
    const Prologue &prologue, const Finish &finish, const Segments &...segments) {
  constexpr bool is_ping_pong = config.is_ping_pong(), is_deferred = config.is_deferred(),
      has_remainder = config.remainder_n > 0;
  constexpr int turns = is_ping_pong ? HOPPER_CONSUMERS : 1;
  const int consumer = is_ping_pong ? 0 : warpgroup - 1;
  const unsigned long long base = rows_descriptor(block.shared);
  float acc[config.blocks()][config.wgmma_n() / 2];
  if constexpr (config.shrinkers.is_there())
    shrinker_of<config>(block, prologue).run((thread_again() >> 5) - 4, (float2 *)(block.memory + config.sums_at()));
  wait_for_previous();
  int sequence = is_ping_pong ? warpgroup - 1 : 0, own_tile = -1;
  int tile = is_ping_pong ? first + sequence * block.clusters() : first;
  unsigned at = 0;
  /* Whether the block has tile `sequence`; of those that it takes, which one that is. */
  const auto is_tile = [&] {
    if constexpr (config.takes_tiles()) return (tile = block.turns()[sequence]) >= 0;
    else return tile < block.whole_tiles();
  };
  for (; is_tile(); tile += turns * block.clusters(), sequence += turns) {
    const unsigned last = multiply<config, T>(block, base, sequence, consumer, lane, at, acc);
    bool passes = false;
    if constexpr (config.takes_tiles()) passes = block.turns()[sequence + 1] >= 0;
    else if constexpr (is_ping_pong) passes = tile + block.clusters() < block.tiles();
    end_product<config, T>(block, base, last, passes, consumer, lane, at, slots, tile, acc);
    if constexpr (config.has_final_tile) {
      /* The block's last: its products stay where they are, or go where remainder tiles put theirs. */
      if (tile + block.clusters() >= block.tiles()) {
        if constexpr (has_remainder) put_final_products<config>(block, acc);
        break;
      }
    }
    if constexpr (is_deferred) {
      block.handoff_empty().wait((sequence & 1) ^ 1);
      hand_over<config.tile_n>(block.handoff((thread_again() >> 5) - 4, thread_again() & 31), acc);
      __syncwarp();
      if constexpr (!config.has_final_tile) {
        if (tile + block.clusters() >= block.tiles()) {
          own_tile = tile;
          break;
        }
      }
      if ((thread_again() & 31) == 0) block.handoff_full().arrive();
    } else {
      store_tile<config>(block, tile, sequence, acc, finish, segments...);
    }
  }
  /* Remainder tiles have accumulators of their own: those of the loop above must not live on beside them. */
  const bool is_narrow = has_remainder && tile >= block.whole_tiles() && tile < block.tiles();
  if constexpr (has_remainder) {
    if (is_narrow) {
      float narrow[config.blocks()][config.remainder_n / 2];
      const unsigned last = multiply<config, T>(block, base, sequence, consumer, lane, at, narrow);
      end_product<config, T>(block, base, last, false, consumer, lane, at, slots, tile, narrow);
      if constexpr (config.has_final_tile) {
        put_final_products<config>(block, narrow);
      } else {
        block.handoff_empty().wait((sequence & 1) ^ 1);
        hand_over<config.remainder_n>(block.handoff((thread_again() >> 5) - 4, thread_again() & 31), narrow);
        __syncwarp();
        run_own<config, true>(block, tile, segments...);
      }
    }
  }
  if constexpr (is_deferred && !config.has_final_tile) {
    /* Nothing is left to multiply: each warp runs the epilogue of what it holds of the last tile. */
    if (own_tile >= 0) {
      const Place place = run_own<config, false>(block, own_tile, segments...);
      if constexpr (config.has_finish)
        finish.stored(place.row0 / config.tile_m, config.tile_m / HOPPER_CONSUMER_WARPS);
    }
  }
  if constexpr (config.has_final_tile) {
    if ((int)blockIdx.x / config.cluster < block.tiles()) {
      if constexpr (!has_remainder) put_final_products<config>(block, acc);
      store_final_rows<config>(block, is_narrow, segments...);
    }
  }
  if constexpr (config.has_finish) {
    unsigned finishing = 0;
    finish.take_rest(finishing, block.rows);
  }
}

/* Where a kernel finishes no rows. */
struct NoFinish {};

/*
 * The kernel. `memory`: the block's dynamic shared memory. `tiles`: of rows of experts. `prologue`: computes what
 * epilogues read of a row; `finish`: what is done to rows once all of their columns are stored.
 */
template <HopperConfig config, class T, class Prologue, class Finish, class... Segments>
TW_DEVICE void hopper_gemm(int rows, unsigned char *memory, const HopperMaps &maps, const SharedTiles &tiles,
    const Prologue &prologue, const Finish &finish, const Segments &...segments) {
  static_assert(sizeof(T) == config.element_bytes && sizeof...(Segments) == config.segments);
  static_assert(config.segments >= 1 && config.segments <= HOPPER_SEGMENTS);
  static_assert(config.stages >= 2 && (config.cluster == 1 || config.cluster == 2));
  /* 1,024 bytes more where the driver may let it begin anywhere. */
  static_assert(config.end() + (config.is_deferred() ? 0 : 1024) == config.shared_bytes);
  constexpr int consumer_warps = HOPPER_CONSUMER_WARPS / (config.is_ping_pong() ? 2 : 1);
  const unsigned begin = shared_address(memory), shared = (begin + 1023u) & ~1023u;
  if (config.is_deferred() && shared != begin) trap();
  const HopperBlock<config> block = { rows, shared, memory + (shared - begin) };
  const int thread = threadIdx.x, lane = thread & 31;
  unsigned rank = 0;
  if constexpr (config.cluster == 2) rank = cluster_rank();
  if (thread == 0) {
    prefetch_map(maps.a);
#pragma unroll
    for (int i = 0; i < config.segments; i++) prefetch_map(maps.weights[i]);
    if constexpr (config.remainder_n > 0) prefetch_map(maps.remainder);
    if constexpr (config.has_adapters()) prefetch_map(maps.shrunk);
    for (int i = 0; i < config.stages; i++) {
      block.full_barriers()[i].init(1);
      block.empty_barriers()[i].init(consumer_warps * config.cluster);
    }
    if constexpr (config.is_deferred()) {
      block.handoff_full().init(HOPPER_CONSUMER_WARPS);
      block.handoff_empty().init(config.idle_warps());
    } else if constexpr (config.row_values > 0) {
      for (int i = 0; i < 2; i++) {
        block.values_full()[i].init(32 * config.idle_warps());
        block.values_empty()[i].init(consumer_warps);
      }
    }
    if constexpr (config.takes_tiles()) block.turns().init();
    show_barriers();
  }
  if constexpr (config.experts > 0) {
    wait_for_previous();
    if (thread >> 5 == 1) block.fill_tables(tiles.starts, lane);
  }
  if constexpr (config.cluster == 2) {
    cluster_arrive_aligned();
    cluster_wait_aligned();
  } else {
    __syncthreads();
  }
  launch_dependents();

  const int first = blockIdx.x / config.cluster;
  /*
   * Uniform for the compiler too, which then computes the places of wgmma's operands in uniform registers, and lets
   * wgmma follow mma.sync.
   */
  const int warpgroup =
      config.is_ping_pong() && !config.has_adapters() ? thread >> 7 : __shfl_sync(ALL_LANES, thread >> 7, 0);
  if (warpgroup == 0 || (config.epilogue_groups > 0 && warpgroup == 3)) {
    give_registers<config.producer_registers()>();
    if (config.has_adapters() ? thread < 32 : thread == 0) {
      produce<config>(block, maps, tiles.taken, shrinker_of<config>(block, prologue), first, rank);
    } else if (thread >= 32) {
      if constexpr (config.is_deferred() || config.row_values == 0) watch_shrinkers<config>(block, thread, prologue);
      if constexpr (config.is_deferred())
        run_deferred<config>(block, first, thread, rank, prologue, finish, segments...);
      else if constexpr (config.row_values > 0)
        run_ahead<config>(block, first, thread, rank, prologue, segments...);
    }
  } else {
    take_registers<config.consumer_registers()>();
    consume<config, T>(block, maps.slots, first, warpgroup, lane, prologue, finish, segments...);
  }
  if constexpr (config.cluster == 2) {
    __syncwarp();
    /* A block's shared memory must outlive the copies and arrivals its neighbour sends. */
    cluster_arrive_aligned();
    cluster_wait_aligned();
  }
}

}  // namespace tw
