/*
 * Contractions of bf16 by tiles of AMX: results = epilogue(a · weights), by register tiles of micro/amx.h.
 *
 *   a         bf16 [rows][lda]
 *   weights   pairs of bf16 in panels of 16 columns and `panel_elements` elements, in order of k
 *   scratch   the tile of an item [block_rows][ldc], lines of the epilogue or what it needs of rows beside products
 *
 * A worker multiplies an item over the whole depth, `kc` steps of k at a time, 32 columns by 32 columns, and gives the
 * tile to the segment's epilogue, or finishes rows beside the products of the next register tile.
 */
#pragma once
#include "adapter/expand.h"
#include "gemm/items.h"
#include "micro/amx.h"

typedef struct AmxTiles {
  FetchingAmxTile *fetching;     /* for whole tiles */
  BesideAmxTile *finishing;      /* in its place, with an epilogue beside products */
  AmxTile *half, *whole;         /* for what is left of the rows: up to 16 of them, and more */
} AmxTiles;

typedef struct AmxGemmConfig {
  ItemsConfig items;
  int a;                         /* index of its buffer */
  int64_t lda, ldc, k, kc, panel_elements;
  int lines;                     /* that a step of a whole tile fetches */
  AmxTiles tiles;
  Beside beside;
  /* Writes what an epilogue beside products needs of rows; 0: nothing. */
  void (*row_values)(const tw_launch *launch, int64_t m0, int64_t mn, float *values);
  int64_t lines_offset, values_offset;
  AdapterConfig adapter;
} AmxGemmConfig;

/* What adapters add to an item's register tiles behind the last pass, before epilogues see them. */
typedef struct AmxAdapter {
  const SegmentAdapter *segment;   /* 0: none of its rows has one */
  int64_t n0;                      /* its first column in memory */
} AmxAdapter;

TW_FN void tw_expand_amx(
    const AmxGemmConfig config, const tw_launch *launch, const AmxAdapter adapter, float *c, int64_t row, int64_t rows,
    int64_t j) {
  tw_expand(config.adapter, launch, adapter.segment, c, config.ldc, row, rows, adapter.n0 + j, 32);
}

/*
 * c[rows][columns] = a·w over the whole depth. Writes whole register tiles, past the last row too. While it works on
 * one panel of w it fetches the next one; at the end, that of the next pass or item.
 */
TW_FN void tw_amx_block(
    const AmxGemmConfig config, const uint16_t *a, const uint16_t *w, float *c, int64_t rows, int64_t columns,
    const uint16_t *next_w, tw_due *due, int64_t m0, int64_t column, const AmxAdapter adapter) {
  TW_LIMIT(config.kc % 32 == 0);
  const int64_t mr = config.items.tile_rows, nr = 32, panel = 16, elements = config.panel_elements;
  for (int64_t k0 = 0; k0 < config.k; k0 += config.kc) {
    const int64_t kn = config.k - k0 < config.kc ? config.k - k0 : config.kc, steps = (kn + 31) / 32;
    const int is_last = k0 + config.kc >= config.k;
    const uint16_t *const next = is_last ? next_w : w + (k0 + config.kc) * panel;
    const uint16_t *const own = w + k0 * panel;
    const int64_t panel_bytes = kn * panel * 2, fetched = steps * config.lines * 64;
    for (int64_t j = 0; j + nr <= columns; j += nr) {
      const uint16_t *const b = own + j / panel * elements;
      const char *const near = (const char *)(j + nr < columns ? own + (j + nr) / panel * elements : next);
      int64_t ahead = 0, i = 0;
      for (; i + mr <= rows; i += mr) {
        const char *const at = near + ahead % panel_bytes + ahead / panel_bytes * elements * 2;
        const uint16_t *const from = a + i * config.lda + k0;
        float *const to = c + i * config.ldc + j;
        if (config.tiles.finishing) config.tiles.finishing(from, b, to, steps, k0 == 0, at, due);
        else config.tiles.fetching(from, b, to, steps, k0 == 0, at);
        if (adapter.segment && is_last) tw_expand_amx(config, due->launch, adapter, to, m0 + i, mr, j);
        if (config.beside.rest && is_last)
          tw_make_due(config.beside, due, to, m0, i, mr, column + j / nr * config.beside.columns);
        if ((ahead += fetched) >= panel_bytes * nr / panel) ahead = 0;
      }
      if (i >= rows) continue;
      AmxTile *const tail = rows - i <= 16 ? config.tiles.half : config.tiles.whole;
      tail(a + i * config.lda + k0, b, c + i * config.ldc + j, steps, k0 == 0);
      if (adapter.segment && is_last)
        tw_expand_amx(config, due->launch, adapter, c + i * config.ldc + j, m0 + i, rows - i, j);
      if (config.beside.rest && is_last)
        tw_make_due(config.beside, due, c + i * config.ldc + j, m0, i, rows - i,
            column + j / nr * config.beside.columns);
    }
  }
  if (config.beside.rest) config.beside.rest(due);
}

TW_FN void tw_gemm_amx(const AmxGemmConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  char *const scratch = launch->scratch + worker * launch->scratch_bytes;
  float *const tile = (float *)scratch, *const lines = (float *)(scratch + config.lines_offset);
  float *const values = (float *)(scratch + config.values_offset);
  tw_due due = { launch, values, values, 0, 0, 0, 0 };
  int64_t kept = -1;
  GemmItems items = tw_items(config.items, launch, worker, workers);
  TW_TILE_CONFIG(&tw_tiles);
  for (GemmItem item; tw_next_item(config.items, &items, &item);) {
    const GemmColumns own = tw_columns_of(config.items, item.across);
    const GemmSegment *const segment = own.segment;
    const uint16_t *const a = (const uint16_t *)launch->buffers[config.a] + item.m0 * config.lda;
    const uint16_t *w = (const uint16_t *)launch->buffers[segment->weight] + own.n0 / 16 * config.panel_elements;
    if (config.items.experts > 0) w += item.expert * (segment->columns / 16) * config.panel_elements;
    const uint16_t *const next_w = item.next_m0 > item.m0 || own.n0 + segment->block >= segment->columns
        ? w : w + segment->block / 16 * config.panel_elements;
    if (config.row_values && item.m0 != kept) config.row_values(launch, item.m0, item.mn, values);
    kept = item.m0;
    const int64_t c0 = own.n0 / segment->matrices, cn = own.nn / segment->matrices;
    AmxAdapter adapter = { 0, own.n0 };
    if (tw_has_adapter(config.adapter, launch, item.m0, item.mn))
      adapter.segment = config.adapter.segments + (segment - config.items.segments);
    tw_amx_block(config, a, w, tile, item.mn, own.nn, next_w, &due, item.m0, c0, adapter);
    if (!config.beside.rest) segment->epilogue(launch, tile, item.m0, item.mn, c0, cn, lines);
  }
  TW_TILE_RELEASE();
}
