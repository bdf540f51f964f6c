/*
 * Products on CUDA cores: d[rows, n] = a[rows, k]·w[n, k]ᵀ of elements of any type, in float. Any shape, any pairing of
 * columns; what the other kernels are compared with.
 *
 * A block of 256 threads has a tile of tile_m × tile_n: thread (ty, tx) of 16 × 16 the rows ty + 16·i at the columns
 * tx + 16·j, each one fmaf after the other in order of k. Operands come tile_k at a time; all threads load, wait, and
 * multiply. The products then lie in shared memory where the operands were, and warps end rows, 32 columns at a time:
 *
 *   struct Epilogue {
 *     static constexpr int columns = 192;   // of the weight as it lies, padding included
 *     static constexpr int matrices = 2;    // physical columns of a logical one
 *     const T *weight() const;
 *     void row(int row, int first, int column, int lane, const float *values, const float *products) const;
 *   };
 *
 * `row` ends logical column `column`, the lane's, of a row; products[0 … tile_n) are the row's in the tile, whose first
 * logical column is `first`. The prologue is that of gemm/segments.cuh.
 *
 * Shared memory: { a[tile_k][tile_m + 1], w[tile_k][tile_n + 1] }, then products[tile_m][tile_n + 1] in their place;
 * values[tile_m][values of the prologue]; what a head keeps (head/simt.cuh). All float.
 */
#pragma once
#include "experts/tiles.cuh"
#include "gemm/adapter.cuh"
#include "gemm/segments.cuh"
#include "lib/elements.cuh"
#include "lib/global.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

constexpr int SIMT_THREADS = 256, SIMT_WARPS = SIMT_THREADS / 32;

struct SimtConfig {
  /* Depth of the product, and elements from row to row of both operands. */
  int k, a_stride, w_stride;
  /*
   * Columns that share a scale and a zero point, of weights of 4 bits (ir/groups.ts); 0 for others, −1 for microscaled
   * ones (ir/microscaled.ts).
   */
  int group;
  int tile_m, tile_n, tile_k;
  /* Of the launch. */
  int shared_bytes;
  AdapterConfig adapter = {};
  /* Heads with matrices of their own, which lie as those of experts do, and results of one; 0: there are none. */
  int heads = 0, head_columns = 0;

  /* Floats from row to row: odd, so that neighbouring rows lie in different banks. */
  TW_CONSTEXPR int a_pitch() const { return tile_m + 1; }
  TW_CONSTEXPR int pitch() const { return tile_n + 1; }
  TW_CONSTEXPR int values_at() const {
    const int operands = tile_k * (a_pitch() + pitch()), products = tile_m * pitch();
    return (operands > products ? operands : products) * 4;
  }
  TW_CONSTEXPR int values_end(int values) const { return values_at() + tile_m * values * 4; }
  /* Strides of a row in all of k: microscaled weights lie by 64 of it. */
  TW_CONSTEXPR int chunks() const { return group < 0 ? k / 64 : 1; }
  TW_CONSTEXPR bool is_legal() const {
    return tile_m % 16 == 0 && tile_n % 32 == 0 && tile_k > 0 && (group <= 0 || 128 % group == 0);
  }
};

/*
 * Where logical column c lies among a tile's products: of two matrices whose columns take turns, `width` at a time, and
 * of heads of which each half does.
 */
template <int width, int index> TW_DEVICE int interleaved(int c) {
  return c / width * (2 * width) + c % width + index * width;
}
template <int head_dim, int width> TW_DEVICE int halved(int c) {
  constexpr int half = head_dim / 2;
  return c / head_dim * head_dim + c % half / width * (2 * width) + c % half % width + c % head_dim / half * width;
}

/* The value of element (r, k) of weights in groups; `blocks`: of eight rows of the whole weight. */
template <int group> TW_DEVICE float load_grouped(const u8 *w, int blocks, int r, int k) {
  constexpr int groups = 128 / group, words = 128 + 8 * groups;
  const unsigned *block = (const unsigned *)w + ((long long)(k / 128) * blocks + r / 8) * words;
  const unsigned word = block[r % 8 * 16 + k % 8 / 2 * 4 + k % 128 / 32];
  const unsigned scale = block[128 + r % 8 * groups + k % 128 / group];
  const int code = (int)(word >> (4 * (k % 32 / 8) + 16 * (k % 2)) & 15u) - (int)(scale & 15u);
  return (float)code * __uint_as_float(scale & ~255u);
}

