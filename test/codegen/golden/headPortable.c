/* layers.head_logprob: logprob, portable, mr 2, nr 16, kc 64, mb 64, nb 512. */
/* Buffers: 0 h, 1 head, 2 ssq, 3 target, 4 parts */
#include "gemm/floats.h"
#include "lib/elementary.h"
#include "head/logProb.h"

#ifndef TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4
#define TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4
TW_FETCHING_FMA_TILE(portable, tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4,
  .rows = 2, .columns = 16, .row_stride = 64, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 1024, .ldc = 512, .unroll = 4, .far_lines = 2, .near_lines = 4)
#endif

#ifndef TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u1
#define TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u1
TW_FMA_TILE(portable, tw_portable_2x16_f32_a64_1_b16_1024_c512_u1,
  .rows = 2, .columns = 16, .row_stride = 64, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 1024, .ldc = 512, .unroll = 1)
#endif

static void k_logprob_0fdc246afe567546_d39c3da7_epilogue(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn, float *lines) {
  (void)launch;
  (void)lines;
  const HeadConfig config = {
    .vocab = 600, .block = 256, .target = 3, .parts = 4, .parts_stride = 32, .width = 4,
  };
  for (int64_t i = 0; i < mn; i++) {
    const int64_t row = m0 + i;
    float * const r0 = ((float *)launch->buffers[2]) + row * 32;
    float const r1 = tw_sum_of(r0, 4);
    float const r2 = r1 / 64.0f;
    float const r3 = 0.000009999999747378752f + r2;
    float const r4 = 1.0f / __builtin_sqrtf(r3);
    tw_head_row(config, launch, tile + i * 512, row, c0, cn, r4);
  }
}
void k_logprob_0fdc246afe567546_d39c3da7(const tw_launch *launch, int32_t worker, int32_t workers) {
  static const GemmSegment segments[] = {
    {
      .weight = 1, .columns = 608, .block = 512, .matrices = 1,
      .epilogue = k_logprob_0fdc246afe567546_d39c3da7_epilogue,
    },
  };
  static const FmaTail tails16[] = {
    {
      .rows = 2, .tile = tw_portable_2x16_f32_a64_1_b16_1024_c512_u1,
    },
  };
  static const FmaTiles widths[] = {
    {
      .columns = 16, .fetching = tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4, .tails = tails16, .tail_count = 1,
    },
  };
  const FloatsConfig config = {
    .items = { .rows = 1, .block_rows = 64, .tile_rows = 2, .segments = segments, .segment_count = 1 }, .lda = 64,
    .ldc = 512, .k = 64, .kc = 64, .element = TW_F32, .panel = 16, .panel_elements = 1024, .widths = widths,
    .width_count = 1, .near_lines = 4, .wide_offset = 131072, .lines_offset = 131072,
  };
  tw_gemm_floats(config, launch, worker, workers);
}
