/*
 * What products of few rows share, whatever multiplies: gemm/skinny.cuh, skinnyWgmma.cuh and grouped.cuh. A block has
 * one tile. Its products come together in shared memory, where the ring of stages was, and any warp ends any rows of
 * them, by what the unit says of a segment (gemm/segments.cuh).
 */
#pragma once
#include "gemm/segments.cuh"
#include "lib/copy.cuh"
#include "lib/warp.cuh"

namespace tw {

/* A segment and the tensor map of its weight. */
template <class Segment> struct Mapped : Segment {
  const TensorMap *map;
};

/* The same with the map of the second factors of its adapters. */
template <class Segment> struct MappedSecond : Mapped<Segment> {
  const TensorMap *second_map;
};

/* A tile, as epilogues find it. */
struct Tile {
  /* tile_m rows of products, `pitch` floats from one to the next; row_values floats of each row. */
  float *products;
  const float *values;
  int row0, rows, column0;
  /* The column tile's number. */
  int across;
  /* Columns of products before the tile's own: those of other blocks of its groups. `column0` is that of the first. */
  int part_column;
};

/* Products of one row in shared memory, from a column on. */
struct RowProducts {
  float *row;
  int column, quad;

  TW_DEVICE float &operator()(int group, int e) const { return row[column + 8 * group + 2 * quad + e]; }
  /* The same from another column on, within the tile. */
  TW_DEVICE RowProducts from(int other) const { return { row, other, quad }; }
};

/* Registers of a lane for loads of rows that are under way, in blocks of so many threads. */
TW_CONSTEXPR int row_load_registers(int threads) { return threads > 512 ? 16 : 64; }
/*
 * Values of the rows of a tile of Config by `warps` warps, of which this one is number `warp`. Up to `most` rows are
 * under way: with memory this busy, each turn waits for microseconds.
 */
template <auto config, int warps, int most, class Prologue>
TW_DEVICE void row_values(const Prologue &prologue, int warp, int row0, int rows, float *values) {
  constexpr int tile_m = config.tile_m, count = config.row_values;
  constexpr int at_once = rows_together<Prologue>(row_load_registers(config.threads), most);
  for (int local = warp; local < tile_m && row0 + local < rows; local += warps * at_once) {
    int each[at_once];
    float own[at_once][count];
#pragma unroll
    for (int i = 0; i < at_once; i++) each[i] = min(row0 + local + i * warps, rows - 1);
    values_of_rows(prologue, each, own);
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int i = 0; i < at_once; i++) {
#pragma unroll
        for (int j = 0; j < count; j++)
          if (local + i * warps < tile_m) values[(local + i * warps) * count + j] = own[i][j];
      }
    }
  }
}

/*
 * The epilogue of a tile in shared memory: units of eight rows and unit_n columns, shared by all `warps` of the block.
 * Config has tile_m, tile_n, row_values and pitch(). `self`: the thread.
 */
template <auto config, int unit_n, int warps, class... Segments>
TW_DEVICE void end_tile(const Tile &tile, int self, const Segments &...segments) {
  constexpr int row_groups = config.tile_m / 8, units = config.tile_n / unit_n * row_groups;
  const int quad = self & 3;
  for (int unit = self >> 5; unit < units; unit += warps) {
    const int i = unit % row_groups * 8 + (self >> 2 & 7), j0 = tile.part_column + unit / row_groups * unit_n,
        row = tile.row0 + i < tile.rows ? tile.row0 + i : tile.rows - 1;
    visit_segment<config.tile_n>(tile.across, [&](const auto &segment, int) {
      segment.row(row, tile.row0 + i < tile.rows, tile.column0 + j0, quad, tile.values + i * config.row_values,
          RowProducts{ tile.products + i * config.pitch(), j0, quad });
    }, segments...);
  }
}

}  // namespace tw
