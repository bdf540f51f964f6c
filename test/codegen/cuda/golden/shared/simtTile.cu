/*
 * tile[32][64] = a[32, 64]·w[64, 64]ᵀ on CUDA cores, in order of k, into shared memory in rows of
 * 65 floats. Rows of a from `rows` on and rows of w from `columns` on are taken as zeros. Ends, not begins, with a
 * barrier.
 */
TW_FN void tw_tile(const unsigned short *a, int rows, const unsigned short *w, int columns, float *shared) {
  float *as = shared, *bs = shared + 32 * 33;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[2][4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;
  }
  for (int k0 = 0; k0 < 64; k0 += 32) {
    for (int i = threadIdx.x; i < 32 * 32; i += 256) {
      const int r = i / 32, c = i % 32;
      as[c * 33 + r] = r < rows && k0 + c < 64 ? tw_load_bf16(a + (long long)r * 64 + k0 + c)
          : 0.0f;
    }
    for (int i = threadIdx.x; i < 64 * 32; i += 256) {
      const int r = i / 32, c = i % 32;
      bs[c * 65 + r] = r < columns && k0 + c < 64 ? tw_load_bf16(w + (long long)r * 64 + k0 + c)
          : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < 32; c++) {
      float x[2], y[4];
#pragma unroll
      for (int i = 0; i < 2; i++) x[i] = as[c * 33 + ty + 16 * i];
#pragma unroll
      for (int j = 0; j < 4; j++) y[j] = bs[c * 65 + tx + 16 * j];
#pragma unroll
      for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) shared[(ty + 16 * i) * 65 + tx + 16 * j] = acc[i][j];
  }
  __syncthreads();
}
