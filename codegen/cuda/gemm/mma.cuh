/*
 * Products on the tensor cores of every GPU from sm_80 on: d[rows, n] = a[rows, k]·w[n, k]ᵀ of 16-bit elements, added
 * in float, by cp.async, ldmatrix and mma.sync.
 *
 * A block has a tile of tile_m × tile_n, its warps parts of warp_m × warp_n: warp w part (w % warps_down,
 * w / warps_down). All warps copy, all multiply. k goes by in steps of tile_k through a ring of stages, of which
 * stages − 1 are under way; a block waits for the oldest, then starts the copies of the stage that it has read last.
 * Weights of the first stages come before the kernel before has ended, unless they are those of experts. A
 * product is one accumulator in order of k, whatever the tile: no tile shows in its bits.
 *
 * Shared memory, from the front (MmaConfig says where):
 *   stages × { a[tile_m][tile_k], w[tile_n][tile_k] }   16-bit; chunks of 16 bytes rotated by the row (chunk_at)
 *   values[tile_m][values of the prologue]              float
 *   what a head keeps (head/mma.cuh)
 */
#pragma once
#include "experts/tiles.cuh"
#include "gemm/adapter.cuh"
#include "gemm/segments.cuh"
#include "lib/copy.cuh"
#include "lib/global.cuh"
#include "lib/launch.cuh"
#include "lib/mma.cuh"
#include "lib/warp.cuh"

namespace tw {

struct MmaConfig {
  /* Depth of the product, and elements from row to row of both operands. */
  int k, a_stride, w_stride;
  int tile_m, tile_n, tile_k, stages;
  int warp_m, warp_n;
  /* Row tiles that blocks walk before the next column tile: what they read together stays in L2. */
  int raster;
  /* Of the launch. */
  int threads, shared_bytes;
  AdapterConfig adapter = {};
  /* Heads with matrices of their own, which lie as those of experts do, and results of one; 0: there are none. */
  int heads = 0, head_columns = 0;

  TW_CONSTEXPR int warps_down() const { return tile_m / warp_m; }
  TW_CONSTEXPR int warps() const { return warps_down() * (tile_n / warp_n); }
  /* Fragments of 16 × 8 of a warp's part. */
  TW_CONSTEXPR int down() const { return warp_m / 16; }
  TW_CONSTEXPR int across() const { return warp_n / 8; }
  TW_CONSTEXPR int steps() const { return ceil_div(k, tile_k); }
  TW_CONSTEXPR int chunks() const { return tile_k / 8; }
  TW_CONSTEXPR int a_bytes() const { return tile_m * tile_k * 2; }
  TW_CONSTEXPR int stage_bytes() const { return (tile_m + tile_n) * tile_k * 2; }
  TW_CONSTEXPR int values_at() const { return stages * stage_bytes(); }
  TW_CONSTEXPR int values_end(int values) const { return values_at() + tile_m * values * 4; }

