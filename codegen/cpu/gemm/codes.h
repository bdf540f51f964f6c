/*
 * Contractions of codes of 8 bits: results = epilogue(codes of a · weights).
 *
 *   a         float or bf16 [rows][lda], of which a worker makes codes once for items of the same rows
 *   weights   panels of 32 columns in quads, of `panel_bytes` bytes (lib/codes.h)
 *   scratch   the tile of an item [block_rows][ldc], columns that were widened, groups and codes of rows, lines of the
 *             epilogue or what it needs of rows beside products
 */
#pragma once
#include "gemm/items.h"
#include "lib/codes.h"
#include "micro/amx.h"

/* c[rows][columns] = codes · w, with the epilogue of rows that are due where that is beside products. */
typedef void CodesBlock(
    const int8_t *codes, const tw_group *groups, const uint8_t *w, float *c, int64_t rows, int64_t columns, char *wide,
    tw_due *due, int64_t m0, int64_t column);

/* What multiplies a segment. */
typedef struct CodesProduct {
  int64_t panel_bytes;
  CodesBlock *multiply;
} CodesProduct;

typedef struct CodesConfig {
  ItemsConfig items;
  int a;                               /* index of its buffer */
  int64_t row_bytes;                   /* from one row of a to the next */
  const CodesProduct *products;        /* of each segment */
  void (*round)(const void *a, int64_t rows, int8_t *codes, tw_group *groups);
  /* Writes what an epilogue beside products needs of rows; 0: there is none. */
  void (*row_values)(const tw_launch *launch, int64_t m0, int64_t mn, const tw_group *groups, float *values);
  int is_amx;
  int64_t wide_offset, groups_offset, codes_offset, lines_offset, values_offset;
} CodesConfig;

TW_FN void tw_gemm_codes(const CodesConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  char *const scratch = launch->scratch + worker * launch->scratch_bytes, *const wide = scratch + config.wide_offset;
  float *const tile = (float *)scratch, *const lines = (float *)(scratch + config.lines_offset);
  float *const values = (float *)(scratch + config.values_offset);
  tw_group *const groups = (tw_group *)(scratch + config.groups_offset);
  int8_t *const codes = (int8_t *)(scratch + config.codes_offset);
  tw_due due = { launch, values, values, 0, 0, 0, 0 };
  int64_t kept = -1;
  GemmItems items = tw_items(config.items, launch, worker, workers);
  if (config.is_amx) TW_TILE_CONFIG(&tw_tiles);
  for (GemmItem item; tw_next_item(config.items, &items, &item);) {
    const GemmColumns own = tw_columns_of(config.items, item.across);
    const GemmSegment *const segment = own.segment;
    const CodesProduct *const product = &config.products[segment - config.items.segments];
    if (item.m0 != kept) {
      config.round((const char *)launch->buffers[config.a] + item.m0 * config.row_bytes, item.mn, codes, groups);
      if (config.row_values) config.row_values(launch, item.m0, item.mn, groups, values);
      kept = item.m0;
    }
    const uint8_t *w = (const uint8_t *)launch->buffers[segment->weight] + own.n0 / 32 * product->panel_bytes;
    if (config.items.experts > 0) w += item.expert * (segment->columns / 32) * product->panel_bytes;
    const int64_t c0 = own.n0 / segment->matrices, cn = own.nn / segment->matrices;
    product->multiply(codes, groups, w, tile, item.mn, own.nn, wide, &due, item.m0, c0);
    if (segment->epilogue) segment->epilogue(launch, tile, item.m0, item.mn, c0, cn, lines);
  }
  if (config.is_amx) TW_TILE_RELEASE();
}
