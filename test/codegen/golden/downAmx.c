/* layers.down: gemm, amx, mr 32, nr 32, kc 64, mb 64, nb 64. */
#include "lib/elementary.h"
#include "lib/amx.h"

#ifndef TW_HAS_tw_amx_32x32_a96_b1536_c64_p8
#define TW_HAS_tw_amx_32x32_a96_b1536_c64_p8
/*
 * c[32][32] (+)= a·b: 2×2 tiles, in steps of 32 in order of k.
 * Every step fetches 8 lines from `near` into the second-level cache.
 */
static __attribute__((noinline)) void tw_amx_32x32_a96_b1536_c64_p8(
    const uint16_t *a, const uint16_t *b, float *c, int64_t steps, int first,
    const char *near) {
  if (first) {
    TW_TILE_ZERO(0);
    TW_TILE_ZERO(1);
    TW_TILE_ZERO(2);
    TW_TILE_ZERO(3);
  } else {
    TW_TILE_LOAD(0, c + 0, 256);
    TW_TILE_LOAD(1, c + 16, 256);
    TW_TILE_LOAD(2, c + 1024, 256);
    TW_TILE_LOAD(3, c + 1040, 256);
  }
  int64_t s = 0;
  for (; s < steps; s++) {
    TW_TILE_LOAD(6, b + 0, 64);
    __builtin_prefetch(near + 0, 0, 2);
    TW_TILE_LOAD(7, b + 1536, 64);
    __builtin_prefetch(near + 64, 0, 2);
    TW_TILE_STREAM(4, a + 0, 192);
    __builtin_prefetch(near + 128, 0, 2);
    TW_TILE_DOT(0, 4, 6);
    __builtin_prefetch(near + 192, 0, 2);
    TW_TILE_DOT(1, 4, 7);
    __builtin_prefetch(near + 256, 0, 2);
    TW_TILE_STREAM(5, a + 1536, 192);
    __builtin_prefetch(near + 320, 0, 2);
    TW_TILE_DOT(2, 5, 6);
    __builtin_prefetch(near + 384, 0, 2);
    TW_TILE_DOT(3, 5, 7);
    __builtin_prefetch(near + 448, 0, 2);
    a += 32;
    b += 512;
    near += 8 * 64;
  }
  TW_TILE_STORE(0, c + 0, 256);
  TW_TILE_STORE(1, c + 16, 256);
  TW_TILE_STORE(2, c + 1024, 256);
  TW_TILE_STORE(3, c + 1040, 256);
}
#endif

#ifndef TW_HAS_tw_amx_16x32_a96_b1536_c64_p0
#define TW_HAS_tw_amx_16x32_a96_b1536_c64_p0
/*
 * c[16][32] (+)= a·b: 1×2 tiles, in steps of 32 in order of k.
 */
static __attribute__((noinline)) void tw_amx_16x32_a96_b1536_c64_p0(
    const uint16_t *a, const uint16_t *b, float *c, int64_t steps, int first) {
  if (first) {
    TW_TILE_ZERO(0);
    TW_TILE_ZERO(1);
  } else {
    TW_TILE_LOAD(0, c + 0, 256);
    TW_TILE_LOAD(1, c + 16, 256);
  }
  int64_t s = 0;
  for (; s < steps; s++) {
    TW_TILE_LOAD(6, b + 0, 64);
    TW_TILE_LOAD(7, b + 1536, 64);
    TW_TILE_STREAM(4, a + 0, 192);
    TW_TILE_DOT(0, 4, 6);
    TW_TILE_DOT(1, 4, 7);
    a += 32;
    b += 512;
  }
  TW_TILE_STORE(0, c + 0, 256);
  TW_TILE_STORE(1, c + 16, 256);
}
#endif

#ifndef TW_HAS_tw_amx_32x32_a96_b1536_c64_p0
#define TW_HAS_tw_amx_32x32_a96_b1536_c64_p0
/*
 * c[32][32] (+)= a·b: 2×2 tiles, in steps of 32 in order of k.
 */
static __attribute__((noinline)) void tw_amx_32x32_a96_b1536_c64_p0(
    const uint16_t *a, const uint16_t *b, float *c, int64_t steps, int first) {
  if (first) {
    TW_TILE_ZERO(0);
    TW_TILE_ZERO(1);
    TW_TILE_ZERO(2);
    TW_TILE_ZERO(3);
  } else {
    TW_TILE_LOAD(0, c + 0, 256);
    TW_TILE_LOAD(1, c + 16, 256);
    TW_TILE_LOAD(2, c + 1024, 256);
    TW_TILE_LOAD(3, c + 1040, 256);
  }
  int64_t s = 0;
  for (; s < steps; s++) {
    TW_TILE_LOAD(6, b + 0, 64);
    TW_TILE_LOAD(7, b + 1536, 64);
    TW_TILE_STREAM(4, a + 0, 192);
    TW_TILE_DOT(0, 4, 6);
    TW_TILE_DOT(1, 4, 7);
    TW_TILE_STREAM(5, a + 1536, 192);
    TW_TILE_DOT(2, 5, 6);
    TW_TILE_DOT(3, 5, 7);
    a += 32;
    b += 512;
  }
  TW_TILE_STORE(0, c + 0, 256);
  TW_TILE_STORE(1, c + 16, 256);
  TW_TILE_STORE(2, c + 1024, 256);
  TW_TILE_STORE(3, c + 1040, 256);
}
#endif

