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

/*
 * Log-sum-exp of 256 vocabulary columns of 32 rows, from blocks of 32 columns, so that no tile shows in it.
 * For each
 * row and block of 32: max, Σ exp(z − max), first column of the max; and a row's z at its target.
 */
struct tw_parts { float top[32][8], sum[32][8]; int at[32][8];
  float target[32]; };

/* shared/writeParts.cu */

extern "C" __global__ void __launch_bounds__(256, 1) k_logprob_3dee4bc54a567a82_c8d5357d(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4) {
  extern __shared__ __align__(128) unsigned char tw_shared[];
  float *tile = (float *)tw_shared, *values = tile + 3136;
  tw_parts &parts = *(tw_parts *)(tile + 3168);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = R, m0 = (int)blockIdx.x * 32, c0 = (int)blockIdx.y * 256;
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
    if (lane == 0) parts.target[i] = -tw_inf();
  }
  for (int sub = 0; sub < 256; sub += 64) {
    const int n0 = c0 + sub;
    tw_tile((const bf16 *)p0 + (long long)m0 * 64, rows - m0, (const bf16 *)p1
        + (long long)n0 * 64, 608 - n0, tile);
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = n0 + item % 2 * 32;
      float const r0 = (values + i * 1)[0];
      const float z = first + lane < 600 ? tw_mul(r0, tile[i * 65 + first - n0 + lane]) :
    -tw_inf();
      if (first + lane == ((const int *)p3)[row]) parts.target[i] = z;
      float top = z;
      for (int w = 16; w > 0; w /= 2) top = tw_max(top, __shfl_xor_sync(0xffffffffu, top, w));
      int at = z == top ? lane : 32;
      for (int w = 16; w > 0; w /= 2) at = tw_least(at, __shfl_xor_sync(0xffffffffu, at, w));
      const float sum = tw_block_sum(z == -tw_inf() ? 0.0f : expf(z - top), 32);
      if (lane == 0) {
        const int b = (first - c0) / 32;
        parts.top[i][b] = top;
        parts.sum[i][b] = sum;
        parts.at[i][b] = first + at;
      }
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 32 && m0 + i < rows; i += 256) {
    tw_write_parts(parts, i, (float *)p4 + (long long)(m0 + i) * 32 + (int)blockIdx.y * 4);
  }
}

}  // namespace tw
