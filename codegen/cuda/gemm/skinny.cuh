/*
 * Products of few rows on every GPU from sm_80 on: c[rows, columns] = a[rows, k]·w[columns, k]ᵀ of 16-bit elements, up
 * to 64 rows a tile. They are limited by the memory that w is read from, so many bytes are in flight: a deep ring of
 * asynchronous copies, begun before the preceding kernel has ended. Every element is added up in one accumulator in
 * order of k, as gemm/mma.cuh and gemm/hopper.cuh do it, so results have the same bits.
 *
 * Warps: the first warps() of a block multiply, a part of warp_m × warp_n each, over all of k. Where they are few, the
 * others only copy: a warp that did both would take the instructions of a stage one after another. With two warps that
 * do both, a stage of 8 KB takes 1.05 µs on an H100, three times what memory needs for it. Otherwise all copy.
 *
 * Shared memory:
 *   stages × { a[tile_m][tile_k], w[tile_n][tile_k] }   a row is chunks of 16 bytes, rotated by the row (chunk_at)
 *   values[tile_m][row_values]                          floats
 *   slots                                               of the tile's rows, where they have adapters
 * At the end products[tile_m][pitch] may take the place of the stages: epilogues that add up more columns than a warp
 * has, and heads, read them there.
 *
 * What waits for what: in each step a warp waits for its copies of the oldest stage, then for all others at the block's
 * barrier, then starts the copies of the stage that was read last. k past its end is zeros; rows past the ends hold
 * anything, and nothing is stored of them.
 *
 * Second factors of adapters (gemm/adapter.cuh) come behind k in the same ring: stages of pieces.
 */
#pragma once
#include "gemm/adapter.cuh"
#include "gemm/fewRows.cuh"
#include "lib/launch.cuh"
#include "lib/mma.cuh"

namespace tw {

struct SkinnyConfig {
  /* k of the product, and elements from row to row of both operands. */
  int k, a_stride, w_stride;
  /* Rows and columns of a tile, k of a stage, stages of the ring. */
  int tile_m, tile_n, tile_k, stages;
  /* Rows and columns of a warp that multiplies; warps that only copy. */
  int warp_m, warp_n, copier_warps;
  /* Floats of a row that epilogues read. */
  int row_values;
  /* Of the launch: threads of a block and bytes of its shared memory. */
  int threads, shared_bytes;
  AdapterConfig adapter;

