/* shared/blockSum.cu */

/* shared/simtTile.cu */

extern "C" __global__ void __launch_bounds__(256, 1) k_gemm_2d752c38f9effa62_c8d5357d(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7, void *__restrict__ p8, void *__restrict__ p9) {
  extern __shared__ __align__(128) unsigned char tw_shared[];
  float *tile = (float *)tw_shared, *values = tile + 3136;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = T, m0 = (int)blockIdx.x * 32, across = blockIdx.y;
  tw_await_previous();
  for (int i = warp; i < 32; i += 8) {
    const int row = m0 + i < rows ? m0 + i : rows - 1;
    {
      float * const y0 = ((float *)p2) + (long long)(row) * 32;
      float const y1 = tw_row_sum(y0, 4);
      float const y2 = y1 / 64.0f;
      float const y3 = tw_add(0.000009999999747378752f, y2);
      float const y4 = 1.0f / sqrtf(y3);
      if (threadIdx.x % 32 == 0) {
        (values + i * 1)[0] = y4;
      }
    }
  }
  if (across < 1) {
    const int n0 = (across - 0) * 64;
    tw_tile((const unsigned short *)p0 + (long long)m0 * 64, rows - m0,
        (const unsigned short *)p1 + (long long)n0 * 64, 64 - n0, tile);
    const int c0 = n0 / 1;
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = c0 + item % 2 * 32;
      const int column = first + lane;
      float const r0 = (values + i * 1)[0];
      float * const r1 = ((float *)p3) + (long long)(row) * 32;
      float * const r2 = ((float *)p4) + (long long)(row) * 32;
      unsigned short * const r3 = ((unsigned short *)p5) + (long long)(row) * 64;
      if (column < 64) {
        const int partner = column % 32 < 16 ? column + 16 : column - 16;
        const float v0 = tw_round_f20(tile[i * 65 + (column - c0) / 32 * 32 + (column - c0) % 16 / 8 * 16 + (column - c0) % 16 % 8 + (column - c0) % 32 / 16 * 8]);
        const float v1 = tw_mul(v0, r0);
        const float v2 = tw_load_f32(r1 + ((column) & 31));
        const float v3 = tw_mul(v1, v2);
        const float v4 = tw_round_f20(tile[i * 65 + (partner - c0) / 32 * 32 + (partner - c0) % 16 / 8 * 16 + (partner - c0) % 16 % 8 + (partner - c0) % 32 / 16 * 8]);
        const float v5 = tw_mul(v4, r0);
        const float v6 = (column % 32 < 16) ? -(v5) : v5;
        const float v7 = tw_load_f32(r2 + ((column) & 31));
        const float v8 = tw_mul(v6, v7);
        const float v9 = tw_add(v3, v8);
        tw_store_bf16(r3 + column, v9);
      }
    }
  }
  else if (across < 2) {
    const int n0 = (across - 1) * 64;
    tw_tile((const unsigned short *)p0 + (long long)m0 * 64, rows - m0,
        (const unsigned short *)p6 + (long long)n0 * 64, 32 - n0, tile);
    const int c0 = n0 / 1;
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = c0 + item % 2 * 32;
      const int column = first + lane;
      float const r0 = (values + i * 1)[0];
      float * const r1 = ((float *)p3) + (long long)(row) * 32;
      float * const r2 = ((float *)p4) + (long long)(row) * 32;
      unsigned short * const r3 = ((unsigned short *)p7) + (long long)(row) * 32;
      if (column < 32) {
        const int partner = column % 32 < 16 ? column + 16 : column - 16;
        const float v0 = tw_round_f20(tile[i * 65 + (column - c0) / 32 * 32 + (column - c0) % 16 / 8 * 16 + (column - c0) % 16 % 8 + (column - c0) % 32 / 16 * 8]);
        const float v1 = tw_mul(v0, r0);
        const float v2 = tw_load_f32(r1 + ((column) & 31));
        const float v3 = tw_mul(v1, v2);
        const float v4 = tw_round_f20(tile[i * 65 + (partner - c0) / 32 * 32 + (partner - c0) % 16 / 8 * 16 + (partner - c0) % 16 % 8 + (partner - c0) % 32 / 16 * 8]);
        const float v5 = tw_mul(v4, r0);
        const float v6 = (column % 32 < 16) ? -(v5) : v5;
        const float v7 = tw_load_f32(r2 + ((column) & 31));
        const float v8 = tw_mul(v6, v7);
        const float v9 = tw_add(v3, v8);
        tw_store_bf16(r3 + column, v9);
      }
    }
  }
  else {
    const int n0 = (across - 2) * 64;
    tw_tile((const unsigned short *)p0 + (long long)m0 * 64, rows - m0,
        (const unsigned short *)p8 + (long long)n0 * 64, 32 - n0, tile);
    const int c0 = n0 / 1;
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = c0 + item % 2 * 32;
      const int column = first + lane;
      float const r0 = (values + i * 1)[0];
      unsigned short * const r1 = ((unsigned short *)p9) + (long long)(row) * 32;
      if (column < 32) {
        const float v0 = tw_round_f20(tile[i * 65 + column - c0]);
        const float v1 = tw_mul(v0, r0);
        tw_store_bf16(r1 + column, v1);
      }
    }
  }
}
