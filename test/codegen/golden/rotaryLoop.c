/* layers.rotary: loop, avx512, rows 8. */
/* Buffers: 0 position, 1 frequency, 2 cos, 3 sin */
#include "lib/elementary.h"
#include "lib/rows.h"

static void k_loop_59e2f82fb4330bd0_f616b558_rows(const tw_launch *launch, int64_t m0, int64_t mn) {
  for (int64_t i = 0; i < mn; i++) {
    const int64_t row = m0 + i;
    int32_t * const r0 = ((int32_t *)launch->buffers[0]) + row * 1;
    float * const r1 = ((float *)launch->buffers[2]) + row * 32;
    float * const r2 = ((float *)launch->buffers[3]) + row * 32;
    const int64_t whole = 32 < 32 / 32 * 32 ? 32 : 32 / 32 * 32;
    for (int64_t block = 0; block < whole; block += 32) {
      for (int64_t column = block; column < block + 32; column += 16) {
        float v0l[16] = { 0 };
        for (int l_ = 0; l_ < 16; l_++) v0l[l_] = (float)tw_cos(((double)tw_s_load_i32(r0) * (double)tw_s_load_f32(((float *)launch->buffers[1]) + (column + l_))));
        const tw_v v0 = tw_load(v0l);
        float v1l[16] = { 0 };
        for (int l_ = 0; l_ < 16; l_++) v1l[l_] = (float)tw_sin(((double)tw_s_load_i32(r0) * (double)tw_s_load_f32(((float *)launch->buffers[1]) + (column + l_))));
        const tw_v v1 = tw_load(v1l);
        tw_store_f32(r1 + column, v0);
        tw_store_f32(r2 + column, v1);
      }
    }
  }
}
void k_loop_59e2f82fb4330bd0_f616b558(const tw_launch *launch, int32_t worker, int32_t workers) {
  (void)worker;
  (void)workers;
  for (RowBlock block; tw_next_rows(launch, launch->extents[0], 8, &block);)
    k_loop_59e2f82fb4330bd0_f616b558_rows(launch, block.begin, block.end - block.begin);
}
