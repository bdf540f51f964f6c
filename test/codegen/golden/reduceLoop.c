/* layers.reduce: logprobReduce, avx512, rows 8. */
#include "lib/elementary.h"

void k_logprobreduce_d763150db50723a6_f616b558(const tw_launch *launch, int32_t worker, int32_t workers) {
  (void)worker;
  (void)workers;
  const int64_t rows = launch->extents[1];
  for (;;) {
    const int64_t begin = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED) * 8;
    if (begin >= rows) break;
    const int64_t end = begin + 8 < rows ? begin + 8 : rows;
    for (int64_t row = begin; row < end; row++) {
      const float *parts = (const float *)launch->buffers[0] + row * 32;
      const int32_t target = ((const int32_t *)launch->buffers[1])[row];
      float m = -__builtin_inff(), where = 0.0f;
      for (int b = 0; b < 3; b++) {
        if (parts[4 * b] > m) { m = parts[4 * b]; where = parts[4 * b + 2]; }
      }
      float sum = 0.0f;
      for (int b = 0; b < 3; b += 16) {
        float top[16], part[16];
        for (int l = 0; l < 16; l++) {
          const int has = b + l < 3;
          top[l] = has ? parts[4 * (b + l)] : -__builtin_inff();
          part[l] = has ? parts[4 * (b + l) + 1] : 0.0f;
        }
        const tw_v weight = tw_exp(tw_load(top) - tw_set1(m));
        float term[16];
        tw_store(term, weight * tw_load(part));
        for (int l = 0; l < 16; l++) if (b + l < 3) sum += term[l];
      }
      const float zt = target >= 0 && target < 600 ? parts[4 * (target / 256) + 3] : __builtin_nanf("");
      ((float *)launch->buffers[2])[row] = (float)((double)zt - ((double)m + log((double)sum)));
      ((int32_t *)launch->buffers[3])[row] = (float)target == where;
    }
  }
}
