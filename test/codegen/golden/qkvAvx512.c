/* layers.qkv: gemm, avx512, mr 2, nr 32, kc 64, mb 64, nb 64. */
#include "lib/elementary.h"
#include "lib/amx.h"

#ifndef TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4
#define TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4
/*
 * c[2][32] (+)= a·b in order of k, one accumulator an element.
 * a[r·64 + k·1]; b: float[k·16 + panel·1024 + lane].
 * Every 16 k it fetches 2 lines from `far` (lines of rows `far_row` bytes apart) and 4 from `near`
 * into the second-level cache.
 */
static __attribute__((noinline)) void tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4(
    const float *a, const float *b, float *c, int64_t kn, int first,
    const char *far, int64_t far_row, const char *near) {
  __m512 c0_0, c0_1, c1_0, c1_1;
  if (first) {
    c0_0 = _mm512_setzero_ps();
    c0_1 = _mm512_setzero_ps();
    c1_0 = _mm512_setzero_ps();
    c1_1 = _mm512_setzero_ps();
  } else {
    c0_0 = _mm512_loadu_ps(c + 0);
    c0_1 = _mm512_loadu_ps(c + 16);
    c1_0 = _mm512_loadu_ps(c + 64);
    c1_1 = _mm512_loadu_ps(c + 80);
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
      const __m512 b0_0 = _mm512_loadu_ps(b + 0);
      const __m512 b0_1 = _mm512_loadu_ps(b + 1024);
      const __m512 a0_0 = _mm512_set1_ps(a[0]);
      c0_0 = _mm512_fmadd_ps(a0_0, b0_0, c0_0);
      c0_1 = _mm512_fmadd_ps(a0_0, b0_1, c0_1);
      const __m512 a0_1 = _mm512_set1_ps(a[64]);
      c1_0 = _mm512_fmadd_ps(a0_1, b0_0, c1_0);
      c1_1 = _mm512_fmadd_ps(a0_1, b0_1, c1_1);
      const __m512 b1_0 = _mm512_loadu_ps(b + 16);
      const __m512 b1_1 = _mm512_loadu_ps(b + 1040);
      const __m512 a1_0 = _mm512_set1_ps(a[1]);
      c0_0 = _mm512_fmadd_ps(a1_0, b1_0, c0_0);
      c0_1 = _mm512_fmadd_ps(a1_0, b1_1, c0_1);
      const __m512 a1_1 = _mm512_set1_ps(a[65]);
      c1_0 = _mm512_fmadd_ps(a1_1, b1_0, c1_0);
      c1_1 = _mm512_fmadd_ps(a1_1, b1_1, c1_1);
      const __m512 b2_0 = _mm512_loadu_ps(b + 32);
      const __m512 b2_1 = _mm512_loadu_ps(b + 1056);
      const __m512 a2_0 = _mm512_set1_ps(a[2]);
      c0_0 = _mm512_fmadd_ps(a2_0, b2_0, c0_0);
      c0_1 = _mm512_fmadd_ps(a2_0, b2_1, c0_1);
      const __m512 a2_1 = _mm512_set1_ps(a[66]);
      c1_0 = _mm512_fmadd_ps(a2_1, b2_0, c1_0);
      c1_1 = _mm512_fmadd_ps(a2_1, b2_1, c1_1);
      const __m512 b3_0 = _mm512_loadu_ps(b + 48);
      const __m512 b3_1 = _mm512_loadu_ps(b + 1072);
      const __m512 a3_0 = _mm512_set1_ps(a[3]);
      c0_0 = _mm512_fmadd_ps(a3_0, b3_0, c0_0);
      c0_1 = _mm512_fmadd_ps(a3_0, b3_1, c0_1);
      const __m512 a3_1 = _mm512_set1_ps(a[67]);
      c1_0 = _mm512_fmadd_ps(a3_1, b3_0, c1_0);
      c1_1 = _mm512_fmadd_ps(a3_1, b3_1, c1_1);
      a += 4 * 1;
      b += 4 * 16;
    }
  }
  for (; kn > 0; kn--) {
    const __m512 b0 = _mm512_loadu_ps(b + 0);
    const __m512 b1 = _mm512_loadu_ps(b + 1024);
    const __m512 a0 = _mm512_set1_ps(a[0]);
    c0_0 = _mm512_fmadd_ps(a0, b0, c0_0);
    c0_1 = _mm512_fmadd_ps(a0, b1, c0_1);
    const __m512 a1 = _mm512_set1_ps(a[64]);
    c1_0 = _mm512_fmadd_ps(a1, b0, c1_0);
    c1_1 = _mm512_fmadd_ps(a1, b1, c1_1);
    a += 1;
    b += 16;
  }
  _mm512_storeu_ps(c + 0, c0_0);
  _mm512_storeu_ps(c + 16, c0_1);
  _mm512_storeu_ps(c + 64, c1_0);
  _mm512_storeu_ps(c + 80, c1_1);
}
#endif

