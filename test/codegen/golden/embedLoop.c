/* layers.embed_tokens: loop, avx512, rows 8. */
/* Buffers: 0 tokens, 1 embed, 2 h, 3 ssq */
#include "lib/elementary.h"
#include "lib/rows.h"

static void k_loop_d5a7b74b56da3748_f616b558_rows(const tw_launch *launch, int64_t m0, int64_t mn) {
  for (int64_t i = 0; i < mn; i++) {
    const int64_t row = m0 + i;
    int64_t const r0 = ((int32_t *)launch->buffers[0])[row];
    uint16_t * const r1 = ((uint16_t *)launch->buffers[1]) + r0 * 64;
    float * const r2 = ((float *)launch->buffers[2]) + row * 64;
    float * const r3 = ((float *)launch->buffers[3]) + row * 32;
    const int64_t whole = 64 < 64 / 32 * 32 ? 64 : 64 / 32 * 32;
    for (int64_t block = 0; block < whole; block += 32) {
      for (int64_t column = block; column < block + 32; column += 16) {
        const tw_v v0 = tw_load_bf16(r1 + column);
        const tw_v v1 = v0 * v0;
        tw_store_f32(r2 + column, v0);
        r3[(column) / 16] = tw_sum(v1);
      }
    }
  }
}
void k_loop_d5a7b74b56da3748_f616b558(const tw_launch *launch, int32_t worker, int32_t workers) {
  (void)worker;
  (void)workers;
  for (RowBlock block; tw_next_rows(launch, launch->extents[0], 8, &block);)
    k_loop_d5a7b74b56da3748_f616b558_rows(launch, block.begin, block.end - block.begin);
}