/* The value of element (r, k) of microscaled weights; `blocks`: of sixteen rows of the whole weight. */
TW_DEVICE float load_microscaled(const u8 *w, int blocks, int r, int k) {
  const unsigned char *block = (const unsigned char *)w + ((long long)(k / 64) * blocks + r / 16) * 544;
  const int pair = k % 32 / 8;
  const unsigned *const words = (const unsigned *)block + (r % 8 * 4 + k % 8 / 2) * 4;
  const unsigned word = words[r / 8 % 2 * 2 + k / 32 % 2] >> 16 * (k % 2);
  const unsigned code = pair == 3 ? (word >> 10 & 3u) | (word >> 11 & 12u)
                                  : (word >> (6 - 3 * pair) & 7u) | (word >> (12 - 3 * pair) & 8u);
  const unsigned magnitude = code & 7u;
  const float unit = magnitude < 4 ? 0.5f : magnitude < 6 ? 1.0f : 2.0f;
  const float value = magnitude < 2 ? 0.5f * magnitude : (2 + magnitude % 2) * unit;
  const int power = block[512 + r % 8 * 4 + r / 8 % 2 * 2 + k / 32 % 2] - 253;
  /* In two steps: the power alone may be no normal number. */
  const float half = __uint_as_float((unsigned)(power / 2 + 127) << 23);
  const float rest = __uint_as_float((unsigned)(power - power / 2 + 127) << 23);
  return (code & 8u ? -value : value) * half * rest;
}

/*
 * The tile's products. `a`, `w`: its first rows, of which `rows` and `columns` are left; others are zeros. `all`:
 * columns of the weight. Ends, not begins, with a barrier.
 */
