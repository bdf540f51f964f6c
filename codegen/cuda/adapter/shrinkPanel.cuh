/*
 * The first factor of adapters of very many rows, on GPUs with clusters: what adapter/shrink.cuh computes, with the
 * same bits, where factors would be read by too many blocks at once if each block went through all of k.
 *
 * A cluster of eight blocks has a panel of 128 rows, or 256, and some columns; each block has one range of k. Its part
 * of the factors lies in shared memory for all of those rows. Each of its warps has an eighth of the rows, 16 at a
 * time, which come through a ring of its own, 64 of k a stage: no warp waits for another. The blocks then read each
 * other's sums, each for an eighth of the rows, and add them in order of the ranges.
 *
 * A panel of several slots is gone through once for each of them: warps leave out those that none of their rows has,
 * and multiply rows of others for nothing.
 */
#pragma once
#include "adapter/shrink.cuh"
#include "lib/cluster.cuh"
#include "lib/copy.cuh"
#include "lib/shared.cuh"

namespace tw {

template <ShrinkConfig config> struct ShrinkPanel {
  /* k of a stage, and its bytes: of 16 rows. */
  static constexpr int step = 64, line = step * 2, stage_bytes = 16 * line;
  /* Rows of a warp, and of a block in the end. */
  static constexpr int own_rows = config.tile_m / SHRINK_RANGES, tiles = own_rows / 16;
  static constexpr int groups = config.tile_n / 8;
  /* Stages of a range; bytes of a column's factors, and of all. */
  static constexpr int slices = ceil_div(config.range(), step), pitch = slices * line,
                       factor_bytes = config.tile_n * pitch;
  static constexpr int stages = (config.shared_bytes - factor_bytes) / (SHRINK_RANGES * stage_bytes);
  /* Floats from row to row of sums: those that a warp stores together lie in different banks. */
  static constexpr int sum_pitch = config.tile_n + 8;
  static_assert(config.is_legal() && (tiles == 1 || tiles == 2) && own_rows % 16 == 0 && config.tile_n % 16 == 0);
  static_assert(stages >= 2 && config.shared_bytes >= config.tile_m * sum_pitch * 4);

  /* Neighbours lie in different halves of a line: see ShrinkRing. */
  static TW_DEVICE int chunk_at(int row, int chunk, int pitch) { return row * pitch + (chunk ^ (row & 1) << 2) * 16; }
};

/* Bytes of the eight numbers from `at` on that lie before `end`. */
TW_DEVICE int shrink_chunk_bytes(int at, int end) { return max(0, min(16, (end - at) * 2)); }

/* The kernel. Results of rows without slot stay as they are. */
template <ShrinkConfig config, class T> TW_DEVICE void shrink_panel(int rows, const ShrinkBuffers<T> &buffers) {
  using Panel = ShrinkPanel<config>;
  using Parts = ShrinkParts<config.k>;
  /* Those of a part: parts are whole ones. */
  constexpr int part_slices = ceil_div(Parts::k, Panel::step);
  static_assert(!Parts::is_deep || Parts::k % Panel::step == 0);
  constexpr int groups = Panel::groups, stages = Panel::stages, slices = Panel::slices, pitch = Panel::pitch;
  constexpr int tiles = Panel::tiles;
  TW_DYNAMIC_SHARED(memory, 128);
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, quad = lane % 4;
  const int range = (int)cluster_rank(), place = (int)blockIdx.x / SHRINK_RANGES;
  const int column0 = place % config.across() * config.tile_n, row0 = place / config.across() * config.tile_m;
  const int first = range * config.range(), end = min(first + config.range(), config.k);
  begin_next();
  int slot = next_slot<config.tile_m>(buffers.slots, row0, rows, NO_SLOT);
  if (slot == NO_SLOT) {
    shrink_nothing();
    return;
  }
  const int own_row0 = row0 + Panel::own_rows * warp;
  const int own_slot = lane < Panel::own_rows && own_row0 + lane < rows ? buffers.slots[own_row0 + lane] : NO_SLOT;
  unsigned char *const ring = memory + Panel::factor_bytes + warp * (stages * Panel::stage_bytes);
  /* Copies of a stage: a lane's chunk of every fourth row. `at`: its number among those of both tiles of 16 rows. */
  const int copied_row = own_row0 + lane / 8, copied_chunk = lane % 8;
  const T *const from_row = buffers.a + (long long)copied_row * config.a_stride + first + 8 * copied_chunk;
  const unsigned to_row = array_address(ring) + Panel::chunk_at(lane / 8, copied_chunk, Panel::line);
  const auto load_rows = [&](int stage, int at) {
    const int tile = at / slices, k0 = at % slices * Panel::step;
    const int bytes = shrink_chunk_bytes(first + k0 + 8 * copied_chunk, end);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const int row = 16 * tile + i, there = copied_row + row < rows ? bytes : 0;
      copy16_near(to_row + stage * Panel::stage_bytes + i * Panel::line,
          there == 0 ? buffers.a : from_row + (long long)row * config.a_stride + k0, there);
    }
  };
  const auto load_factors = [&] {
    constexpr int chunks = pitch / 16;
    const T *const weight = buffers.weight + ((long long)slot * config.w_rows + column0) * config.w_stride + first;
    for (int i = (int)threadIdx.x; i < config.tile_n * chunks; i += config.threads) {
      const int column = i / chunks, chunk = i % chunks;
      const int there = column0 + column < config.columns ? shrink_chunk_bytes(first + 8 * chunk, end) : 0;
      copy16(array_address(memory) + Panel::chunk_at(column, chunk, pitch),
          there == 0 ? buffers.weight : weight + (long long)column * config.w_stride + 8 * chunk, there);
    }
  };
  /* Rows of a lane are alike in parity, and its columns too. */
  const int flip = lane / 4 & 1;
  const unsigned char *const own_x = ring + lane / 4 * Panel::line, *const own_y = memory + lane / 4 * pitch;
  float sums[tiles][groups][4];
#pragma unroll
  for (int t = 0; t < tiles; t++) {
#pragma unroll
    for (int g = 0; g < groups; g++) {
#pragma unroll
      for (int e = 0; e < 4; e++) sums[t][g][e] = 0.0f;
    }
  }
  for (bool is_first = true; slot != NO_SLOT; is_first = false) {
    const unsigned owned = __ballot_sync(ALL_LANES, own_slot == slot);
    const int begin = (owned & 0xffffu) != 0 ? 0 : slices, stop = owned >> 16 != 0 ? 2 * slices : slices;
    /* Factors do not depend on the kernel before. */
    load_factors();
    copy_commit();
    if (is_first) wait_for_previous_if_any();
#pragma unroll 1
    for (int s = 0; s < stages - 1; s++) {
      if (begin + s < stop) load_rows(s, begin + s);
      copy_commit();
    }
    copy_wait<stages - 1>();
    __syncthreads();
    int from = 0, into = stages - 1;
#pragma unroll
    for (int t = 0; t < tiles; t++) {
      if ((owned >> 16 * t & 0xffffu) == 0) continue;
      /* Of a part of the range, and of the parts before it. */
      float acc[groups][4], done[groups][4];
#pragma unroll
      for (int g = 0; g < groups; g++) {
#pragma unroll
        for (int e = 0; e < 4; e++) acc[g][e] = done[g][e] = 0.0f;
      }
#pragma unroll 1
      for (int slice = 0; slice < slices; slice++) {
        copy_wait<stages - 2>();
        /* This stage's copies are here, and no lane reads the stage that the next copies go to. */
        __syncwarp();
        const int next = t * slices + slice + stages - 1;
        if (next < stop) load_rows(into, next);
        copy_commit();
        const unsigned char *const x = own_x + from * Panel::stage_bytes, *const y = own_y + slice * Panel::line;
        into = into + 1 < stages ? into + 1 : 0;
        from = from + 1 < stages ? from + 1 : 0;
#pragma unroll
        for (int s = 0; s < Panel::step / SHRINK_STEP; s++) {
          const int chunk = ((s ^ flip) * 4 + quad) * 16;
          const uint4 low = *(const uint4 *)(x + chunk), high = *(const uint4 *)(x + chunk + 8 * Panel::line);
          unsigned own[2][4];
          shrink_fragment(own[0], low, high, 0);
          shrink_fragment(own[1], low, high, 1);
#pragma unroll
          for (int g = 0; g < groups; g++) {
            const uint4 factors = *(const uint4 *)(y + chunk + 8 * g * pitch);
            shrink_add<T>(acc[g], own[0], factors, 0);
            shrink_add<T>(acc[g], own[1], factors, 1);
          }
        }
        if constexpr (Parts::is_deep) {
          if ((slice + 1) % part_slices != 0 && slice + 1 < slices) continue;
#pragma unroll
          for (int g = 0; g < groups; g++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              done[g][e] = slice < part_slices ? acc[g][e] : add(done[g][e], acc[g][e]);
              acc[g][e] = 0.0f;
            }
          }
        }
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        if ((owned >> (16 * t + 8 * h + lane / 4) & 1) == 0) continue;
#pragma unroll
        for (int g = 0; g < groups; g++) {
          const auto &all = Parts::is_deep ? done[g] : acc[g];
          sums[t][g][2 * h] = all[2 * h];
          sums[t][g][2 * h + 1] = all[2 * h + 1];
        }
      }
    }
    slot = next_slot<config.tile_m>(buffers.slots, row0, rows, slot);
    copy_wait<0>();
    /* The next factors go where these were, or the sums. */
    __syncthreads();
  }
  float *const stored = (float *)memory;
