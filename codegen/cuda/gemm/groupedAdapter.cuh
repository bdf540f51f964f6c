/*
 * Adapters of products with weights in groups (gemm/grouped.cuh). Sums of all ranges of k meet in shared memory, so
 * that is where u·B of rows with adapters is added (gemm/adapter.cuh): each sum goes on in one accumulator, in order of
 * ranks. Second factors come to where the rings were, as many pieces at once as fit behind the products.
 */
#pragma once
#include "gemm/adapter.cuh"
#include "gemm/fewRows.cuh"
#include "lib/global.cuh"
#include "lib/warp.cuh"

namespace tw {

/* The second factors of column tile `across`, and the columns that are left of its segment. */
template <class T> struct GroupedSecond {
  AdapterTile<T> tile;
  int columns;
};
template <auto config, class T, class... Segments>
TW_DEVICE GroupedSecond<T> grouped_second(int across, const Segments &...segments) {
  GroupedSecond<T> second;
  visit_segment<config.tile_n>(across, [&](const auto &segment, int tile) {
    const int column0 = tile * config.tile_n;
    second = { adapter_tile<config.adapter, T>(segment, column0), segment.columns - column0 };
  }, segments...);
  return second;
}

/*
 * Finds the slots of a tile's rows, and brings the second factors that are copied first to L2, while k goes by. By one
 * whole warp; a barrier is to follow. Neither waits for the kernel before: slots are an input, factors are weights.
 */
template <auto config, class T, class... Segments>
TW_DEVICE void grouped_find_second(int across, int row0, int rows, unsigned char *shared, const Segments &...segments) {
  using Pieces = SecondPieces<config.adapter, config.tile_n>;
  const auto [tile, columns] = grouped_second<config, T>(across, segments...);
  FewSlots &slots = *(FewSlots *)(shared + config.slots_at());
  find_slots(tile.slots, row0, rows, config.tile_m, slots);
  __syncwarp();
  /* Factors of a slot lie one behind another: those of the tile are whole lines. */
  constexpr int line = 64;
  const int count = min(columns, config.tile_n) * config.adapter.rank;
#pragma unroll 1
  for (int i = 0; i < slots.count && i * Pieces::of_slot < config.pieces(); i++) {
    const T *const from = tile.second + slots.distinct[i] * tile.slot_elements;
#pragma unroll 1
    for (int at = (int)threadIdx.x % 32 * line; at < count; at += 32 * line) prefetch(from + at);
  }
}

/*
 * Adds what rows of adapters get to the tile's products, by all threads, which have waited for all products. A unit is
 * 16 rows and eight columns, which are one matrix's. `self`: the thread. Ends with a barrier.
 */
template <auto config, class T, class... Segments>
TW_DEVICE void grouped_add_second(int across, int row0, int self, float *products, const Segments &...segments) {
  constexpr AdapterConfig adapter = config.adapter;
  using Pieces = SecondPieces<adapter, config.tile_n>;
  constexpr int down = ceil_div(config.tile_m, 16), units = down * (config.tile_n / 8), at_once = config.pieces();
  constexpr bool has_high = config.tile_m > 8;
  static_assert(at_once > 0 && adapter.width % 8 == 0);
  const FewSlots &slots = *(const FewSlots *)((const unsigned char *)products + config.slots_at());
  const int lane = self % 32, all = slots.count * Pieces::of_slot;
  if (all == 0) return;
  const auto [tile, columns] = grouped_second<config, T>(across, segments...);
  const unsigned pieces_at = array_address(products) + config.pieces_at();
#pragma unroll 1
  for (int first = 0; first < all; first += at_once) {
    const int end = min(first + at_once, all);
    copy_second<adapter, config.tile_n, config.threads>(tile, slots, columns, first, end, pieces_at, self);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int unit = self / 32; unit < units; unit += config.warps()) {
      const int local0 = unit % down * 16, group = unit / down, local = local0 + lane / 4;
      const unsigned long long here = slots_of_rows(slots, local0);
      if (here == 0) continue;
      const short own_low = slots.of[local], own_high = slots.of[local + 8];
      const ShrunkRows<T> rows = shrunk_rows<adapter>(tile, row0 + local, own_low >= 0, own_high >= 0);
      float *const low_products = products + local * config.pitch() + 8 * group + 2 * (lane % 4);
      float *const high_products = low_products + 8 * config.pitch();
      float2 low = *(const float2 *)low_products, high = { 0.0f, 0.0f };
      if constexpr (has_high) high = *(const float2 *)high_products;
      float d[4] = { low.x, low.y, high.x, high.y };
      /* What was shrunk of the lane's rows, of the ranks of pieces under way. */
      unsigned shrunk[Pieces::steps][4];
      int known = -1;
      SecondPiece piece{ first % slots.count, first / slots.count * Pieces::piece_k };
#pragma unroll 1
      for (int i = first; i < end; i++, piece.next(slots.count, Pieces::piece_k)) {
        if ((here >> piece.number & 1) == 0) continue;
        if (piece.rank != known) {
          known = piece.rank;
#pragma unroll
          for (int s = 0; s < Pieces::steps; s++)
            rows.load(known + ADAPTER_STEP * s + adapter.matrix_of(group) * tile.other_part, shrunk[s]);
        }
        const int slot = slots.distinct[piece.number];
        const unsigned second = pieces_at + (i - first) * Pieces::room;
#pragma unroll
        for (int s = 0; s < Pieces::steps; s++) {
          unsigned x[4];
          mask_rows(x, shrunk[s], own_low == slot, own_high == slot);
          add_second<adapter, config.tile_n, 1>(second, s, 8 * group,
              [&](int, unsigned y0, unsigned y1) { mma<T>(d, x, y0, y1); });
        }
      }
      *(float2 *)low_products = { d[0], d[1] };
      if constexpr (has_high) *(float2 *)high_products = { d[2], d[3] };
    }
    __syncthreads();
  }
}

}  // namespace tw
