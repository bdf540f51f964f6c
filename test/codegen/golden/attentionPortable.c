/* layers.attention: attention, portable, queries 32, keys 64. */
/* Buffers: 0 q, 1 k, 2 v, 3 subtreeEnd, 4 row_, 5 attended */
#include "attention/attention.h"

#ifndef TW_HAS_tw_portable_2x16_f32_a32_1_b16_512_c32_u4
#define TW_HAS_tw_portable_2x16_f32_a32_1_b16_512_c32_u4
TW_FMA_TILE(portable, tw_portable_2x16_f32_a32_1_b16_512_c32_u4,
  .rows = 2, .columns = 16, .row_stride = 32, .k_stride = 1, .element = TW_F32, .panel = 16, .panel_k = 16,
  .panel_stride = 512, .ldc = 32, .unroll = 4)
#endif

#ifndef TW_HAS_tw_portable_2x16_f32_a1_32_b32_16_c32_u4
#define TW_HAS_tw_portable_2x16_f32_a1_32_b32_16_c32_u4
TW_FMA_TILE(portable, tw_portable_2x16_f32_a1_32_b32_16_c32_u4,
  .rows = 2, .columns = 16, .row_stride = 1, .k_stride = 32, .element = TW_F32, .panel = 16, .panel_k = 32,
  .panel_stride = 16, .ldc = 32, .unroll = 4)
#endif

void k_attention_427d012ea5c82013_8c2171fa(const tw_launch *launch, int32_t worker, int32_t workers) {
  const AttentionConfig config = {
    .rows = 1, .heads = 2, .kv_heads = 1, .d = 32, .queries = 32, .keys = 64, .lanes = 32, .capacity = 128,
    .scale = 0.1767766922712326f, .k = 1, .v = 2, .out = 5, .q_stride = 64, .k_stride = 32, .v_stride = 32,
    .out_stride = 64, .q_type = TW_F32, .k_type = TW_F32, .out_type = TW_F32, .mask_kind = TW_TREE, .mask = 3,
    .mask_stride = 1, .has_query_row = 1, .query_row = 4, .score_rows = 2, .score_columns = 16, .value_rows = 2,
    .score = tw_portable_2x16_f32_a32_1_b16_512_c32_u4, .value16 = tw_portable_2x16_f32_a1_32_b32_16_c32_u4,
    .memory = { .end = 512, .token = 1024, .k = 1152, .v = 9344, .q = 17536, .o = 21632, .sum = 25728, .seen = 25856, .s = 25920 },
  };
  tw_attention(config, launch, worker, workers);
}