#pragma unroll
  for (int t = 0; t < tiles; t++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int g = 0; g < groups; g++)
        *(float2 *)(stored + (Panel::own_rows * warp + 16 * t + 8 * h + lane / 4) * Panel::sum_pitch + 8 * g +
            2 * quad) = { sums[t][g][2 * h], sums[t][g][2 * h + 1] };
    }
  }
  cluster_arrive();
  cluster_wait();
  constexpr int pairs = config.tile_n / 2;
  for (int e = (int)threadIdx.x; e < Panel::own_rows * pairs; e += config.threads) {
    const int row = Panel::own_rows * range + e / pairs, c = e % pairs * 2, column = column0 + c;
    const int its_slot = row0 + row < rows ? buffers.slots[row0 + row] : NO_SLOT;
    if (its_slot == NO_SLOT || column >= config.columns) continue;
    const unsigned at = array_address(stored + row * Panel::sum_pitch + c);
    float2 part[SHRINK_RANGES];
#pragma unroll
    for (int r = 0; r < SHRINK_RANGES; r++) part[r] = fetch2(at, r);
    float2 sum = part[0];
#pragma unroll
    for (int r = 1; r < SHRINK_RANGES; r++) sum = shrink_sum(sum, part[r]);
    const float by = buffers.scale[its_slot * config.parts() + column / config.rank];
    store2(buffers.out + (long long)(row0 + row) * config.out_stride + column, mul(sum.x, by), mul(sum.y, by));
  }
  /* No block ends while others read its sums. */
  cluster_arrive();
  cluster_wait();
}

}  // namespace tw
