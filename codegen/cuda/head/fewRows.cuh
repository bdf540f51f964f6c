/*
 * Heads of few rows: a tile is a block of the vocabulary, whose products lie in shared memory, and head/rows.cuh makes
 * of them what the rows' log-sum-exp needs.
 */
#pragma once
#include "gemm/fewRows.cuh"
#include "head/rows.cuh"

namespace tw {

/* The epilogue of these heads: logits of the first rows are kept before. */
template <HeadConfig head, class Scale> using FewRowsHead = HeadEpilogue<head, Scale, false>;

/* The same, and the vocabulary's weight. */
template <HeadConfig head, class Scale, class T> struct WeightedHead : FewRowsHead<head, Scale> {
  const T *w;
  TW_DEVICE const T *weight() const { return w; }
};

/* Ends a tile, by all `warps` of the block. `self`: the thread. */
template <auto config, int warps, HeadConfig head, class Scale>
TW_DEVICE void end_head(const Tile &tile, int self, const FewRowsHead<head, Scale> &epilogue) {
  static_assert(config.tile_n == HEAD_BLOCK);
  keep_logits<head, config.tile_m, config.pitch(), warps, config.row_values>(tile.row0, tile.column0, self,
      tile.products, tile.values, epilogue.scale_of, epilogue.buffers);
  const int quad = self & 3;
  for (int first = (self >> 5) * 8; first < config.tile_m && tile.row0 + first < tile.rows; first += warps * 8) {
    const int local = first + (self >> 2 & 7), is_stored = tile.row0 + local < tile.rows,
        row = is_stored ? tile.row0 + local : tile.rows - 1;
    epilogue.row(row, is_stored, tile.column0, quad, tile.values + local * config.row_values,
        RowProducts{ tile.products + local * config.pitch(), 0, quad });
  }
}

}  // namespace tw