#ifndef TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1
#define TW_HAS_tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1
/*
 * c[2][32] (+)= a·b in order of k, one accumulator an element.
 * a[r·64 + k·1]; b: float[k·16 + panel·1024 + lane].
 */
static __attribute__((noinline)) void tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1(
    const float *a, const float *b, float *c, int64_t kn, int first) {
  __m512 c0_0, c0_1, c1_0, c1_1;
  if (first) {
    c0_0 = _mm512_setzero_ps();
    c0_1 = _mm512_setzero_ps();
    c1_0 = _mm512_setzero_ps();
    c1_1 = _mm512_setzero_ps();
  } else {
    c0_0 = _mm512_loadu_ps(c + 0);
    c0_1 = _mm512_loadu_ps(c + 16);
    c1_0 = _mm512_loadu_ps(c + 64);
    c1_1 = _mm512_loadu_ps(c + 80);
  }
    for (; kn >= 1; kn -= 1) {
      const __m512 b0_0 = _mm512_loadu_ps(b + 0);
      const __m512 b0_1 = _mm512_loadu_ps(b + 1024);
      const __m512 a0_0 = _mm512_set1_ps(a[0]);
      c0_0 = _mm512_fmadd_ps(a0_0, b0_0, c0_0);
      c0_1 = _mm512_fmadd_ps(a0_0, b0_1, c0_1);
      const __m512 a0_1 = _mm512_set1_ps(a[64]);
      c1_0 = _mm512_fmadd_ps(a0_1, b0_0, c1_0);
      c1_1 = _mm512_fmadd_ps(a0_1, b0_1, c1_1);
      a += 1 * 1;
      b += 1 * 16;
    }
  for (; kn > 0; kn--) {
    const __m512 b0 = _mm512_loadu_ps(b + 0);
    const __m512 b1 = _mm512_loadu_ps(b + 1024);
    const __m512 a0 = _mm512_set1_ps(a[0]);
    c0_0 = _mm512_fmadd_ps(a0, b0, c0_0);
    c0_1 = _mm512_fmadd_ps(a0, b1, c0_1);
    const __m512 a1 = _mm512_set1_ps(a[64]);
    c1_0 = _mm512_fmadd_ps(a1, b0, c1_0);
    c1_1 = _mm512_fmadd_ps(a1, b1, c1_1);
    a += 1;
    b += 16;
  }
  _mm512_storeu_ps(c + 0, c0_0);
  _mm512_storeu_ps(c + 16, c0_1);
  _mm512_storeu_ps(c + 64, c1_0);
  _mm512_storeu_ps(c + 80, c1_1);
}
#endif