static void k_gemm_316ec34aa423c48c_e5a81b1b_epilogue0(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn) {
  (void)launch;
  for (int64_t i = 0; i < mn; i++) {
    const int64_t row = m0 + i;
    float * const r0 = tile + i * 64;
    uint16_t * const r1 = ((uint16_t *)launch->buffers[2]) + row * 64;
    uint16_t * const r2 = ((uint16_t *)launch->buffers[3]) + row * 64;
    float * const r3 = ((float *)launch->buffers[4]) + row * 32;
    const int64_t whole = c0 + cn < 64 / 32 * 32 ? c0 + cn : 64 / 32 * 32;
    for (int64_t block = c0; block < whole; block += 32) {
      for (int64_t column = block; column < block + 32; column += 16) {
        const tw_v v0 = tw_load(r0 + column - c0);
        const tw_v v1 = tw_load_bf16(r1 + column);
        const tw_v v2 = v0 + v1;
        const tw_v v3 = v2 * v2;
        if ((column) % 32 == 0) __builtin_prefetch(r2 + 64 + column, 1);
        tw_store_bf16(r2 + column, v2);
        r3[(column) / 16] = tw_sum(v3);
      }
    }
  }
}
/*
 * c[rows][columns] = a[rows, k]·w over the whole depth. Writes whole register tiles: up to 31 rows past
 * `rows`.
 * While it works on one panel of w the next one is fetched; at the end, that of the next pass, or of the work item that
 * this worker is likely to take next.
 */
static void k_gemm_316ec34aa423c48c_e5a81b1b_block(
    const uint16_t *a, const uint16_t *w, float *c, int64_t rows, int64_t columns,
    const uint16_t *next_a, const uint16_t *next_w) {
  (void)next_a;
  for (int64_t k0 = 0; k0 < 96; k0 += 64) {
    const int64_t kn = 96 - k0 < 64 ? 96 - k0 : 64;
    const int is_last = k0 + 64 >= 96;
    const uint16_t *next = is_last ? next_w : w + (k0 + 64) * 16;
    const int64_t panel_bytes = kn * 16 * (int64_t)sizeof(*w);
    const int64_t depth = (kn + 31) / 32;
    const int64_t fetched = depth * 8 * 64;
    const uint16_t *b = w + k0 * 16;
    int64_t j = 0;
    for (; j + 32 <= columns; j += 32) {
      const uint16_t *panel = b + j / 16 * 1536;
      float *to = c + j;
      const char *near = (const char *)(j + 32 < columns ? w + k0 * 16 + (j + 32) / 16 * 1536 : next);
      int64_t ahead = 0, i = 0;
      for (; i + 32 <= rows; i += 32) {
        tw_amx_32x32_a96_b1536_c64_p8(a + i * 96 + k0, panel, to + i * 64, depth, k0 == 0,
            near + ahead % panel_bytes + ahead / panel_bytes * 1536 * (int64_t)sizeof(*w));
        if ((ahead += fetched) >= panel_bytes * 32 / 16) ahead = 0;
      }
      if (i < rows && i + 16 >= rows) tw_amx_16x32_a96_b1536_c64_p0(a + i * 96 + k0,
          panel, to + i * 64, depth, k0 == 0);
      else if (i < rows && i + 32 >= rows) tw_amx_32x32_a96_b1536_c64_p0(a + i * 96 + k0,
          panel, to + i * 64, depth, k0 == 0);
    }
  }
}
void k_gemm_316ec34aa423c48c_e5a81b1b(const tw_launch *launch, int32_t worker, int32_t workers) {
  const int64_t rows = launch->extents[1];
  char *scratch = launch->scratch + worker * launch->scratch_bytes;
  float *tile = (float *)scratch;
  /* Blocks of equal height, so that the last one is no stub. */
  const int64_t blocks = (rows + 64 - 1) / 64;
  const int64_t height = blocks == 0 ? 0 : ((rows + blocks - 1) / blocks + 32 - 1) / 32 * 32;
  const int64_t down = height == 0 ? 0 : (rows + height - 1) / height;
  TW_TILE_CONFIG(&tw_tiles);
  for (;;) {
    const int64_t item = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    const int64_t across = down == 0 ? 1 : item / down;
    if (across >= 1) break;
    const int64_t m0 = item % down * height;
    const int64_t mn = rows - m0 < height ? rows - m0 : height;
    {
      const int64_t n0 = (across - 0) * 64;
      const int64_t nn = 64 - n0 < 64 ? 64 - n0 : 64;
      const uint16_t *a = (const uint16_t *)launch->buffers[0];
      const uint16_t *w = (const uint16_t *)launch->buffers[1] + n0 / 16 * 1536;
      const int64_t next_m0 = (item + workers) % down * height;
      const uint16_t *next_w = next_m0 > m0 || n0 + 64 >= 64 ? w : w + 64 / 16 * 1536;
      k_gemm_316ec34aa423c48c_e5a81b1b_block(a + m0 * 96, w, tile, mn, nn, a + next_m0 * 96, next_w);
      k_gemm_316ec34aa423c48c_e5a81b1b_epilogue0(launch, tile, m0, mn, n0 / 1,
          nn / 1);
    }
  }
  TW_TILE_RELEASE();
}
