#include "lib/legacy.cuh"

namespace tw {

/*
 * tile[32][64] = a[32, 64]·w[64, 64]ᵀ on CUDA cores, in order of k, into shared memory in rows of
 * 65 floats. Rows of a from `rows` on and rows of w from `columns` on are taken as zeros. Ends, not begins, with a
 * barrier.
 */
TW_FN void tw_tile(const bf16 *a, int rows, const bf16 *w, int columns, float *shared) {
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

extern "C" __global__ void __launch_bounds__(256, 1) k_gemm_2d752c38f9effa62_c8d5357d(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7, void *__restrict__ p8, void *__restrict__ p9) {
  extern __shared__ __align__(128) unsigned char tw_shared[];
  float *tile = (float *)tw_shared, *values = tile + 3136;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = T, m0 = (int)blockIdx.x * 32, across = blockIdx.y;
  tw_await_previous();
  for (int i = warp; i < 32; i += 8) {
    const int row = m0 + i < rows ? m0 + i : rows - 1;
    {
      f32 * const y0 = ((f32 *)p2) + (long long)(row) * 32;
      float const y1 = row_sum(y0, 4);
      float const y2 = y1 / 64.0f;
      float const y3 = add(0.000009999999747378752f, y2);
      float const y4 = 1.0f / sqrtf(y3);
      if (threadIdx.x % 32 == 0) {
        (values + i * 1)[0] = y4;
      }
    }
  }
  if (across < 1) {
    const int n0 = (across - 0) * 64;
    tw_tile((const bf16 *)p0 + (long long)m0 * 64, rows - m0,
        (const bf16 *)p1 + (long long)n0 * 64, 64 - n0, tile);
    const int c0 = n0 / 1;
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = c0 + item % 2 * 32;
      const int column = first + lane;
      float const r0 = (values + i * 1)[0];
      f32 * const r1 = ((f32 *)p3) + (long long)(row) * 32;
      f32 * const r2 = ((f32 *)p4) + (long long)(row) * 32;
      bf16 * const r3 = ((bf16 *)p5) + (long long)(row) * 64;
      if (column < 64) {
        const int partner = column % 32 < 16 ? column + 16 : column - 16;
        const float v0 = round_f20(tile[i * 65 + (column - c0) / 32 * 32 + (column - c0) % 16 / 8 * 16 + (column - c0) % 16 % 8 + (column - c0) % 32 / 16 * 8]);
        const float v1 = mul(v0, r0);
        const float v2 = load(r1 + ((column) & 31));
        const float v3 = mul(v1, v2);
        const float v4 = round_f20(tile[i * 65 + (partner - c0) / 32 * 32 + (partner - c0) % 16 / 8 * 16 + (partner - c0) % 16 % 8 + (partner - c0) % 32 / 16 * 8]);
        const float v5 = mul(v4, r0);
        const float v6 = (column % 32 < 16) ? -(v5) : v5;
        const float v7 = load(r2 + ((column) & 31));
        const float v8 = mul(v6, v7);
        const float v9 = add(v3, v8);
        store(r3 + column, v9);
      }
    }
  }
  else if (across < 2) {
    const int n0 = (across - 1) * 64;
    tw_tile((const bf16 *)p0 + (long long)m0 * 64, rows - m0,
        (const bf16 *)p6 + (long long)n0 * 64, 32 - n0, tile);
    const int c0 = n0 / 1;
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = c0 + item % 2 * 32;
      const int column = first + lane;
      float const r0 = (values + i * 1)[0];
      f32 * const r1 = ((f32 *)p3) + (long long)(row) * 32;
      f32 * const r2 = ((f32 *)p4) + (long long)(row) * 32;
      bf16 * const r3 = ((bf16 *)p7) + (long long)(row) * 32;
      if (column < 32) {
        const int partner = column % 32 < 16 ? column + 16 : column - 16;
        const float v0 = round_f20(tile[i * 65 + (column - c0) / 32 * 32 + (column - c0) % 16 / 8 * 16 + (column - c0) % 16 % 8 + (column - c0) % 32 / 16 * 8]);
        const float v1 = mul(v0, r0);
        const float v2 = load(r1 + ((column) & 31));
        const float v3 = mul(v1, v2);
        const float v4 = round_f20(tile[i * 65 + (partner - c0) / 32 * 32 + (partner - c0) % 16 / 8 * 16 + (partner - c0) % 16 % 8 + (partner - c0) % 32 / 16 * 8]);
        const float v5 = mul(v4, r0);
        const float v6 = (column % 32 < 16) ? -(v5) : v5;
        const float v7 = load(r2 + ((column) & 31));
        const float v8 = mul(v6, v7);
        const float v9 = add(v3, v8);
        store(r3 + column, v9);
      }
    }
  }
  else {
    const int n0 = (across - 2) * 64;
    tw_tile((const bf16 *)p0 + (long long)m0 * 64, rows - m0,
        (const bf16 *)p8 + (long long)n0 * 64, 32 - n0, tile);
    const int c0 = n0 / 1;
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = c0 + item % 2 * 32;
      const int column = first + lane;
      float const r0 = (values + i * 1)[0];
      bf16 * const r1 = ((bf16 *)p9) + (long long)(row) * 32;
      if (column < 32) {
        const float v0 = round_f20(tile[i * 65 + column - c0]);
        const float v1 = mul(v0, r0);
        store(r1 + column, v1);
      }
    }
  }
}

}  // namespace tw
