/* layers.head_logprob: logprob, portable, mr 2, nr 16, kc 64, mb 64, nb 512. */
#include "lib/elementary.h"
#include "lib/amx.h"
#include "lib/gumbel.h"

#ifndef TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4
#define TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4
/*
 * c[2][16] (+)= a·b in order of k, one accumulator an element.
 * a[r·64 + k·1]; b: float[k·16 + panel·1024 + lane].
 * Every 16 k it fetches 2 lines from `far` (lines of rows `far_row` bytes apart) and 4 from `near`
 * into the second-level cache.
 */
static __attribute__((noinline)) void tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4(
    const float *a, const float *b, float *c, int64_t kn, int first,
    const char *far, int64_t far_row, const char *near) {
  tw_v c0_0, c1_0;
  if (first) {
    c0_0 = tw_set1(0.0f);
    c1_0 = tw_set1(0.0f);
  } else {
    c0_0 = tw_load(c + 0);
    c1_0 = tw_load(c + 512);
  }
  for (; kn >= 16; kn -= 16) {
    __builtin_prefetch(far + 0 * far_row, 0, 2);
    __builtin_prefetch(far + 1 * far_row, 0, 2);
    __builtin_prefetch(near + 0, 0, 2);
    __builtin_prefetch(near + 64, 0, 2);
    __builtin_prefetch(near + 128, 0, 2);
    __builtin_prefetch(near + 192, 0, 2);
    far += 64;
    near += 4 * 64;
#pragma GCC unroll 1
    for (int step = 0; step < 16; step += 4) {
      const tw_v b0_0 = tw_load(b + 0);
      const tw_v a0_0 = tw_set1(a[0]);
      c0_0 = tw_fma(a0_0, b0_0, c0_0);
      const tw_v a0_1 = tw_set1(a[64]);
      c1_0 = tw_fma(a0_1, b0_0, c1_0);
      const tw_v b1_0 = tw_load(b + 16);
      const tw_v a1_0 = tw_set1(a[1]);
      c0_0 = tw_fma(a1_0, b1_0, c0_0);
      const tw_v a1_1 = tw_set1(a[65]);
      c1_0 = tw_fma(a1_1, b1_0, c1_0);
      const tw_v b2_0 = tw_load(b + 32);
      const tw_v a2_0 = tw_set1(a[2]);
      c0_0 = tw_fma(a2_0, b2_0, c0_0);
      const tw_v a2_1 = tw_set1(a[66]);
      c1_0 = tw_fma(a2_1, b2_0, c1_0);
      const tw_v b3_0 = tw_load(b + 48);
      const tw_v a3_0 = tw_set1(a[3]);
      c0_0 = tw_fma(a3_0, b3_0, c0_0);
      const tw_v a3_1 = tw_set1(a[67]);
      c1_0 = tw_fma(a3_1, b3_0, c1_0);
      a += 4 * 1;
      b += 4 * 16;
    }
  }
  for (; kn > 0; kn--) {
    const tw_v b0 = tw_load(b + 0);
    const tw_v a0 = tw_set1(a[0]);
    c0_0 = tw_fma(a0, b0, c0_0);
    const tw_v a1 = tw_set1(a[64]);
    c1_0 = tw_fma(a1, b0, c1_0);
    a += 1;
    b += 16;
  }
  tw_store(c + 0, c0_0);
  tw_store(c + 512, c1_0);
}
#endif

#ifndef TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u1
#define TW_HAS_tw_portable_2x16_f32_a64_1_b16_1024_c512_u1
/*
 * c[2][16] (+)= a·b in order of k, one accumulator an element.
 * a[r·64 + k·1]; b: float[k·16 + panel·1024 + lane].
 */
static __attribute__((noinline)) void tw_portable_2x16_f32_a64_1_b16_1024_c512_u1(
    const float *a, const float *b, float *c, int64_t kn, int first) {
  tw_v c0_0, c1_0;
  if (first) {
    c0_0 = tw_set1(0.0f);
    c1_0 = tw_set1(0.0f);
  } else {
    c0_0 = tw_load(c + 0);
    c1_0 = tw_load(c + 512);
  }
    for (; kn >= 1; kn -= 1) {
      const tw_v b0_0 = tw_load(b + 0);
      const tw_v a0_0 = tw_set1(a[0]);
      c0_0 = tw_fma(a0_0, b0_0, c0_0);
      const tw_v a0_1 = tw_set1(a[64]);
      c1_0 = tw_fma(a0_1, b0_0, c1_0);
      a += 1 * 1;
      b += 1 * 16;
    }
  for (; kn > 0; kn--) {
    const tw_v b0 = tw_load(b + 0);
    const tw_v a0 = tw_set1(a[0]);
    c0_0 = tw_fma(a0, b0, c0_0);
    const tw_v a1 = tw_set1(a[64]);
    c1_0 = tw_fma(a1, b0, c1_0);
    a += 1;
    b += 16;
  }
  tw_store(c + 0, c0_0);
  tw_store(c + 512, c1_0);
}
#endif

/*
 * For each 256 columns: max z, Σ exp(z − max), first column of the max, z at the target. z = scale·acc, in place.
 */
