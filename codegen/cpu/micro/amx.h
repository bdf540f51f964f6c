/*
 * Register tiles of AMX: c[rows][32] (+)= a·b for 16 or 32 rows. Tiles 0 to 3 accumulate, 4 and 5 hold rows of a, 6 and
 * 7 columns of b. The loads of a step are interleaved with its products. Columns stay in the first-level cache for the
 * next rows, as far as they fit, and rows are streamed.
 *
 *   TW_AMX_BF16    a: bf16; b: pairs of bf16 in panels of 16 columns; c: f32. A step is 32 of k.
 *   TW_AMX_BYTES   a: codes with signs; b: unsigned ones in panels of quads, in which the quads of 16 columns are half
 *                  of a line; c: int32. A step is 64 of k.
 *
 * Epilogues beside products: AMX multiplies while vector units have nothing to do, so that each step of a tile can
 * finish rows of the tile before it.
 */
#pragma once
#include "lib/amx.h"

typedef enum { TW_AMX_BF16, TW_AMX_BYTES } AmxElement;

typedef struct AmxConfig {
  AmxElement element;
  int rows;
  int64_t a_bytes;       /* from one row of a to the next */
  int64_t panel_bytes;   /* from 16 columns of b to the next 16, of bf16 */
  int ldc;
  int lines;             /* that a step fetches of `near` into the second-level cache, at most 8 */
} AmxConfig;

/* What epilogues beside products need. */
typedef struct BesideConfig {
  int rows_of_step;
  int values;            /* floats of a row */
  int buffers;           /* of the launch, from the first on */
} BesideConfig;

/* An epilogue beside products, as a contraction calls it: results of a tile, and what finishes rows that are due. */
typedef struct Beside {
  int values, columns;
  void (*rest)(tw_due *due);
} Beside;

/* The epilogue of a row of a tile whose first result has this column. */
typedef void BesideEpilogue(
    const tw_launch *launch, void *const *buffers, const float *values, const float *c, int64_t row, int64_t column);

typedef void AmxTile(const void *a, const void *b, void *c, int64_t steps, int first);
typedef void FetchingAmxTile(const void *a, const void *b, void *c, int64_t steps, int first, const char *near);
typedef void BesideAmxTile(
    const void *a, const void *b, void *c, int64_t steps, int first, const char *near, tw_due *due);

#define TW_AMX_TILE(name, ...) \
  TW_TILE void name(const void *a, const void *b, void *c, int64_t steps, int first) { \
    const AmxConfig config = { __VA_ARGS__ }; \
    tw_amx_begin(config, c, first); \
    for (; steps > 0; steps--) tw_amx_step(config, &a, &b, 0); \
    tw_amx_end(config, c); \
  }
#define TW_FETCHING_AMX_TILE(name, ...) \
  TW_TILE void name(const void *a, const void *b, void *c, int64_t steps, int first, const char *near) { \
    const AmxConfig config = { __VA_ARGS__ }; \
    tw_amx_begin(config, c, first); \
    for (; steps > 0; steps--) tw_amx_step(config, &a, &b, &near); \
    tw_amx_end(config, c); \
  }

TW_FN void tw_amx_begin(const AmxConfig config, void *c, int first) {
  TW_LIMIT(config.rows == 16 || config.rows == 32);
  TW_LIMIT(config.lines >= 0 && config.lines <= 8);
  float *const lower = (float *)c + 16 * config.ldc;
  if (first) {
    TW_TILE_ZERO(0);
    TW_TILE_ZERO(1);
    if (config.rows == 32) {
      TW_TILE_ZERO(2);
      TW_TILE_ZERO(3);
    }
  } else {
    TW_TILE_LOAD(0, (float *)c, config.ldc * 4);
    TW_TILE_LOAD(1, (float *)c + 16, config.ldc * 4);
    if (config.rows == 32) {
      TW_TILE_LOAD(2, lower, config.ldc * 4);
      TW_TILE_LOAD(3, lower + 16, config.ldc * 4);
    }
  }
}

TW_FN void tw_amx_end(const AmxConfig config, void *c) {
  float *const lower = (float *)c + 16 * config.ldc;
  TW_TILE_STORE(0, (float *)c, config.ldc * 4);
  TW_TILE_STORE(1, (float *)c + 16, config.ldc * 4);
  if (config.rows == 32) {
    TW_TILE_STORE(2, lower, config.ldc * 4);
    TW_TILE_STORE(3, lower + 16, config.ldc * 4);
  }
}

