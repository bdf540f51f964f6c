/*
 * The first factor of adapters of many rows: what adapter/shrink.cuh computes, with the same bits, where the bytes of
 * the rows decide. Rows and factors come through a ring of stages in shared memory, 64 of k each, by cp.async; all but
 * one stage are under way, as many bytes as a multiprocessor needs to hide the latency of memory. A row is read once
 * for each slot of its tile, in whole lines and in order of k.
 *
 * A block has a tile of 64 rows and some columns, and takes the distinct slots among its rows by turns with other
 * blocks of the tile: usually there is one. Its eight warps have 16 rows and half of the columns each. They go through
 * the ranges of k one after the other and add up what each leaves: the sums of the eight warps of adapter/shrink.cuh,
 * in their order. Of each 32 of k, a quad's lane has eight neighbours, as there. Rows of other slots are multiplied
 * too, and not stored.
 *
 * Blocks of the first turns come first: the others mostly have nothing to do, and share multiprocessors with them.
 */
#pragma once
#include "adapter/shrink.cuh"
#include "lib/copy.cuh"

namespace tw {

/* k of a stage, and chunks of 16 bytes of its rows. */
constexpr int SHRINK_STAGE_K = 64, SHRINK_CHUNKS = SHRINK_STAGE_K / 8, SHRINK_ROW_BYTES = SHRINK_STAGE_K * 2;
constexpr int SHRINK_MANY_ROWS = 64;

/* The ring. Each stage has the rows of the tile, and then those of factors. */
template <ShrinkConfig config> struct ShrinkRing {
  static constexpr int rows = SHRINK_MANY_ROWS + config.tile_n, bytes = rows * SHRINK_ROW_BYTES;
  static constexpr int stages = config.shared_bytes / bytes, count = ceil_div(config.k, SHRINK_STAGE_K);
  /* Columns of a warp, as groups of 8. */
  static constexpr int groups = config.tile_n / 16;
  static_assert(config.tile_m == SHRINK_MANY_ROWS && config.tile_n % 16 == 0 && config.is_legal());
  static_assert(stages >= 2 && config.shared_bytes == stages * bytes);

  /* Neighbours lie in different halves: a quarter of a warp reads the same half of two rows at a time. */
  static TW_DEVICE int chunk_at(int row, int chunk) { return row * SHRINK_ROW_BYTES + (chunk ^ (row & 1) << 2) * 16; }
};

/* A thread's copies of a stage: the same chunk of every 32nd row. */
template <ShrinkConfig config, class T> struct ShrinkCopies {
  using Ring = ShrinkRing<config>;
  static constexpr int step = config.threads / SHRINK_CHUNKS;
  const T *a, *weight;
  /* Rows and columns that are left from the thread's own on. */
  int rows, columns;
  unsigned to;

  TW_DEVICE static int chunk() { return (int)threadIdx.x % SHRINK_CHUNKS; }
  TW_DEVICE static int row() { return (int)threadIdx.x / SHRINK_CHUNKS; }
  TW_DEVICE static int bytes(int k0) {
    const int left = (config.k - k0 - 8 * chunk()) * 2;
    return left < 0 ? 0 : left < 16 ? left : 16;
  }
  TW_DEVICE void load_rows(int stage, int k0) const {
#pragma unroll
    for (int i = 0; i < SHRINK_MANY_ROWS; i += step) {
      const int there = i < rows ? bytes(k0) : 0;
      copy16_near(to + stage * Ring::bytes + i * SHRINK_ROW_BYTES, there == 0 ? a : a + i * config.a_stride + k0,
          there);
    }
  }
  TW_DEVICE void load_factors(int stage, int k0) const {
#pragma unroll
    for (int i = 0; i < config.tile_n; i += step) {
      if (i + step <= config.tile_n || i + row() < config.tile_n) {
        const int there = i < columns ? bytes(k0) : 0;
        copy16(to + stage * Ring::bytes + (SHRINK_MANY_ROWS + i) * SHRINK_ROW_BYTES,
            there == 0 ? weight : weight + i * config.w_stride + k0, there);
      }
    }
  }
};

/* The slots of a tile, by one warp: at once where all rows have the same. */
TW_DEVICE void find_own_slots(const int *slots, int row0, int end, TileSlots<SHRINK_MANY_ROWS> &found) {
  const int lane = threadIdx.x % 32, row = row0 + lane;
  const int low = row < end ? slots[row] : NO_SLOT, high = row + 32 < end ? slots[row + 32] : NO_SLOT;
  const int first = __shfl_sync(ALL_LANES, low, 0);
  if (first >= 0 && __all_sync(ALL_LANES, (row >= end || low == first) && (row + 32 >= end || high == first))) {
    found.of[lane] = (short)low;
    found.of[lane + 32] = (short)high;
    if (lane == 0) {
      found.distinct[0] = (short)first;
      found.count = 1;
    }
  } else {
    find_slots(slots, row0, end, found);
  }
}

/* The kernel. Results of rows without slot stay as they are. */
template <ShrinkConfig config, class T> TW_DEVICE void shrink_many(int rows, const ShrinkBuffers<T> &buffers) {
  using Ring = ShrinkRing<config>;
  using Parts = ShrinkParts<config.k>;
  constexpr int groups = Ring::groups, stages = Ring::stages;
  constexpr int range_steps = Parts::range / SHRINK_STEP, part_steps = Parts::k / SHRINK_STEP;
  TW_DYNAMIC_SHARED(memory, 128);
  __shared__ TileSlots<SHRINK_MANY_ROWS> found;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, quad = lane % 4;
  const int tiles = ceil_div(rows, SHRINK_MANY_ROWS), across = (int)blockIdx.x % config.across(),
      place = (int)blockIdx.x / config.across(), unit = place / tiles, row0 = place % tiles * SHRINK_MANY_ROWS,
      column0 = across * config.tile_n;
  begin_next();
  if (warp == 0) find_own_slots(buffers.slots, row0, rows, found);
  __syncthreads();
  const int count = found.count;
  if (unit >= count) {
    /* Kernels that follow count on all before this one: some block of each tile waits for them. */
    if (unit == 0) wait_for_previous_if_any();
    return;
  }
  using Copies = ShrinkCopies<config, T>;
  Copies copies = { buffers.a + (long long)(row0 + Copies::row()) * config.a_stride + 8 * Copies::chunk(), nullptr,
    rows - row0 - Copies::row(), config.columns - column0 - Copies::row(),
    array_address(memory) + Ring::chunk_at(Copies::row(), Copies::chunk()) };
  const int own_row = warp % 4 * 16 + lane / 4, own_column = warp / 4 * (8 * groups);
  const unsigned char *const own_x = memory + own_row * SHRINK_ROW_BYTES,
      *const own_y = memory + (SHRINK_MANY_ROWS + own_column + lane / 4) * SHRINK_ROW_BYTES;
  /* Rows of a lane are alike in parity. */
  const int flip = lane / 4 & 1;
  for (int d = unit; d < count; d += config.units) {
    const int slot = found.distinct[d];
    copies.weight = buffers.weight + ((long long)slot * config.w_rows + column0 + Copies::row()) * config.w_stride +
        8 * Copies::chunk();
    /* Factors do not depend on the kernel before. */
#pragma unroll 1
    for (int s = 0; s < stages - 1; s++) {
      if (s < Ring::count) copies.load_factors(s, s * SHRINK_STAGE_K);
    }
    if (d == unit) wait_for_previous_if_any();
#pragma unroll 1
    for (int s = 0; s < stages - 1; s++) {
      if (s < Ring::count) copies.load_rows(s, s * SHRINK_STAGE_K);
      copy_commit();
    }
    /* Of a part, of the parts of its range before it, and of the ranges before. */
    float acc[groups][4], done[groups][4], sum[groups][4];
#pragma unroll
    for (int g = 0; g < groups; g++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[g][e] = done[g][e] = sum[g][e] = 0.0f;
    }
    int from = 0, into = stages - 1, steps = 0, own_steps = 0;
    bool is_first = true;
    /* The sum of the first part as it is, and those of the others of its range added in order. */
    const auto end_part = [&] {
#pragma unroll
      for (int g = 0; g < groups; g++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          done[g][e] = steps <= part_steps ? acc[g][e] : add(done[g][e], acc[g][e]);
          acc[g][e] = 0.0f;
        }
      }
      own_steps = 0;
    };
    /* The same of ranges. */
    const auto end_range = [&] {
      if constexpr (Parts::is_deep)
        if (own_steps > 0) end_part();
#pragma unroll
      for (int g = 0; g < groups; g++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float own = Parts::is_deep ? done[g][e] : acc[g][e];
          sum[g][e] = is_first ? own : add(sum[g][e], own);
          acc[g][e] = 0.0f;
        }
      }
      is_first = false;
      steps = 0;
    };
#pragma unroll 1
    for (int at = 0; at < Ring::count; at++) {
      copy_wait<stages - 2>();
      /* This stage's copies are here, and nobody reads the stage that the next copies go to. */
      __syncthreads();
      if (at + stages - 1 < Ring::count) {
        copies.load_factors(into, (at + stages - 1) * SHRINK_STAGE_K);
        copies.load_rows(into, (at + stages - 1) * SHRINK_STAGE_K);
      }
      copy_commit();
      const unsigned char *const x = own_x + from * Ring::bytes, *const y = own_y + from * Ring::bytes;
      into = into + 1 < stages ? into + 1 : 0;
      from = from + 1 < stages ? from + 1 : 0;
#pragma unroll
      for (int s = 0; s < SHRINK_STAGE_K / SHRINK_STEP; s++) {
        const int chunk = ((s ^ flip) * 4 + quad) * 16;
        const uint4 low = *(const uint4 *)(x + chunk), high = *(const uint4 *)(x + chunk + 8 * SHRINK_ROW_BYTES);
        uint4 factors[groups];
#pragma unroll
        for (int g = 0; g < groups; g++) factors[g] = *(const uint4 *)(y + chunk + 8 * g * SHRINK_ROW_BYTES);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const unsigned a[4] = { half == 0 ? low.x : low.z, half == 0 ? high.x : high.z, half == 0 ? low.y : low.w,
            half == 0 ? high.y : high.w };
#pragma unroll
          for (int g = 0; g < groups; g++)
            mma<T>(acc[g], a, half == 0 ? factors[g].x : factors[g].z, half == 0 ? factors[g].y : factors[g].w);
        }
        steps++;
        own_steps++;
        if constexpr (Parts::is_deep)
          if (own_steps == part_steps) end_part();
        if (s % 2 == 1 || range_steps % 2 == 1)
          if (steps == range_steps) end_range();
      }
    }
    if (steps > 0) end_range();
    copy_wait<0>();
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int local = own_row + 8 * h;
      if (found.of[local] != slot) continue;
      T *const out = buffers.out + (long long)(row0 + local) * config.out_stride;
#pragma unroll
      for (int g = 0; g < groups; g++) {
        const int column = column0 + own_column + 8 * g + 2 * quad;
        if (column < config.columns) {
          const float by = buffers.scale[slot * config.parts() + column / config.rank];
          store2(out + column, mul(sum[g][2 * h], by), mul(sum[g][2 * h + 1], by));
        }
      }
    }
    /* The next slot's copies go where this one's were. */
    __syncthreads();
  }
}

}  // namespace tw
