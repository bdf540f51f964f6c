/* layers.gate_up: gemm, avx2, mr 2, nr 16, kc 64, mb 64, nb 64. */
/* Buffers: 0 h, 1 wgu, 2 ssq, 3 gated */
#include "gemm/floats.h"
#include "lib/elementary.h"

#ifndef TW_HAS_tw_avx2_2x16_f32_a64_1_b16_1024_c64_u4_p2_4
#define TW_HAS_tw_avx2_2x16_f32_a64_1_b16_1024_c64_u4_p2_4
TW_FETCHING_FMA_TILE(avx2, tw_avx2_2x16_f32_a64_1_b16_1024_c64_u4_p2_4,
  .rows = 2, .columns = 16, .row_stride = 64, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 1024, .ldc = 64, .unroll = 4, .far_lines = 2, .near_lines = 4)
#endif

#ifndef TW_HAS_tw_avx2_2x16_f32_a64_1_b16_1024_c64_u1
#define TW_HAS_tw_avx2_2x16_f32_a64_1_b16_1024_c64_u1
TW_FMA_TILE(avx2, tw_avx2_2x16_f32_a64_1_b16_1024_c64_u1,
  .rows = 2, .columns = 16, .row_stride = 64, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 1024, .ldc = 64, .unroll = 1)
#endif

static void k_gemm_cb44f954fc6f265d_f2f07d03_epilogue0(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn, float *lines) {
  (void)launch;
  (void)lines;
  for (int64_t i = 0; i < mn; i++) {
    const int64_t row = m0 + i;
    float * const r0 = tile + i * 64;
    float * const r1 = ((float *)launch->buffers[2]) + row * 32;
    float const r2 = tw_sum_of(r1, 4);
    float const r3 = r2 / 64.0f;
    float const r4 = 0.000009999999747378752f + r3;
    float const r5 = 1.0f / __builtin_sqrtf(r4);
    tw_v const r6 = tw_set1(r5);
    tw_v const r7 = tw_set1(1.0f);
    float * const r8 = ((float *)launch->buffers[3]) + row * 96;
    const int64_t whole = c0 + cn < 96 / 32 * 32 ? c0 + cn : 96 / 32 * 32;
    for (int64_t block = c0; block < whole; block += 32) {
      for (int64_t column = block; column < block + 32; column += 16) {
        const tw_v v0 = tw_load(r0 + 2 * (column - c0) + 0);
        const tw_v v1 = v0 * r6;
        const tw_v v2 = -v1;
        const tw_v v3 = tw_exp(v2);
        const tw_v v4 = r7 + v3;
        const tw_v v5 = v1 / v4;
        const tw_v v6 = tw_load(r0 + 2 * (column - c0) + 16);
        const tw_v v7 = v6 * r6;
        const tw_v v8 = v5 * v7;
        tw_store_f32(r8 + column, v8);
      }
    }
  }
}
void k_gemm_cb44f954fc6f265d_f2f07d03(const tw_launch *launch, int32_t worker, int32_t workers) {
  static const GemmSegment segments[] = {
    {
      .weight = 1, .columns = 192, .block = 64, .matrices = 2, .epilogue = k_gemm_cb44f954fc6f265d_f2f07d03_epilogue0,
    },
  };
  static const FmaTail tails16[] = {
    {
      .rows = 2, .tile = tw_avx2_2x16_f32_a64_1_b16_1024_c64_u1,
    },
  };
  static const FmaTiles widths[] = {
    {
      .columns = 16, .fetching = tw_avx2_2x16_f32_a64_1_b16_1024_c64_u4_p2_4, .tails = tails16, .tail_count = 1,
    },
  };
  const FloatsConfig config = {
    .items = { .rows = 1, .block_rows = 64, .tile_rows = 2, .segments = segments, .segment_count = 1 }, .lda = 64,
    .ldc = 64, .k = 64, .kc = 64, .element = TW_F32, .panel = 16, .panel_elements = 1024, .widths = widths,
    .width_count = 1, .near_lines = 4, .wide_offset = 16384, .lines_offset = 16384,
  };
  tw_gemm_floats(config, launch, worker, workers);
}
