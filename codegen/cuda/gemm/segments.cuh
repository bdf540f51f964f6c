/*
 * What products have in common around their main loops. A product has one left operand and one or more weights beside
 * each other: segments. A unit says of each what becomes of its products:
 *
 *   struct GateUp {
 *     static constexpr int columns = 192;     // of the weight as it lies, padding included
 *     bf16 *w_gate_up;
 *     bf16 *gated;                            // what the epilogue loads and stores
 *     const bf16 *weight() const;
 *     template <class Products>
 *     void row(int row, int is_stored, int column0, int quad, const float *values, const Products &products) const;
 *   };
 *
 * `row` ends one row of the columns from `column0` on. All lanes of a warp call it together, each with a row of its
 * own, of which a quad of lanes has the products: products(g, e) is the one at column column0 + 8·g + 2·quad + e. A
 * lane whose row is past the end has another's row, and is_stored is 0. `values`: what the prologue has computed of the
 * row.
 *
 *   struct Prologue {
 *     static constexpr int row_values = 1;    // floats a row
 *     // Sums and maxima of parts of a row that these take, and registers of a lane for their first loads.
 *     static constexpr int row_sums = 1, row_loads = 8;
 *     // By a whole warp; lane 0 writes them. `sums`: what adds up (gemm/rowValues.cuh).
 *     template <class Sums> void row(int row, float *values, Sums &&sums) const;
 *   };
 *
 * Products whose rows are finished in the same kernel: gemm/finish.cuh.
 */
#pragma once
#include "gemm/finish.cuh"
#include "gemm/rowValues.cuh"

namespace tw {

/* Of products whose epilogues need nothing of the row. */
struct NoPrologue {
  static constexpr int row_values = 0;
  template <class Sums> TW_DEVICE void row(int, float *, Sums &&) const {}
};

TW_CONSTEXPR int ceil_div(int a, int b) { return (a + b - 1) / b; }

/* Column tiles of all segments: each begins with a tile of its own. */
template <int tile_n, class... Segments> constexpr int column_tiles = (ceil_div(Segments::columns, tile_n) + ...);

/* Calls visit(segment, tile of the segment) for the segment that has column tile `tile` of all. */
template <int tile_n, int first = 0, class Visit, class Segment, class... Others>
TW_DEVICE void visit_segment(int tile, const Visit &visit, const Segment &segment, const Others &...others) {
  constexpr int end = first + ceil_div(Segment::columns, tile_n);
  if constexpr (sizeof...(Others) == 0) {
    visit(segment, tile - first);
  } else {
    if (tile < end) visit(segment, tile - first);
    else visit_segment<tile_n, end>(tile, visit, others...);
  }
}

}  // namespace tw