  TW_CONSTEXPR int warps_down() const { return tile_m / warp_m; }
  TW_CONSTEXPR int warps() const { return warps_down() * (tile_n / warp_n); }
  TW_CONSTEXPR int copying_warps() const { return copier_warps > 0 ? copier_warps : warps(); }
  /* Fragments of 16 × 8 of a warp's part. Tiles of 8 rows use half of each instruction. */
  TW_CONSTEXPR int down() const { return warp_m < 16 ? 1 : warp_m / 16; }
  TW_CONSTEXPR int across() const { return warp_n / 8; }
  TW_CONSTEXPR int steps() const { return ceil_div(k, tile_k); }
  TW_CONSTEXPR int chunks() const { return tile_k / 8; }
  TW_CONSTEXPR int a_bytes() const { return tile_m * tile_k * 2; }
  TW_CONSTEXPR int stage_bytes() const { return (tile_m + tile_n) * tile_k * 2; }
  /* Floats from one row of products to the next: neighbouring rows lie in different banks. */
  TW_CONSTEXPR int pitch() const { return tile_n + 8; }
  TW_CONSTEXPR int values_at() const {
    const int ring = stages * stage_bytes(), products = tile_m * pitch() * 4;
    return ring > products ? ring : products;
  }
  TW_CONSTEXPR int slots_at() const { return ceil_div(values_at() + tile_m * row_values * 4, 16) * 16; }
  TW_CONSTEXPR int end() const {
    return adapter.is_there() ? slots_at() + TILE_SLOTS_BYTES : values_at() + tile_m * row_values * 4;
  }
};

/* A thread's accumulators: rows 16·i + lane / 4 and 8 below, columns 8·j + lane % 4 · 2 and its neighbour. */
template <SkinnyConfig config> using SkinnyProducts = float[config.down()][config.across()][4];

/* One row of them: see gemm/segments.cuh. */
template <SkinnyConfig config> struct SkinnyRow {
  SkinnyProducts<config> &products;
  int half;
  TW_DEVICE float operator()(int group, int e) const { return products[half / 2][group][half % 2 * 2 + e]; }
};

/* Where a chunk of a row lies in a stage: the eight rows that an ldmatrix reads are in different banks. */
template <SkinnyConfig config> TW_DEVICE int skinny_chunk_at(int row, int chunk) {
  return (row * config.chunks() + (chunk ^ (row & 7))) * 16;
}

/* The number of a thread among those that copy; negative for those that do not. */
template <SkinnyConfig config> TW_DEVICE int skinny_copier() {
  return config.copier_warps == 0 ? (int)threadIdx.x : (int)(threadIdx.x - 32 * config.warps());
}

/* Starts the copies of tile_k columns of the tile's weights, and of its rows. */
template <SkinnyConfig config, class T>
TW_DEVICE void skinny_copy_weights(const T *w, int columns, int k0, unsigned stage) {
#pragma unroll
  for (int i = skinny_copier<config>(); i < config.tile_n * config.chunks(); i += 32 * config.copying_warps()) {
    const int r = i / config.chunks(), c = i % config.chunks(), left = (config.k - k0 - c * 8) * 2;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    /* L2 reads the 256 bytes around them, as other stages want them soon. */
    if (r < columns)
      copy16_near(stage + config.a_bytes() + skinny_chunk_at<config>(r, c),
          bytes == 0 ? w : w + (r * config.w_stride + k0 + c * 8), bytes);
  }
}
template <SkinnyConfig config, class T>
TW_DEVICE void skinny_copy_rows(const T *a, int rows, int k0, unsigned stage) {
#pragma unroll
  for (int i = skinny_copier<config>(); i < config.tile_m * config.chunks(); i += 32 * config.copying_warps()) {
    const int r = i / config.chunks(), c = i % config.chunks(), left = (config.k - k0 - c * 8) * 2;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    if (r < rows)
      copy16(stage + skinny_chunk_at<config>(r, c), bytes == 0 ? a : a + (r * config.a_stride + k0 + c * 8), bytes);
  }
}

/* Adds a stage's products: of rows i0 on and columns j0 on. */
template <SkinnyConfig config, class T>
TW_DEVICE void skinny_multiply(unsigned stage, int i0, int j0, SkinnyProducts<config> &products) {
  constexpr int down = config.down(), across = config.across();
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < config.tile_k / 16; k += 2) {
    unsigned x[2][down][4], y[2][across / 2][4];
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int j = 0; j < across / 2; j++)
        ldmatrix_x4(y[s][j], stage + config.a_bytes() +
            skinny_chunk_at<config>(j0 + 16 * j + lane % 8 + lane / 16 * 8, 2 * (k + s) + lane / 8 % 2));
    }
    if constexpr (config.tile_m == 8) {
      /* Eight rows of two steps; there are no rows below. */
      unsigned both[4];
      ldmatrix_x4(both, stage + skinny_chunk_at<config>(lane % 8, 2 * k + lane / 8));
      x[0][0][0] = both[0]; x[0][0][2] = both[1]; x[1][0][0] = both[2]; x[1][0][2] = both[3];
      x[0][0][1] = x[0][0][3] = x[1][0][1] = x[1][0][3] = 0u;
    } else {
#pragma unroll
      for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int i = 0; i < down; i++)
          ldmatrix_x4(x[s][i], stage + skinny_chunk_at<config>(i0 + 16 * i + lane % 16, 2 * (k + s) + lane / 16));
      }
    }
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int i = 0; i < down; i++) {
#pragma unroll
        for (int j = 0; j < across; j++)
          mma<T>(products[i][j], x[s][i], y[s][j / 2][j % 2 * 2], y[s][j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

/* Pieces of second factors that a stage holds. */
template <SkinnyConfig config> TW_CONSTEXPR int skinny_pieces() {
  if constexpr (config.adapter.is_there())
    return config.stage_bytes() / SecondPieces<config.adapter, config.tile_n>::room;
  else return 0;
}

/* Adds the products of a stage's pieces. */
template <SkinnyConfig config, class T>
TW_DEVICE void skinny_add_second(const AdapterTile<T> &tile, const FewSlots &slots, int row0, int first, int end,
    unsigned stage, int i0, int j0, SkinnyProducts<config> &products) {
  using Pieces = SecondPieces<config.adapter, config.tile_n>;
  constexpr AdapterConfig adapter = config.adapter;
  const int lane = threadIdx.x % 32;
  for (int piece = first; piece < end; piece++, stage += Pieces::room) {
    const int slot = slots.distinct[piece % slots.count], rank = piece / slots.count * Pieces::piece_k;
#pragma unroll
    for (int i = 0; i < config.down(); i++) {
      const int local = i0 + 16 * i + lane / 4;
      const bool low = slots.of[local] == slot, high = config.tile_m > 8 && slots.of[local + 8] == slot;
      if (!__any_sync(ALL_LANES, low || high)) continue;
      const ShrunkRows<T> rows = shrunk_rows<adapter>(tile, row0 + local, low, high);
#pragma unroll
      for (int s = 0; s < Pieces::steps; s++) {
        unsigned x[adapter.matrices()][4];
#pragma unroll
        for (int m = 0; m < adapter.matrices(); m++) rows.load(rank + 16 * s + m * tile.other_part, x[m]);
        add_second<adapter, config.tile_n, config.across()>(stage, s, j0, [&](int group, unsigned y0, unsigned y1) {
          mma<T>(products[i][group], x[adapter.matrix_of(group)], y0, y1);
        });
      }
    }
  }
}

/*
 * The products of this block's tile, in registers of the warps that multiply. The result's `products` is where they
 * may come together.
 */
template <SkinnyConfig config, class T, class Prologue, class... Segments>
TW_DEVICE Tile skinny_products(int rows, const T *a, SkinnyProducts<config> &products, const Prologue &prologue,
    const Segments &...segments) {
  static_assert(config.tile_m == 8 || config.tile_m == 16 || config.tile_m == 32 || config.tile_m == 64);
  static_assert(config.tile_k == 64 || config.tile_k == 128 || config.tile_k == 256);
  static_assert(config.stages >= 3 && config.stages <= 16);
  static_assert(config.tile_m % config.warp_m == 0 && config.tile_n % config.warp_n == 0);
  static_assert(config.warp_n % 16 == 0, "one ldmatrix loads the columns of two instructions");
  static_assert(config.warp_m * config.warp_n <= 2048, "a warp's part fits its registers");
  static_assert(config.threads == 32 * (config.warps() + config.copier_warps) && config.threads <= 512);
  static_assert(Prologue::row_values == config.row_values && config.shared_bytes == config.end());
  constexpr int stages = config.stages, steps = config.steps(), stage_bytes = config.stage_bytes();
  constexpr int all_columns = column_tiles<config.tile_n, Segments...>;

  TW_DYNAMIC_SHARED(shared, 128);
  float *values = (float *)(shared + config.values_at());
  const unsigned ring = array_address(shared);
  const int row0 = (int)blockIdx.x / all_columns * config.tile_m, across = (int)blockIdx.x % all_columns;
  const T *w;
  int column0, columns;
  AdapterTile<T> second;
  visit_segment<config.tile_n>(across, [&](const auto &segment, int tile) {
    column0 = tile * config.tile_n;
    columns = segment.columns - column0;
    w = segment.weight();
    if constexpr (config.adapter.is_there()) second = adapter_tile<config.adapter, T>(segment, column0);
  }, segments...);
  w += (long long)column0 * config.w_stride;
  /* Weights do not depend on the kernel before this one: they are under way while it ends. */
  const bool copies = config.copier_warps == 0 || threadIdx.x >= 32 * config.warps();
  constexpr int ahead = stages - 1 < steps ? stages - 1 : steps;
  for (int s = 0; s < ahead && copies; s++)
    skinny_copy_weights<config>(w, columns, s * config.tile_k, ring + s * stage_bytes);
  /* Stages behind k, and the pieces in them. */
  FewSlots &slots = *(FewSlots *)(shared + config.slots_at());
  int more = 0, pieces = 0;
  constexpr int of_stage = skinny_pieces<config>();
  if constexpr (config.adapter.is_there()) {
    if (threadIdx.x < 32) find_slots(second.slots, row0, rows, config.tile_m, slots);
    __syncthreads();
    pieces = slots.count * SecondPieces<config.adapter, config.tile_n>::of_slot;
    more = (pieces + of_stage - 1) / of_stage;
  }
  const auto copy_pieces = [&](int stage, unsigned to) {
    if constexpr (config.adapter.is_there())
      copy_second<config.adapter, config.tile_n, 32 * config.copying_warps()>(second, slots, columns, stage * of_stage,
          min((stage + 1) * of_stage, pieces), to, skinny_copier<config>());
  };
  await_previous();
  a += (long long)row0 * config.a_stride;
  for (int s = 0; s < stages - 1; s++) {
    if (s < steps && copies) skinny_copy_rows<config>(a, rows - row0, s * config.tile_k, ring + s * stage_bytes);
    if (s >= steps && s < steps + more && copies) copy_pieces(s - steps, ring + s * stage_bytes);
    copy_commit();
  }
#pragma unroll
  for (int i = 0; i < config.down(); i++) {
#pragma unroll
    for (int j = 0; j < config.across(); j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) products[i][j][e] = 0.0f;
    }
  }
  int from = 0, into = stages - 1;
  for (int step = 0; step < steps + more; step++) {
    copy_wait<stages - 2>();
    /* This step's copies are here, and nobody reads the stage that the next copies go to. */
    __syncthreads();
    const int next = step + stages - 1;
    if (next < steps && copies) {
      skinny_copy_weights<config>(w, columns, next * config.tile_k, ring + into * stage_bytes);
      skinny_copy_rows<config>(a, rows - row0, next * config.tile_k, ring + into * stage_bytes);
    }
    if (next >= steps && next < steps + more && copies) copy_pieces(next - steps, ring + into * stage_bytes);
    copy_commit();
    if constexpr (config.row_values > 0) {
      /* Once the ring is under way again: its copies hide the wait for memory. */
      constexpr int copying = config.copying_warps(), of_warp = ceil_div(config.tile_m, copying);
      if (step == (stages < steps ? stages : steps) - 1 && copies)
        row_values<config, copying, of_warp < 4 ? of_warp : 4>(prologue, skinny_copier<config>() / 32, row0, rows,
            values);
    }
    if (config.copier_warps == 0 || !copies) {
      const int i0 = (int)threadIdx.x / 32 % config.warps_down() * config.warp_m;
      const int j0 = (int)threadIdx.x / 32 / config.warps_down() * config.warp_n;
      if (!config.adapter.is_there() || step < steps) {
        skinny_multiply<config, T>(ring + from * stage_bytes, i0, j0, products);
      } else if constexpr (config.adapter.is_there()) {
        skinny_add_second<config>(second, slots, row0, (step - steps) * of_stage,
            min((step - steps + 1) * of_stage, pieces), ring + from * stage_bytes, i0, j0, products);
      }
    }
    into = into + 1 < stages ? into + 1 : 0;
    from = from + 1 < stages ? from + 1 : 0;
  }
  copy_wait<0>();
  __syncthreads();
  return { (float *)shared, values, row0, rows, column0, across };
}

/* The first of a thread's rows and columns, in the tile. `self`: the thread. */
template <SkinnyConfig config> TW_DEVICE int skinny_row_of(int self) {
  return self / 32 % config.warps_down() * config.warp_m + self % 32 / 4;
}
template <SkinnyConfig config> TW_DEVICE int skinny_column_of(int self) {
  return self / 32 / config.warps_down() * config.warp_n;
}

/* Lays products into shared memory, for all threads. */
template <SkinnyConfig config>
TW_DEVICE void skinny_share(const Tile &tile, int self, const SkinnyProducts<config> &products) {
  const int i0 = skinny_row_of<config>(self), j0 = skinny_column_of<config>(self), quad = self % 4;
  if (config.copier_warps == 0 || self < 32 * config.warps()) {
#pragma unroll
    for (int half = 0; half < config.warp_m / 8; half++) {
#pragma unroll
      for (int j = 0; j < config.across(); j++)
        *(float2 *)(tile.products + (i0 + 8 * half) * config.pitch() + j0 + 8 * j + 2 * quad) =
            { products[half / 2][j][half % 2 * 2], products[half / 2][j][half % 2 * 2 + 1] };
    }
  }
  __syncthreads();
}

/* The kernel of a layer. Returns the first row of the block's tile; a warp that only copies ends before, with −1. */
template <SkinnyConfig config, class T, class Prologue, class... Segments>
TW_DEVICE int skinny_gemm(int rows, const T *a, const Prologue &prologue, const Segments &...segments) {
  SkinnyProducts<config> products;
  const Tile tile = skinny_products<config>(rows, a, products, prologue, segments...);
  if (config.copier_warps > 0 && threadIdx.x >= 32 * config.warps()) return -1;
  const int self = forgotten(threadIdx.x), quad = self % 4;
  const int i0 = skinny_row_of<config>(self), j0 = skinny_column_of<config>(self);
  visit_segment<config.tile_n>(tile.across, [&](const auto &segment, int) {
#pragma unroll
    for (int half = 0; half < config.warp_m / 8; half++) {
      const int i = forgotten(i0 + 8 * half), row = tile.row0 + i < rows ? tile.row0 + i : rows - 1;
      segment.row(row, tile.row0 + i < rows, tile.column0 + j0, quad, tile.values + i * config.row_values,
          SkinnyRow<config>{ products, half });
    }
  }, segments...);
  return tile.row0;
}

/* The same of epilogues that add up groups of columns, which are wider than a warp's part. */
template <SkinnyConfig config, class T, class Prologue, class... Segments>
TW_DEVICE int skinny_gemm_of_groups(int rows, const T *a, const Prologue &prologue, const Segments &...segments) {
  SkinnyProducts<config> products;
  const Tile tile = skinny_products<config>(rows, a, products, prologue, segments...);
  const int self = forgotten(threadIdx.x);
  skinny_share<config>(tile, self, products);
  end_tile<config, config.warp_n, config.threads / 32>(tile, self, segments...);
  return tile.row0;
}

}  // namespace tw