  TW_CONSTEXPR bool is_legal() const {
    return (tile_k == 32 || tile_k == 64) && stages >= 2 && stages <= 8 && warp_m % 16 == 0 && warp_n % 32 == 0 &&
        tile_m % warp_m == 0 && tile_n % warp_n == 0 && warp_m * warp_n <= 4096 && warps() <= 16 &&
        threads == 32 * warps() && raster > 0;
  }
};

/* A thread's accumulators: fragment (i, j) at rows 16·i + lane / 4 and 8 below, columns 8·j + 2·(lane % 4), + 1. */
template <MmaConfig config> using MmaProducts = float[config.down()][config.across()][4];

/* One row of them: see gemm/segments.cuh. */
template <MmaConfig config> struct MmaRow {
  MmaProducts<config> &products;
  int half;
  TW_DEVICE float operator()(int group, int lane) const { return products[half / 2][group][half % 2 * 2 + lane]; }
};

/* Where a chunk of a row lies in a stage: the eight rows that an ldmatrix reads are in different banks. */
template <MmaConfig config> TW_DEVICE int chunk_at(int row, int chunk) {
  return (row * config.chunks() + (chunk ^ ((config.chunks() == 8 ? row : row >> 1) & (config.chunks() - 1)))) * 16;
}

/* Starts the copies of tile_k columns of `tile_rows` rows. Rows from `rows` on, and k past its end, are zeros. */
template <MmaConfig config, int tile_rows, int stride, class T>
TW_DEVICE void copy_operand(const T *from, int rows, int k0, unsigned to) {
#pragma unroll
  for (int i = threadIdx.x; i < tile_rows * config.chunks(); i += config.threads) {
    const int r = i / config.chunks(), c = i % config.chunks(), left = (config.k - k0 - c * 8) * 2;
    const int bytes = r >= rows || left < 0 ? 0 : left < 16 ? left : 16;
    copy16(to + chunk_at<config>(r, c), bytes == 0 ? from : from + (r * stride + k0 + c * 8), bytes);
  }
}

/* A stage's part of each operand. `to`: where the stage lies. */
template <MmaConfig config, class T> TW_DEVICE void copy_rows(const T *a, int rows, int k0, unsigned to) {
  copy_operand<config, config.tile_m, config.a_stride>(a, rows, k0, to);
}
template <MmaConfig config, class T> TW_DEVICE void copy_weights(const T *w, int columns, int k0, unsigned to) {
  copy_operand<config, config.tile_n, config.w_stride>(w, columns, k0, to + config.a_bytes());
}

/* Of tiles whose rows are there. */
struct RowsAreThere {};

/*
 * The tile's products. `a`, `w`: its first rows, of which `rows` and `columns` are left. `await_rows` waits for rows
 * while the first weights are on their way. Ends with a barrier.
 */
template <MmaConfig config, class T, class Await>
TW_DEVICE void mma_tile(const T *a, int rows, const T *w, int columns, const void *shared,
    MmaProducts<config> &products, const Await &await_rows) {
  constexpr bool waits = requires { await_rows(); };
  static_assert(config.is_legal());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int i0 = warp % config.warps_down() * config.warp_m, j0 = warp / config.warps_down() * config.warp_n;
  const unsigned base = array_address(shared);
#pragma unroll
  for (int i = 0; i < config.down(); i++) {
#pragma unroll
    for (int j = 0; j < config.across(); j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) products[i][j][e] = 0.0f;
    }
  }
  if constexpr (waits) {
    for (int s = 0; s < config.stages - 1 && s < config.steps(); s++)
      copy_weights<config>(w, columns, s * config.tile_k, base + s * config.stage_bytes());
    await_rows();
  }
  for (int s = 0; s < config.stages - 1; s++) {
    if (s < config.steps()) {
      copy_rows<config>(a, rows, s * config.tile_k, base + s * config.stage_bytes());
      if constexpr (!waits) copy_weights<config>(w, columns, s * config.tile_k, base + s * config.stage_bytes());
    }
    copy_commit();
  }
  int from = 0, into = config.stages - 1;
  for (int step = 0; step < config.steps(); step++) {
    copy_wait<config.stages - 2>();
    /* This step's copies are here, and nobody reads the stage that the next copies go to. */
    __syncthreads();
    if (step + config.stages - 1 < config.steps()) {
      const int k0 = (step + config.stages - 1) * config.tile_k;
      copy_rows<config>(a, rows, k0, base + into * config.stage_bytes());
      copy_weights<config>(w, columns, k0, base + into * config.stage_bytes());
    }
    copy_commit();
    const unsigned smem_a = base + from * config.stage_bytes(), smem_w = smem_a + config.a_bytes();
    into = into + 1 < config.stages ? into + 1 : 0;
    from = from + 1 < config.stages ? from + 1 : 0;
#pragma unroll
    for (int k = 0; k < config.tile_k / 16; k++) {
      unsigned x[config.down()][4], y[config.across() / 2][4];
#pragma unroll
      for (int i = 0; i < config.down(); i++)
        ldmatrix_x4(x[i], smem_a + chunk_at<config>(i0 + 16 * i + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < config.across() / 2; j++)
        ldmatrix_x4(y[j], smem_w + chunk_at<config>(j0 + 16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < config.down(); i++) {
#pragma unroll
        for (int j = 0; j < config.across(); j++)
          mma<T>(products[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  copy_wait<0>();
  __syncthreads();
}

/*
 * Adds what rows of adapters get to a warp's products, for each slot that its rows have. `columns`: of the tile that
 * are left. Operands come from L2 as fragments.
 */
template <MmaConfig config, class T>
TW_DEVICE void mma_adapters(const AdapterTile<T> &tile, int m0, int rows, int columns, MmaProducts<config> &products) {
  constexpr AdapterConfig adapter = config.adapter;
  static_assert(adapter.width % 8 == 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = m0 + warp % config.warps_down() * config.warp_m;
  const int column0 = warp / config.warps_down() * config.warp_n + lane / 4;
  if (tile.slots == nullptr) return;
  int slot = next_slot<config.warp_m>(tile.slots, row0, rows, NO_SLOT);
#pragma unroll 1
  for (; slot >= 0; slot = next_slot<config.warp_m>(tile.slots, row0, rows, slot)) {
    ShrunkRows<T> own[config.down()];
#pragma unroll
    for (int i = 0; i < config.down(); i++) {
      const int upper = row0 + 16 * i + lane / 4, lower = upper + 8;
      const T *const x = tile.shrunk + (long long)upper * adapter.stride;
      own[i] = { x, x + 8 * adapter.stride, upper < rows && tile.slots[upper] == slot,
          lower < rows && tile.slots[lower] == slot };
    }
    const T *const second = tile.second + slot * tile.slot_elements + 2 * (lane % 4);
#pragma unroll 1
    for (int k = 0; k < adapter.rank; k += ADAPTER_STEP) {
      unsigned y[config.across()][2];
#pragma unroll
      for (int j = 0; j < config.across(); j++) {
        const int column = column0 + 8 * j;
        const T *const from = second + column * adapter.rank + k;
        y[j][0] = column < columns ? *(const unsigned *)from : 0u;
        y[j][1] = column < columns ? *(const unsigned *)(from + 8) : 0u;
      }
#pragma unroll
      for (int i = 0; i < config.down(); i++) {
        unsigned x[adapter.matrices()][4];
#pragma unroll
        for (int matrix = 0; matrix < adapter.matrices(); matrix++)
          own[i].load(k + matrix * tile.other_part, x[matrix]);
#pragma unroll
        for (int j = 0; j < config.across(); j++)
          mma<T>(products[i][j], x[adapter.matrix_of(j)], y[j][0], y[j][1]);
      }
    }
  }
}

/* What the prologue says of the tile's rows. No barrier follows: that of the main loop comes before any reader. */
template <MmaConfig config, class Prologue>
TW_DEVICE void mma_prologue(int m0, int rows, const Prologue &prologue, float *values) {
  if constexpr (Prologue::row_values > 0) {
    for (int i = threadIdx.x / 32; i < config.tile_m; i += config.warps()) {
      const int row = m0 + i < rows ? m0 + i : rows - 1;
      prologue.row(row, values + i * Prologue::row_values, RowAtOnce{});
    }
  }
}

/* The first row of this block's tile, and its column tile of `across`: blocks walk `raster` row tiles first. */
struct MmaPlace { int m0, column_tile; };
template <MmaConfig config> TW_DEVICE MmaPlace mma_place(int rows, int across) {
  const int down = (rows + config.tile_m - 1) / config.tile_m, walk = config.raster * across;
  const int group = (int)blockIdx.x / walk, left = down - group * config.raster;
  const int height = left < config.raster ? left : config.raster, place = (int)blockIdx.x - group * walk;
  const int column_tile = place / height;
  return { (group * config.raster + place - column_tile * height) * config.tile_m, column_tile };
}

/*
 * One tile: rows m0 … rows of `a`, column tile `across` of all segments, and the weights of `expert`, or of a head.
 * `is_there`: whether the kernel before has ended.
 */
template <MmaConfig config, bool is_there, class T, class Prologue, class... Segments>
TW_DEVICE void mma_block(const T *a, int m0, int rows, int across, int expert, const Prologue &prologue,
    const Segments &...segments) {
  TW_DYNAMIC_SHARED(shared_memory, 128);
  static_assert(config.values_end(Prologue::row_values) == config.shared_bytes);
  float *const values = (float *)(shared_memory + config.values_at());
  if constexpr (is_there) mma_prologue<config>(m0, rows, prologue, values);
  const T *weight;
  int n0, left;
  AdapterTile<T> adapters;
  visit_segment<config.tile_n>(across, [&](const auto &segment, int tile) {
    n0 = tile * config.tile_n;
    left = segment.columns - n0;
    weight = segment.weight();
    if constexpr (config.adapter.is_there()) adapters = adapter_tile<config.adapter, T>(segment, n0);
  }, segments...);
  weight += (long long)expert * (left + n0) * config.w_stride;
  MmaProducts<config> products;
  const auto multiply = [&](const auto &await_rows) {
    mma_tile<config>(a + (long long)m0 * config.a_stride, rows - m0, weight + (long long)n0 * config.w_stride, left,
        shared_memory, products, await_rows);
  };
  if constexpr (is_there) {
    multiply(RowsAreThere{});
  } else {
    multiply([&] {
      wait_for_previous_if_any();
      mma_prologue<config>(m0, rows, prologue, values);
    });
  }
  if constexpr (config.adapter.is_there()) mma_adapters<config>(adapters, m0, rows, left, products);
  /* What the epilogue needs is worked out when it comes to that, not kept in registers. */
  const int self = forgotten(threadIdx.x), quad = self % 4,
      i0 = self / 32 % config.warps_down() * config.warp_m + self % 32 / 4,
      j0 = self / 32 / config.warps_down() * config.warp_n;
  visit_segment<config.tile_n>(across, [&](const auto &segment, int) {
#pragma unroll
    for (int half = 0; half < config.warp_m / 8; half++) {
      const int i = forgotten(i0 + 8 * half), row = m0 + i < rows ? m0 + i : rows - 1;
      segment.row(row, m0 + i < rows, n0 + j0 + expert * config.head_columns, quad,
          values + i * Prologue::row_values, MmaRow<config>{ products, half });
    }
  }, segments...);
}

/* The kernel. It waits for the one before by itself. Returns the first row of the block's tile. */
template <MmaConfig config, class T, class Prologue, class... Segments>
TW_DEVICE int mma_gemm(int rows, const T *a, const Prologue &prologue, const Segments &...segments) {
  constexpr int across = column_tiles<config.tile_n, Segments...>;
  begin_next();
  const auto [m0, column_tile] = mma_place<config>(rows, config.heads > 0 ? config.heads * across : across);
  if constexpr (config.heads > 0) {
    const int head = column_tile / across;
    mma_block<config, false>(a + head * config.k, m0, rows, column_tile % across, head, prologue, segments...);
  } else {
    mma_block<config, false>(a, m0, rows, column_tile, 0, prologue, segments...);
  }
  return m0;
}

/* The same of rows of experts, once the kernel before has ended (await_previous). Blocks take tiles in turn. */
template <MmaConfig config, int experts, class T, class Prologue, class... Segments>
TW_DEVICE void mma_gemm(const ExpertRows<experts> &rows, const T *a, const Prologue &prologue,
    const Segments &...segments) {
  constexpr int across = column_tiles<config.tile_n, Segments...>;
  for (int t = blockIdx.x;; t += gridDim.x) {
    ExpertTile tile;
    if (!find_expert_tile<config.tile_m>(rows, t / across, tile)) break;
    mma_block<config, true>(a, tile.first, tile.end, t % across, tile.expert, prologue, segments...);
    /* The next tile overwrites what epilogues read. */
    __syncthreads();
  }
}

}  // namespace tw