static void k_gemm_74ee85b5612e7196_9ee3187a_epilogue0(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn) {
  (void)launch;
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
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn) {
  (void)launch;
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
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn) {
  (void)launch;
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
/*
 * c[rows][columns] = a[rows, k]·w over the whole depth. Writes whole register tiles: up to 1 rows past
 * `rows`.
 * While it works on one panel of w the next one is fetched, and the rows of the next pass over k; at the end, those of
 * the work item that this worker is likely to take next.
 */
static void k_gemm_74ee85b5612e7196_9ee3187a_block(
    const float *a, const float *w, float *c, int64_t rows, int64_t columns,
    const float *next_a, const float *next_w) {
  const int64_t calls = (rows + 2 - 1) / 2 * ((columns + 32 - 1) / 32);
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
    for (; j + 32 <= columns; j += 32) {
      const float *panel = b + j / 16 * 1024;
      float *to = c + j;
      const char *near = (const char *)(j + 32 < columns ? w + k0 * 16 + (j + 32) / 16 * 1024 : next);
      int64_t ahead = 0, i = 0;
      for (; i + 2 <= rows; i += 2) {
        tw_avx512_2x32_f32_a64_1_b16_1024_c64_u4_p2_4(a + i * 64 + k0, panel, to + i * 64, depth, k0 == 0,
            (const char *)(far + far_row * 64), far_rows > 1 ? 64 * (int64_t)sizeof(*a) : 0,
            near + ahead % panel_bytes + ahead / panel_bytes * 1024 * (int64_t)sizeof(*w));
        if ((far_row += far_rows) >= rows) far_row = 0;
        if ((ahead += fetched) >= panel_bytes * 32 / 16) ahead = 0;
      }
      if (i < rows && i + 2 >= rows) tw_avx512_2x32_f32_a64_1_b16_1024_c64_u1(a + i * 64 + k0,
          panel, to + i * 64, depth, k0 == 0);
    }
  }
}
void k_gemm_74ee85b5612e7196_9ee3187a(const tw_launch *launch, int32_t worker, int32_t workers) {
  const int64_t rows = launch->extents[0];
  char *scratch = launch->scratch + worker * launch->scratch_bytes;
  float *tile = (float *)scratch;
  /* Blocks of equal height, so that the last one is no stub. */
  const int64_t blocks = (rows + 64 - 1) / 64;
  const int64_t height = blocks == 0 ? 0 : ((rows + blocks - 1) / blocks + 2 - 1) / 2 * 2;
  const int64_t down = height == 0 ? 0 : (rows + height - 1) / height;
  for (;;) {
    const int64_t item = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED);
    const int64_t across = down == 0 ? 3 : item / down;
    if (across >= 3) break;
    const int64_t m0 = item % down * height;
    const int64_t mn = rows - m0 < height ? rows - m0 : height;
    if (across < 1) {
      const int64_t n0 = (across - 0) * 64;
      const int64_t nn = 64 - n0 < 64 ? 64 - n0 : 64;
      const float *a = (const float *)launch->buffers[0];
      const float *w = (const float *)launch->buffers[1] + n0 / 16 * 1024;
      const int64_t next_m0 = (item + workers) % down * height;
      const float *next_w = next_m0 > m0 || n0 + 64 >= 64 ? w : w + 64 / 16 * 1024;
      k_gemm_74ee85b5612e7196_9ee3187a_block(a + m0 * 64, w, tile, mn, nn, a + next_m0 * 64, next_w);
      k_gemm_74ee85b5612e7196_9ee3187a_epilogue0(launch, tile, m0, mn, n0 / 1,
          nn / 1);
    }
    else if (across < 2) {
      const int64_t n0 = (across - 1) * 32;
      const int64_t nn = 32 - n0 < 32 ? 32 - n0 : 32;
      const float *a = (const float *)launch->buffers[0];
      const float *w = (const float *)launch->buffers[6] + n0 / 16 * 1024;
      const int64_t next_m0 = (item + workers) % down * height;
      const float *next_w = next_m0 > m0 || n0 + 32 >= 32 ? w : w + 32 / 16 * 1024;
      k_gemm_74ee85b5612e7196_9ee3187a_block(a + m0 * 64, w, tile, mn, nn, a + next_m0 * 64, next_w);
      k_gemm_74ee85b5612e7196_9ee3187a_epilogue1(launch, tile, m0, mn, n0 / 1,
          nn / 1);
    }
    else {
      const int64_t n0 = (across - 2) * 32;
      const int64_t nn = 32 - n0 < 32 ? 32 - n0 : 32;
      const float *a = (const float *)launch->buffers[0];
      const float *w = (const float *)launch->buffers[8] + n0 / 16 * 1024;
      const int64_t next_m0 = (item + workers) % down * height;
      const float *next_w = next_m0 > m0 || n0 + 32 >= 32 ? w : w + 32 / 16 * 1024;
      k_gemm_74ee85b5612e7196_9ee3187a_block(a + m0 * 64, w, tile, mn, nn, a + next_m0 * 64, next_w);
      k_gemm_74ee85b5612e7196_9ee3187a_epilogue2(launch, tile, m0, mn, n0 / 1,
          nn / 1);
    }
  }
}
