/*
 * The first factor of adapters: out[row, i] = round(s·Σ_k a[row, k]·A[i, k]), where A and the scale s are those of the
 * row's own slot. Rows without slot are not computed.
 *
 * A block has some columns of a tile of rows, and takes the distinct slots among its rows by turns with other blocks of
 * the tile. Each of its warps has a range of k, whatever the tile, so a row has the same bits in any tile, and where a
 * product sums it itself (adapter/ranges.cuh). Blocks of the first turns come first: the others mostly have nothing to
 * do.
 *
 * Factors do not depend on the kernel before: the first of them are under way while it ends. The next kernel begins at
 * once, fetches its weights, and waits.
 */
#pragma once
#include "adapter/ranges.cuh"
#include "lib/global.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

struct ShrinkConfig {
  /* Depth, ranks of an adapter, and columns of all parts. */
  int k, rank, columns;
  /* Elements from row to row of the left operand, of factors and of results; rows of a slot's factors. */
  int a_stride, w_stride, out_stride, w_rows;
  /* A tile, blocks that share its slots, and steps of k whose operands are on the way together. */
  int tile_m, tile_n, units, batch;
  int threads;
  /* Of the ring of many rows (adapter/shrinkMany.cuh). */
  int shared_bytes = 0;

  TW_CONSTEXPR int across() const { return ceil_div(columns, tile_n); }
  TW_CONSTEXPR int parts() const { return columns / rank; }
  TW_CONSTEXPR int range() const { return shrink_range(k); }
  /* Fragments of 16 × 8, and halves of them that have rows. */
  TW_CONSTEXPR int down() const { return ceil_div(tile_m, 16); }
  TW_CONSTEXPR int halves() const { return tile_m < 16 ? 1 : 2; }
  TW_CONSTEXPR int groups() const { return tile_n / 8; }
  TW_CONSTEXPR bool is_legal() const {
    return threads == 32 * SHRINK_RANGES && (tile_m == 8 || tile_m % 16 == 0) && tile_n % 8 == 0 && rank % 16 == 0 &&
        columns % rank == 0 && units > 0 && batch > 0;
  }
};

template <class T> struct ShrinkBuffers {
  const T *a;
  const int *slots;
  const T *weight;
  const float *scale;
  T *out;
};

/* The operands of a batch of steps, as they lie in a lane's registers. */
template <ShrinkConfig config> struct ShrinkRows { uint4 x[config.batch][config.down()][config.halves()]; };
template <ShrinkConfig config> struct ShrinkFactors { uint4 y[config.batch][config.groups()]; };

/*
 * What a block does that has no work: it leaves its room to others. Kernels that follow count on all before this one,
 * for which it is enough that one block has waited.
 */
TW_DEVICE void shrink_nothing() {
  if (blockIdx.x == 0) wait_for_previous_if_any();
}