template <SimtConfig config, class A, class W>
TW_DEVICE void simt_tile(const A *a, int rows, const W *w, int columns, int all, float *shared) {
  static_assert(config.is_legal());
  constexpr int down = config.tile_m / 16, across = config.tile_n / 16;
  float *smem_a = shared, *smem_w = shared + config.tile_k * config.a_pitch();
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[down][across];
#pragma unroll
  for (int i = 0; i < down; i++) {
#pragma unroll
    for (int j = 0; j < across; j++) acc[i][j] = 0.0f;
  }
  for (int k0 = 0; k0 < config.k; k0 += config.tile_k) {
    for (int i = threadIdx.x; i < config.tile_m * config.tile_k; i += SIMT_THREADS) {
      const int r = i / config.tile_k, c = i % config.tile_k;
      smem_a[c * config.a_pitch() + r] =
          r < rows && k0 + c < config.k ? load(a + (long long)r * config.a_stride + k0 + c) : 0.0f;
    }
    for (int i = threadIdx.x; i < config.tile_n * config.tile_k; i += SIMT_THREADS) {
      const int r = i / config.tile_k, c = i % config.tile_k;
      float x = 0.0f;
      if (r < columns && k0 + c < config.k) {
        if constexpr (config.group == 0) x = load(w + (long long)r * config.w_stride + k0 + c);
        else if constexpr (config.group < 0) x = load_microscaled(w, all / 16, r, k0 + c);
        else x = load_grouped<config.group>(w, all / 8, r, k0 + c);
      }
      smem_w[c * config.pitch() + r] = x;
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < config.tile_k; c++) {
      float x[down], y[across];
#pragma unroll
      for (int i = 0; i < down; i++) x[i] = smem_a[c * config.a_pitch() + ty + 16 * i];
#pragma unroll
      for (int j = 0; j < across; j++) y[j] = smem_w[c * config.pitch() + tx + 16 * j];
#pragma unroll
      for (int i = 0; i < down; i++) {
#pragma unroll
        for (int j = 0; j < across; j++) acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < down; i++) {
#pragma unroll
    for (int j = 0; j < across; j++) shared[(ty + 16 * i) * config.pitch() + tx + 16 * j] = acc[i][j];
  }
  __syncthreads();
}

/* Adds what rows of adapters get to a tile's products, of `columns` columns that are left. Ends with a barrier. */
template <SimtConfig config, class T>
TW_DEVICE void simt_adapters(const AdapterTile<T> &tile, int m0, int rows, int columns, float *products) {
  constexpr AdapterConfig adapter = config.adapter;
  for (int i = threadIdx.x; tile.slots != nullptr && i < config.tile_m * config.tile_n; i += SIMT_THREADS) {
    const int r = i / config.tile_n, c = i % config.tile_n, row = m0 + r;
    const int slot = row < rows && c < columns ? tile.slots[row] : NO_SLOT;
    if (slot < 0) continue;
    const int part = adapter.width > 0 && c / adapter.width % 2 == 1 ? tile.other_part : 0;
    const T *const x = tile.shrunk + (long long)row * adapter.stride + part;
    const T *const y = tile.second + slot * tile.slot_elements + c * adapter.rank;
    float sum = products[r * config.pitch() + c];
    for (int k = 0; k < adapter.rank; k++) sum = fmaf(load(x + k), load(y + k), sum);
    products[r * config.pitch() + c] = sum;
  }
  __syncthreads();
}

/* What the prologue says of the tile's rows. No barrier follows: that of the main loop comes before any reader. */
template <SimtConfig config, class Prologue>
TW_DEVICE void simt_prologue(int m0, int rows, const Prologue &prologue, float *values) {
  if constexpr (Prologue::row_values > 0) {
    for (int i = threadIdx.x / 32; i < config.tile_m; i += SIMT_WARPS) {
      const int row = m0 + i < rows ? m0 + i : rows - 1;
      prologue.row(row, values + i * Prologue::row_values, RowAtOnce{});
    }
  }
}

/* One tile: rows m0 … rows of `a`, column tile `across` of all segments, and the weights of `expert`, or of a head. */
template <SimtConfig config, class A, class Prologue, class... Segments>
TW_DEVICE void simt_block(const A *a, int m0, int rows, int across, int expert, const Prologue &prologue,
    const Segments &...segments) {
  TW_DYNAMIC_SHARED(shared_memory, 128);
  static_assert(config.values_end(Prologue::row_values) == config.shared_bytes);
  float *const tile = (float *)shared_memory, *const values = (float *)(shared_memory + config.values_at());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  simt_prologue<config>(m0, rows, prologue, values);
  visit_segment<config.tile_n>(across, [&](const auto &segment, int segment_tile) {
    const int n0 = segment_tile * config.tile_n;
    simt_tile<config>(a + (long long)m0 * config.a_stride, rows - m0,
        segment.weight() + ((long long)expert * segment.columns * config.chunks() + n0) * config.w_stride,
        segment.columns - n0,
        segment.columns, tile);
    if constexpr (config.adapter.is_there())
      simt_adapters<config>(adapter_tile<config.adapter, A>(segment, n0), m0, rows, segment.columns - n0, tile);
    const int first = n0 / segment.matrices + expert * config.head_columns;
    const int pieces = config.tile_n / segment.matrices / 32;
    for (int item = warp; item < config.tile_m * pieces; item += SIMT_WARPS) {
      const int i = item / pieces, row = m0 + i;
      if (row >= rows) break;
      segment.row(row, first, first + item % pieces * 32 + lane, lane, values + i * Prologue::row_values,
          tile + i * config.pitch());
    }
  }, segments...);
}

/* The kernel, once the one before has ended (await_previous). Row tiles lie along x, column tiles along y. */
template <SimtConfig config, class A, class Prologue, class... Segments>
TW_DEVICE int simt_gemm(int rows, const A *a, const Prologue &prologue, const Segments &...segments) {
  const int m0 = (int)blockIdx.x * config.tile_m;
  if constexpr (config.heads > 0) {
    constexpr int across = column_tiles<config.tile_n, Segments...>;
    const int head = (int)blockIdx.y / across;
    simt_block<config>(a + head * config.k, m0, rows, (int)blockIdx.y % across, head, prologue, segments...);
  } else {
    simt_block<config>(a, m0, rows, blockIdx.y, 0, prologue, segments...);
  }
  return m0;
}

/* The same of rows of experts. Blocks take row tiles in turn. */
template <SimtConfig config, int experts, class A, class Prologue, class... Segments>
TW_DEVICE void simt_gemm(const ExpertRows<experts> &rows, const A *a, const Prologue &prologue,
    const Segments &...segments) {
  for (int t = blockIdx.x;; t += gridDim.x) {
    ExpertTile tile;
    if (!find_expert_tile<config.tile_m>(rows, t, tile)) break;
    /* The tile before may still be read. */
    __syncthreads();
    simt_block<config>(a, tile.first, tile.end, blockIdx.y, tile.expert, prologue, segments...);
  }
}

}  // namespace tw
