/* layers.down: gemm, amx, mr 32, nr 32, kc 64, mb 64, nb 64. */
/* Buffers: 0 gated, 1 wd, 2 h, 3 h_2, 4 ssq */
#include "gemm/amx.h"
#include "lib/elementary.h"

#ifndef TW_HAS_tw_amx_32x32_a96_b1536_c64_p8
#define TW_HAS_tw_amx_32x32_a96_b1536_c64_p8
TW_FETCHING_AMX_TILE(tw_amx_32x32_a96_b1536_c64_p8,
  .rows = 32, .a_bytes = 192, .panel_bytes = 3072, .ldc = 64, .lines = 8)
#endif

#ifndef TW_HAS_tw_amx_16x32_a96_b1536_c64_p0
#define TW_HAS_tw_amx_16x32_a96_b1536_c64_p0
TW_AMX_TILE(tw_amx_16x32_a96_b1536_c64_p0,
  .rows = 16, .a_bytes = 192, .panel_bytes = 3072, .ldc = 64)
#endif

#ifndef TW_HAS_tw_amx_32x32_a96_b1536_c64_p0
#define TW_HAS_tw_amx_32x32_a96_b1536_c64_p0
TW_AMX_TILE(tw_amx_32x32_a96_b1536_c64_p0,
  .rows = 32, .a_bytes = 192, .panel_bytes = 3072, .ldc = 64)
#endif

static void k_gemm_316ec34aa423c48c_e5a81b1b_epilogue0(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn, float *lines) {
  (void)launch;
  (void)lines;
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
void k_gemm_316ec34aa423c48c_e5a81b1b(const tw_launch *launch, int32_t worker, int32_t workers) {
  static const GemmSegment segments[] = {
    {
      .weight = 1, .columns = 64, .block = 64, .matrices = 1, .epilogue = k_gemm_316ec34aa423c48c_e5a81b1b_epilogue0,
    },
  };
  const AmxGemmConfig config = {
    .items = { .rows = 1, .block_rows = 64, .tile_rows = 32, .segments = segments, .segment_count = 1 }, .lda = 96,
    .ldc = 64, .k = 96, .kc = 64, .panel_elements = 1536, .lines = 8,
    .tiles = { .fetching = tw_amx_32x32_a96_b1536_c64_p8, .half = tw_amx_16x32_a96_b1536_c64_p0, .whole = tw_amx_32x32_a96_b1536_c64_p0 },
    .lines_offset = 16384, .values_offset = 16384,
  };
  tw_gemm_amx(config, launch, worker, workers);
}