/* The lines that a step fetches behind its load or product `i`, of 8 or, for 16 rows, 5. */
TW_FN void tw_amx_fetch(const AmxConfig config, const char *near, int i) {
  const int works = config.rows == 32 ? 8 : 5;
  TW_UNROLL
  for (int line = 0; line < config.lines; line++) {
    if (line * works >= i * config.lines && line * works < (i + 1) * config.lines)
      __builtin_prefetch(near + 64 * line, 0, 2);
  }
}

#define TW_AMX_DOT(c, a, b) \
  do { \
    if (config.element == TW_AMX_BF16) TW_TILE_DOT(c, a, b); \
    else TW_TILE_DOT_BYTES(c, a, b); \
  } while (0)

/* One step along k, and to the next. */
TW_FN void tw_amx_step(const AmxConfig config, const void **a, const void **b, const char **near) {
  const int is_bytes = config.element == TW_AMX_BYTES;
  const char *const rows = (const char *)*a, *const columns = (const char *)*b, *const fetched = near ? *near : 0;
  const int64_t line = is_bytes ? 128 : 64;
  (void)line;
  TW_TILE_LOAD(6, columns, line);
  tw_amx_fetch(config, fetched, 0);
  TW_TILE_LOAD(7, columns + (is_bytes ? 64 : config.panel_bytes), line);
  tw_amx_fetch(config, fetched, 1);
  TW_TILE_STREAM(4, rows, config.a_bytes);
  tw_amx_fetch(config, fetched, 2);
  TW_AMX_DOT(0, 4, 6);
  tw_amx_fetch(config, fetched, 3);
  TW_AMX_DOT(1, 4, 7);
  tw_amx_fetch(config, fetched, 4);
  if (config.rows == 32) {
    TW_TILE_STREAM(5, rows + 16 * config.a_bytes, config.a_bytes);
    tw_amx_fetch(config, fetched, 5);
    TW_AMX_DOT(2, 5, 6);
    tw_amx_fetch(config, fetched, 6);
    TW_AMX_DOT(3, 5, 7);
    tw_amx_fetch(config, fetched, 7);
  }
  *a = rows + 64;
  *b = columns + (is_bytes ? 2048 : 1024);
  if (near) *near = fetched + 64 * config.lines;
}

/* A tile whose steps finish what is due of another one. */
TW_FN void tw_amx_beside(
    const AmxConfig config, const BesideConfig beside, BesideEpilogue *finish, const void *a, const void *b, void *c,
    int64_t steps, int first, const char *near, tw_due *due) {
  enum { MOST = 32 };
  TW_LIMIT(beside.buffers <= MOST);
  tw_amx_begin(config, c, first);
  const tw_launch *const launch = due->launch;
  /* Where nothing that is stored can change them. */
  void *buffers[MOST];
  TW_UNROLL
  for (int i = 0; i < beside.buffers; i++) buffers[i] = launch->buffers[i];
  const float *values = due->values, *sums = due->c;
  const int64_t column = due->column;
  int64_t row = due->row, left = due->rows;
  due->rows = 0;
  for (; steps > 0 && left >= beside.rows_of_step; steps--) {
    tw_amx_step(config, &a, &b, &near);
    TW_UNROLL
    for (int r = 0; r < beside.rows_of_step; r++)
      finish(launch, buffers, values + r * beside.values, sums + r * config.ldc, row + r, column);
    values += beside.rows_of_step * beside.values;
    sums += beside.rows_of_step * config.ldc;
    row += beside.rows_of_step;
    left -= beside.rows_of_step;
  }
  for (; steps > 0; steps--) tw_amx_step(config, &a, &b, &near);
  for (; left > 0; left--, values += beside.values, sums += config.ldc)
    finish(launch, buffers, values, sums, row++, column);
  tw_amx_end(config, c);
}

/* Rows that are due, finished by themselves. */
TW_FN void tw_finish_due(const BesideConfig beside, int ldc, BesideEpilogue *finish, tw_due *due) {
  for (int64_t i = 0; i < due->rows; i++)
    finish(due->launch, due->launch->buffers, due->values + i * beside.values, due->c + i * ldc, due->row + i,
        due->column);
  due->rows = 0;
}

/* Rows [m0 + i, m0 + i + rows) of the tile at `c` are due, from result `column` on. What was due before is finished. */
TW_FN void tw_make_due(
    const Beside beside, tw_due *due, const float *c, int64_t m0, int64_t i, int64_t rows, int64_t column) {
  if (due->rows > 0) beside.rest(due);
  due->c = c;
  due->values = due->first + i * beside.values;
  due->row = m0 + i;
  due->rows = rows;
  due->column = column;
}
