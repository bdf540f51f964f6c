/* acc[i][j]: rows 16·i + lane / 4 and 8 below, columns 8·j + lane % 4 · 2 and its neighbour, of the warp's part. */
TW_FN void tw_tile(const unsigned short *a, int rows, const unsigned short *w, int columns, const void *shared,
    float (&acc)[2][4][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int i0 = warp % 2 * 32, j0 = warp / 2 * 32;
  const unsigned base = tw_shared_address(shared);
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
    }
  }
  for (int s = 0; s < 3 - 1; s++) {
    if (s < 2) tw_copy_stage(a, rows, w, columns, s * 32, base + s * 8192);
    tw_cp_async_commit();
  }
  int from = 0, into = 3 - 1;
  for (int step = 0; step < 2; step++) {
    tw_cp_async_wait<3 - 2>();
    /* This step's copies are here, and nobody reads the stage that the next copies go to. */
    __syncthreads();
    if (step + 3 - 1 < 2) tw_copy_stage(a, rows, w, columns, (step + 3 - 1) * 32,
        base + into * 8192);
    tw_cp_async_commit();
    const unsigned as = base + from * 8192, ws = as + 4096;
    into = into + 1 < 3 ? into + 1 : 0;
    from = from + 1 < 3 ? from + 1 : 0;
#pragma unroll
    for (int k = 0; k < 32 / 16; k++) {
      unsigned x[2][4], y[4 / 2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) tw_ldmatrix_x4(x[i], as + tw_chunk(i0 + 16 * i + lane % 16,
          2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < 4 / 2; j++) tw_ldmatrix_x4(y[j],
          ws + tw_chunk(j0 + 16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) tw_mma_bf16(acc[i][j], x[i], y[j / 2][j % 2 * 2],
            y[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  tw_cp_async_wait<0>();
  __syncthreads();
}
