/*
 * Contractions of floats: results = epilogue(a · weights), by register tiles of micro/fma.h.
 *
 *   a         float [rows][lda]
 *   weights   panels of `panel` columns and `panel_elements` elements of f32, bf16 or f16, in order of k
 *   scratch   the tile of an item [block_rows][ldc], columns that were widened, lines of the epilogue
 *
 * A worker multiplies an item over the whole depth, `kc` steps of k at a time, panel by panel, and gives the tile to
 * the segment's epilogue, behind what adapters add to it. Narrow panels that many rows share are widened to f32 first,
 * the columns of one register tile at a time, which stay in the first-level cache.
 */
#pragma once
#include "adapter/expand.h"
#include "gemm/items.h"
#include "micro/fma.h"

/* A register tile for the last rows of a block. */
typedef struct FmaTail {
  int rows;
  FmaTile *tile;
} FmaTail;

/* Register tiles of one width. */
typedef struct FmaTiles {
  int columns;
  FetchingFmaTile *fetching;   /* for whole tiles */
  FmaTile *stream;             /* in its place, where one tile has all rows and fetches by itself */
  const FmaTail *tails;        /* for what is left of the rows, lowest first */
  int tail_count;
} FmaTiles;

typedef struct FloatsConfig {
  ItemsConfig items;
  int a;                       /* index of its buffer */
  int64_t lda, ldc, k, kc;
  ElementType element;
  int panel;
  int64_t panel_elements;
  const FmaTiles *widths;      /* widest first: together they divide whatever columns there are */
  int width_count;
  int near_lines;              /* that a whole tile fetches every 16 steps of k */
  int widens;
  int64_t wide_offset, lines_offset;
  AdapterConfig adapter;
} FloatsConfig;

/* Columns of a panel that was widened. */
enum { TW_WIDE_PANEL = 16 };

/* Widens `columns` columns of the panels at `w`, from `first` on, over `kn` steps of k. */
TW_FN void tw_widen(
    const FloatsConfig config, const void *w, int64_t first, int64_t columns, int64_t kn, float *wide) {
  for (int64_t j = first; j < first + columns; j += TW_WIDE_PANEL, wide += config.kc * TW_WIDE_PANEL) {
    const int64_t from = j / config.panel * config.panel_elements + j % config.panel;
    for (int64_t k = 0; k < kn; k++)
      tw_store(wide + k * TW_WIDE_PANEL, tw_load_as(config.element, w, from + k * config.panel));
  }
}

/*
 * c[rows][columns] = a·w over the whole depth. Writes whole register tiles, past the last row too. While it works on
 * one panel of w it fetches the next one, and the rows of the next pass over k; at the end, those of the next item.
 */
TW_FN void tw_floats_block(
    const FloatsConfig config, const float *a, const char *w, float *c, int64_t rows, int64_t columns,
    const float *next_a, const char *next_w, float *wide) {
  TW_LIMIT(config.kc % 32 == 0 && config.panel % 16 == 0);
  const int64_t mr = config.items.tile_rows, nr = config.widths[0].columns, bytes = tw_bytes_of(config.element);
  const int64_t panel = config.panel, elements = config.panel_elements;
  const int64_t calls = tw_blocks(rows, mr) * tw_blocks(columns, nr);
  const int64_t far_rows = rows > calls ? 2 : 1;
  for (int64_t k0 = 0; k0 < config.k; k0 += config.kc) {
    const int64_t kn = config.k - k0 < config.kc ? config.k - k0 : config.kc;
    const int is_last = k0 + config.kc >= config.k;
    const float *const far = is_last ? next_a : a + k0 + config.kc;
    const char *const next = is_last ? next_w : w + (k0 + config.kc) * panel * bytes;
    const char *const own = w + k0 * panel * bytes;
    const int64_t panel_bytes = kn * panel * bytes, fetched = kn / 16 * config.near_lines * 64;
    int64_t far_row = 0, j = 0;
    TW_UNROLL
    for (int width = 0; width < config.width_count; width++) {
      const FmaTiles tiles = config.widths[width];
      for (; j + tiles.columns <= columns; j += tiles.columns) {
        const void *b = own + (j / panel * elements + j % panel) * bytes;
        if (config.widens) {
          tw_widen(config, own, j, tiles.columns, kn, wide);
          b = wide;
        }
        int64_t i = 0;
        if (tiles.stream) {
          for (; i < rows; i += mr) tiles.stream(a + i * config.lda + k0, b, c + i * config.ldc + j, kn, k0 == 0);
          continue;
        }
        /* Tiles side by side on one panel fetch parts of the next one. */
        const int64_t later = tiles.columns % panel == 0 ? (j + tiles.columns) / panel : j / panel + 1;
        const char *const near = (later * panel < columns ? own + later * elements * bytes : next) +
            (tiles.columns % panel == 0 ? 0 : j % panel * kn * bytes);
        int64_t ahead = 0;
        for (; i + mr <= rows; i += mr) {
          tiles.fetching(a + i * config.lda + k0, b, c + i * config.ldc + j, kn, k0 == 0,
              (const char *)(far + far_row * config.lda), far_rows > 1 ? config.lda * 4 : 0,
              near + ahead % panel_bytes + ahead / panel_bytes * elements * bytes);
          if ((far_row += far_rows) >= rows) far_row = 0;
          if ((ahead += fetched) >= panel_bytes * tiles.columns / panel) ahead = 0;
        }
        TW_UNROLL
        for (int tail = 0; tail < tiles.tail_count; tail++) {
          if (i >= rows || i + tiles.tails[tail].rows < rows) continue;
          tiles.tails[tail].tile(a + i * config.lda + k0, b, c + i * config.ldc + j, kn, k0 == 0);
          i = rows;
        }
      }
    }
  }
}

TW_FN void tw_gemm_floats(const FloatsConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  char *const scratch = launch->scratch + worker * launch->scratch_bytes;
  float *const tile = (float *)scratch, *const wide = (float *)(scratch + config.wide_offset);
  float *const lines = (float *)(scratch + config.lines_offset);
  const int64_t elements = config.panel_elements, bytes = tw_bytes_of(config.element);
  GemmItems items = tw_items(config.items, launch, worker, workers);
  for (GemmItem item; tw_next_item(config.items, &items, &item);) {
    const GemmColumns own = tw_columns_of(config.items, item.across);
    const GemmSegment *const segment = own.segment;
    const float *const a = (const float *)launch->buffers[config.a] + own.head * config.k;
    const char *w = (const char *)launch->buffers[segment->weight] + own.n0 / config.panel * elements * bytes;
    if (config.items.experts > 0) w += item.expert * (segment->columns / config.panel) * elements * bytes;
    if (config.items.heads > 0) w += own.head * (segment->columns / config.panel) * elements * bytes;
    const char *const next_w = item.next_m0 > item.m0 || own.n0 + segment->block >= segment->columns
        ? w : w + segment->block / config.panel * elements * bytes;
    tw_floats_block(config, a + item.m0 * config.lda, w, tile, item.mn, own.nn, a + item.next_m0 * config.lda, next_w,
        wide);
    if (tw_has_adapter(config.adapter, launch, item.m0, item.mn))
      tw_expand(config.adapter, launch, config.adapter.segments + (segment - config.items.segments), tile, config.ldc,
          item.m0, item.mn, own.n0, own.nn);
    tw_end_item(config.items, own, launch, tile, &item, lines);
  }
}