/* The kernel. Results of rows without slot stay as they are. */
template <ShrinkConfig config, class T> TW_DEVICE void shrink(int rows, const ShrinkBuffers<T> &buffers) {
  static_assert(config.is_legal());
  constexpr int down = config.down(), halves = config.halves(), groups = config.groups();
  constexpr int tile_m = config.tile_m, tile_n = config.tile_n, batch = config.batch, step = SHRINK_STEP;
  using Parts = ShrinkParts<config.k>;
  __shared__ TileSlots<tile_m> found;
  __shared__ float2 sums[SHRINK_RANGES][8 * halves][tile_n / 2];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, quad = lane % 4;
  const int across = (int)blockIdx.x % config.across(), place = (int)blockIdx.x / config.across();
  const int tiles = ceil_div(rows, tile_m), unit = place / tiles, row0 = place % tiles * tile_m,
            column0 = across * tile_n;
  begin_next();
  if (warp == 0) find_slots(buffers.slots, row0, rows, tile_m, found);
  __syncthreads();
  const int count = found.count;
  if (unit >= count) {
    shrink_nothing();
    return;
  }
  const int first = warp * config.range(), end = min(first + config.range(), config.k);
  const auto factor = [&](int slot, int group) {
    return buffers.weight + ((long long)slot * config.w_rows + column0 + 8 * group + lane / 4) * config.w_stride;
  };
  const auto load_factors = [&](ShrinkFactors<config> &to, int slot, int at) {
#pragma unroll
    for (int s = 0; s < batch; s++) {
#pragma unroll
      for (int g = 0; g < groups; g++)
        to.y[s][g] = shrink_load<config.k>(factor(slot, g), at + step * s + 8 * quad, end,
            column0 + 8 * g < config.columns);
    }
  };
  ShrinkFactors<config> y;
  load_factors(y, found.distinct[unit], first);
  /* What follows of them comes to L2 meanwhile. */
  if constexpr (tile_m == 8) {
    for (int i = lane; i < tile_n * (config.range() / 64); i += 32) {
      const int at = first + i / tile_n * 64;
      if (at < end && column0 + i % tile_n < config.columns)
        prefetch(buffers.weight +
            ((long long)found.distinct[unit] * config.w_rows + column0 + i % tile_n) * config.w_stride + at);
    }
  }
  wait_for_previous_if_any();
  for (int d = unit; d < count; d += config.units) {
    const int slot = found.distinct[d];
    bool is_own[down][halves];
    const T *row[down][halves];
#pragma unroll
    for (int i = 0; i < down; i++) {
#pragma unroll
      for (int h = 0; h < halves; h++) {
        const int local = 16 * i + 8 * h + lane / 4;
        is_own[i][h] = found.of[local] == slot;
        row[i][h] = buffers.a + (long long)(row0 + local) * config.a_stride;
      }
    }
    const auto load_rows = [&](ShrinkRows<config> &to, int at) {
#pragma unroll
      for (int s = 0; s < batch; s++) {
#pragma unroll
        for (int i = 0; i < down; i++) {
#pragma unroll
          for (int h = 0; h < halves; h++)
            to.x[s][i][h] = shrink_load<config.k>(row[i][h], at + step * s + 8 * quad, end, is_own[i][h]);
        }
      }
    };
    /* Of a part of the range, and of the parts before it. */
    float acc[down][groups][4], done[down][groups][4];
#pragma unroll
    for (int i = 0; i < down; i++) {
#pragma unroll
      for (int g = 0; g < groups; g++) {
#pragma unroll
        for (int e = 0; e < 4; e++) acc[i][g][e] = done[i][g][e] = 0.0f;
      }
    }
    ShrinkRows<config> x;
    load_rows(x, first);
    if (d != unit) load_factors(y, slot, first);
    for (int at = first; at < end; at += batch * step) {
      ShrinkRows<config> next_x;
      ShrinkFactors<config> next_y;
      /* Past the end nothing is read. */
      load_rows(next_x, at + batch * step);
      load_factors(next_y, slot, at + batch * step);
#pragma unroll
      for (int s = 0; s < batch; s++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
          for (int i = 0; i < down; i++) {
            unsigned own[4];
            shrink_fragment(own, x.x[s][i][0], halves == 2 ? x.x[s][i][halves - 1] : uint4{ 0u, 0u, 0u, 0u }, half);
#pragma unroll
            for (int g = 0; g < groups; g++) shrink_add<T>(acc[i][g], own, y.y[s][g], half);
          }
        }
      }
      x = next_x;
      y = next_y;
      if constexpr (Parts::is_deep) {
        static_assert(Parts::k % (batch * step) == 0);
        const int behind = at + batch * step - first;
        if (behind % Parts::k != 0 && first + behind < end) continue;
#pragma unroll
        for (int i = 0; i < down; i++) {
#pragma unroll
          for (int g = 0; g < groups; g++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              done[i][g][e] = behind <= Parts::k ? acc[i][g][e] : add(done[i][g][e], acc[i][g][e]);
              acc[i][g][e] = 0.0f;
            }
          }
        }
      }
    }
    /* Ranges are added in their order. */
    constexpr int local_rows = 8 * halves, pairs = tile_n / 2;
#pragma unroll
    for (int i = 0; i < down; i++) {
#pragma unroll
      for (int g = 0; g < groups; g++) {
#pragma unroll
        for (int h = 0; h < halves; h++) {
          const auto &all = Parts::is_deep ? done[i][g] : acc[i][g];
          sums[warp][lane / 4 + 8 * h][4 * g + quad] = { all[2 * h], all[2 * h + 1] };
        }
      }
      __syncthreads();
      for (int e = threadIdx.x; e < local_rows * pairs; e += config.threads) {
        const int r = e / pairs, c = e % pairs * 2, local = 16 * i + r;
        if (found.of[local] == slot && column0 + c < config.columns) {
          float2 sum = sums[0][r][c / 2];
#pragma unroll
          for (int w = 1; w < SHRINK_RANGES; w++) sum = shrink_sum(sum, sums[w][r][c / 2]);
          const float by = buffers.scale[slot * config.parts() + (column0 + c) / config.rank];
          store2(buffers.out + (long long)(row0 + local) * config.out_stride + column0 + c, mul(sum.x, by),
              mul(sum.y, by));
        }
      }
      __syncthreads();
    }
  }
}

/* The same of floats, on CUDA cores: a block a row, a warp a column at a time. */
template <ShrinkConfig config> TW_DEVICE void shrink_floats(int rows, const ShrinkBuffers<float> &buffers) {
  const int row = (int)blockIdx.x, slot = row < rows ? buffers.slots[row] : -1, lane = (int)threadIdx.x % 32;
  await_previous();
  if (slot < 0) return;
  const float *const a = buffers.a + (long long)row * config.a_stride;
  for (int i = (int)threadIdx.x / 32; i < config.columns; i += config.threads / 32) {
    const float *const w = buffers.weight + ((long long)slot * config.w_rows + i) * config.w_stride;
    float sum = 0.0f;
    for (int k = lane; k < config.k; k += 32) sum = fmaf(a[k], w[k], sum);
    sum = warp_sum(sum);
    if (lane == 0)
      buffers.out[(long long)row * config.out_stride + i] = mul(sum,
          buffers.scale[slot * config.parts() + i / config.rank]);
  }
}

}  // namespace tw
