/*
 * AMX tiles. TW_EMULATE_AMX gives the same operations in portable C, to prove generated text where there are no tiles.
 */
#pragma once
#include "lib/types.h"

typedef struct __attribute__((packed)) tw_tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} tw_tile_config;
static const tw_tile_config tw_tiles = { 1, 0, { 0 }, { 64, 64, 64, 64, 64, 64, 64, 64 },
    { 16, 16, 16, 16, 16, 16, 16, 16 } };
/*
 * Rows of a finished register tile whose epilogue is due: they begin at `row`, their columns at `column`, their sums at
 * `c`. `values`: what the epilogue needs of them; `first`: of all rows of the item.
 */
typedef struct tw_due {
  const tw_launch *launch;
  const float *first, *values, *c;
  int64_t row, column, rows;
} tw_due;
#if defined(TW_EMULATE_AMX)
static __thread float tw_tile[8][256];
#define TW_TILE_CONFIG(config) memset(tw_tile, 0, sizeof(tw_tile))
#define TW_TILE_RELEASE() memset(tw_tile, 0xff, sizeof(tw_tile))
#define TW_TILE_ZERO(t) memset(tw_tile[t], 0, 1024)
#define TW_TILE_LOAD(t, p, stride) \
  do { \
    for (int r_ = 0; r_ < 16; r_++) memcpy(&tw_tile[t][r_ * 16], (const char *)(p) + (int64_t)r_ * (stride), 64); \
  } while (0)
#define TW_TILE_STREAM TW_TILE_LOAD
#define TW_TILE_STORE(t, p, stride) \
  do { \
    for (int r_ = 0; r_ < 16; r_++) memcpy((char *)(p) + (int64_t)r_ * (stride), &tw_tile[t][r_ * 16], 64); \
  } while (0)
/* Denormal inputs and results count as zero. */
static inline float tw_flush(float x) { return x > -1.17549435e-38f && x < 1.17549435e-38f ? x * 0.0f : x; }
static inline float tw_tile_element(const float *tile, int row, int i) {
  return tw_flush(tw_s_load_bf16((const uint16_t *)(const void *)tile + row * 32 + i));
}
/* Even and odd elements of the pairs have their own chains, joined before they meet the accumulator. */
static void tw_tile_dot(float *c, const float *a, const float *b) {
  for (int m = 0; m < 16; m++) {
    for (int n = 0; n < 16; n++) {
      float even = 0.0f, odd = 0.0f;
      for (int k = 0; k < 16; k++) {
        even = tw_flush(fmaf(tw_tile_element(a, m, 2 * k), tw_tile_element(b, k, 2 * n), even));
        odd = tw_flush(fmaf(tw_tile_element(a, m, 2 * k + 1), tw_tile_element(b, k, 2 * n + 1), odd));
      }
      c[m * 16 + n] = tw_flush(tw_flush(c[m * 16 + n]) + tw_flush(even + odd));
    }
  }
}
#define TW_TILE_DOT(c, a, b) tw_tile_dot(tw_tile[c], tw_tile[a], tw_tile[b])
/* Signed bytes of a by unsigned ones of b, four at a time. */
static void tw_tile_dot_bytes(float *c, const float *a, const float *b) {
  const int8_t *rows = (const int8_t *)a;
  const uint8_t *columns = (const uint8_t *)b;
  for (int m = 0; m < 16; m++) {
    for (int n = 0; n < 16; n++) {
      int32_t sum;
      memcpy(&sum, c + m * 16 + n, 4);
      for (int k = 0; k < 64; k++) sum += rows[m * 64 + k] * columns[k / 4 * 64 + 4 * n + k % 4];
      memcpy(c + m * 16 + n, &sum, 4);
    }
  }
}
#define TW_TILE_DOT_BYTES(c, a, b) tw_tile_dot_bytes(tw_tile[c], tw_tile[a], tw_tile[b])
#elif defined(__AMX_TILE__)
#define TW_TILE_CONFIG(config) _tile_loadconfig(config)
#define TW_TILE_RELEASE() _tile_release()
#define TW_TILE_ZERO(t) _tile_zero(t)
#define TW_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
/* Lines that need not stay in the first-level cache. */
#define TW_TILE_STREAM(t, p, stride) _tile_stream_loadd(t, p, stride)
#define TW_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define TW_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#define TW_TILE_DOT_BYTES(c, a, b) _tile_dpbsud(c, a, b)
#else
/* Units without tiles contain nothing that runs these. */
#define TW_TILE_CONFIG(config) __builtin_trap()
#define TW_TILE_RELEASE() __builtin_trap()
#define TW_TILE_ZERO(t) __builtin_trap()
#define TW_TILE_LOAD(t, p, stride) (void)(p)
#define TW_TILE_STREAM(t, p, stride) (void)(p)
#define TW_TILE_STORE(t, p, stride) (void)(p)
#define TW_TILE_DOT(c, a, b) __builtin_trap()
#define TW_TILE_DOT_BYTES(c, a, b) __builtin_trap()
#endif