static void k_logprob_0fdc246afe567546_d39c3da7_epilogue(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn) {
  const int32_t *target = (const int32_t *)launch->buffers[3];
  float *parts = (float *)launch->buffers[4];
  for (int64_t i = 0; i < mn; i++) {
    const int64_t row = m0 + i;
    float * const r0 = ((float *)launch->buffers[2]) + row * 32;
    float const r1 = tw_sum_of(r0, 4);
    float const r2 = r1 / 64.0f;
    float const r3 = 0.000009999999747378752f + r2;
    float const r4 = 1.0f / __builtin_sqrtf(r3);
    const tw_v scale = tw_set1(r4);
    for (int64_t b = 0; b < cn && c0 + b < 600; b += 256) {
      float *z = tile + i * 512 + b;
      const int64_t first = c0 + b;
      const int32_t n = 600 - first < 256 ? (int32_t)(600 - first) : 256;
      tw_carried top = tw_carry(tw_set1(-__builtin_inff())), at = tw_carry(tw_from_bits(tw_seti(0)));
      for (int32_t j = 0; j < n; j += 16) {
        tw_v x = tw_load(z + j) * scale;
        x = tw_select(tw_first(n - j), x, tw_set1(-__builtin_inff()));
        tw_store(z + j, x);
        const tw_m more = tw_lt(tw_value(top), x);
        top = tw_carry(tw_select(more, x, tw_value(top)));
        at = tw_carry(tw_select(more, tw_from_bits(tw_lane + tw_seti(j)), tw_value(at)));
      }
      const tw_place greatest = tw_greatest(tw_value(top), tw_bits(tw_value(at)));
      const float m = greatest.value;
      tw_carried sum = tw_carry(tw_set1(0.0f));
      for (int32_t j = 0; j < n; j += 16) sum = tw_carry(tw_value(sum) + tw_exp(tw_load(z + j) - tw_set1(m)));
      float *out = parts + row * 32 + first / 256 * 4;
      const int64_t t = target[row] - first;
      out[0] = m;
      out[1] = tw_sum(tw_value(sum));
      out[2] = (float)(first + greatest.at);
      out[3] = t >= 0 && t < n ? z[t] : -__builtin_inff();
    }
  }
}
/*
 * c[rows][columns] = a[rows, k]·w over the whole depth. Writes whole register tiles: up to 1 rows past
 * `rows`.
 * While it works on one panel of w the next one is fetched, and the rows of the next pass over k; at the end, those of
 * the work item that this worker is likely to take next.
 */
static void k_logprob_0fdc246afe567546_d39c3da7_block(
    const float *a, const float *w, float *c, int64_t rows, int64_t columns,
    const float *next_a, const float *next_w) {
  const int64_t calls = (rows + 2 - 1) / 2 * ((columns + 16 - 1) / 16);
  const int64_t far_rows = rows > calls ? 2 : 1;
  for (int64_t k0 = 0; k0 < 64; k0 += 64) {
    const int64_t kn = 64 - k0 < 64 ? 64 - k0 : 64;
    const int is_last = k0 + 64 >= 64;
    const float *far = is_last ? next_a : a + k0 + 64;
    const float *next = is_last ? next_w : w + (k0 + 64) * 16;
    const int64_t panel_bytes = kn * 16 * (int64_t)sizeof(*w);
    const int64_t depth = kn;
    const int64_t fetched = kn / 16 * 4 * 64;
    const float *b = w + k0 * 16;
    int64_t far_row = 0;
    int64_t j = 0;
    for (; j + 16 <= columns; j += 16) {
      const float *panel = b + j / 16 * 1024;
      float *to = c + j;
      const char *near = (const char *)(j + 16 < columns ? w + k0 * 16 + (j + 16) / 16 * 1024 : next);
      int64_t ahead = 0, i = 0;
      for (; i + 2 <= rows; i += 2) {
        tw_portable_2x16_f32_a64_1_b16_1024_c512_u4_p2_4(a + i * 64 + k0, panel, to + i * 512, depth, k0 == 0,
            (const char *)(far + far_row * 64), far_rows > 1 ? 64 * (int64_t)sizeof(*a) : 0,
            near + ahead % panel_bytes + ahead / panel_bytes * 1024 * (int64_t)sizeof(*w));
        if ((far_row += far_rows) >= rows) far_row = 0;
        if ((ahead += fetched) >= panel_bytes * 16 / 16) ahead = 0;
      }
      if (i < rows && i + 2 >= rows) tw_portable_2x16_f32_a64_1_b16_1024_c512_u1(a + i * 64 + k0,
          panel, to + i * 512, depth, k0 == 0);
    }
  }
}
void k_logprob_0fdc246afe567546_d39c3da7(const tw_launch *launch, int32_t worker, int32_t workers) {
  const int64_t rows = launch->extents[1];
  char *scratch = launch->scratch + worker * launch->scratch_bytes;
  float *tile = (float *)scratch;
  /* Blocks of equal height, so that the last one is no stub. */
  const int64_t blocks = (rows + 64 - 1) / 64;
  const int64_t height = blocks == 0 ? 0 : ((rows + blocks - 1) / blocks + 2 - 1) / 2 * 2;
  const int64_t down = height == 0 ? 0 : (rows + height - 1) / height;
  for (;;) {
    const int64_t item = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    const int64_t across = down == 0 ? 2 : item / down;
    if (across >= 2) break;
    const int64_t m0 = item % down * height;
    const int64_t mn = rows - m0 < height ? rows - m0 : height;
    {
      const int64_t n0 = (across - 0) * 512;
      const int64_t nn = 608 - n0 < 512 ? 608 - n0 : 512;
      const float *a = (const float *)launch->buffers[0];
      const float *w = (const float *)launch->buffers[1] + n0 / 16 * 1024;
      const int64_t next_m0 = (item + workers) % down * height;
      const float *next_w = next_m0 > m0 || n0 + 512 >= 608 ? w : w + 512 / 16 * 1024;
      k_logprob_0fdc246afe567546_d39c3da7_block(a + m0 * 64, w, tile, mn, nn, a + next_m0 * 64, next_w);
      k_logprob_0fdc246afe567546_d39c3da7_epilogue(launch, tile, m0, mn, n0 / 1,
          nn / 1);
    }
  }
}
