/* layers.qkv: gemm, avx512, mr 2, nr 32, kc 64, mb 64, nb 64. */
/* Buffers: 0 h, 1 wq, 2 ssq, 3 cos, 4 sin, 5 q, 6 wk, 7 k, 8 wv, 9 v */
#include "gemm/floats.h"
#include "lib/elementary.h"

#ifndef TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4
#define TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4
TW_FETCHING_FMA_TILE(avx512, tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4,
  .rows = 2, .columns = 32, .row_stride = 64, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 1024, .ldc = 64, .unroll = 4, .far_lines = 2, .near_lines = 4)
#endif

#ifndef TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1
#define TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1
TW_FMA_TILE(avx512, tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1,
  .rows = 2, .columns = 32, .row_stride = 64, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 1024, .ldc = 64, .unroll = 1)
#endif

static void k_gemm_74ee85b5612e7196_9ee3187a_epilogue0(
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
    float * const r7 = ((float *)launch->buffers[3]) + row * 32;
    float * const r8 = ((float *)launch->buffers[4]) + row * 32;
    float * const r9 = ((float *)launch->buffers[5]) + row * 64;
    const int64_t end = c0 + cn < 64 ? c0 + cn : 64;
    for (int64_t head = c0; head < end; head += 32) {
      for (int64_t j = 0; j < 16; j += 16) {
        const tw_v v0 = tw_load(r0 + (head - c0 + 2 * j));
        const tw_v v1 = v0 * r6;
        const tw_v v2 = tw_load_f32(r7 + ((head + j)) % 32);
        const tw_v v3 = v1 * v2;
        const tw_v v4 = tw_load(r0 + (head - c0 + 2 * j) + 16);
        const tw_v v5 = v4 * r6;
        const tw_v v6 = -v5;
        const tw_v v7 = tw_load_f32(r8 + ((head + j)) % 32);
        const tw_v v8 = v6 * v7;
        const tw_v v9 = v3 + v8;
        tw_store_f32(r9 + (head + j), v9);
        const tw_v v10 = tw_load_f32(r7 + ((head + j + 16)) % 32);
        const tw_v v11 = v5 * v10;
        const tw_v v12 = tw_load_f32(r8 + ((head + j + 16)) % 32);
        const tw_v v13 = v1 * v12;
        const tw_v v14 = v11 + v13;
        tw_store_f32(r9 + (head + j + 16), v14);
      }
    }
  }
}
static void k_gemm_74ee85b5612e7196_9ee3187a_epilogue1(
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
    float * const r7 = ((float *)launch->buffers[3]) + row * 32;
    float * const r8 = ((float *)launch->buffers[4]) + row * 32;
    float * const r9 = ((float *)launch->buffers[7]) + row * 32;
    const int64_t end = c0 + cn < 32 ? c0 + cn : 32;
    for (int64_t head = c0; head < end; head += 32) {
      for (int64_t j = 0; j < 16; j += 16) {
        const tw_v v0 = tw_load(r0 + (head - c0 + 2 * j));
        const tw_v v1 = v0 * r6;
        const tw_v v2 = tw_load_f32(r7 + ((head + j)) % 32);
        const tw_v v3 = v1 * v2;
        const tw_v v4 = tw_load(r0 + (head - c0 + 2 * j) + 16);
        const tw_v v5 = v4 * r6;
        const tw_v v6 = -v5;
        const tw_v v7 = tw_load_f32(r8 + ((head + j)) % 32);
        const tw_v v8 = v6 * v7;
        const tw_v v9 = v3 + v8;
        tw_store_f32(r9 + (head + j), v9);
        const tw_v v10 = tw_load_f32(r7 + ((head + j + 16)) % 32);
        const tw_v v11 = v5 * v10;
        const tw_v v12 = tw_load_f32(r8 + ((head + j + 16)) % 32);
        const tw_v v13 = v1 * v12;
        const tw_v v14 = v11 + v13;
        tw_store_f32(r9 + (head + j + 16), v14);
      }
    }
  }
}
static void k_gemm_74ee85b5612e7196_9ee3187a_epilogue2(
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
    float * const r7 = ((float *)launch->buffers[9]) + row * 32;
    const int64_t whole = c0 + cn < 32 / 32 * 32 ? c0 + cn : 32 / 32 * 32;
    for (int64_t block = c0; block < whole; block += 32) {
      for (int64_t column = block; column < block + 32; column += 16) {
        const tw_v v0 = tw_load(r0 + column - c0);
        const tw_v v1 = v0 * r6;
        tw_store_f32(r7 + column, v1);
      }
    }
  }
}
void k_gemm_74ee85b5612e7196_9ee3187a(const tw_launch *launch, int32_t worker, int32_t workers) {
  static const GemmSegment segments[] = {
    {
      .weight = 1, .columns = 64, .block = 64, .matrices = 1, .epilogue = k_gemm_74ee85b5612e7196_9ee3187a_epilogue0,
    },
    {
      .weight = 6, .columns = 32, .block = 32, .matrices = 1, .epilogue = k_gemm_74ee85b5612e7196_9ee3187a_epilogue1,
    },
    {
      .weight = 8, .columns = 32, .block = 32, .matrices = 1, .epilogue = k_gemm_74ee85b5612e7196_9ee3187a_epilogue2,
    },
  };
  static const FmaTail tails32[] = {
    {
      .rows = 2, .tile = tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1,
    },
  };
  static const FmaTiles widths[] = {
    {
      .columns = 32, .fetching = tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4, .tails = tails32, .tail_count = 1,
    },
  };
  const FloatsConfig config = {
    .items = { .block_rows = 64, .tile_rows = 2, .segments = segments, .segment_count = 3 }, .lda = 64, .ldc = 64,
    .k = 64, .kc = 64, .element = TW_F32, .panel = 16, .panel_elements = 1024, .widths = widths, .width_count = 1,
    .near_lines = 4, .wide_offset = 16384, .lines_offset = 16384,
  };
  tw_gemm_floats(config, launch, worker, workers);
}
